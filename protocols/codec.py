"""msgpack in and out: the only file that knows what a message looks like on the wire.

A message is one header frame, and one frame per array column behind it. The header is the msgpack
array ``[tag, version, sequence, sent_us, field, field, ...]``; fields stand in the order of the
class. Everything is checked where it is received: version, size, tag, number of fields, each
field's type and range, number and size of frames. What fails is a ProtocolError, never a crash.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from protocols.errors import ProtocolError
from protocols.fields import Array, Columns, FieldKind
from protocols.messages import PROTOCOL_VERSION, Message
from protocols.registry import MESSAGES

MAX_HEADER_BYTES = 64 * 1024
MAX_FRAMES = 40
MAX_TOTAL_BYTES = 64 << 20
_ENVELOPE_FIELDS = 4
_DTYPES = {"<i8", "<f8"}

Frame = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Envelope:
    """What travels with every message: its place in the sender's order, and when it was sent."""

    sequence: int
    sent_us: int


def field_kinds(kind: type[Message]) -> tuple[tuple[str, FieldKind], ...]:
    """Name and kind of each field of a message class, in wire order."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(
        (field.name, typing.cast(FieldKind, hints[field.name].__metadata__[0]))
        for field in dataclasses.fields(kind)
    )


def _plan(kind: type[Message]) -> tuple[tuple[str, FieldKind, int], ...]:
    """(name, kind, 0 inline | 1 array | 2 columns) per field."""
    return tuple(
        (name, rule, 1 if isinstance(rule, Array) else 2 if isinstance(rule, Columns) else 0)
        for name, rule in field_kinds(kind)
    )


_PLANS = {kind: _plan(kind) for kind in MESSAGES.values()}


def encode(message: Message, sequence: int = 0, sent_us: int = 0) -> list[Frame]:
    """The frames of ``message``; arrays are passed on as buffers, not copied.

    Raises ProtocolError("too-large") where the header would exceed MAX_HEADER_BYTES.
    """
    header: list[Any] = [message.TAG, PROTOCOL_VERSION, sequence, sent_us]
    frames: list[Frame] = [b""]
    for name, rule, form in _PLANS[type(message)]:
        value = getattr(message, name)
        if form == 0:
            header.append(value)
        elif form == 1:
            assert isinstance(rule, Array)
            header.append(None)
            frames.append(_buffer(value, rule.dtype))
        else:
            header.append([f"{column}:{array.dtype.str}" for column, array in value.items()])
            frames.extend(_buffer(array, array.dtype.str) for array in value.values())
    packed: bytes = msgpack.packb(header)
    if len(packed) > MAX_HEADER_BYTES:
        raise ProtocolError(
            "too-large",
            f"{type(message).__name__} of {len(packed)} bytes; at most {MAX_HEADER_BYTES}",
        )
    frames[0] = packed
    return frames


def decode(frames: Sequence[Frame]) -> tuple[Message, Envelope]:
    """The message in ``frames``, every field checked. Raises ProtocolError."""
    header = _unpack_header(frames)
    if len(header) < _ENVELOPE_FIELDS or any(type(item) is not int for item in header[:4]):
        raise ProtocolError("bad-header", "the header must begin with four integers")
    tag, version, sequence, sent_us = header[:_ENVELOPE_FIELDS]
    if version != PROTOCOL_VERSION:
        raise ProtocolError(
            "wrong-version", f"protocol version {version}; this side speaks {PROTOCOL_VERSION}"
        )
    kind = MESSAGES.get(tag)
    if kind is None:
        raise ProtocolError("unknown-message", f"no message has the tag {tag}")
    plan = _PLANS[kind]
    values = header[_ENVELOPE_FIELDS:]
    if len(values) != len(plan):
        raise ProtocolError(
            "wrong-fields", f"{kind.__name__} has {len(plan)} fields, {len(values)} were sent"
        )
    used = 1
    fields: list[Any] = []
    for value, (name, rule, form) in zip(values, plan, strict=True):
        try:
            if form == 1:
                if value is not None or used >= len(frames):
                    raise ValueError("its frame is missing")
                value = frames[used]
                used += 1
            elif form == 2:
                value, used = _columns(value, frames, used)
            fields.append(rule.check(value))
        except ValueError as error:
            raise ProtocolError("bad-field", f"{kind.__name__}.{name}: {error}") from None
    if used != len(frames):
        raise ProtocolError(
            "wrong-frames", f"{kind.__name__} needs {used} frames, {len(frames)} were sent"
        )
    return kind(*fields), Envelope(sequence, sent_us)


def _buffer(array: npt.NDArray[Any], dtype: str) -> memoryview:
    whole = np.ascontiguousarray(array, dtype=dtype)
    return whole.data.cast("B") if whole.size else memoryview(b"")  # an empty view has no cast


def _unpack_header(frames: Sequence[Frame]) -> list[Any]:
    if not frames or len(frames) > MAX_FRAMES:
        raise ProtocolError("wrong-frames", f"{len(frames)} frames; 1..{MAX_FRAMES} are allowed")
    if len(frames[0]) > MAX_HEADER_BYTES:
        raise ProtocolError(
            "too-large", f"a header of {len(frames[0])} bytes; at most {MAX_HEADER_BYTES}"
        )
    if sum(len(frame) for frame in frames) > MAX_TOTAL_BYTES:
        raise ProtocolError("too-large", f"more than {MAX_TOTAL_BYTES} bytes in one message")
    try:
        header = msgpack.unpackb(
            frames[0],
            strict_map_key=True,
            max_array_len=16_384,
            max_map_len=0,
            max_ext_len=0,
            max_bin_len=0,
            max_str_len=60_000 * 4,
        )
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise ProtocolError("not-msgpack", f"not a header: {reason}") from None
    if not isinstance(header, list):
        raise ProtocolError("bad-header", f"the header is a {type(header).__name__}, not an array")
    return header


def _columns(value: Any, frames: Sequence[Frame], used: int) -> tuple[dict[str, Any], int]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("column names are not a list of text")
    columns: dict[str, Any] = {}
    for item in value:
        name, _, dtype = item.rpartition(":")
        if dtype not in _DTYPES:
            raise ValueError(f"column {item!r} is not one of the types {sorted(_DTYPES)}")
        if used >= len(frames) or len(frames[used]) % 8:
            raise ValueError(f"the frame of column {item!r} is missing or not whole")
        columns[name] = np.frombuffer(frames[used], dtype=dtype)
        used += 1
    if len(columns) != len(value):
        raise ValueError("a column is named twice")
    return columns, used
