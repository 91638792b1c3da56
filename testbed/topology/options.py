"""What the command line changes in a topology: ``--set``, ``--policy``, ``--seed``, ``--duration``.

Each change goes into the document before it is checked, under the option's name as its place.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from testbed.topology.places import Place, dotted

_PART = re.compile(r'(?P<bare>[A-Za-z0-9_-]+)|"(?P<quoted>[^"\n]*)"|\[(?P<index>\d{1,6})\]')
_WORD = re.compile(r"[A-Za-z./][\w./:-]*")


class OptionError(ValueError):
    """An option that cannot be read; the text says which and why."""


def apply_sets(document: dict[str, Any], sets: Sequence[str]) -> tuple[dict[Place, str], list[str]]:
    """Apply ``a.b[0].c=value`` in order, values as TOML (a bare word is text).

    Returns:
        The places that were set, and a line for each option that could not be applied.
    """
    places: dict[Place, str] = {}
    refused: list[str] = []
    for option in sets:
        try:
            key, value = _split(option)
            place = _put(document, _path(key), value)
        except OptionError as error:
            refused.append(f"--set {option}: {error}")
        else:
            places[place] = "--set"
    return places, refused


def apply_policies(
    document: dict[str, Any], policies: Sequence[str]
) -> tuple[dict[Place, str], list[str]]:
    """Apply ``site.mac=name`` or ``site.mac=module:Class``, in order."""
    places: dict[Place, str] = {}
    refused: list[str] = []
    for option in policies:
        key, equals, name = option.partition("=")
        try:
            if not equals or not name.strip():
                raise OptionError("needs the form site.mac=NAME or site.mac=module:Class")
            place = _put(document, ["policies", *_path(key)], name.strip())
        except OptionError as error:
            refused.append(f"--policy {option}: {error}")
        else:
            places[place] = "--policy"
    return places, refused


def apply_value(document: dict[str, Any], place: Place, value: object, option: str) -> list[str]:
    """Set one value for an option of its own; a line if it cannot be set."""
    try:
        _put(document, list(place), value)
    except OptionError as error:
        return [f"{option}: {error}"]
    return []


def _split(option: str) -> tuple[str, Any]:
    key, equals, text = option.partition("=")
    text = text.strip()
    if not equals or not text:
        raise OptionError("needs the form key.key=value")
    try:
        document = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        if _WORD.fullmatch(text):
            return key, text
        raise OptionError(f"{text} is not a TOML value (text needs quotes)") from None
    if list(document) != ["value"]:
        raise OptionError("needs exactly one value")
    return key, document["value"]


def _path(key: str) -> list[str | int]:
    parts: list[str | int] = []
    at, key = 0, key.strip()
    while at < len(key):
        if parts and key[at] == ".":
            at += 1
        elif parts and key[at] != "[":
            break
        match = _PART.match(key, at)
        if match is None:
            break
        if match["index"] is not None:
            parts.append(int(match["index"]))
        else:
            parts.append(match["bare"] if match["bare"] is not None else match["quoted"])
        at = match.end()
    if at != len(key) or not parts:
        raise OptionError(f"{key!r} is not a key such as sites.north.gnbs.g1.cells[0].ues")
    return parts


def _put(document: dict[str, Any], path: list[str | int], value: object) -> Place:
    node: Any = document
    place: Place = ()
    for position, part in enumerate(path):
        last = position == len(path) - 1
        if isinstance(node, list):
            index = int(part) if str(part).isdecimal() else -1
            if not 0 <= index < len(node):
                raise OptionError(f"{dotted(place)} has {len(node)} entries, from [0]; no {part!r}")
            part = index
        elif not isinstance(node, dict) or isinstance(part, int):
            raise OptionError(f"{dotted(place) or 'the topology'} has no entry {part!r}")
        place = (*place, part)
        if last:
            node[part] = value
        elif isinstance(node, dict):
            node = node.setdefault(part, {})
        else:
            node = node[part]
    return place
