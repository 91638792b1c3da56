"""Algorithm 1 of RollMux (arXiv 2512.11306v2, section 4.2), and its placement search.

For each group that is not saturated: direct packing, then rollout scaling; an isolated group as
the fallback; least added cost, strict <, so the first of equals wins. The training pool of a group
is never scaled: the job's data-parallel degree follows the pool (:class:`TrainRescale`). Where the
paper is silent: groups by creation; nodes by creation; a job of one rollout node tries each node, a
job of several takes the least loaded; scaling adds 1, 2, ... new nodes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from testbed.coexec.decisions import Because, Cause, Decision, Refusal, Strategy, counted
from testbed.coexec.groups import (
    Group,
    Load,
    Member,
    Plan,
    build_group,
    load_of,
    shared_period_s,
    with_member,
)
from testbed.coexec.jobs import JobProfile
from testbed.coexec.rules import Objective, PlannerRules
from testbed.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Candidate:
    """A feasible placement in an existing group, and what it would change."""

    group: Group
    nodes: tuple[int, ...]
    new_nodes: int
    t_meta_s: float
    delta_usd_per_hour: float


def _node_choices(group: Group, wanted: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Node ids to try and how many of them are new: existing ones first, then 1, 2, ... new."""
    if wanted == 1:
        for node in group.nodes:
            yield (node,), 0
        yield (group.next_node,), 1
        return
    by_load = [node for _, node in sorted(zip(group.node_load_s, group.nodes, strict=True))]
    for new in range(wanted + 1):
        kept = wanted - new
        if kept <= len(by_load):
            fresh = tuple(range(group.next_node, group.next_node + new))
            yield (*sorted(by_load[:kept]), *fresh), new


def _slo_refusal(group: Group, job: JobProfile, load: Load, t_meta_s: float) -> Refusal:
    if load.limit_s <= group.limit_s:
        return Refusal(group.group_id, Because.SLO, t_meta_s, load.limit_s, job.job)
    tightest = min(range(len(group.loads)), key=lambda i: group.loads[i].limit_s)
    name = group.members[tightest].job.job
    return Refusal(group.group_id, Because.SLO, t_meta_s, group.limit_s, name)


def candidates(
    group: Group, job: JobProfile, load: Load, rules: PlannerRules
) -> tuple[list[Candidate], Refusal | None]:
    """Feasible placements of ``job`` in ``group`` in order of cost, or why there is none.

    Memory: RollMux Alg. 1 refuses when the request >= the free memory, so sums stay strictly below
    the node. SLO: every member's T_coexec, the newcomer's included, with <=. ``load`` must be the
    job's load on this group's training pool.
    """
    if len(group.members) >= rules.max_group:
        size = len(group.members) + 1
        return [], Refusal(group.group_id, Because.FULL, size, rules.max_group)
    limit = load.limit_s if load.limit_s < group.limit_s else group.limit_s
    train_s = group.train_load_s + load.train_s
    floor = max(group.t_cycle_s, load.cycle_s, train_s)
    if floor > limit:
        return [], _slo_refusal(group, job, load, floor)
    train_gb = group.train_used_gb + load.train_gb
    if train_gb >= rules.pools.train.host_gb:
        host = rules.pools.train.host_gb
        return [], Refusal(group.group_id, Because.TRAIN_MEMORY, train_gb, host)
    base = max(floor, group.t_load_s)
    found: list[Candidate] = []
    refusal: Refusal | None = None
    wide = any(len(member.nodes) > 1 for member in group.members)
    index = dict(zip(group.nodes, range(len(group.nodes)), strict=True))
    for nodes, new in _node_choices(group, job.rollout_nodes):
        if new and not rules.rollout_scaling:
            refusal = refusal or Refusal(group.group_id, Because.NO_SCALING, 0, 0)
            break
        t_meta, used_gb = base, 0.0
        for node in nodes:
            i = index.get(node)
            if i is None:
                node_s, node_gb = load.rollout_s, job.host_rollout_gb
            else:
                node_s = group.node_load_s[i] + load.rollout_s
                node_gb = group.node_used_gb[i] + job.host_rollout_gb
            t_meta = node_s if node_s > t_meta else t_meta
            used_gb = node_gb if node_gb > used_gb else used_gb
        if t_meta <= limit and (wide or len(nodes) > 1):
            after = (*group.members, Member(job, nodes))
            t_meta = shared_period_s(t_meta, after, (*group.loads, load), rules)
        if used_gb >= rules.pools.rollout.host_gb:
            host = rules.pools.rollout.host_gb
            refusal = refusal or Refusal(group.group_id, Because.ROLLOUT_MEMORY, used_gb, host)
        elif t_meta > limit:
            refusal = refusal or _slo_refusal(group, job, load, t_meta)
        else:
            delta = new * rules.pools.rollout.usd_per_hour
            found.append(Candidate(group, nodes, new, t_meta, delta))
            if rules.objective is Objective.COST:
                break  # choices come by cost: no later one of this group can be strictly cheaper
    return found, (None if found else refusal)


def progress_usd(plan: Plan, rules: PlannerRules) -> float:
    """Dollars that one hour of solo progress costs now; 0 where progress is not priced.

    The plan's own price over its own progress (the ratio of Dinkelbach's method for the least
    dollars per unit of progress). An empty plan has no such ratio: the price is 0, which changes
    no choice, as there is only one.
    """
    if rules.objective is Objective.COST or not plan.groups:
        return 0.0
    return plan.usd_per_hour / plan.progress


def isolated_group(group_id: int, job: JobProfile, rules: PlannerRules) -> Group:
    """A group of its own for ``job``.

    Raises:
        PolicyError: the job's working set does not fit an empty node.
    """
    pools = rules.pools
    for phase, need, room in (
        ("rollout", job.host_rollout_gb, pools.rollout.host_gb),
        ("training", job.host_train_gb, pools.train.host_gb),
    ):
        if need >= room:
            raise PolicyError(
                f"job {job.job}: {need:g} GB per {phase} node; allowed is below {room:g} GB"
            )
    nodes = tuple(range(job.rollout_nodes))
    return build_group(group_id, job.train_nodes, [Member(job, nodes)], rules)


def _choose(
    job: JobProfile,
    groups: Iterable[Group],
    rules: PlannerRules,
    price: float,
    refusals: list[Refusal],
) -> tuple[Candidate | None, float]:
    """The best placement among ``groups`` and its score; what was refused is appended."""
    best: Candidate | None = None
    best_score = math.inf
    loads: dict[int, Load] = {}
    for group in groups:
        if rules.prune and group.saturated:
            refusals.append(
                Refusal(group.group_id, Because.SATURATED, group.t_load_s, group.t_cycle_s)
            )
            continue
        load = loads.get(group.train_nodes)
        if load is None:
            load = loads[group.train_nodes] = load_of(job, group.train_nodes, rules)
        found, refusal = candidates(group, job, load, rules)
        if refusal is not None:
            refusals.append(refusal)
        for candidate in found:
            score = candidate.delta_usd_per_hour
            if price:
                after = (group.solo_sum_s + load.solo_s) / candidate.t_meta_s
                score -= price * (after - group.progress)
            if score < best_score:
                best, best_score = candidate, score
        if best is not None and rules.objective is Objective.COST and not best.new_nodes:
            break  # nothing is strictly cheaper than no cost: the first direct packing wins
    return best, best_score


def refusals_of(job: JobProfile, groups: Iterable[Group], rules: PlannerRules) -> list[Refusal]:
    """Why each of ``groups`` refuses ``job`` (none for one that would take it)."""
    refusals: list[Refusal] = []
    _choose(job, groups, rules, 0.0, refusals)
    return refusals


def decide(
    job: JobProfile,
    groups: Iterable[Group],
    next_group: int,
    rules: PlannerRules,
    price: float,
    *,
    cause: Cause = Cause.ARRIVAL,
    allow_new: bool = True,
    note: str = "",
) -> tuple[Group, Decision] | None:
    """The group that takes ``job`` (grown, or new with id ``next_group``), and the decision.

    ``price`` is that of :func:`progress_usd`.

    Raises:
        PolicyError: the job does not fit an empty node.
    """
    refusals: list[Refusal] = []
    best, best_score = _choose(job, groups, rules, price, refusals)
    alone = isolated_group(next_group, job, rules) if allow_new else None
    if alone is not None and alone.usd_per_hour - price * alone.progress < best_score:
        group, strategy, delta = alone, Strategy.ISOLATED, alone.usd_per_hour
    elif best is not None:
        group = with_member(best.group, job, best.nodes, rules)
        strategy = Strategy.SCALED if best.new_nodes else Strategy.DIRECT
        delta = best.delta_usd_per_hour
    else:
        return None
    return group, Decision(
        job.job,
        cause,
        strategy,
        group.group_id,
        group.members[-1].nodes,
        delta,
        group.t_meta_s,
        group.t_meta_s / group.loads[-1].solo_s,
        tuple(refusals),
        counted(refusals),
        note,
    )


def place(
    job: JobProfile,
    plan: Plan,
    rules: PlannerRules,
    *,
    cause: Cause = Cause.ARRIVAL,
    allow_new: bool = True,
    excluding: Collection[int] = (),
    note: str = "",
) -> tuple[Plan, Decision] | None:
    """Place one job by Algorithm 1 under ``rules``; None if no group takes it and none may be new.

    ``excluding`` names groups that must not be considered (the group being dissolved).

    Raises:
        PolicyError: the job does not fit an empty node.
    """
    groups: Iterable[Group] = plan.groups
    if excluding:
        groups = [group for group in plan.groups if group.group_id not in excluding]
    decided = decide(
        job,
        groups,
        plan.next_group,
        rules,
        progress_usd(plan, rules),
        cause=cause,
        allow_new=allow_new,
        note=note,
    )
    if decided is None:
        return None
    group, decision = decided
    if decision.strategy is Strategy.ISOLATED:
        return plan.added(group), decision
    old = next(g for g in plan.groups if g.group_id == group.group_id)
    return plan.replaced(old, group), decision
