"""A trainer: one job's share of one site's GPU, between coordinator, site agent and executor.

It must not decide which samples it trains, nor when a quantum may start: the coordinator owns the
samples, and the gate in the executor reads the lease.
"""

from __future__ import annotations

from nodes.api import (
    Decide,
    Effect,
    Event,
    GrantLease,
    Injected,
    NodeContext,
    Received,
    Record,
    Reported,
    Send,
    Work,
)
from protocols.messages import (
    BarrierOpen,
    BarrierReached,
    LeaseGrant,
    MicroBatchDone,
    QuantumStarted,
    StateShare,
    StateShared,
    StepAbandon,
    StepApplied,
    StepAssign,
    StepCommit,
    SyncDone,
)
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
from testbed.gpu.gate import Lease, Window
from testbed.record.schema import TrainerEvent
from testbed.topology.views import COORDINATOR, node_name


class Trainer:
    """State machine of one trainer."""

    def __init__(self, context: NodeContext) -> None:
        self._node = context.node
        self._job = context.job
        self._agent = node_name(context.site, "agent")
        self._store = context.facts.get("store", "")

    def step(self, now_us: int, event: Event) -> list[Effect]:
        """Pass work on, and what became of it back; note when each part of a step was reached."""
        match event:
            case Received(message=message):
                return self._on_message(now_us, message)
            case Reported(message=report):
                return self._on_report(now_us, report)
            case Injected(fault="late_quantum", at_us=at_us, numbers=(duration_us, sms)):
                return [
                    Decide("fault late_quantum", f"{duration_us} us, {sms} SMs at {at_us} us"),
                    Work(InjectQuantum(at_us, duration_us, sms)),
                ]
        return []

    def _on_message(self, now_us: int, message: object) -> list[Effect]:
        match message:
            case LeaseGrant(epoch=epoch, bandwidth_permille=permille, windows=rows):
                windows = tuple([Window(*row) for row in rows])
                return [GrantLease(Lease(epoch, windows, permille))]
            case StepAssign(epoch=epoch, step=step, samples=samples):
                return [
                    Work(ComputeStep(epoch, step, samples)),
                    self._note(now_us, epoch, step, TrainerEvent.ASSIGNED),
                ]
            case BarrierOpen(epoch=epoch, step=step, members=members) as opened:
                sync = RunSync(
                    epoch,
                    step,
                    members.index(self._node),
                    len(members),
                    opened.ring_us,
                    opened.ring_latency_us,
                    self._store,
                )
                return [Work(sync), self._note(now_us, epoch, step, TrainerEvent.SYNC_BEGUN)]
            case StateShare(epoch=epoch, step=step, members=members) as asked:
                share = ShareState(
                    epoch,
                    step,
                    members.index(self._node),
                    len(members),
                    asked.transfer_us,
                    self._store,
                )
                return [Work(share), self._note(now_us, epoch, step, TrainerEvent.SHARE_BEGUN)]
            case StepCommit(epoch=epoch, step=step):
                return [
                    Work(ApplyStep(epoch, step)),
                    self._note(now_us, epoch, step, TrainerEvent.COMMITTED),
                ]
            case StepAbandon(epoch=epoch, step=step, reason=reason):
                return [
                    Work(AbandonStep(epoch, step)),
                    self._note(now_us, epoch, step, TrainerEvent.ABANDONED),
                    Decide(f"step {step}", f"abandoned: {reason}"),
                ]
        return []

    def _on_report(self, now_us: int, report: object) -> list[Effect]:
        job = self._job
        match report:
            case QuantumBegun() as begun:
                started = QuantumStarted(
                    job,
                    begun.lease_epoch,
                    begun.kind,
                    begun.block,
                    begun.start_us,
                    begun.end_us,
                    begun.sms,
                )
                return [Send(self._agent, started)]
            case QuantumEnded() as ended:
                row = (
                    ended.step,
                    ended.kind,
                    ended.block,
                    ended.start_us,
                    ended.modelled_end_us,
                    ended.end_us,
                    ended.real_us,
                    ended.sms,
                    ended.lease_epoch,
                )
                return [Record("quanta", row)]
            case SampleComputed() as done:
                result = MicroBatchDone(
                    job, done.epoch, done.step, done.sample, done.proxy_tokens, done.loss_micronats
                )
                return [Send(COORDINATOR, result)]
            case StepComputed(epoch=epoch, step=step):
                return [
                    Send(COORDINATOR, BarrierReached(job, epoch, step)),
                    self._note(now_us, epoch, step, TrainerEvent.COMPUTED),
                ]
            case SyncEnded(epoch=epoch, step=step, ok=ok, proxy_tokens=tokens, reason=reason):
                return [
                    Send(COORDINATOR, SyncDone(job, epoch, step, ok, tokens, reason)),
                    self._note(now_us, epoch, step, TrainerEvent.SYNC_ENDED),
                ]
            case ShareEnded(epoch=epoch, step=step, ok=ok, digest=digest, reason=reason):
                return [
                    Send(COORDINATOR, StateShared(job, epoch, step, ok, digest, reason)),
                    self._note(now_us, epoch, step, TrainerEvent.SHARED),
                ]
            case Applied(epoch=epoch, step=step, digest=digest):
                return [
                    Send(COORDINATOR, StepApplied(job, epoch, step, digest)),
                    self._note(now_us, epoch, step, TrainerEvent.APPLIED),
                ]
        return []

    def _note(self, now_us: int, epoch: int, step: int, event: TrainerEvent) -> Record:
        return Record("trainer_events", (epoch, step, int(event), now_us))
