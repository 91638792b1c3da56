"""What may stand at each place of a topology, in words: read from the schema itself.

Used where something is wrong (and by ``init``), so nothing here runs for a good file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from testbed.topology.places import Place, quoted
from testbed.topology.schema import Topology

JsonSchema = dict[str, Any]
_MOST_KEYS = 16


@lru_cache(maxsize=1)
def _root() -> JsonSchema:
    return Topology.model_json_schema()


def schema_at(place: Place, document: object) -> JsonSchema | None:
    """The JSON schema of a place; ``document`` decides between kinds of a table."""
    schema, node = _resolved(_root(), document), document
    for part in place:
        child = _child(schema, part)
        if child is None:
            return None
        node = _value(node, part)
        schema = _resolved(child, node)
    return schema


def known_keys(place: Place, document: object) -> list[str]:
    """The keys that the table at ``place`` may have."""
    return list((schema_at(place, document) or {}).get("properties", {}))


def is_required(place: Place, document: object) -> bool:
    """Whether the table around ``place`` cannot do without its last key."""
    return place[-1] in (schema_at(place[:-1], document) or {}).get("required", ())


def kinds_at(place: Place, document: object) -> list[str]:
    """The values of ``kind`` that the table at ``place`` may have."""
    schema = schema_at(place, document) or {}
    return list(schema.get("discriminator", {}).get("mapping", {}))


def allowed_at(place: Place, document: object) -> str | None:
    """What may stand at a place, in words."""
    schema = schema_at(place, document)
    return None if schema is None else in_words(schema)


def in_words(schema: JsonSchema) -> str | None:
    """A JSON schema in words; None for one that says nothing a person needs."""
    schema = _dereferenced(schema)
    if alternatives := schema.get("oneOf") or schema.get("anyOf"):
        mapping = schema.get("discriminator", {}).get("mapping")
        if mapping:
            return "a table with kind = " + " or ".join(quoted(kind) for kind in mapping)
        words = [in_words(option) for option in alternatives if option.get("type") != "null"]
        return " or ".join(word for word in words if word) or None
    if "const" in schema:
        return _literal(schema["const"])
    if "enum" in schema:
        return ", ".join(_literal(value) for value in schema["enum"])
    return _typed_in_words(schema)


def _typed_in_words(schema: JsonSchema) -> str | None:
    match schema.get("type"):
        case "integer":
            return f"an integer{_range(schema)}"
        case "number":
            return f"a number{_range(schema)}"
        case "boolean":
            return "true or false"
        case "string":
            return f"text like {schema['pattern'].strip('^$')}" if "pattern" in schema else "text"
        case "array":
            items = in_words(schema.get("items", {}))
            return f"an array, each {items}" if items else "an array"
        case "object" if properties := schema.get("properties"):
            keys = list(properties)
            more = ", ..." if len(keys) > _MOST_KEYS else ""
            return f"a table with the keys {', '.join(keys[:_MOST_KEYS])}{more}"
        case "object":
            return "a table of named tables"
        case _:
            return None


def _range(schema: JsonSchema) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    parts = []
    if low is not None:
        parts.append(f"of at least {_number(low)}")
    if above is not None:
        parts.append(f"above {_number(above)}")
    if high is not None:
        parts.append(f"of at most {_number(high)}" if above is None else f"up to {_number(high)}")
    if below is not None:
        parts.append(f"below {_number(below)}")
    return " " + " and ".join(parts) if parts else ""


def _number(value: float) -> str:
    return f"{value:_}" if isinstance(value, int) else f"{value:g}"


def _literal(value: object) -> str:
    return quoted(value) if isinstance(value, str) else str(value)


def _dereferenced(schema: JsonSchema) -> JsonSchema:
    """Follow references, and leave out that a value may be absent."""
    while True:
        given = [o for o in schema.get("anyOf", ()) if o.get("type") != "null"]
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[-1]
            schema = _root()["$defs"][name] | {k: v for k, v in schema.items() if k != "$ref"}
        elif len(given) == 1:
            schema = given[0] | {k: v for k, v in schema.items() if k != "anyOf"}
        else:
            return schema


def _resolved(schema: JsonSchema, node: object) -> JsonSchema:
    """Follow references, and choose the alternative that ``node`` is meant to be."""
    schema = _dereferenced(schema)
    mapping = schema.get("discriminator", {}).get("mapping")
    kind = node.get("kind") if isinstance(node, Mapping) else None
    if mapping and isinstance(kind, str) and kind in mapping:
        return _dereferenced({"$ref": mapping[kind]})
    if not mapping and isinstance(node, Mapping):
        for option in schema.get("oneOf") or schema.get("anyOf") or ():
            option = _dereferenced(option)
            if option.get("type") == "object":
                return option
    return schema


def _child(schema: JsonSchema, part: str | int) -> JsonSchema | None:
    if isinstance(part, int):
        items = schema.get("items")
        if isinstance(items, dict):
            return items
        prefix = schema.get("prefixItems", ())
        return prefix[part] if part < len(prefix) else None
    if part in schema.get("properties", {}):
        child: JsonSchema = schema["properties"][part]
        return child
    for named in (
        *schema.get("patternProperties", {}).values(),
        schema.get("additionalProperties"),
    ):
        if isinstance(named, dict):
            return named
    return None


def _value(node: object, part: str | int) -> object:
    if isinstance(node, Mapping):
        return node.get(part)
    if isinstance(node, list | tuple) and isinstance(part, int) and part < len(node):
        return node[part]
    return None
