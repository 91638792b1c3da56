"""Every message that travels between processes, each with one sentence of meaning.

Owns the base of all messages, the version, and the messages between the nodes of a run, with their
ranges (``control.py``: a node and the launcher; ``work.py``: a node and its executor); knows
nothing of sockets or of nodes. The wire form is in ``codec.py``. PROTOCOL.md is the specification;
a test holds it to this file.

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

PROTOCOL_VERSION = 4

DOWNLINK = 0
UPLINK = 1


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Base of all messages; subclasses set ``TAG``, their number on the wire."""

    TAG: ClassVar[int] = -1


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

    ``promise``: SMs that this gNB's PHY work will not exceed, rows of first slot in which the work
    runs and SMs, ascending, each until the next, nothing from ``promised_until_slot`` on. Empty
    where the MAC promises nothing. ``breaches`` counts plans above a promise since the start;
    ``wanted_sms`` is what the backlog needs now.
    """

    TAG: ClassVar[int] = 21
    gnb: Name
    slot: U32
    dl_known_slot: U32
    ul_known_slot: U32
    tasks: Annotated[tuple[tuple[int, ...], ...], Rows(7, 512)]
    promise: Annotated[tuple[tuple[int, int], ...], Rows(2, 32, 0, 2**32 - 1)] = ()
    promised_until_slot: U32 = 0
    breaches: U32 = 0
    wanted_sms: U16 = 0


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


@dataclass(frozen=True, slots=True, eq=False)
class EnvelopeShare(Message):
    """Site agent to gNB MAC: the SMs of the GPU that this gNB may use, from ``from_slot`` on.

    Sent where several gNBs share a GPU and all of them promise, and only when it changes; until
    then a gNB may use the whole GPU.
    """

    TAG: ClassVar[int] = 27
    gnb: Name
    sms: U16
    from_slot: U32


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


@dataclass(frozen=True, slots=True, eq=False)
class StateShare(Message):
    """Coordinator to trainer: ``members[0]`` gives its training state, as it stands before the
    optimiser of ``step``, to the other ``members``.

    They have it ``transfer_us``, the modelled time of its bytes, after they were told, or later.
    """

    TAG: ClassVar[int] = 49
    job: Name
    epoch: U32
    step: U32
    members: Annotated[tuple[str, ...], Texts(256, 64)]
    transfer_us: TimeUs


@dataclass(frozen=True, slots=True, eq=False)
class StateShared(Message):
    """Trainer to coordinator: the state was given or taken; ``digest`` is of its parameters."""

    TAG: ClassVar[int] = 50
    job: Name
    epoch: U32
    step: U32
    ok: Boolean
    digest: Name
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
