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
    """Token counts that the members of a job have computed: what their collective would sum."""

    tokens: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def add(self, job: str, epoch: int, step: int, tokens: int) -> None:
        """A member has computed so many tokens of a step."""
        key = (job, epoch, step)
        self.tokens[key] = self.tokens.get(key, 0) + tokens


@dataclass(frozen=True, slots=True)
class _Hold:
    """Nothing before ``after_us`` from when the work packet came to the front."""

    after_us: int


_Operation = tuple[QuantumKind, int] | Message | _Hold
_Packet = tuple[int, int, Iterator[_Operation]]


class VirtualTrainer:
    """Executes work packets in order; asks ``wake(at_us)`` to be called back then.

    ``advance`` must be called at that time, and whenever the lease or the work has changed.
    """

    def __init__(
        self, job: str, model: TrainerModel, book: SyncBook, report: Report, wake: Wake
    ) -> None:
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
                self._work.append((work.epoch, work.step, self._compute(work)))
            case RunSync():
                self._work.append((work.epoch, work.step, self._sync(work)))
            case ApplyStep():
                self._work.append((work.epoch, work.step, self._apply(work)))
            case AbandonStep():
                self._drop(work.epoch, work.step)
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
            self._next = next(work[2], None)
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
        step = self._work[0][1] if self._work else 0
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

    def _drop(self, epoch: int, step: int) -> None:
        kept = [item for item in self._work if item[:2] != (epoch, step)]
        if self._work and self._work[0][:2] == (epoch, step):
            self._next = None
        self._work = deque(kept)

    def _compute(self, work: ComputeStep) -> Iterator[_Operation]:
        for sample in work.samples:
            yield from micro_batch_quanta(self._model.layers, self._model.costs.head_chunks)
            self._book.add(self._job, work.epoch, work.step, self._model.proxy_tokens)
            yield SampleComputed(work.epoch, work.step, sample, self._model.proxy_tokens, -1)
        yield StepComputed(work.epoch, work.step)

    def _sync(self, work: RunSync) -> Iterator[_Operation]:
        tokens = self._book.tokens.get((self._job, work.epoch, work.step), 0)
        chunks = self._model.costs.optimiser_chunks
        arrivals_us = bucket_arrivals_us(chunks, work.ring_us, work.ring_latency_us)
        for arrival_us, quantum in zip(arrivals_us, optimiser_quanta(chunks), strict=True):
            yield _Hold(arrival_us)
            yield quantum
        yield SyncEnded(work.epoch, work.step, True, tokens, 0, "")

    def _apply(self, work: ApplyStep) -> Iterator[_Operation]:
        yield Applied(work.epoch, work.step, "")
