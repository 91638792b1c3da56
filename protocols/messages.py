"""Every message that travels between processes, each with one sentence of meaning.

Owns the types and their ranges; knows nothing of sockets or of nodes. The wire form is in
``codec.py``. PROTOCOL.md is the specification; a test holds it to this file.

All times are emulated integer microseconds since the epoch of the run unless a name says
otherwise. ``direction`` is 0 for downlink and 1 for uplink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy.typing as npt

from protocols.fields import (
    U8,
    U16,
    U32,
    Array,
    Boolean,
    Columns,
    Int,
    Ints,
    Name,
    Note,
    Rows,
    Text,
    Texts,
    TimeUs,
)

PROTOCOL_VERSION = 1

DOWNLINK = 0
UPLINK = 1


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Base of all messages; subclasses set ``TAG``, their number on the wire."""

    TAG: ClassVar[int] = -1


# --- control: between a node and the launcher ---------------------------------------------------


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
    """No new work: finish what is open, flush, and answer Drained."""

    TAG: ClassVar[int] = 7
    reason: Note


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
class Stats(Message):
    """A node's counters at its end: a JSON object, for the manifest."""

    TAG: ClassVar[int] = 13
    node: Name
    document: Annotated[str, Text(60_000)]


# --- radio and GPU: gNB MAC, PHY, site agent, trainer -------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TtiRequest(Message):
    """MAC to PHY: the transport blocks of one air slot and direction (FAPI *_TTI.request).

    One row per block: cell, ue, harq_id, transmission, n_prb, layers, mcs_index, tbs_bytes,
    code_blocks, spectral_efficiency_x1000, sinr_cdb.
    """

    TAG: ClassVar[int] = 20
    gnb: Name
    air_slot: U32
    direction: U8
    blocks: Annotated[npt.NDArray[Any], Array("<i4", 11, 1 << 20)]


@dataclass(frozen=True, slots=True, eq=False)
class SlotDemand(Message):
    """MAC to site agent: the PHY work that the plans of ``slot`` bring, one row per task.

    Row: cell, air_slot, direction, n_prb, layers, code_blocks, decode_work (code blocks weighted
    by iterations / 10, in thousandths). Sent in every slot, so that it also tells how far the
    plans reach: downlink through ``dl_known_slot``, uplink through ``ul_known_slot``.
    """

    TAG: ClassVar[int] = 21
    gnb: Name
    slot: U32
    dl_known_slot: U32
    ul_known_slot: U32
    tasks: Annotated[tuple[tuple[int, ...], ...], Rows(7, 512)]


@dataclass(frozen=True, slots=True, eq=False)
class PhyAllocation(Message):
    """Site agent to PHY: the SMs of each task that starts in ``slot``, over time.

    Row: cell, air_slot, direction, from_us, sms, other_bandwidth_permille; the rows of one task
    are ordered by ``from_us``, and the first one is where the task may begin.
    """

    TAG: ClassVar[int] = 22
    slot: U32
    segments: Annotated[tuple[tuple[int, ...], ...], Rows(6, 4096)]


@dataclass(frozen=True, slots=True, eq=False)
class PhyDone(Message):
    """PHY to site agent: one finished task.

    ``end_us`` is the later of the modelled and the real end, ``modelled_end_us`` the model's.
    """

    TAG: ClassVar[int] = 23
    cell: U16
    air_slot: U32
    direction: U8
    start_us: TimeUs
    modelled_end_us: TimeUs
    end_us: TimeUs
    sms: U16


@dataclass(frozen=True, slots=True, eq=False)
class CrcIndication(Message):
    """PHY to MAC: what became of the blocks of one cell, slot and direction (FAPI CRC.indication).

    Row: ue, harq_id, result (0 NACK, 1 ACK, 2 LATE: its deadline was missed).
    """

    TAG: ClassVar[int] = 24
    cell: U16
    air_slot: U32
    direction: U8
    end_us: TimeUs
    results: Annotated[tuple[tuple[int, ...], ...], Rows(3, 256)]


@dataclass(frozen=True, slots=True, eq=False)
class LeaseGrant(Message):
    """Site agent to trainer: the SMs that its job may use, over time; replaces the grant before.

    Row: start_us, end_us, sms; rows are ordered and do not overlap.
    """

    TAG: ClassVar[int] = 25
    job: Name
    epoch: U32
    bandwidth_permille: U16
    windows: Annotated[tuple[tuple[int, ...], ...], Rows(3, 64, -(2**53), 2**53)]


@dataclass(frozen=True, slots=True, eq=False)
class QuantumStarted(Message):
    """Trainer to site agent: a quantum runs and holds its SMs until ``end_us``."""

    TAG: ClassVar[int] = 26
    job: Name
    lease_epoch: U32
    kind: U8
    block: U16
    start_us: TimeUs
    end_us: TimeUs
    sms: U16


# --- training: coordinator and trainers ---------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class StepAssign(Message):
    """Coordinator to trainer: these samples of this step are yours, in this membership epoch."""

    TAG: ClassVar[int] = 40
    job: Name
    epoch: U32
    step: U32
    samples: Annotated[tuple[int, ...], Ints(0, 2**53, 4096)]


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatchDone(Message):
    """Trainer to coordinator: the gradient of one sample is in the trainer's sum."""

    TAG: ClassVar[int] = 41
    job: Name
    epoch: U32
    step: U32
    sample: Annotated[int, Int(0, 2**53)]
    proxy_tokens: U32
    loss_micronats: Annotated[int, Int(-1, 2**40)]


@dataclass(frozen=True, slots=True, eq=False)
class BarrierReached(Message):
    """Trainer to coordinator: all my samples of the step are computed; ready for the collective."""

    TAG: ClassVar[int] = 42
    job: Name
    epoch: U32
    step: U32


@dataclass(frozen=True, slots=True, eq=False)
class BarrierOpen(Message):
    """Coordinator to trainer: all members have arrived; sum the gradients among ``members``.

    The collective is held to ``ring_us``, the modelled time of the ring over the sites' links;
    nothing of it arrives before ``ring_latency_us``.
    """

    TAG: ClassVar[int] = 43
    job: Name
    epoch: U32
    step: U32
    members: Annotated[tuple[str, ...], Texts(256, 64)]
    ring_us: TimeUs
    ring_latency_us: TimeUs


@dataclass(frozen=True, slots=True, eq=False)
class SyncDone(Message):
    """Trainer to coordinator: the collective and the provisional optimiser step have ended."""

    TAG: ClassVar[int] = 44
    job: Name
    epoch: U32
    step: U32
    ok: Boolean
    proxy_tokens: Annotated[int, Int(0, 2**53)]
    reason: Note


@dataclass(frozen=True, slots=True, eq=False)
class StepCommit(Message):
    """Coordinator to trainer: the step is committed; the provisional optimiser step stands."""

    TAG: ClassVar[int] = 45
    job: Name
    epoch: U32
    step: U32


@dataclass(frozen=True, slots=True, eq=False)
class StepApplied(Message):
    """Trainer to coordinator: the step stands; ``digest`` is of the parameters."""

    TAG: ClassVar[int] = 46
    job: Name
    epoch: U32
    step: U32
    digest: Name


@dataclass(frozen=True, slots=True, eq=False)
class StepAbandon(Message):
    """Coordinator to trainer: the open step will not be committed; undo it and go idle."""

    TAG: ClassVar[int] = 47
    job: Name
    epoch: U32
    step: U32
    reason: Note


@dataclass(frozen=True, slots=True, eq=False)
class LeaseClose(Message):
    """Coordinator to site agent: the job asks for no more SMs."""

    TAG: ClassVar[int] = 48
    job: Name
    reason: Note


# --- records -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TableBatch(Message):
    """Any node to the recorder: rows of one table, as columns."""

    TAG: ClassVar[int] = 60
    node: Name
    table: Name
    columns: Annotated[dict[str, npt.NDArray[Any]], Columns(32, 1 << 20)]


@dataclass(frozen=True, slots=True, eq=False)
class Decision(Message):
    """Any node to the recorder: what it decided, and why."""

    TAG: ClassVar[int] = 61
    node: Name
    at_us: TimeUs
    subject: Annotated[str, Text(80)]
    reason: Note
