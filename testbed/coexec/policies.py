"""Planners behind one interface: what the coordinator, the replay and ``plan`` call.

A planner is a pure function of its arguments: the plan, the event, and how each running job stands
against its SLO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from testbed.coexec.algorithm1 import place
from testbed.coexec.consolidation import MoveRules, consolidate
from testbed.coexec.decisions import Decision, Outcome, moved_jobs
from testbed.coexec.eviction import evict
from testbed.coexec.groups import Group, Plan, without_member
from testbed.coexec.jobs import JobProfile, Standing
from testbed.coexec.repacking import RepackRules, repack
from testbed.coexec.rules import Objective, PlannerRules
from testbed.errors import PolicyError


class Planner(Protocol):
    """Decides at three events. ``standings`` names running jobs only."""

    @property
    def rules(self) -> PlannerRules: ...

    def rates(self, group: Group) -> tuple[float, ...]:
        """Hours of solo progress per hour of each member of ``group``, as its jobs really are."""

    def arrive(self, plan: Plan, job: JobProfile, standings: Mapping[str, Standing]) -> Outcome:
        """Place a new job."""

    def depart(self, plan: Plan, job: str, standings: Mapping[str, Standing]) -> Outcome:
        """A job has ended or was cancelled."""

    def review(
        self, plan: Plan, profiles: Mapping[str, JobProfile], standings: Mapping[str, Standing]
    ) -> Outcome:
        """Fresh profiles of the running jobs, at a regular check."""


def round_robin_rates(group: Group) -> tuple[float, ...]:
    """Strict round robin: one iteration of every member per meta-iteration."""
    return tuple(load.solo_s / group.t_meta_s for load in group.loads)


def admitted(plan: Plan, job: JobProfile, rules: PlannerRules) -> Outcome:
    """One arrival by Algorithm 1 under ``rules``."""
    placed = place(job, plan, rules)
    if placed is None:
        raise PolicyError(f"job {job.job}: no placement, although a new group was allowed")
    return Outcome(placed[0], (placed[1],))


def departed(plan: Plan, job: str, rules: PlannerRules) -> Plan:
    """The plan after a job left; a group dies when it is empty.

    Raises:
        PolicyError: no group holds the job.
    """
    group = plan.group_of(job)
    if group is None:
        raise PolicyError(f"job {job} is in no group of the plan")
    return plan.replaced(group, without_member(group, job, rules))


class PlannerDefaults:
    """What a planner does where it does not say otherwise: strict round robin, a place by
    Algorithm 1 at the arrival, and nothing moved afterwards."""

    __slots__ = ()
    rules: PlannerRules

    def rates(self, group: Group) -> tuple[float, ...]:
        return round_robin_rates(group)

    def arrive(self, plan: Plan, job: JobProfile, standings: Mapping[str, Standing]) -> Outcome:
        return admitted(plan, job, self.rules)

    def depart(self, plan: Plan, job: str, standings: Mapping[str, Standing]) -> Outcome:
        return Outcome(departed(plan, job, self.rules))

    def review(
        self, plan: Plan, profiles: Mapping[str, JobProfile], standings: Mapping[str, Standing]
    ) -> Outcome:
        return Outcome(plan)


@dataclass(frozen=True, slots=True)
class Algorithm1(PlannerDefaults):
    """RollMux as printed: one decision per arrival, nothing is ever moved."""

    rules: PlannerRules = field(default_factory=PlannerRules)


@dataclass(frozen=True, slots=True)
class Consolidating(PlannerDefaults):
    """Algorithm 1 without the prune, and consolidation after each departure."""

    rules: PlannerRules = field(default_factory=lambda: PlannerRules(prune=False))
    moves: MoveRules = field(default_factory=MoveRules)

    def depart(self, plan: Plan, job: str, standings: Mapping[str, Standing]) -> Outcome:
        before = departed(plan, job, self.rules)
        after, decisions = consolidate(before, self.rules, self.moves, standings)
        return Outcome(after, tuple(decisions), moved_jobs(before, after))


@dataclass(frozen=True, slots=True)
class Dedicated(PlannerDefaults):
    """Solo-D: every job on nodes of its own."""

    rules: PlannerRules = field(default_factory=lambda: PlannerRules(max_group=1))

    def __post_init__(self) -> None:
        if self.rules.max_group != 1:
            object.__setattr__(self, "rules", replace(self.rules, max_group=1))


@dataclass(frozen=True, slots=True)
class Ranloom(PlannerDefaults):
    """The default: no prune, lost progress priced, re-packing and consolidation, moves guarded."""

    rules: PlannerRules = field(
        default_factory=lambda: PlannerRules(prune=False, objective=Objective.COST_PER_PROGRESS)
    )
    moves: MoveRules = field(default_factory=MoveRules)
    repacking: RepackRules | None = field(default_factory=RepackRules)

    def _improved(
        self,
        before: Plan,
        touched: Sequence[int],
        free: frozenset[str],
        standings: Mapping[str, Standing],
    ) -> tuple[Plan, list[Decision]]:
        if self.repacking is None:
            return before, []
        return repack(
            before,
            self.rules,
            self.moves,
            standings,
            touched=touched,
            free=free,
            repack_rules=self.repacking,
        )

    def arrive(self, plan: Plan, job: JobProfile, standings: Mapping[str, Standing]) -> Outcome:
        placed = admitted(plan, job, self.rules)
        touched = [placed.decisions[0].group_id]
        after, decisions = self._improved(placed.plan, touched, frozenset([job.job]), standings)
        return Outcome(
            after, (*placed.decisions, *decisions), moved_jobs(placed.plan, after, [job.job])
        )

    def depart(self, plan: Plan, job: str, standings: Mapping[str, Standing]) -> Outcome:
        group = plan.group_of(job)
        before = departed(plan, job, self.rules)
        touched = [group.group_id] if group else []
        after, decisions = self._improved(before, touched, frozenset(), standings)
        return Outcome(after, tuple(decisions), moved_jobs(before, after))

    def review(
        self, plan: Plan, profiles: Mapping[str, JobProfile], standings: Mapping[str, Standing]
    ) -> Outcome:
        fresh, evicted = evict(plan, profiles, self.rules, self.moves, standings)
        if not evicted:
            return Outcome(fresh)
        touched = sorted({decision.group_id for decision in evicted})
        after, decisions = self._improved(fresh, touched, frozenset(), standings)
        return Outcome(after, (*evicted, *decisions), moved_jobs(plan, after))
