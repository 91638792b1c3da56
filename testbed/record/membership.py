"""Who took part in which job: the table ``membership`` with nodes and sites in place of numbers.

Owns that step only; what a loss means for quanta, figures and pictures is decided where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from testbed.record.schema import MemberEvent
from testbed.record.scope import JobScope, RunScope


@dataclass(frozen=True, slots=True)
class MemberChange:
    """What became of a job's trainer at ``at_us``, in which step and membership epoch."""

    at_us: int
    job: JobScope
    node: str
    site: str
    event: MemberEvent
    epoch: int
    step: int

    @property
    def text(self) -> str:
        """It in words, after the name of the node."""
        return _WORDS[self.event].format(step=self.step)


_WORDS = {
    MemberEvent.LOST: "lost in step {step}",
    MemberEvent.JOINED: "back in step {step}",
    MemberEvent.ADMITTED: "admitted with step {step}",
    MemberEvent.HEALED: "healed in step {step}",
}


def member_changes(scope: RunScope, membership: pl.DataFrame) -> tuple[MemberChange, ...]:
    """The rows in order of time; those of a job or member that the run has not are left out."""
    nodes = {
        (job.index, member): (job, node, site)
        for job in scope.jobs
        for member, site in enumerate(job.sites)
        for node in _trainers(scope, job, site)
    }
    rows = membership.select("at_us", "job", "member", "event", "epoch", "step").sort(
        "at_us", "job", "epoch", "step", "event", "member"
    )
    return tuple(
        MemberChange(at_us, *nodes[job, member], MemberEvent(event), epoch, step)
        for at_us, job, member, event, epoch, step in rows.iter_rows()
        if (job, member) in nodes
    )


def healings(changes: Iterable[MemberChange]) -> Iterator[tuple[MemberChange, MemberChange]]:
    """(joined, healed) of each member that has the state again, in order of the second."""
    joined: dict[str, MemberChange] = {}
    for change in changes:
        if change.event is MemberEvent.JOINED:
            joined[change.node] = change
        elif change.event is MemberEvent.LOST:
            joined.pop(change.node, None)
        elif change.event is MemberEvent.HEALED and change.node in joined:
            yield joined.pop(change.node), change


def _trainers(scope: RunScope, job: JobScope, site: str) -> list[str]:
    nodes = next((s.nodes for s in scope.sites if s.name == site), ())
    return [node for node in nodes if scope.trainers.get(node) == job.index]
