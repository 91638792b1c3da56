"""What the protocol's documents and tests both need: sources, codes, strategies for messages."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from protocols import fields
from protocols.codec import field_kinds
from protocols.messages import Message

ROOT = Path(__file__).parents[3]
SPECIFICATION = ROOT / "protocols" / "PROTOCOL.md"


def refusal_codes(*packages: str) -> dict[str, list[str]]:
    """Code -> places of every ProtocolError, or counted refusal, in the packages' sources."""
    found: dict[str, list[str]] = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                code = _code(node)
                if code is not None:
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"  # type: ignore[attr-defined]
                    found.setdefault(code, []).append(place)
    return found


def _code(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = ast.unparse(node.func).rpartition(".")[2]
    first = node.args[0]
    named = name in ("ProtocolError", "reject") or ast.unparse(node.func) == "super().__init__"
    if named and len(node.args) == 2 and isinstance(first, ast.Constant):
        return str(first.value)
    return None


def values(kind: fields.FieldKind) -> st.SearchStrategy[Any]:
    """Values that a field of that kind may hold, small ones and those at its edges."""
    match kind:
        case fields.Int(low=low, high=high):
            return st.one_of(st.integers(low, high), st.sampled_from([low, high]))
        case fields.Flag():
            return st.booleans()
        case fields.Text(longest=longest):
            edge = st.just("x" * min(longest, 2000))
            return st.one_of(st.text(max_size=min(longest, 50)), edge)
        case fields.Ints(low=low, high=high, longest=longest):
            items = st.lists(st.integers(low, high), max_size=min(longest, 8))
            return items.map(tuple)
        case fields.Texts(most=most, longest=longest):
            items = st.lists(st.text(max_size=min(longest, 12)), max_size=min(most, 5))
            return items.map(tuple)
        case fields.Rows(width=width, most=most, low=low, high=high):
            row = st.tuples(*[st.integers(low, high)] * width)
            return st.lists(row, max_size=min(most, 4)).map(tuple)
        case fields.Array(dtype=dtype, columns=columns):
            lengths = st.integers(0, 5)
            shape = lengths.map(lambda n: (n, columns) if columns else (n,))
            return hnp.arrays(np.dtype(dtype), shape)
        case fields.Columns():
            return st.integers(0, 4).flatmap(_columns)
    raise NotImplementedError(f"no strategy for {kind}: add one when a kind of field is added")


def _columns(length: int) -> st.SearchStrategy[dict[str, np.ndarray]]:
    column = st.sampled_from(["<i8", "<f8"]).flatmap(lambda dtype: hnp.arrays(dtype, length))
    return st.dictionaries(st.text(max_size=12), column, min_size=1, max_size=4)


def instances(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Messages of one class with any allowed fields."""
    return st.builds(kind, **{name: values(rule) for name, rule in field_kinds(kind)})


def same(one: Any, other: Any) -> bool:
    """Equality of messages and of their fields; arrays by dtype, shape and bytes."""
    if isinstance(one, Message):
        names = [name for name, _ in field_kinds(type(one))]
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name)) for name in names
        )
    if isinstance(one, np.ndarray):
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        keys = list(one) == list(other)
        return keys and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other
