"""The coordinator: the training jobs of a run, from slot 0 to the last commit.

It must not touch gradients or GPUs. What becomes of a step is ``training_job``'s; here are the
begin and the end of the run, and whose message is whose.
"""

from __future__ import annotations

from typing import cast

from nodes.api import (
    Decide,
    DrainRequested,
    Effect,
    Event,
    Finished,
    NodeContext,
    PeerChanged,
    Received,
    SetTimer,
    Started,
    TimerFired,
)
from nodes.training_job import TrainingJob
from protocols.messages import (
    BarrierReached,
    MicroBatchDone,
    StateShared,
    StepApplied,
    SyncDone,
)
from testbed.topology.views import RunView
from testbed.training.assignment import AssignmentPolicy

_END = "end"
_GIVE_UP = "give up"


class Coordinator:
    """State machine of the coordinator."""

    def __init__(self, context: NodeContext) -> None:
        self._view = RunView(context.topology)
        policy = cast(AssignmentPolicy, context.policies["coordinator.assignment"])
        self._jobs = {
            name: TrainingJob(name, index, self._view, policy)
            for index, name in enumerate(context.topology.jobs)
        }
        self._ending = False
        self._finished = False

    def step(self, now_us: int, event: Event) -> list[Effect]:
        """Dispatch one event; every decision is noted with its reason."""
        match event:
            case Started():
                return [SetTimer("begin", 0), SetTimer(_END, self._view.end_us)]
            case TimerFired(key="begin"):
                effects = self._begin(now_us)
            case TimerFired(key="end"):
                effects = self._end(now_us, "the measured interval is over")
            case TimerFired(key="give up"):
                effects = self._give_up(now_us, "the drain's time is over")
            case DrainRequested(reason=reason, at_once=at_once):
                effects = self._end(now_us, reason)
                effects += self._give_up(now_us, reason) if at_once else []
            case PeerChanged():
                effects = self._on_peer(now_us, event)
            case Received(source=source, message=message):
                effects = self._on_message(now_us, source, message)
            case _:
                return []
        return effects + self._finish_if_closed()

    def _begin(self, now_us: int) -> list[Effect]:
        """Slot 0; the run may have been told to end before it."""
        if self._ending:
            return []
        return [effect for job in self._jobs.values() for effect in job.assign(now_us)]

    def _on_message(self, now_us: int, source: str, message: object) -> list[Effect]:
        match message:
            case MicroBatchDone():
                return self._jobs[message.job].on_sample(now_us, source, message)
            case BarrierReached():
                return self._jobs[message.job].on_barrier(now_us, source, message)
            case SyncDone():
                return self._jobs[message.job].on_sync(now_us, source, message)
            case StepApplied():
                return self._jobs[message.job].on_applied(now_us, source, message)
            case StateShared():
                return self._jobs[message.job].on_shared(now_us, source, message)
        return []

    def _on_peer(self, now_us: int, changed: PeerChanged) -> list[Effect]:
        jobs = self._jobs.values()
        match changed.status:
            case "lost":
                return [e for job in jobs for e in job.lost(now_us, changed.node, changed.reason)]
            case "joined":
                return [e for job in jobs for e in job.joined(now_us, changed.node)]
        return []

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
            effects += job.end(reason)
        return effects

    def _give_up(self, now_us: int, reason: str) -> list[Effect]:
        return [effect for job in self._jobs.values() for effect in job.give_up(now_us, reason)]

    def _finish_if_closed(self) -> list[Effect]:
        if self._finished or not all(job.closed for job in self._jobs.values()):
            return []
        self._finished = True
        return [Finished("all jobs are closed")]
