"""A trainer's executor in virtual time: the same gate and the same costs, no real work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from protocols.messages import Message
from protocols.work import (
    AbandonStep,
    Applied,
    ApplyStep,
    ComputeStep,
    InjectQuantum,
    QuantumBegun,
    QuantumEnded,
    RunSync,
    SampleComputed,
    ShareEnded,
    ShareState,
    StepComputed,
    SyncEnded,
)
from testbed.executors.gate_costs import GateCosts
from testbed.gpu.gate import Lease, Start, WaitUntil, next_start
from testbed.gpu.quanta import QuantumCosts, QuantumKind, micro_batch_quanta, optimiser_quanta
from testbed.training.ring import bucket_arrivals_us

Report = Callable[[Message], None]
Wake = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class TrainerModel:
    """What the virtual executor needs to know of its job and machine."""

    costs: QuantumCosts
    layers: int
    proxy_tokens: int
    guard_us: int
    switch_us: int
    overhead_us: int


@dataclass(slots=True)
class SyncBook:
    """Tokens behind the gradients that each member of a job holds: what a collective would sum.

    A member holds those of one step, as the real one does, in whatever membership epoch it has
    computed them.
    """

    held: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(step, tokens) by job and member."""
    sums: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """What the collective of a job's epoch and step gave: the same to all of its members."""

    def add(self, job: str, member: str, step: int, tokens: int) -> None:
        """A member has computed so many tokens of a step; those of another step are dropped."""
        open_step, held = self.held.get((job, member), (step, 0))
        self.held[job, member] = (step, tokens + (held if open_step == step else 0))

    def drop(self, job: str, member: str) -> None:
        """A member gives its gradients up."""
        self.held.pop((job, member), None)

    def forget(self, member: str) -> None:
        """A member has died, and its gradients with it."""
        for key in [key for key in self.held if key[1] == member]:
            del self.held[key]

    def summed(self, job: str, epoch: int, step: int) -> int:
        """The collective of that epoch and step: what all who live hold when the first comes."""
        key = (job, epoch, step)
        if key not in self.sums:
            self.sums[key] = sum(
                tokens
                for (owner, _), (held, tokens) in self.held.items()
                if owner == job and held == step
            )
        return self.sums[key]


@dataclass(frozen=True, slots=True)
class _Hold:
    """Nothing before ``after_us`` from when the work packet came to the front."""

    after_us: int


_Operation = tuple[QuantumKind, int] | Message | _Hold


@dataclass(slots=True, eq=False)
class _Packet:
    """A command of the node, and what is left to do of it."""

    command: ComputeStep | RunSync | ApplyStep | ShareState
    rest: Iterator[_Operation]


class VirtualTrainer:
    """Executes work packets in order; asks ``wake(at_us)`` to be called back then.

    ``advance`` must be called at that time, and whenever the lease or the work has changed.
    """

    def __init__(
        self,
        node: str,
        job: str,
        model: TrainerModel,
        book: SyncBook,
        report: Report,
        wake: Wake,
    ) -> None:
        self._node = node
        self._job = job
        self._model = model
        self._book = book
        self._report = report
        self._wake = wake
        self._costs = GateCosts(model.costs, model.guard_us, model.switch_us)
        self._lease = Lease(0, ())
        self._work: deque[_Packet] = deque()
        self._front: _Packet | None = None
        self._begun_us = 0
        self._next: _Operation | None = None
        self._running: QuantumBegun | None = None
        self._busy_until_us = 0
        self._faults: list[InjectQuantum] = []

    def set_lease(self, now_us: int, lease: Lease) -> None:
        """Replace the lease, and look at it."""
        self._lease = lease
        self.advance(now_us)

    def take(self, now_us: int, work: Message) -> None:
        """A work packet of the node."""
        match work:
            case ComputeStep():
                self._supersede(work.epoch, work.step)
                self._work.append(_Packet(work, self._compute(work)))
            case RunSync():
                self._work.append(_Packet(work, self._sync(work)))
            case ApplyStep():
                self._work.append(_Packet(work, self._apply(work)))
            case ShareState():
                self._supersede(work.epoch, work.step)
                self._work.append(_Packet(work, self._share(work)))
            case AbandonStep():
                self._abandon(work.step)
            case InjectQuantum():
                self._faults = sorted([*self._faults, work], key=lambda item: item.at_us)
                self._wake(max(now_us, work.at_us))
        self.advance(now_us)

    def advance(self, now_us: int) -> None:
        """Do all that is due; a running quantum ends at its modelled end."""
        if self._running is not None:
            if now_us < self._running.end_us:
                return
            self._end(self._running)
            self._running = None
            self._busy_until_us = now_us + self._model.overhead_us
        if self._faults and self._faults[0].at_us <= now_us:
            fault = self._faults.pop(0)
            end_us = now_us + fault.duration_us
            self._begin(QuantumKind.FAULT, 0, now_us, end_us, fault.sms)
            return
        if now_us < self._busy_until_us:
            self._wake(self._busy_until_us)
            return
        while self._running is None:
            operation = self._peek(now_us)
            if operation is None:
                return
            if isinstance(operation, Message):
                self._next = None
                self._report(operation)
            elif isinstance(operation, _Hold):
                if now_us < self._begun_us + operation.after_us:
                    self._wake(self._begun_us + operation.after_us)
                    return
                self._next = None
            elif not self._try_start(now_us, *operation):
                return

    def _peek(self, now_us: int) -> _Operation | None:
        while self._next is None and self._work:
            work = self._work[0]
            if self._front is not work:
                self._front, self._begun_us = work, now_us
            self._next = next(work.rest, None)
            if self._next is None:
                self._work.popleft()
        return self._next

    def _try_start(self, now_us: int, kind: QuantumKind, block: int) -> bool:
        decision = next_start(self._lease, now_us, self._costs.p99_us(kind, block))
        if isinstance(decision, WaitUntil):
            self._wake(decision.at_us)
            return False
        if not isinstance(decision, Start):
            return False
        end_us = now_us + self._costs.modelled_us(kind, decision.sms)
        if self._faults and end_us > self._faults[0].at_us:
            return False  # the fault comes first; it has its own wake-up
        self._costs.started(decision.sms)
        self._next = None
        self._begin(kind, block, now_us, end_us, decision.sms)
        return True

    def _begin(self, kind: QuantumKind, block: int, start_us: int, end_us: int, sms: int) -> None:
        step = self._work[0].command.step if self._work else 0
        self._running = QuantumBegun(
            step, int(kind), block, start_us, end_us, sms, self._lease.epoch
        )
        self._report(self._running)
        self._wake(end_us)

    def _end(self, quantum: QuantumBegun) -> None:
        self._report(
            QuantumEnded(
                quantum.step,
                quantum.kind,
                quantum.block,
                quantum.start_us,
                quantum.end_us,
                quantum.end_us,
                0,
                quantum.sms,
                quantum.lease_epoch,
            )
        )

    def _abandon(self, step: int) -> None:
        """A running quantum goes on; all else of the step is dropped, in whatever epoch it came."""
        if self._work and self._work[0].command.step == step:
            self._next = None
        self._work = deque([packet for packet in self._work if packet.command.step != step])
        self._book.drop(self._job, self._node)

    def _supersede(self, epoch: int, step: int) -> None:
        """The step goes on in a newer epoch: what of it needed the members of an older one has
        failed, and ends when a running quantum does."""
        reason = f"superseded: step {step} goes on in epoch {epoch}"
        for packet in self._work:
            old = packet.command
            if old.step != step or old.epoch >= epoch:
                continue
            failed: Message
            if isinstance(old, RunSync):
                failed = SyncEnded(old.epoch, step, False, 0, 0, reason)
            elif isinstance(old, ShareState):
                failed = ShareEnded(old.epoch, step, False, "", 0, reason)
            else:
                continue
            packet.rest = iter((failed,))
            if packet is self._work[0]:
                self._next = None

    def _compute(self, work: ComputeStep) -> Iterator[_Operation]:
        for sample in work.samples:
            yield from micro_batch_quanta(self._model.layers, self._model.costs.head_chunks)
            self._book.add(self._job, self._node, work.step, self._model.proxy_tokens)
            yield SampleComputed(work.epoch, work.step, sample, self._model.proxy_tokens, -1)
        yield StepComputed(work.epoch, work.step)

    def _sync(self, work: RunSync) -> Iterator[_Operation]:
        tokens = self._book.summed(self._job, work.epoch, work.step)
        chunks = self._model.costs.optimiser_chunks
        arrivals_us = bucket_arrivals_us(chunks, work.ring_us, work.ring_latency_us)
        for arrival_us, quantum in zip(arrivals_us, optimiser_quanta(chunks), strict=True):
            yield _Hold(arrival_us)
            yield quantum
        yield SyncEnded(work.epoch, work.step, True, tokens, 0, "")

    def _apply(self, work: ApplyStep) -> Iterator[_Operation]:
        yield Applied(work.epoch, work.step, "")

    def _share(self, work: ShareState) -> Iterator[_Operation]:
        if work.rank > 0:
            self._book.drop(self._job, self._node)
            yield _Hold(work.transfer_us)
        yield ShareEnded(work.epoch, work.step, True, "", 0, "")
