"""One mistake in a topology, and how it reads: place, value, what is wrong, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.topology.places import Place, dotted, nearest_line, quoted, quoted_key

_LONGEST_VALUE = 60
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong at one place.

    Attributes:
        place: keys and indices from the root.
        problem: what is wrong, without the key and its value.
        suggestion: what was probably meant.
        allowed: what may stand there.
        depends: other places that the verdict rests on; if one of them, or a table around it, is
            itself mistaken, the verdict is withheld.
    """

    place: Place
    problem: str
    suggestion: str | None = None
    allowed: str | None = None
    depends: tuple[Place, ...] = ()

    def text(self, value: object = _MISSING) -> str:
        """``key = value: problem; did you mean X? (allowed: ...)``."""
        shown = "" if value is _MISSING else _shown(value)
        head = dotted(self.place) + (f" = {shown}" if shown else "")
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        allowed = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{head + ': ' if head else ''}{self.problem}{hint}{allowed}"

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a document came from: file, lines, and the command line's share in it."""

    name: str
    lines: Mapping[Place, int] = field(default_factory=dict)
    overrides: Mapping[Place, str] = field(default_factory=dict)
    """Place -> the option that set it, such as ``--set``."""

    def render(self, mistakes: Iterable[Mistake], document: Mapping[str, Any]) -> list[str]:
        """One line per mistake, in the order of the file; the command line's come last."""
        rows = []
        for mistake in mistakes:
            option = self._option(mistake.place)
            line = nearest_line(self.lines, mistake.place) or 0
            where = option or (f"{self.name}:{line}" if line else self.name)
            text = f"{where}: {mistake.text(value_at(document, mistake.place))}"
            rows.append((option is not None, line, text))
        return list(dict.fromkeys(text for _, _, text in sorted(rows, key=lambda row: row[:2])))

    def _option(self, place: Place) -> str | None:
        for length in range(len(place), 0, -1):
            if place[:length] in self.overrides:
                return self.overrides[place[:length]]
        if place not in self.lines:  # a table that only an option has brought in
            return next(
                (name for key, name in self.overrides.items() if begins(key, [place])), None
            )
        return None


def value_at(document: object, place: Place) -> object:
    """The value at a place; a marker that ``Mistake.text`` leaves out if there is none."""
    node = document
    for part in place:
        match node:
            case Mapping() if part in node:
                node = node[part]
            case list() | tuple() if isinstance(part, int) and part < len(node):
                node = node[part]
            case _:
                return _MISSING
    return node


def did_you_mean(value: object, known: Sequence[str], *, key: bool = False) -> str | None:
    """The known name nearest to a mistyped one, as it would be written; None if none is near."""
    if not isinstance(value, str):
        return None
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(value.lower().replace("-", "_"), list(lowered), 1, 0.6)
    near = near or difflib.get_close_matches(value.lower(), list(lowered), 1, 0.6)
    if not near:
        return None
    name = lowered[near[0]]
    return quoted_key(name) if key else quoted(name)


def begins(place: Place, tables: Iterable[Place]) -> bool:
    """Whether ``place`` is one of ``tables`` or lies within one."""
    return any(place[: len(table)] == table for table in tables)


def _shown(value: object) -> str:
    """A value as TOML writes it, shortened; empty for tables."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = quoted(value)
    elif isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)
    ):
        return ""
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(_shown(item) for item in value) + "]"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
