"""The coordinator: which trainer owns which samples, when a step may be summed, what is committed.

It must not touch gradients or GPUs. Per job: ASSIGNED (samples are out) -> SYNCING (all members
have arrived; the collective runs, and the optimiser follows it provisionally) -> committed, and the
next step is assigned in the same breath. Nothing is committed that any member did not sum.
"""

from __future__ import annotations

from enum import Enum
from typing import cast

from nodes.api import (
    Decide,
    DrainRequested,
    Effect,
    Event,
    Fail,
    Finished,
    NodeContext,
    PeerChanged,
    Progress,
    Received,
    Record,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from protocols.messages import (
    BarrierOpen,
    BarrierReached,
    LeaseClose,
    MicroBatchDone,
    StepAbandon,
    StepApplied,
    StepAssign,
    StepCommit,
    SyncDone,
)
from testbed.errors import PolicyError
from testbed.record.schema import SampleEvent, StepEvent
from testbed.topology.views import RunView, node_name
from testbed.training.assignment import AssignmentPolicy
from testbed.training.ledger import SampleLedger, Verdict
from testbed.training.ring import ring_allreduce_us, ring_latency_us

_END = "end"
_GIVE_UP = "give up"


class _Phase(Enum):
    IDLE = "idle"
    ASSIGNED = "assigned"
    SYNCING = "syncing"
    CLOSED = "closed"


class _Job:
    """State of one job."""

    def __init__(self, name: str, members: tuple[str, ...], sites: tuple[str, ...]) -> None:
        self.name = name
        self.members = members
        self.sites = sites
        self.ledger = SampleLedger()
        self.phase = _Phase.IDLE
        self.epoch = 1
        self.next_step = 0
        self.arrived: set[str] = set()
        self.synced: dict[str, SyncDone] = {}
        self.losses: dict[int, tuple[int, int]] = {}
        self.digests: dict[int, dict[str, str]] = {}

    @property
    def step(self) -> int:
        return self.next_step - 1


class Coordinator:
    """State machine of the coordinator."""

    def __init__(self, context: NodeContext) -> None:
        self._view = RunView(context.topology)
        self._policy = cast(AssignmentPolicy, context.policies["coordinator.assignment"])
        self._jobs = {
            name: _Job(
                name,
                tuple(node_name(site, name, "trainer") for site in job.sites),
                tuple(job.sites),
            )
            for name, job in context.topology.jobs.items()
        }
        self._index = {name: index for index, name in enumerate(self._jobs)}
        self._ending = False
        self._finished = False

    def step(self, now_us: int, event: Event) -> list[Effect]:
        """Dispatch one event; every decision is noted with its reason."""
        match event:
            case Started():
                return [SetTimer("begin", 0), SetTimer(_END, self._view.end_us)]
            case TimerFired(key="begin"):
                return self._begin(now_us)
            case TimerFired(key="end"):
                return self._end(now_us, "the measured interval is over")
            case TimerFired(key="give up"):
                return self._give_up(now_us, "the drain's time is over")
            case DrainRequested(reason=reason, at_once=at_once):
                ending = self._end(now_us, reason)
                return ending + self._give_up(now_us, reason) if at_once else ending
            case PeerChanged(status="lost") as lost:
                return self._on_lost(now_us, lost)
            case Received(source=source, message=message):
                return self._on_message(now_us, source, message)
        return []

    def _begin(self, now_us: int) -> list[Effect]:
        """Slot 0; the run may have been told to end before it."""
        effects: list[Effect] = []
        for job in self._jobs.values():
            if not self._ending:
                effects += self._assign(now_us, job)
        return effects + self._finish_if_closed()

    def _on_message(self, now_us: int, source: str, message: object) -> list[Effect]:
        match message:
            case MicroBatchDone() as done:
                return self._on_sample(now_us, source, done)
            case BarrierReached() as reached:
                return self._on_barrier(now_us, source, reached)
            case SyncDone() as done:
                return self._on_sync(now_us, source, done)
            case StepApplied() as applied:
                return self._on_applied(now_us, source, applied)
        return []

    # --- one step -------------------------------------------------------------------------------

    def _assign(self, now_us: int, job: _Job) -> list[Effect]:
        step = job.next_step
        job.next_step += 1
        job.phase = _Phase.ASSIGNED
        job.arrived.clear()
        job.synced.clear()
        job.losses.clear()
        total = self._view.job(job.name).global_batch
        effects: list[Effect] = []
        counts = self._policy.split(total, job.members)
        if set(counts) != set(job.members) or sum(counts.values()) != total:
            name = type(self._policy).__name__
            raise PolicyError(f"assignment policy {name}: {dict(counts)} is not a split of {total}")
        for owner, member in enumerate(job.members):
            samples = job.ledger.issue(member, job.epoch, step, counts[member])
            effects.append(Send(member, StepAssign(job.name, job.epoch, step, samples)))
            effects += self._sample_rows(now_us, job, step, samples, owner, SampleEvent.ISSUED)
        return [*effects, self._step_row(now_us, job, step, StepEvent.ASSIGNED)]

    def _on_sample(self, now_us: int, source: str, done: MicroBatchDone) -> list[Effect]:
        job = self._jobs[done.job]
        verdict = job.ledger.computed(done.sample, source, done.epoch, done.step)
        owner = job.members.index(source)
        if verdict is not Verdict.ACCEPTED:
            event = SampleEvent.DUPLICATE
            reason = f"{verdict.value} result of {source}, step {done.step}, epoch {done.epoch}"
            refused: list[Effect] = [Decide(f"sample {done.sample}", reason)]
            return refused + self._sample_rows(now_us, job, done.step, (done.sample,), owner, event)
        job.losses[done.sample] = (done.loss_micronats, done.proxy_tokens)
        return self._sample_rows(
            now_us, job, done.step, (done.sample,), owner, SampleEvent.COMPUTED
        )

    def _on_barrier(self, now_us: int, source: str, reached: BarrierReached) -> list[Effect]:
        job = self._jobs[reached.job]
        if job.phase is not _Phase.ASSIGNED or not self._current(job, reached.epoch, reached.step):
            return [Decide(f"barrier {reached.step}", f"stale arrival of {source}")]
        job.arrived.add(source)
        if len(job.arrived) < len(job.members):
            return []
        missing = job.ledger.missing(job.step)
        if missing:
            what = f"all members arrived at the barrier of step {job.step}"
            return [Fail(f"job {job.name}: {what}, but samples {missing} are not computed")]
        job.phase = _Phase.SYNCING
        link = self._view.slowest_link(job.sites)
        members = len(job.members)
        payload = self._view.gradient_bytes(job.name)
        opened = BarrierOpen(
            job.name,
            job.epoch,
            job.step,
            job.members,
            ring_allreduce_us(members, payload, link.bandwidth_gbps, link.latency_us),
            ring_latency_us(members, link.latency_us),
        )
        effects: list[Effect] = [Send(member, opened) for member in job.members]
        return [*effects, self._step_row(now_us, job, job.step, StepEvent.BARRIER_OPEN)]

    def _on_sync(self, now_us: int, source: str, done: SyncDone) -> list[Effect]:
        job = self._jobs[done.job]
        if job.phase is not _Phase.SYNCING or not self._current(job, done.epoch, done.step):
            return [Decide(f"sync {done.step}", f"stale result of {source}")]
        if not done.ok:
            return [Fail(f"job {job.name}: the collective of step {done.step}: {done.reason}")]
        job.synced[source] = done
        if len(job.synced) < len(job.members):
            return []
        tokens = {result.proxy_tokens for result in job.synced.values()}
        if len(tokens) != 1:
            return [Fail(f"job {job.name}: members summed different token counts {sorted(tokens)}")]
        return self._commit(now_us, job)

    def _commit(self, now_us: int, job: _Job) -> list[Effect]:
        step = job.step
        samples = job.ledger.commit(step)
        effects: list[Effect] = [
            Send(member, StepCommit(job.name, job.epoch, step)) for member in job.members
        ]
        effects += self._sample_rows(now_us, job, step, samples, -1, SampleEvent.COMMITTED)
        committed = self._step_row(now_us, job, step, StepEvent.COMMITTED)
        effects += [committed, self._progress(job, committed)]
        job.digests[step] = {}
        if self._ending:
            job.phase = _Phase.IDLE
        else:
            effects += self._assign(now_us, job)
        return effects

    def _on_applied(self, now_us: int, source: str, applied: StepApplied) -> list[Effect]:
        job = self._jobs[applied.job]
        digests = job.digests.get(applied.step)
        if digests is None or applied.epoch != job.epoch:
            return [Decide(f"applied {applied.step}", f"stale report of {source}")]
        digests[source] = applied.digest
        if len(digests) < len(job.members):
            return []
        del job.digests[applied.step]
        if len(set(digests.values())) != 1:
            return [
                Fail(f"job {job.name}: parameters differ between members after step {applied.step}")
            ]
        effects: list[Effect] = [self._step_row(now_us, job, applied.step, StepEvent.APPLIED)]
        if self._ending and job.phase is _Phase.IDLE and not job.digests:
            effects += self._close(job, "its last step was applied")
        return effects

    # --- the end --------------------------------------------------------------------------------

    def _end(self, now_us: int, reason: str) -> list[Effect]:
        if self._ending:
            return []
        self._ending = True
        effects: list[Effect] = [
            Decide("run", f"no new step: {reason}"),
            SetTimer(_GIVE_UP, now_us + self._view.drain_us),
        ]
        for job in self._jobs.values():
            if job.phase is _Phase.IDLE and not job.digests:
                effects += self._close(job, reason)
        return effects + self._finish_if_closed()

    def _give_up(self, now_us: int, reason: str) -> list[Effect]:
        """There is no more time: what is still open is not committed, its samples return."""
        effects: list[Effect] = []
        for job in self._jobs.values():
            if job.phase is _Phase.CLOSED:
                continue
            if job.phase is not _Phase.IDLE:
                effects += self._abandon(now_us, job, reason)
            effects += self._close(job, reason)
        return effects

    def _abandon(self, now_us: int, job: _Job, reason: str) -> list[Effect]:
        step = job.step
        effects: list[Effect] = [
            Send(member, StepAbandon(job.name, job.epoch, step, reason)) for member in job.members
        ]
        returned = job.ledger.give_back(step)
        effects += self._sample_rows(now_us, job, step, returned, -1, SampleEvent.RETURNED)
        effects.append(self._step_row(now_us, job, step, StepEvent.ABANDONED))
        job.phase = _Phase.IDLE
        return effects

    def _close(self, job: _Job, reason: str) -> list[Effect]:
        job.phase = _Phase.CLOSED
        effects: list[Effect] = [
            Send(node_name(site, "agent"), LeaseClose(job.name, reason)) for site in job.sites
        ]
        counts = job.ledger.counts()
        summary = (
            f"{reason}; samples issued {counts.issued}, committed {counts.committed}, "
            f"returned {counts.returned}, duplicates refused {counts.duplicated}"
        )
        return [*effects, Decide(f"job {job.name}", summary), *self._finish_if_closed()]

    def _finish_if_closed(self) -> list[Effect]:
        if self._finished or not all(j.phase is _Phase.CLOSED for j in self._jobs.values()):
            return []
        self._finished = True
        return [Finished("all jobs are closed")]

    def _on_lost(self, now_us: int, lost: PeerChanged) -> list[Effect]:
        """A trainer is gone: its open step cannot be summed any more."""
        effects: list[Effect] = []
        for job in self._jobs.values():
            if lost.node in job.members and job.phase in (_Phase.ASSIGNED, _Phase.SYNCING):
                effects += self._abandon(now_us, job, f"{lost.node} is lost: {lost.reason}")
        return effects

    # --- helpers --------------------------------------------------------------------------------

    def _current(self, job: _Job, epoch: int, step: int) -> bool:
        return (epoch, step) == (job.epoch, job.step)

    def _step_row(self, now_us: int, job: _Job, step: int, event: StepEvent) -> Record:
        tokens = sum(count for _, count in job.losses.values())
        known = [(loss, count) for loss, count in job.losses.values() if loss >= 0]
        loss = -1
        if event is StepEvent.COMMITTED and known and tokens:
            loss = sum(loss * count for loss, count in known) // tokens
        index = self._index[job.name]
        samples = len(job.losses)
        return Record("steps", (index, job.epoch, step, int(event), now_us, loss, tokens, samples))

    def _progress(self, job: _Job, committed: Record) -> Progress:
        loss_micronats = committed.row[5]
        loss = f", loss {loss_micronats / 1e6:.3f}" if loss_micronats >= 0 else ""
        return Progress(f"{job.name}: step {job.step}{loss}")

    def _sample_rows(
        self,
        now_us: int,
        job: _Job,
        step: int,
        samples: tuple[int, ...],
        owner: int,
        event: SampleEvent,
    ) -> list[Effect]:
        index = self._index[job.name]
        return [
            Record("samples", (index, job.epoch, step, sample, owner, int(event), now_us))
            for sample in samples
        ]
