"""One run as the figures see it: its scope, its tables, the interval, and each site's timeline.

Owns the step from rows to step functions: what the RAN held and wanted, leases, quanta by their
fate, what trainers were about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from testbed.gpu.quanta import QuantumKind
from testbed.gpu.spare import Ints, Steps, TrainerState, largest, stack, states
from testbed.record.schema import SampleEvent, StepEvent, TrainerEvent
from testbed.record.scope import RunScope, SiteScope
from testbed.record.tables import NODE

COMMITTED = "committed"
FAULT = "injected_fault"
RETURNED = "samples_returned"
ABANDONED = "step_abandoned"
OPEN = "step_open"
WASTE_CAUSES = (RETURNED, ABANDONED, OPEN, FAULT)

# The last column that tells how far a table reaches, in emulated time.
_REACH = {
    "ran_tasks": "end_us",
    "promises": "at_us",
    "quanta": "end_us",
    "lateness": "at_us",
    "steps": "at_us",
}


class Recording:
    """A run's tables with the interval that its figures are over.

    A run that died is measured up to where its tables reach.
    """

    def __init__(
        self, scope: RunScope, manifest: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]
    ) -> None:
        self.scope = scope
        self.manifest = manifest
        self.tables = tables
        self.from_us = scope.warmup_us
        self.planned_to_us = scope.warmup_us + scope.measured_us
        outcome = manifest.get("outcome") or {}
        self.complete = outcome.get("status") == "done"
        self.to_us = self.planned_to_us
        if not self.complete:
            self.to_us = max(self.from_us, min(self.planned_to_us, self._reached_us()))

    @property
    def measured_us(self) -> int:
        """Length of the interval; 0 where the run ended before its warm-up did."""
        return self.to_us - self.from_us

    def rows(self, table: str, site: SiteScope | None = None) -> pl.DataFrame:
        """A table, or the part of it that a site's nodes wrote."""
        frame = self.tables[table]
        return frame if site is None else frame.filter(pl.col(NODE).is_in(site.nodes))

    @cached_property
    def timelines(self) -> dict[str, SiteTimeline]:
        """Each site's timeline, by name."""
        committed = committed_steps(self.tables["steps"])
        return {site.name: _site_timeline(self, site, committed) for site in self.scope.sites}

    def _reached_us(self) -> int:
        reached = [self.tables[table][column].max() for table, column in _REACH.items()]
        return max((value for value in reached if isinstance(value, int)), default=0)


@dataclass(frozen=True, slots=True)
class SiteTimeline:
    """A site's GPU over time, over the whole run.

    ``ran``: SMs that PHY tasks had, at most S. ``wanted``: the larger of those and of the SMs that
    were reserved for them before training got in the way. ``quanta``: rows with a further column
    ``fate`` (``committed`` or a cause of waste).
    """

    site: SiteScope
    tasks: pl.DataFrame
    quanta: pl.DataFrame
    ran: Steps
    wanted: Steps
    lease: Steps
    committed: Steps
    wasted: dict[str, Steps]
    running: Steps
    state: Steps


def committed_steps(steps: pl.DataFrame) -> set[tuple[int, int]]:
    """(job, step) of every committed step."""
    done = steps.filter(pl.col("event") == StepEvent.COMMITTED)
    return set(zip(done["job"].to_list(), done["step"].to_list(), strict=True))


def ints(frame: pl.DataFrame, column: str) -> Ints:
    """A column as an int64 array."""
    return frame[column].to_numpy().astype(np.int64, copy=False)


def _site_timeline(
    recording: Recording, site: SiteScope, committed: set[tuple[int, int]]
) -> SiteTimeline:
    tasks = recording.rows("ran_tasks", site)
    quanta = recording.rows("quanta", site)
    fate = _fates(recording, site, quanta, committed)
    quanta = quanta.with_columns(pl.Series("fate", fate, dtype=pl.String))
    leases = recording.rows("leases", site)
    pieces = recording.rows("ran_pieces", site)
    ran = _pieces(pieces, planned=0)
    span = ("start_us", "end_us", "sms")
    return SiteTimeline(
        site=site,
        tasks=tasks,
        quanta=quanta,
        ran=ran.clipped(site.sms),
        wanted=largest([ran, _pieces(pieces, planned=1)]).clipped(site.sms),
        lease=stack(*(ints(leases, name) for name in span)),
        committed=_stacked(quanta, fate == COMMITTED),
        wasted={cause: _stacked(quanta, fate == cause) for cause in WASTE_CAUSES},
        running=stack(*(ints(quanta, name) for name in span)),
        state=largest(_trainer_states(recording.rows("trainer_events", site))),
    )


def _pieces(pieces: pl.DataFrame, planned: int) -> Steps:
    chosen = pieces.filter(pl.col("planned") == planned)
    return stack(*(ints(chosen, name) for name in ("from_us", "to_us", "sms")))


def _stacked(quanta: pl.DataFrame, which: npt.NDArray[Any]) -> Steps:
    return stack(*(ints(quanta, name)[which] for name in ("start_us", "end_us", "sms")))


def _fates(
    recording: Recording, site: SiteScope, quanta: pl.DataFrame, committed: set[tuple[int, int]]
) -> npt.NDArray[Any]:
    """What became of each quantum's work: committed, or the cause of its waste."""
    fate = np.full(len(quanta), OPEN, dtype=object)
    node, step = quanta[NODE].to_numpy(), ints(quanta, "step")
    start = ints(quanta, "start_us")
    dropped = _dropped_until(recording, site)
    for trainer in sorted(set(node.tolist())):
        job = recording.scope.trainers.get(trainer, 0)
        for number in np.unique(step[node == trainer]).tolist():
            mine = (node == trainer) & (step == number)
            if (job, number) in committed:
                fate[mine] = COMMITTED
            for cause in (RETURNED, ABANDONED):
                until_us = dropped.get((cause, trainer, number))
                if until_us is not None:
                    fate[mine & (start < until_us)] = cause
    fate[ints(quanta, "kind") == QuantumKind.FAULT] = FAULT
    return fate


def _dropped_until(recording: Recording, site: SiteScope) -> dict[tuple[str, str, int], int]:
    """(cause, trainer, step) -> time up to which that trainer's work on the step was lost.

    A trainer drops a step when it is told to abandon it; a trainer that is lost says nothing, and
    then the samples that it had computed are returned. A step that is never committed is
    abandoned as a whole where the coordinator says so.
    """
    dropped: dict[tuple[str, str, int], int] = {}
    gone = recording.rows("trainer_events", site).filter(pl.col("event") == TrainerEvent.ABANDONED)
    for trainer, step, at_us in gone.select(NODE, "step", "at_us").iter_rows():
        key = (ABANDONED, trainer, step)
        dropped[key] = max(at_us, dropped.get(key, at_us))
    given_up = recording.rows("steps").filter(pl.col("event") == StepEvent.ABANDONED)
    abandoned = given_up.select("job", "step", "at_us").rows()
    owners = [
        (trainer, recording.scope.jobs[job])
        for trainer, job in recording.scope.trainers.items()
        if trainer in site.nodes and job < len(recording.scope.jobs)
    ]
    returned = _returned_work(recording.rows("samples"))
    for trainer, job in owners:
        for of_job, step, at_us in abandoned:
            if of_job == job.index:
                key = (ABANDONED, trainer, step)
                dropped[key] = max(at_us, dropped.get(key, at_us))
        for of_job, step, owner, at_us in returned:
            if of_job == job.index and job.sites[owner : owner + 1] == (site.name,):
                key = (RETURNED, trainer, step)
                dropped[key] = max(at_us, dropped.get(key, at_us))
    return dropped


def _returned_work(samples: pl.DataFrame) -> list[tuple[int, int, int, int]]:
    """(job, step, owner, time) of each return of samples that a trainer had computed."""
    key = ["job", "epoch", "step", "sample"]
    back = samples.filter(pl.col("event") == SampleEvent.RETURNED).drop("owner")
    if not len(back):
        return []
    computed = samples.filter(pl.col("event") == SampleEvent.COMPUTED).select(*key, "owner")
    lost = back.join(computed.unique(), on=key, how="inner")
    return sorted(lost.select("job", "step", "owner", "at_us").rows())


def _trainer_states(events: pl.DataFrame) -> list[Steps]:
    """Per trainer, what it is about (see ``_TrainerView``)."""
    found = []
    for node in sorted(set(events[NODE].to_list())):
        mine = events.filter(pl.col(NODE) == node).sort("at_us", "epoch", "step", "event")
        rows = mine.select("at_us", "step", "event").rows()
        last = max((i for i, row in enumerate(rows) if row[2] == TrainerEvent.ASSIGNED), default=-1)
        view = _TrainerView()
        after = [view.after(step, event, i < last) for i, (_, step, event) in enumerate(rows)]
        found.append(states(mine["at_us"].to_numpy(), after))
    return found


class _TrainerView:
    """Follows one trainer's events.

    It works while samples are to be computed or a committed step is to be applied (the next step
    is assigned before the last one is applied); it waits from its arrival at a barrier to the
    commit, and for the assignment of a next step where one follows; else it is idle.
    """

    def __init__(self) -> None:
        self._computing: set[int] = set()
        self._syncing: set[int] = set()
        self._applying: set[int] = set()

    def after(self, step: int, event: int, more_to_come: bool) -> TrainerState:
        for phase in (self._computing, self._syncing, self._applying):
            if event not in (TrainerEvent.SYNC_BEGUN, TrainerEvent.SYNC_ENDED):
                phase.discard(step)
        if event == TrainerEvent.ASSIGNED:
            self._computing.add(step)
        elif event == TrainerEvent.COMPUTED:
            self._syncing.add(step)
        elif event == TrainerEvent.COMMITTED:
            self._applying.add(step)
        if self._computing or self._applying:
            return TrainerState.WORK
        if self._syncing or (event == TrainerEvent.APPLIED and more_to_come):
            return TrainerState.WAITING
        return TrainerState.IDLE
