"""From pydantic's errors to mistakes that a person can act on, and to a repaired document.

The repair lets the checks that need a whole topology look at the rest of a broken one, so that all
mistakes are seen at once. What was repaired is remembered: nothing is said about a made-up value.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from testbed.topology import guide
from testbed.topology.mistakes import Mistake, begins, did_you_mean, value_at
from testbed.topology.places import Place
from testbed.topology.schema import Topology

Document = dict[str, Any]
_MOST_ROUNDS = 4

_PROBLEMS: Mapping[str, str] = {
    "missing": "missing",
    "int_type": "not an integer",
    "int_from_float": "not an integer",
    "float_type": "not a number",
    "finite_number": "not a finite number",
    "string_type": "not text",
    "bool_type": "not true or false",
    "greater_than": "too small",
    "greater_than_equal": "too small",
    "less_than": "too large",
    "less_than_equal": "too large",
    "literal_error": "not allowed",
    "string_pattern_mismatch": "not of the allowed form",
    "string_too_short": "empty",
    "string_too_long": "too long",
    "too_short": "too few",
    "too_long": "too many",
    "model_type": "not a table",
    "model_attributes_type": "not a table",
    "dict_type": "not a table",
    "mapping_type": "not a table",
    "tuple_type": "not an array",
    "union_tag_not_found": "missing",
    "union_tag_invalid": "no such kind",
}


def parse(document: Document) -> tuple[Topology | None, list[Mistake], tuple[Place, ...]]:
    """Validate a document; of a broken one, validate as much as can be repaired.

    Returns:
        The topology (None if it is beyond repair), the mistakes, and the places repaired.
    """
    mistakes: list[Mistake] = []
    repaired: list[Place] = []
    current = document
    for _ in range(_MOST_ROUNDS):
        try:
            return Topology.model_validate(current), mistakes, tuple(repaired)
        except ValidationError as error:
            current = copy.deepcopy(current)
            for details in error.errors(include_url=False, include_context=True):
                bad_key = details["loc"][-1:] == ("[key]",)
                place = _place(details["loc"], current)
                if begins(place, repaired) or _is_echo(dict(details)):
                    continue
                mistakes.append(_mistake(place, dict(details), current, bad_key=bad_key))
                fixed = _repair(current, place, remove=bad_key or _is_extra(details["type"]))
                if fixed is None:
                    return None, mistakes, tuple(repaired)
                repaired.append(fixed)
    return None, mistakes, tuple(repaired)


def _is_extra(kind: str) -> bool:
    return kind == "extra_forbidden"


def _is_echo(details: Mapping[str, Any]) -> bool:
    """Whether an array is called too short only because pydantic left its bad items out."""
    value = details["input"]
    shortest = details.get("ctx", {}).get("min_length", 0)
    return details["type"] == "too_short" and isinstance(value, list) and len(value) >= shortest


def _place(loc: tuple[str | int, ...], document: Document) -> Place:
    """pydantic's location without the names of union branches and the mark of a bad key."""
    place: list[str | int] = []
    node: object = document
    tagged = False
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(node, Mapping):
            is_kind = not tagged and part == node.get("kind") and not last
            if is_kind or (part not in node and not last) or part == "[key]":
                tagged = True
                continue
            place.append(part)
            node, tagged = node.get(part), False
        elif isinstance(node, list | tuple) and isinstance(part, int):
            place.append(part)
            node = node[part] if part < len(node) else None
    return tuple(place)


def _mistake(
    place: Place, details: dict[str, Any], document: Document, *, bad_key: bool
) -> Mistake:
    kind: str = details["type"]
    if bad_key:
        return Mistake(place, "not a valid name", allowed="[a-z][a-z0-9_]{0,23}")
    if _is_extra(kind):
        known = guide.known_keys(place[:-1], document)
        near = did_you_mean(place[-1], known, key=True)
        return Mistake(place, "unknown key", near, ", ".join(known) or None)
    value = value_at(document, place)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        if not isinstance(value, Mapping):
            return Mistake(place, "not a table", allowed=guide.allowed_at(place, document))
        kinds = guide.kinds_at(place, document)
        allowed = ", ".join(f'"{name}"' for name in kinds)
        near = did_you_mean(value.get("kind"), kinds)
        return Mistake((*place, "kind"), _PROBLEMS[kind], near, allowed)
    problem = _PROBLEMS.get(kind, str(details["msg"]))
    words, numbers = _choices(guide.schema_at(place, document) or {})
    if numbers and _reads_as_number(value):
        problem = "text, not a number: leave the quotes off"
    near = did_you_mean(value, words) if kind == "literal_error" else None
    return Mistake(place, problem, near, guide.allowed_at(place, document))


def _choices(schema: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The words that may stand at a place, and whether a number may."""
    words: list[str] = []
    numbers = False
    for option in (schema, *schema.get("oneOf", ()), *schema.get("anyOf", ())):
        values = [*option.get("enum", ()), option.get("const")]
        words += [value for value in values if isinstance(value, str)]
        numbers |= option.get("type") in ("integer", "number")
    return words, numbers


def _reads_as_number(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value.replace("_", ""))
    except ValueError:
        return False
    return True


def _repair(document: Document, place: Place, *, remove: bool) -> Place | None:
    """Put something harmless at ``place`` or around it; returns where, None if nothing helps."""
    while place:
        parent = value_at(document, place[:-1])
        if not isinstance(parent, dict):
            place = place[:-1]
            continue
        if remove or not guide.is_required(place, document):
            parent.pop(place[-1], None)
            return place
        if examples := (guide.schema_at(place, document) or {}).get("examples"):
            parent[str(place[-1])] = copy.deepcopy(examples[0])
            return place
        place = place[:-1]
    return None
