"""One run as the figures see it: its scope, its tables, the interval, and each site's timeline.

Owns the step from rows to step functions: what the RAN held and wanted, leases, quanta by their
fate (``fates.py``), what trainers were about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt
import polars as pl

from testbed.gpu.spare import Steps, TrainerState, largest, stack, states
from testbed.record.fates import COMMITTED, WASTE_CAUSES, fates
from testbed.record.membership import MemberChange, member_changes
from testbed.record.schema import MemberEvent, TrainerEvent
from testbed.record.scope import RunScope, SiteScope
from testbed.record.tables import NODE, ints

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
        return {site.name: _site_timeline(self, site) for site in self.scope.sites}

    @cached_property
    def member_changes(self) -> tuple[MemberChange, ...]:
        """Which trainers were lost, came back and healed, in order of time."""
        return member_changes(self.scope, self.tables["membership"])

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


def _site_timeline(recording: Recording, site: SiteScope) -> SiteTimeline:
    tasks = recording.rows("ran_tasks", site)
    quanta = recording.rows("quanta", site)
    fate = fates(recording, site, quanta)
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
        state=largest(_trainer_states(recording, site)),
    )


def _pieces(pieces: pl.DataFrame, planned: int) -> Steps:
    chosen = pieces.filter(pl.col("planned") == planned)
    return stack(*(ints(chosen, name) for name in ("from_us", "to_us", "sms")))


def _stacked(quanta: pl.DataFrame, which: npt.NDArray[Any]) -> Steps:
    return stack(*(ints(quanta, name)[which] for name in ("start_us", "end_us", "sms")))


def _trainer_states(recording: Recording, site: SiteScope) -> list[Steps]:
    """Per trainer, what it is about (see ``_TrainerView``)."""
    events = recording.rows("trainer_events", site).sort("at_us", "epoch", "step", "event")
    found = []
    for node in sorted(set(events[NODE].to_list())):
        mine = events.filter(pl.col(NODE) == node).select("at_us", "epoch", "step", "event")
        rows: list[_Happened] = [
            (at_us, epoch, step, TrainerEvent(event)) for at_us, epoch, step, event in mine.rows()
        ]
        rows += [
            (change.at_us, change.epoch, change.step, change.event)
            for change in recording.member_changes
            if change.node == node
        ]
        rows.sort(key=lambda row: row[0])  # stable: what became of a member comes after its own
        assigned = [i for i, row in enumerate(rows) if row[3] is TrainerEvent.ASSIGNED]
        last = max(assigned, default=-1)
        view = _TrainerView()
        after = [view.after(*row[1:], i < last) for i, row in enumerate(rows)]
        found.append(states([row[0] for row in rows], after))
    return found


_Happened = tuple[int, int, int, TrainerEvent | MemberEvent]
"""(at_us, epoch, step, event)"""


class _TrainerView:
    """Follows one trainer's events.

    It works while samples are to be computed or a committed step is to be applied (the next step
    is assigned before the last one is applied); it waits from its arrival at a barrier to the
    commit, and for the assignment of a next step where one follows; else it is idle. So it is from
    its loss, at which all that it was about is void, until it has the state again.
    """

    def __init__(self) -> None:
        self._computing: set[int] = set()
        self._syncing: set[int] = set()
        self._applying: set[int] = set()
        self._epochs: dict[int, int] = {}
        self._without_state = False

    def after(
        self, epoch: int, step: int, event: TrainerEvent | MemberEvent, more_to_come: bool
    ) -> TrainerState:
        if isinstance(event, MemberEvent):
            self._member(event)
        elif epoch >= self._epochs.get(step, epoch):  # else the step goes on in a later epoch
            self._own(epoch, step, event)
        if self._without_state:
            return TrainerState.IDLE
        if self._computing or self._applying:
            return TrainerState.WORK
        if self._syncing or (event is TrainerEvent.APPLIED and more_to_come):
            return TrainerState.WAITING
        return TrainerState.IDLE

    def _own(self, epoch: int, step: int, event: TrainerEvent) -> None:
        if event in _WITHIN_A_PHASE:
            return
        for phase in (self._computing, self._syncing, self._applying):
            phase.discard(step)
        if event is TrainerEvent.ASSIGNED:
            self._epochs[step] = epoch
            self._computing.add(step)
        elif event is TrainerEvent.COMPUTED:
            self._syncing.add(step)
        elif event is TrainerEvent.COMMITTED:
            self._applying.add(step)

    def _member(self, event: MemberEvent) -> None:
        if event is MemberEvent.LOST:
            self._without_state = True
            for phase in (self._computing, self._syncing, self._applying):
                phase.clear()
        elif event is MemberEvent.HEALED:
            self._without_state = False


_WITHIN_A_PHASE = (
    TrainerEvent.SYNC_BEGUN,
    TrainerEvent.SYNC_ENDED,
    TrainerEvent.SHARE_BEGUN,
    TrainerEvent.SHARED,
)
