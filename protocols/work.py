"""What travels between a node's host and its executor, over a local packet socket.

The same codec and checks as between nodes, one packet per message, no array frames. Times are
emulated integer microseconds. The lease itself is in shared memory (``testbed.gpu.lease_word``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from protocols.fields import U8, U16, U32, Boolean, Int, Ints, Name, Note, Text, TimeUs
from protocols.messages import Message

# --- host to executor ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorConfig(Message):
    """The executor's configuration: a JSON document (see the executor of that kind)."""

    TAG: ClassVar[int] = 80
    document: Annotated[str, Text(60_000)]


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorStart(Message):
    """Emulated time 0 is at ``epoch_ns`` of CLOCK_MONOTONIC; one emulated us lasts
    ``wall_ns_per_us`` wall nanoseconds."""

    TAG: ClassVar[int] = 81
    epoch_ns: Annotated[int, Int(0, 2**63 - 1)]
    wall_ns_per_us: Annotated[int, Int(1, 10**9)]


@dataclass(frozen=True, slots=True, eq=False)
class PhyTask(Message):
    """Run the PHY work of one cell and slot at ``start_us`` and hold it until ``end_us``.

    ``decode_iterations``: sum over its code blocks of their decoder iterations.
    """

    TAG: ClassVar[int] = 82
    task: U32
    direction: U8
    start_us: TimeUs
    end_us: TimeUs
    n_prb: U16
    layers: U8
    code_blocks: U32
    decode_iterations: U32


@dataclass(frozen=True, slots=True, eq=False)
class ComputeStep(Message):
    """Add the gradients of ``samples`` up, one micro-batch each, in quanta under the lease."""

    TAG: ClassVar[int] = 83
    epoch: U32
    step: U32
    samples: Annotated[tuple[int, ...], Ints(0, 2**53, 4096)]


@dataclass(frozen=True, slots=True, eq=False)
class RunSync(Message):
    """Sum gradients and token counts among ``world`` members, held to ``ring_us`` from now.

    The optimiser follows the ring bucket by bucket, in quanta under the lease, provisionally: what
    it changed is kept on ApplyStep and undone on AbandonStep.
    """

    TAG: ClassVar[int] = 84
    epoch: U32
    step: U32
    rank: U16
    world: U16
    ring_us: TimeUs
    ring_latency_us: TimeUs
    store: Annotated[str, Text(200)]


@dataclass(frozen=True, slots=True, eq=False)
class ApplyStep(Message):
    """The step is committed: the provisional optimiser step stands."""

    TAG: ClassVar[int] = 85
    epoch: U32
    step: U32


@dataclass(frozen=True, slots=True, eq=False)
class AbandonStep(Message):
    """Drop the open step at the next gate: its gradients, and what the optimiser changed."""

    TAG: ClassVar[int] = 86
    epoch: U32
    step: U32


@dataclass(frozen=True, slots=True, eq=False)
class LeaseChanged(Message):
    """The lease in shared memory was replaced; look at it again."""

    TAG: ClassVar[int] = 87


@dataclass(frozen=True, slots=True, eq=False)
class InjectQuantum(Message):
    """A fault: hold ``sms`` SMs from ``at_us`` for ``duration_us``, whatever the lease says."""

    TAG: ClassVar[int] = 88
    at_us: TimeUs
    duration_us: TimeUs
    sms: U16


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorStop(Message):
    """Finish the running quantum or task, then exit with status 0."""

    TAG: ClassVar[int] = 89


@dataclass(frozen=True, slots=True, eq=False)
class ShareState(Message):
    """Rank 0 gives its training state, as it stands before the optimiser of ``step``, to the other
    ``world - 1`` ranks; those hold it back to ``transfer_us`` from now.

    What an optimiser changed provisionally is undone first; the open step's gradients stay with
    the giver, and are dropped by a taker.
    """

    TAG: ClassVar[int] = 100
    epoch: U32
    step: U32
    rank: U16
    world: U16
    transfer_us: TimeUs
    store: Annotated[str, Text(200)]


# --- executor to host ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorReady(Message):
    """The executor has built and warmed up its work; ``detail`` is a JSON object of facts."""

    TAG: ClassVar[int] = 90
    detail: Note


@dataclass(frozen=True, slots=True, eq=False)
class PhyTaskDone(Message):
    """A PHY task has ended: when it was woken, when its real work was done, its held end, and how
    slow the host's core ran then (thousandths of the shortest time of a fixed piece of work)."""

    TAG: ClassVar[int] = 91
    task: U32
    woken_us: TimeUs
    real_end_us: TimeUs
    end_us: TimeUs
    host_slowdown_permille: U32


@dataclass(frozen=True, slots=True, eq=False)
class QuantumBegun(Message):
    """A quantum has started and will hold its SMs until ``end_us``, by the model."""

    TAG: ClassVar[int] = 92
    step: U32
    kind: U8
    block: U16
    start_us: TimeUs
    end_us: TimeUs
    sms: U16
    lease_epoch: U32


@dataclass(frozen=True, slots=True, eq=False)
class QuantumEnded(Message):
    """A quantum has ended at ``end_us``: the later of its modelled end and of its real work's."""

    TAG: ClassVar[int] = 93
    step: U32
    kind: U8
    block: U16
    start_us: TimeUs
    end_us: TimeUs
    modelled_end_us: TimeUs
    real_us: TimeUs
    sms: U16
    lease_epoch: U32


@dataclass(frozen=True, slots=True, eq=False)
class SampleComputed(Message):
    """One sample's gradient is in the sum; its mean loss per token, -1 in virtual time."""

    TAG: ClassVar[int] = 94
    epoch: U32
    step: U32
    sample: Annotated[int, Int(0, 2**53)]
    proxy_tokens: U32
    loss_micronats: Annotated[int, Int(-1, 2**40)]


@dataclass(frozen=True, slots=True, eq=False)
class StepComputed(Message):
    """All samples of the step are in the sum."""

    TAG: ClassVar[int] = 95
    epoch: U32
    step: U32


@dataclass(frozen=True, slots=True, eq=False)
class SyncEnded(Message):
    """Collective and provisional optimiser step have ended: did they work; summed proxy tokens."""

    TAG: ClassVar[int] = 96
    epoch: U32
    step: U32
    ok: Boolean
    proxy_tokens: Annotated[int, Int(0, 2**53)]
    real_us: TimeUs
    reason: Note


@dataclass(frozen=True, slots=True, eq=False)
class Applied(Message):
    """The step stands; ``digest`` is of all parameters (empty in virtual time)."""

    TAG: ClassVar[int] = 97
    epoch: U32
    step: U32
    digest: Name


@dataclass(frozen=True, slots=True, eq=False)
class ShareEnded(Message):
    """The state was given or taken: did it work; digest of all parameters (empty in virtual
    time)."""

    TAG: ClassVar[int] = 101
    epoch: U32
    step: U32
    ok: Boolean
    digest: Name
    real_us: TimeUs
    reason: Note


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorFailed(Message):
    """The executor cannot go on."""

    TAG: ClassVar[int] = 98
    error: Name
    reason: Note
