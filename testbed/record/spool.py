"""The spool: what the recorder was sent, as it came, in one append-only file.

Owns the file's form, and its reading after a crash. It must stay light to import (the recorder is
a small process) and must not look into the rows: that is ``tables.py``.

Form: records one behind the other, each of them the frames of one message as the codec made them:
u32 number of frames, then per frame u32 length and its bytes (all little-endian).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from protocols.codec import MAX_FRAMES, MAX_TOTAL_BYTES, Frame, decode, encode
from protocols.errors import ProtocolError
from protocols.messages import Decision, Message, TableBatch

SPOOL_NAME = "spool.bin"

_U32 = struct.Struct("<I")


class SpoolWriter:
    """Appends messages to a spool file; each is on its way to the disk before ``append`` returns.

    One ``write`` per message and no buffer of its own: whatever kills the process leaves at most
    one torn record, at the end.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path`` for appending, in an existing directory. Raises OSError."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._closed = False

    def append(self, message: Message) -> None:
        """Write one message. Raises OSError where the disk refuses it."""
        view = memoryview(_record(encode(message)))
        while view:
            view = view[os.write(self._file, view) :]

    def close(self) -> None:
        """Flush to the disk and close; a second call does nothing."""
        if not self._closed:
            self._closed = True
            os.fsync(self._file)
            os.close(self._file)

    def __enter__(self) -> SpoolWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemorySpool:
    """The same in memory, for the simulator; arrays are copied, so that senders may reuse theirs.

    ``contents`` equals what ``read_spool`` gives for the same messages.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def append(self, message: Message) -> None:
        """Keep one message."""
        if isinstance(message, TableBatch):
            columns = {name: column.copy() for name, column in message.columns.items()}
            message = replace(message, columns=columns)
        self._messages.append(message)

    def contents(self) -> SpoolContents:
        """All that was appended so far."""
        return _sorted_out(self._messages, 0, "")

    def write_to(self, path: Path) -> None:
        """Write the same spool file that a live run would have left."""
        path.write_bytes(b"".join(_record(encode(message)) for message in self._messages))


@dataclass(frozen=True, slots=True)
class SpoolContents:
    """What a spool holds, in the order of arrival.

    ``dropped_bytes`` at its end could not be read, for ``reason`` (empty where it is whole).
    """

    batches: tuple[TableBatch, ...]
    decisions: tuple[Decision, ...]
    dropped_bytes: int
    reason: str


def read_spool(path: Path) -> SpoolContents:
    """All records up to the first that is torn or not what the codec writes.

    A run that was killed leaves a torn record at the end: the rest is good, and the caller says
    how many bytes were dropped and why. Raises OSError where the file cannot be read.
    """
    data = memoryview(path.read_bytes())
    messages: list[Message] = []
    good, reason = 0, ""
    try:
        for frames, beyond in _records(data):
            messages.append(decode(frames)[0])
            good = beyond
    except ProtocolError as error:
        reason = f"{error.code} at byte {good}: {error}"
    return _sorted_out(messages, len(data) - good, reason)


def _record(frames: list[Frame]) -> bytes:
    parts: list[Frame] = [_U32.pack(len(frames))]
    for frame in frames:
        parts += (_U32.pack(len(frame)), frame)
    return b"".join(parts)


def _records(data: memoryview) -> Iterator[tuple[list[Frame], int]]:
    """(frames, offset behind them) of each record. Raises ProtocolError("torn" | "not-a-spool")."""
    offset = 0

    def take(size: int) -> memoryview:
        nonlocal offset
        if offset + size > len(data):
            missing = offset + size - len(data)
            raise ProtocolError("torn", f"the file ends {missing} bytes before its last record")
        offset += size
        return data[offset - size : offset]

    def number(most: int, what: str) -> int:
        value = int(_U32.unpack(take(_U32.size))[0])
        if value > most:
            raise ProtocolError("not-a-spool", f"{what} {value}; at most {most}")
        return value

    while offset < len(data):
        count = number(MAX_FRAMES, "number of frames")
        frames: list[Frame] = []
        for _ in range(count):
            frames.append(take(number(MAX_TOTAL_BYTES, "frame length")))
        yield frames, offset


def _sorted_out(messages: list[Message], dropped_bytes: int, reason: str) -> SpoolContents:
    return SpoolContents(
        batches=tuple(item for item in messages if isinstance(item, TableBatch)),
        decisions=tuple(item for item in messages if isinstance(item, Decision)),
        dropped_bytes=dropped_bytes,
        reason=reason,
    )
