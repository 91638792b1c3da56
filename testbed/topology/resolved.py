"""A topology back as TOML: every value spelled out, so that a run directory explains itself.

Writes exactly the types of the schema (the standard library reads TOML and does not write it).
Nothing of the machine goes in: paths stay as the topology has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from testbed.topology.base import Section
from testbed.topology.places import Place, quoted, quoted_key
from testbed.topology.schema import Topology

Comment = Callable[[Section, str, Place], list[str]]
"""(section, key, place of the key) -> comment lines to stand above it."""


def dump_toml(topology: Topology) -> str:
    """TOML that loads to an equal topology; keys in the order of the schema."""
    return "\n".join(section_lines(topology)).lstrip("\n") + "\n"


def section_lines(
    section: Section, place: Place = (), header: str = "", comment: Comment | None = None
) -> Iterator[str]:
    """Lines of one table and of all that is in it.

    Args:
        section: the table.
        place: where it stands, indices included.
        header: its header line, empty for the root.
        comment: gives the comment lines of each key; None for none.
    """
    values, tables = [], []
    for key in type(section).model_fields:
        value = getattr(section, key)
        if _is_table(value):
            tables.append((key, value))
            continue
        if comment is not None and value != ():
            values += comment(section, key, (*place, key))
        if value is not None and value != ():
            values.append(f"{key} = {toml_value(value)}")
    if header and (values or not tables):
        yield ""
        yield header
    yield from values
    for key, value in tables:
        yield from _table_lines(value, (*place, key), comment)


def toml_value(value: object) -> str:
    """A scalar, or an array of scalars and arrays, as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    raise TypeError(f"no TOML for {type(value).__name__}")


def _table_lines(value: object, place: Place, comment: Comment | None) -> Iterator[str]:
    if isinstance(value, Section):
        if not _says_nothing(value):
            yield from section_lines(value, place, _header(place, "[", "]"), comment)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from section_lines(
                item, (*place, name), _header((*place, name), "[", "]"), comment
            )
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from section_lines(item, (*place, index), _header(place, "[[", "]]"), comment)


def _is_table(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and isinstance(value[0], Section)
    return isinstance(value, Section | Mapping)


def _says_nothing(section: Section) -> bool:
    """Whether a table would come out empty: only keys without a value, at any depth."""
    values = [getattr(section, key) for key in type(section).model_fields]
    return all(
        _says_nothing(value) if isinstance(value, Section) else value is None or value == ()
        for value in values
    )


def _header(place: Place, opening: str, closing: str) -> str:
    keys = [quoted_key(part) for part in place if isinstance(part, str)]
    return f"{opening}{'.'.join(keys)}{closing}"
