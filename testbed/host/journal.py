"""A node's journal: every input in the order of delivery, and a rolling hash of its effects.

Owns the file format, what the hash is taken of, and the replay. An entry is a length-prefixed
msgpack array; the first one is the node's birth, then one per input ``[sequence, now_us, kind,
...]``, with messages as the frames that were received; every ``HASH_EVERY`` steps, at a flush, and
at the end, ``["H", step, digest]``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import numpy as np

from nodes.api import (
    DrainRequested,
    Effect,
    Event,
    Injected,
    Node,
    PeerChanged,
    Received,
    Reported,
    Send,
    Started,
    Store,
    TimerFired,
    Work,
)
from protocols.codec import Frame, decode, encode
from testbed.errors import RanloomError

HASH_EVERY = 1000
_HASHED_TOGETHER = 64
_LENGTH = struct.Struct("<I")
_NO_FRAMES = repeat(None)


class EffectHash:
    """A rolling hash over the canonical bytes of a node's effects.

    Each step adds the msgpack array of its effects. An effect, and each dataclass in it (a message,
    a lease), is an array of its class name and its fields; a numpy array is one of its type, shape
    and content. So the digest depends on the effects alone: not on who performs them, nor on
    whether a message was ever encoded.
    """

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._packer = msgpack.Packer(default=self._plain, autoreset=False)
        self._parts = _Parts()
        self._waiting = 0

    def update(self, effects: Sequence[Effect]) -> None:
        """Take a step's effects in. Raises TypeError for one that holds what no message can."""
        self._packer.pack(effects)
        self._waiting += 1
        if self._waiting == _HASHED_TOGETHER:
            self._take_in()

    def digest(self) -> str:
        """Hexadecimal digest of everything so far."""
        self._take_in()
        return self._hash.hexdigest()

    def _take_in(self) -> None:
        self._hash.update(self._packer.bytes())
        self._packer.reset()
        self._waiting = 0

    def _plain(self, value: Any) -> Any:
        """What stands in the hash for a value that msgpack does not know."""
        name, parts = self._parts[type(value)]
        return name, parts(value)


class _Parts(dict[type, tuple[str, Callable[[Any], Any]]]):
    """Name of a class, and what takes an object of it apart; found out at its first use."""

    def __missing__(self, kind: type) -> tuple[str, Callable[[Any], Any]]:
        self[kind] = known = (kind.__name__, _parts(kind))
        return known


def _parts(kind: type) -> Callable[[Any], Any]:
    """What takes an object of that class apart. Raises TypeError where it cannot stand in a hash.

    The order of the fields is that of the class; a single field stands for itself.
    """
    if issubclass(kind, np.ndarray):
        return lambda array: (array.dtype.str, array.shape, array.tobytes())
    if not is_dataclass(kind):
        what = "numbers, text, arrays and dataclasses"
        raise TypeError(f"{kind.__name__} in an effect; allowed are {what}")
    names = [field.name for field in fields(kind)]
    return attrgetter(*names) if names else lambda _: ()


def message_frames(effect: Effect, sequence: int, now_us: int) -> list[Frame] | None:
    """The encoded message of an effect that carries one."""
    if isinstance(effect, Send):
        return encode(effect.message, sequence, now_us)
    if isinstance(effect, Work):
        return encode(effect.message)
    if isinstance(effect, Store):
        return encode(effect.message)
    return None


class Stepper:
    """Runs one node: numbers its messages, hashes its effects, keeps its journal.

    The same class serves the live host, the simulator and the replay, so that the three cannot
    differ in what they feed or hash. ``encodes``: whether the effects are needed as frames too; a
    host that hands messages on as they are, and keeps none of them, does not.
    """

    def __init__(self, node: Node, journal: Journal | None, *, encodes: bool = True) -> None:
        if journal is not None and journal.full and not encodes:
            raise ValueError("a journal in full needs the effects as frames")
        self._node = node
        self._journal = journal
        self._encodes = encodes
        self._sequences: dict[str, int] = {}
        self._hash = EffectHash()
        self._hashed_steps = 0
        self.steps = 0

    def feed(
        self, now_us: int, event: Event, raw: Sequence[Frame] = ()
    ) -> Iterable[tuple[Effect, list[Frame] | None]]:
        """One step; each effect with its encoded message, if it carries one and ``encodes``.

        ``raw`` is the message as it was received, for the journal.
        """
        journal = self._journal
        if journal is not None:
            journal.input(self.steps, now_us, event, raw)
        self.steps += 1
        effects = self._node.step(now_us, event)
        self._hash.update(effects)
        frames: Iterable[list[Frame] | None] = _NO_FRAMES
        if self._encodes:
            frames = [self._frames(effect, now_us) for effect in effects]
        if journal is not None:
            if journal.full:
                for effect, encoded in zip(effects, frames, strict=True):
                    journal.effect(effect, encoded)
            if self.steps % HASH_EVERY == 0:
                journal.hash(self.steps, self._hash.digest())
        return zip(effects, frames, strict=False)

    def _frames(self, effect: Effect, now_us: int) -> list[Frame] | None:
        sequence = 0
        if isinstance(effect, Send):
            sequence = self._sequences.get(effect.to, 0)
            self._sequences[effect.to] = sequence + 1
        return message_frames(effect, sequence, now_us)

    def restart_sequence(self, peer: str) -> None:
        """A new life of a peer: the messages to it are numbered from 0."""
        self._sequences.pop(peer, None)

    def flush(self) -> None:
        """Write a hash of what is new, and hand the journal to the operating system.

        So what a node did shortly before it was killed can be compared, too.
        """
        if self._journal is not None:
            if self.steps != self._hashed_steps:
                self._hashed_steps = self.steps
                self._journal.hash(self.steps, self._hash.digest())
            self._journal.flush()

    def close(self) -> None:
        """Write the last hash and close the journal."""
        if self._journal is not None:
            self._journal.hash(self.steps, self._hash.digest())
            self._journal.close()

    def digest(self) -> str:
        """Hash of all effects so far."""
        return self._hash.digest()


class Journal:
    """Append-only file of one node's inputs. ``flush`` at least every 50 ms in a live run."""

    def __init__(self, file: BinaryIO, birth: dict[str, Any], *, full: bool = False) -> None:
        self.full = full
        self._file = file
        self._buffer = bytearray()
        self._append(["C", birth])

    def input(self, step: int, now_us: int, event: Event, raw: Sequence[Frame]) -> None:
        """Note one input."""
        match event:
            case Received(source=source):
                self._append([step, now_us, "M", source, [bytes(frame) for frame in raw]])
            case TimerFired(key=key, at_us=at_us):
                self._append([step, now_us, "T", key, at_us])
            case Reported():
                self._append([step, now_us, "R", [bytes(frame) for frame in raw]])
            case PeerChanged(node=node, status=status, reason=reason):
                self._append([step, now_us, "P", node, status, reason])
            case DrainRequested(reason=reason, at_once=at_once):
                self._append([step, now_us, "D", reason, at_once])
            case Injected(fault=fault, at_us=at_us, numbers=numbers):
                self._append([step, now_us, "I", fault, at_us, list(numbers)])
            case Started():
                self._append([step, now_us, "S"])

    def effect(self, effect: Effect, frames: Sequence[Frame] | None) -> None:
        """Note one effect in full."""
        text = repr(effect) if frames is None else type(effect).__name__
        self._append(["E", text, [bytes(frame) for frame in frames or ()]])

    def hash(self, step: int, digest: str) -> None:
        """Note the rolling hash after ``step`` steps."""
        self._append(["H", step, digest])

    def flush(self) -> None:
        """Hand what was noted to the operating system."""
        if self._buffer:
            self._file.write(self._buffer)
            self._file.flush()
            self._buffer.clear()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()

    def _append(self, entry: list[Any]) -> None:
        packed: bytes = msgpack.packb(entry)
        self._buffer += _LENGTH.pack(len(packed))
        self._buffer += packed
        if len(self._buffer) > 1 << 20:
            self.flush()


def read_journal(path: Path) -> Iterator[list[Any]]:
    """The entries of a journal; a torn last entry (the process was killed) is left out.

    Raises RanloomError where an entry is not what a journal holds.
    """
    data = path.read_bytes()
    at = 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            return
        try:
            entry = msgpack.unpackb(data[at : at + length])
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise RanloomError(f"{path}: no journal entry at byte {at}: {error!r}") from None
        if not isinstance(entry, list):
            raise RanloomError(f"{path}: no journal entry at byte {at}: {entry!r:.40}")
        yield entry
        at += length


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay found: steps run, hashes compared, the first step range that differed."""

    node: str
    steps: int
    hashes: int
    differs_before_step: int | None

    @property
    def same(self) -> bool:
        """All hashes agreed, and there was at least one."""
        return self.differs_before_step is None and self.hashes > 0


def replay(path: Path, build: Callable[[dict[str, Any]], Node]) -> ReplayResult:
    """Feed a journal's inputs to a new node and compare the hashes of its effects.

    ``build`` makes the node from its birth entry. Raises RanloomError for a file that is not a
    journal.
    """
    entries = read_journal(path)
    first = next(entries, None)
    if not first or first[0] != "C":
        raise RanloomError(f"{path} is not a journal: it does not begin with a node's birth")
    stepper = Stepper(build(first[1]), None, encodes=False)
    hashes = 0
    for entry in entries:
        if entry[0] == "H":
            hashes += 1
            if entry[1] != stepper.steps or entry[2] != stepper.digest():
                return ReplayResult(path.stem, stepper.steps, hashes, entry[1])
        elif entry[0] != "E":
            stepper.feed(entry[1], *_event(entry))
    return ReplayResult(path.stem, stepper.steps, hashes, None)


def _event(entry: list[Any]) -> tuple[Event, list[Frame]]:
    kind, rest = entry[2], entry[3:]
    match kind:
        case "M":
            return Received(rest[0], decode(rest[1])[0]), rest[1]
        case "T":
            return TimerFired(rest[0], rest[1]), []
        case "R":
            return Reported(decode(rest[0])[0]), rest[0]
        case "P":
            return PeerChanged(*rest), []
        case "D":
            return DrainRequested(*rest), []
        case "I":
            return Injected(rest[0], rest[1], tuple(rest[2])), []
        case "S":
            return Started(), []
    raise RanloomError(f"a journal entry of unknown kind {kind!r}")
