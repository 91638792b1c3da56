"""Events and effects: all that a node can see and do.

A node is a state machine: ``step(now_us, event) -> list[Effect]``. It knows emulated time only, and
imports neither asyncio, zmq, torch, os, time nor a global random generator. A host performs its
effects and feeds results back as events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from protocols.messages import Message
from testbed.gpu.gate import Lease

if TYPE_CHECKING:
    from testbed.ran.traces import Trace
    from testbed.topology import Topology

# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The epoch is known; emulated time 0 lies ahead."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a peer was delivered."""

    source: str
    message: Message


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the node set has fired; ``at_us`` is what it was set to."""

    key: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Reported:
    """The node's executor has reported."""

    message: Message


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """A peer is ``missing``, ``back`` or ``lost``; or it has ``joined`` again, as a new life that
    knows nothing of what went before."""

    node: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The run ends early: open nothing new, finish what is open, or give it back ``at_once``."""

    reason: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault of the topology's list for this node."""

    fault: str
    at_us: int
    numbers: tuple[int, ...]


Event = Started | Received | TimerFired | Reported | PeerChanged | DrainRequested | Injected

# --- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a peer of the directory."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire TimerFired(key) at ``at_us``; replaces the timer of that key."""

    key: str
    at_us: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer of that key, if any."""

    key: str


@dataclass(frozen=True, slots=True)
class Work:
    """Hand a work packet (protocols.work) to the node's executor."""

    message: Message


@dataclass(frozen=True, slots=True)
class GrantLease:
    """Replace the lease that the node's executor runs under, atomically."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a table of testbed.record.schema."""

    table: str
    row: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decide:
    """A decision, for the log and the report: about what, and why."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Store:
    """Recorder only: append a batch to the run's spool."""

    source: str
    message: Message


@dataclass(frozen=True, slots=True)
class Progress:
    """What a person who watches the run should see of this node now."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The node has nothing open any more; the run may end as far as it is concerned."""

    detail: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The run cannot go on; ``reason`` is its first cause."""

    reason: str


Effect = (
    Send
    | SetTimer
    | CancelTimer
    | Work
    | GrantLease
    | Record
    | Decide
    | Store
    | Progress
    | Finished
    | Fail
)


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What a node is told at its birth: all of it ends up in the node's journal.

    ``facts``: text by name, for example where the collective's store listens. ``traces``: loaded
    trace files by the path that the topology gives. ``policies``: resolved policy objects by the
    topology's key, for example ``site.mac``.
    """

    node: str
    kind: str
    life: int
    site: str
    gnb: str
    job: str
    topology: Topology
    facts: Mapping[str, str]
    traces: Mapping[str, Trace]
    policies: Mapping[str, object]


class Node(Protocol):
    """The state machine of one process."""

    def step(self, now_us: int, event: Event) -> list[Effect]: ...
