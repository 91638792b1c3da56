"""Where each key of a TOML text stands: its path of keys and indices -> its line.

tomllib checks the text first; this scanner only has to follow valid TOML. Keys inside arrays and
inline tables have no line of their own: their nearest ancestor's is used.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

Place = tuple[str | int, ...]
"""Keys and array indices from the root of a document."""

_BLANK = re.compile(r"[ \t\r\n]*(?:#[^\n]*[ \t\r\n]*)*")
_KEY_PART = re.compile(
    r"""[ \t]*(?:(?P<bare>[A-Za-z0-9_-]+)|(?P<basic>"(?:[^"\\\n]|\\.)*")"""
    r"""|'(?P<literal>[^'\n]*)')[ \t]*"""
)
_VALUE_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[{]|[\]}]"
    r"|\n"
    r"|[^\"'#\[\]{}\n]+",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def line_numbers(text: str) -> dict[Place, int]:
    """Line (from 1) of every table header and key of a valid TOML text."""
    scanner = _Scanner(text)
    scanner.run()
    return scanner.lines


def nearest_line(lines: Mapping[Place, int], place: Place) -> int | None:
    """Line of ``place`` or of its nearest ancestor that has one."""
    for length in range(len(place), 0, -1):
        if place[:length] in lines:
            return lines[place[:length]]
    return None


def dotted(place: Place) -> str:
    """A place as a person writes it: ``sites.north.gnbs.g1.cells[0].ues``."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + quoted_key(part)
    return text


def quoted_key(key: str) -> str:
    """A key as TOML needs it: bare if possible."""
    return key if _BARE.fullmatch(key) else quoted(key)


def quoted(text: str) -> str:
    """A TOML basic string."""
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char < " " or char == "\x7f":
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


@dataclass(slots=True)
class _Scanner:
    text: str
    at: int = 0
    table: Place = ()
    lines: dict[Place, int] = field(default_factory=dict)
    arrays: dict[Place, int] = field(default_factory=dict)
    """Array of tables -> index of its last element."""
    _seen: int = 0
    _line: int = 1

    def run(self) -> None:
        while True:
            match = _BLANK.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at >= len(self.text):
                return
            line = self._line_at(self.at)
            if self.text.startswith("[[", self.at):
                self._header(2, line)
            elif self.text.startswith("[", self.at):
                self._header(1, line)
            else:
                self._note((*self.table, *self._keys()), line)
                self.at += 1  # the equals sign
                self._skip_value()

    def _line_at(self, position: int) -> int:
        self._line += self.text.count("\n", self._seen, position)
        self._seen = position
        return self._line

    def _header(self, brackets: int, line: int) -> None:
        self.at += brackets
        keys = self._keys()
        self.at += brackets
        parent = self._resolved(keys[:-1])
        place: Place = (*parent, keys[-1])
        if brackets == 2:
            index = self.arrays.get(place, -1) + 1
            self.arrays[place] = index
            self._note(place, line)
            place = (*place, index)
        elif place in self.arrays:
            place = (*place, self.arrays[place])
        self.table = place
        self._note(place, line)

    def _resolved(self, keys: tuple[str, ...]) -> Place:
        place: Place = ()
        for key in keys:
            place = (*place, key)
            if place in self.arrays:
                place = (*place, self.arrays[place])
        return place

    def _keys(self) -> tuple[str, ...]:
        keys: list[str] = []
        while match := _KEY_PART.match(self.text, self.at):
            self.at = match.end()
            if match["basic"] is not None:
                keys.append(str(tomllib.loads(f"k = {match['basic']}")["k"]))
            else:
                keys.append(match["bare"] if match["bare"] is not None else match["literal"])
            if not self.text.startswith(".", self.at):
                break
            self.at += 1
        return tuple(keys)

    def _skip_value(self) -> None:
        depth = 0
        while match := _VALUE_PIECE.match(self.text, self.at):
            self.at = match.end()
            piece = match[0]
            if piece in "[{":
                depth += 1
            elif piece in "]}":
                depth -= 1
            elif piece == "\n" and depth == 0:
                return

    def _note(self, place: Place, line: int) -> None:
        for length in range(1, len(place) + 1):
            self.lines.setdefault(place[:length], line)
