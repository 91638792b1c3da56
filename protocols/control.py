"""Messages between a node and the launcher: birth, life and end of a node.

Owns their types and ranges; like ``messages.py`` it knows nothing of sockets or of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from protocols.fields import U16, U32, Boolean, Int, Ints, Name, Note, Text, TimeUs
from protocols.messages import Message


@dataclass(frozen=True, slots=True, eq=False)
class Hello(Message):
    """A node says who it is, which life of it this is, and where its inbox is bound."""

    TAG: ClassVar[int] = 1
    kind: Name
    node: Name
    life: U32
    version: U16
    run_token: Name
    pid: U32
    inbox: Annotated[str, Text(200)]


@dataclass(frozen=True, slots=True, eq=False)
class Config(Message):
    """The launcher gives a node its configuration: a JSON document (see testbed.topology.node)."""

    TAG: ClassVar[int] = 2
    document: Annotated[str, Text(60_000)]


@dataclass(frozen=True, slots=True, eq=False)
class Ready(Message):
    """A node has built its state, connected to its peers and started its executor."""

    TAG: ClassVar[int] = 3
    node: Name
    life: U32
    detail: Note


@dataclass(frozen=True, slots=True, eq=False)
class Start(Message):
    """Emulated time 0 is at this reading of CLOCK_MONOTONIC (nanoseconds)."""

    TAG: ClassVar[int] = 4
    epoch_ns: Annotated[int, Int(0, 2**63 - 1)]


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeat(Message):
    """A node's event loop lives; ``progress`` counts the steps that its state machine has taken."""

    TAG: ClassVar[int] = 5
    progress: Annotated[int, Int(0, 2**53)]
    now_us: TimeUs
    note: Note


@dataclass(frozen=True, slots=True, eq=False)
class PeerStatus(Message):
    """The launcher tells a node that a peer is missing, back, or lost."""

    TAG: ClassVar[int] = 6
    node: Name
    status: Name
    reason: Note


@dataclass(frozen=True, slots=True, eq=False)
class Drain(Message):
    """No new work: finish what is open, or give it back at once, flush, and answer Drained."""

    TAG: ClassVar[int] = 7
    reason: Note
    at_once: Boolean


@dataclass(frozen=True, slots=True, eq=False)
class Drained(Message):
    """A node has nothing open any more."""

    TAG: ClassVar[int] = 8
    node: Name
    detail: Note


@dataclass(frozen=True, slots=True, eq=False)
class Stop(Message):
    """A node shall flush its journal and exit with status 0."""

    TAG: ClassVar[int] = 9
    reason: Note


@dataclass(frozen=True, slots=True, eq=False)
class Refused(Message):
    """The launcher refuses a message or a node, with a code and the reason."""

    TAG: ClassVar[int] = 10
    code: Name
    reason: Note


@dataclass(frozen=True, slots=True, eq=False)
class Failed(Message):
    """A node reports the error that ends it, before it exits."""

    TAG: ClassVar[int] = 11
    node: Name
    error: Name
    reason: Note


@dataclass(frozen=True, slots=True, eq=False)
class Inject(Message):
    """A fault for one node, from the topology's list: what, when (emulated), and its numbers."""

    TAG: ClassVar[int] = 12
    fault: Name
    at_us: TimeUs
    numbers: Annotated[tuple[int, ...], Ints(-(2**53), 2**53, 8)]


@dataclass(frozen=True, slots=True, eq=False)
class PeerJoined(Message):
    """The launcher tells a node that a lost peer lives again, as which life, and where its inbox
    is bound."""

    TAG: ClassVar[int] = 14
    node: Name
    life: U32
    inbox: Annotated[str, Text(200)]


@dataclass(frozen=True, slots=True, eq=False)
class Stats(Message):
    """A node's counters at its end: a JSON object, for the manifest."""

    TAG: ClassVar[int] = 13
    node: Name
    document: Annotated[str, Text(60_000)]
