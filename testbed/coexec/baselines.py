"""What a planner is compared with: co-location, cold slicing, Gavel-like, random, greedy.

Solo-D is :class:`policies.Dedicated`. The co-located models are arithmetic on a trace; the others
are planners for the same replay. Random and greedy look at memory and size only, so they break
SLOs: that is what they are for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from testbed.coexec.algorithm1 import isolated_group
from testbed.coexec.decisions import Cause, Decision, Outcome, Strategy
from testbed.coexec.groups import Group, Plan, load_of, with_member
from testbed.coexec.jobs import JobProfile, Standing
from testbed.coexec.policies import Algorithm1, PlannerDefaults
from testbed.coexec.pools import Pools
from testbed.coexec.replay import TraceJob
from testbed.coexec.rules import PlannerRules
from testbed.errors import PolicyError
from testbed.rng import generator

COLD_SWAP_S = {"3B": (25.3, 26.7), "7B": (38.8, 32.7), "14B": (60.4, 59.0), "32B": (81.7, 81.2)}
"""Cold start seconds (rollout, training) by model: RollMux, table 4."""


@dataclass(frozen=True, slots=True)
class Colocated:
    """One job's price where both phases run on its training nodes, on the training GPU type."""

    usd_per_hour: float
    slowdown: float


def colocated(job: JobProfile, pools: Pools, *, hbm_bound: bool) -> Colocated:
    """N_T training nodes do both phases: at Solo-D's speed, or with the rollout bound by HBM.

    A rollout bound by memory bandwidth takes (rollout GPU's TB/s) / (training GPU's TB/s) as long.
    """
    stretch = 1.0
    if hbm_bound:
        stretch = pools.rollout.gpu.hbm_tb_per_s / pools.train.gpu.hbm_tb_per_s
    solo_s = job.t_rollout_s + job.t_train_s
    return Colocated(
        job.train_nodes * pools.train.usd_per_hour,
        (job.t_rollout_s * stretch + job.t_train_s) / solo_s,
    )


def colocated_usd(trace: Sequence[TraceJob], pools: Pools, *, hbm_bound: bool) -> float:
    """Dollars of a whole trace, co-located, residency work-conserving."""
    total: list[float] = []
    for entry in trace:
        one = colocated(entry.profile, pools, hbm_bound=hbm_bound)
        total.append(one.usd_per_hour * one.slowdown * entry.solo_duration_h)
    return math.fsum(total)


def cold(job: JobProfile) -> JobProfile:
    """The job with cold starts for warm swaps (time slicing without residency).

    Raises:
        PolicyError: no cold start is known for the model.
    """
    if job.model not in COLD_SWAP_S:
        known = ", ".join(COLD_SWAP_S)
        raise PolicyError(f"job {job.job}: no cold start known for {job.model}; known: {known}")
    rollout_s, train_s = COLD_SWAP_S[job.model]
    return replace(job, swap_rollout_s=rollout_s, swap_train_s=train_s)


@dataclass(frozen=True, slots=True)
class ColdSlicing(PlannerDefaults):
    """Algorithm 1 where every switch is a cold start; only SLO-feasible groups are formed."""

    rules: PlannerRules = field(default_factory=PlannerRules)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "rules", replace(self.rules, phases=replace(self.rules.phases, swap=True))
        )

    def arrive(self, plan: Plan, job: JobProfile, standings: Mapping[str, Standing]) -> Outcome:
        return Algorithm1(self.rules).arrive(plan, cold(job), standings)


def _has_room(group: Group, job: JobProfile, rules: PlannerRules) -> tuple[int, ...] | None:
    """Least loaded rollout nodes of ``group`` with memory for ``job``, or None."""
    if len(group.members) >= rules.max_group or len(group.nodes) < job.rollout_nodes:
        return None
    train_gb = group.train_used_gb + load_of(job, group.train_nodes, rules).train_gb
    if train_gb >= rules.pools.train.host_gb:
        return None
    fitting = [
        (load_s, node)
        for load_s, used_gb, node in zip(
            group.node_load_s, group.node_used_gb, group.nodes, strict=True
        )
        if used_gb + job.host_rollout_gb < rules.pools.rollout.host_gb
    ]
    if len(fitting) < job.rollout_nodes:
        return None
    return tuple(sorted(node for _, node in sorted(fitting)[: job.rollout_nodes]))


def _joined(
    plan: Plan, job: JobProfile, target: tuple[Group, tuple[int, ...]] | None, rules: PlannerRules
) -> Outcome:
    before = plan.usd_per_hour
    if target is None:
        group = isolated_group(plan.next_group, job, rules)
        plan, strategy = plan.added(group), Strategy.ISOLATED
    else:
        group = with_member(target[0], job, target[1], rules)
        plan, strategy = plan.replaced(target[0], group), Strategy.DIRECT
    decision = Decision(
        job.job,
        Cause.ARRIVAL,
        strategy,
        group.group_id,
        group.members[-1].nodes,
        plan.usd_per_hour - before,
        group.t_meta_s,
        group.t_meta_s / group.loads[-1].solo_s,
    )
    return Outcome(plan, (decision,))


@dataclass(frozen=True, slots=True)
class RandomGroups(PlannerDefaults):
    """A random group with room, SLOs not looked at; a new one only when none has room.

    ``new_share``: probability of opening a new group all the same.
    """

    seed: int
    new_share: float = 0.0
    rules: PlannerRules = field(default_factory=PlannerRules)

    def arrive(self, plan: Plan, job: JobProfile, standings: Mapping[str, Standing]) -> Outcome:
        rng = generator(self.seed, f"coexec.random/{job.job}")
        fresh = rng.random() < self.new_share
        open_to = [
            (group, nodes)
            for group in plan.groups
            if (nodes := _has_room(group, job, self.rules)) is not None
        ]
        target = None if fresh or not open_to else open_to[int(rng.integers(len(open_to)))]
        return _joined(plan, job, target, self.rules)


@dataclass(frozen=True, slots=True)
class MostIdle(PlannerDefaults):
    """Greedy: the group with the lowest T_load / T_cycle that has room; SLOs not looked at."""

    rules: PlannerRules = field(default_factory=PlannerRules)

    def arrive(self, plan: Plan, job: JobProfile, standings: Mapping[str, Standing]) -> Outcome:
        open_to = [
            (group.t_load_s / group.t_cycle_s, group.group_id, group, nodes)
            for group in plan.groups
            if (nodes := _has_room(group, job, self.rules)) is not None
        ]
        best = min(open_to, key=lambda entry: entry[:2], default=None)
        return _joined(plan, job, None if best is None else best[2:], self.rules)


@dataclass(frozen=True, slots=True)
class GavelLike(PlannerDefaults):
    """Job-level time fractions (after Gavel, OSDI '20): whole jobs take turns on a unit of nodes.

    A unit is N_R + N_T nodes; a job needs the fraction 1 / SLO of it, first fit; what is left is
    dealt out in proportion. Phases of different jobs never overlap, so bubbles stay.
    """

    rules: PlannerRules = field(default_factory=PlannerRules)

    @staticmethod
    def _needed(group: Group) -> float:
        return math.fsum(1.0 / member.job.slo for member in group.members)

    def rates(self, group: Group) -> tuple[float, ...]:
        whole = self._needed(group)
        return tuple(1.0 / member.job.slo / whole for member in group.members)

    def arrive(self, plan: Plan, job: JobProfile, standings: Mapping[str, Standing]) -> Outcome:
        target: tuple[Group, tuple[int, ...]] | None = None
        for group in plan.groups:
            nodes = _has_room(group, job, self.rules)
            same = group.train_nodes == job.train_nodes and len(group.nodes) == job.rollout_nodes
            if nodes is not None and same and self._needed(group) + 1.0 / job.slo <= 1.0:
                target = (group, nodes)
                break
        return _joined(plan, job, target, self.rules)
