"""What became of each quantum's work: it is in a committed step, or it was thrown away, and why.

Quanta carry their step, not their membership epoch: what a trainer computed for a step counts in
whatever epoch the step was committed, unless that trainer dropped it or was lost before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from testbed.gpu.quanta import QuantumKind
from testbed.record.schema import MemberEvent, SampleEvent, StepEvent, TrainerEvent
from testbed.record.scope import JobScope, SiteScope
from testbed.record.tables import NODE, ints

if TYPE_CHECKING:
    from testbed.record.recording import Recording

COMMITTED = "committed"
FAULT = "injected_fault"
RETURNED = "samples_returned"
ABANDONED = "step_abandoned"
REPEATED = "sum_repeated"
LOST = "trainer_lost"
OPEN = "step_open"
WASTE_CAUSES = (RETURNED, ABANDONED, REPEATED, LOST, OPEN, FAULT)

_DROPPED = (RETURNED, ABANDONED, REPEATED, LOST)
"""Causes that reach up to a time; of several that apply the last one is named."""

_Dropped = tuple[str, str, int, int]


def fates(recording: Recording, site: SiteScope, quanta: pl.DataFrame) -> npt.NDArray[Any]:
    """Per row of ``quanta``, which are the site's: ``COMMITTED``, or the cause of its waste."""
    fate = np.full(len(quanta), OPEN, dtype=object)
    node, step = quanta[NODE].to_numpy(), ints(quanta, "step")
    start, kind = ints(quanta, "start_us"), ints(quanta, "kind")
    committed = _committed_us(recording)
    dropped = _dropped_until(recording, site, committed)
    for trainer in sorted(set(node.tolist())):
        job = recording.scope.trainers.get(trainer, 0)
        for number in np.unique(step[node == trainer]).tolist():
            mine = (node == trainer) & (step == number)
            if (job, number) in committed:
                fate[mine] = COMMITTED
            for cause in _DROPPED:
                until_us = dropped.get((cause, trainer, number))
                if until_us is not None:
                    gone = mine & (start < until_us)
                    if cause == REPEATED:
                        gone &= kind == QuantumKind.OPTIMISER
                    fate[gone] = cause
    fate[kind == QuantumKind.FAULT] = FAULT
    return fate


def _committed_us(recording: Recording) -> dict[tuple[int, int], int]:
    """(job, step) -> when it was committed."""
    done = recording.tables["steps"].filter(pl.col("event") == StepEvent.COMMITTED)
    return {(job, step): at_us for job, step, at_us in done.select("job", "step", "at_us").rows()}


def _dropped_until(
    recording: Recording, site: SiteScope, committed: dict[tuple[int, int], int]
) -> dict[tuple[str, str, int], int]:
    """(cause, trainer, step) -> time up to which that trainer's work on the step was lost."""
    trainers = [
        (trainer, recording.scope.jobs[job])
        for trainer, job in recording.scope.trainers.items()
        if trainer in site.nodes and job < len(recording.scope.jobs)
    ]
    dropped: dict[tuple[str, str, int], int] = {}
    for found in (
        _abandoned(recording, site, trainers),
        _returned(recording, site, trainers),
        _repeated(recording, site, trainers),
        _lost(recording, site, committed),
    ):
        for cause, trainer, step, at_us in found:
            key = (cause, trainer, step)
            dropped[key] = max(at_us, dropped.get(key, at_us))
    return dropped


def _abandoned(
    recording: Recording, site: SiteScope, trainers: list[tuple[str, JobScope]]
) -> Iterator[_Dropped]:
    """A trainer drops a step when it is told to abandon it; a step that is never committed is
    abandoned as a whole where the coordinator says so."""
    gone = recording.rows("trainer_events", site).filter(pl.col("event") == TrainerEvent.ABANDONED)
    for trainer, step, at_us in gone.select(NODE, "step", "at_us").iter_rows():
        yield ABANDONED, trainer, step, at_us
    given_up = recording.tables["steps"].filter(pl.col("event") == StepEvent.ABANDONED)
    for of_job, step, at_us in given_up.select("job", "step", "at_us").iter_rows():
        for trainer, job in trainers:
            if of_job == job.index:
                yield ABANDONED, trainer, step, at_us


def _returned(
    recording: Recording, site: SiteScope, trainers: list[tuple[str, JobScope]]
) -> Iterator[_Dropped]:
    """Samples that a trainer had computed are returned: it cannot be relied on any more."""
    samples = recording.tables["samples"]
    key = ["job", "epoch", "step", "sample"]
    back = samples.filter(pl.col("event") == SampleEvent.RETURNED).drop("owner")
    if not len(back):
        return
    computed = samples.filter(pl.col("event") == SampleEvent.COMPUTED).select(*key, "owner")
    lost = back.join(computed.unique(), on=key, how="inner")
    for of_job, step, owner, at_us in lost.select("job", "step", "owner", "at_us").iter_rows():
        for trainer, job in trainers:
            if of_job == job.index and job.sites[owner : owner + 1] == (site.name,):
                yield RETURNED, trainer, step, at_us


def _repeated(
    recording: Recording, site: SiteScope, trainers: list[tuple[str, JobScope]]
) -> Iterator[_Dropped]:
    """A step goes on in another epoch: its gradients are kept, but the optimiser, which followed
    its sum provisionally up to where the trainer was told, starts again."""
    regrouped = recording.tables["steps"].filter(pl.col("event") == StepEvent.REGROUPED)
    if not len(regrouped):
        return
    assigned = recording.rows("trainer_events", site).filter(
        pl.col("event") == TrainerEvent.ASSIGNED
    )
    columns = assigned.select(NODE, "epoch", "step", "at_us").iter_rows()
    told = {(trainer, epoch, step): at_us for trainer, epoch, step, at_us in columns}
    rows = regrouped.select("job", "epoch", "step", "at_us")
    for of_job, epoch, step, at_us in rows.iter_rows():
        for trainer, job in trainers:
            if of_job == job.index:
                until_us = max(at_us, told.get((trainer, epoch, step), at_us))
                yield REPEATED, trainer, step, until_us


def _lost(
    recording: Recording, site: SiteScope, committed: dict[tuple[int, int], int]
) -> Iterator[_Dropped]:
    """What a trainer had done for the step that was open when it was lost is computed again, by
    the others or by nobody."""
    for change in recording.member_changes:
        if change.event is not MemberEvent.LOST or change.site != site.name:
            continue
        done_us = committed.get((change.job.index, change.step))
        if done_us is None or done_us > change.at_us:
            yield LOST, change.node, change.step, change.at_us
