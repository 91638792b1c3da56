"""Re-packing: the best regrouping of a few neighbouring groups, moves charged.

A window is a handful of groups; all feasible sets of their jobs are enumerated, each is charged its
price per hour, the progress its members lose to slowdown, and the moves it needs spread over the
time that a saving is believed to last. The cheapest partition (exact, over subsets) replaces the
window if it is cheaper than what stands. A job moves only if its banked slack covers the move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.coexec.algorithm1 import candidates, progress_usd
from testbed.coexec.consolidation import MoveRules, may_move
from testbed.coexec.decisions import Cause, Decision, Strategy
from testbed.coexec.groups import (
    Group,
    Member,
    Plan,
    build_group,
    load_of,
    restricted,
    with_member,
)
from testbed.coexec.jobs import FRESH, JobProfile, Standing
from testbed.coexec.optimum import partition_by_subsets
from testbed.coexec.packing import FeasibleSet, Packing, feasible_sets
from testbed.coexec.rules import PlannerRules
from testbed.errors import PolicyError

GAIN_FLOOR_USD_PER_H = 1e-6


@dataclass(frozen=True, slots=True)
class RepackRules:
    """How much is looked at per event.

    ``window_jobs``: most jobs of one window (``small_window_jobs`` while the plan has at most
    ``small_plan_jobs``: more can be gained there, and fewer sets are feasible); ``windows``: most
    windows; ``most_sets``: a window with more feasible sets is left alone.
    """

    window_jobs: int = 10
    small_window_jobs: int = 12
    small_plan_jobs: int = 64
    windows: int = 4
    most_sets: int = 4000


@dataclass(frozen=True, slots=True)
class _Choice:
    """One set realised: in the nodes of group ``claim``, or as a new group (``packing``)."""

    claim: int | None
    group: Group | None
    packing: Packing | None
    jobs: tuple[JobProfile, ...]
    weight: float


@dataclass(frozen=True, slots=True)
class _Window:
    """``stuck`` jobs must stay where they are; ``free`` ones have not started."""

    groups: tuple[Group, ...]
    jobs: tuple[JobProfile, ...]
    home: Mapping[str, Group]
    stuck: frozenset[str]
    free: frozenset[str]
    usd_per_progress_h: float
    move_usd_per_h: float
    rules: PlannerRules

    def charge(self, group: Group) -> float:
        return group.usd_per_hour - self.usd_per_progress_h * group.progress

    def changed(self, group: Group, claim: Group | None) -> list[str]:
        """Members that are not where they were."""
        pins = {m.job.job: m.nodes for m in claim.members} if claim else {}
        return [m.job.job for m in group.members if pins.get(m.job.job) != m.nodes]

    def in_place(self, group: Group, claim: Group) -> _Choice | None:
        """``group`` on the nodes of ``claim``; None if a stuck job would move."""
        moved = [name for name in self.changed(group, claim) if name not in self.free]
        if not self.stuck.isdisjoint(moved):
            return None
        weight = self.charge(group) + len(moved) * self.move_usd_per_h
        return _Choice(claim.group_id, group, None, (), weight)

    def anew(self, packing: Packing, jobs: Sequence[JobProfile]) -> _Choice:
        """A new group: all members that have started move."""
        moved = sum(job.job not in self.free for job in jobs)
        weight = packing.score(self.usd_per_progress_h) + moved * self.move_usd_per_h
        return _Choice(None, None, packing, tuple(jobs), weight)


def _grown(window: _Window, claim: Group, jobs: Sequence[JobProfile]) -> Group | None:
    """``claim`` with its members among ``jobs`` left in place and the others put in."""
    rules = window.rules
    stay = {job.job for job in jobs if window.home[job.job] is claim}
    group = claim if len(stay) == len(claim.members) else restricted(claim, stay, rules)
    joining = [job for job in jobs if job.job not in stay]
    for job in sorted(joining, key=lambda job: (-job.t_rollout_s, job.job)):
        load = load_of(job, group.train_nodes, rules)
        found, _ = candidates(group, job, load, rules)
        if not found:
            return None
        solo_s = group.solo_sum_s + load.solo_s
        best = min(
            found,
            key=lambda c: c.delta_usd_per_hour - window.usd_per_progress_h * solo_s / c.t_meta_s,
        )
        group = with_member(group, job, best.nodes, rules)
    return group


def _pinned(
    packing: Packing, jobs: Sequence[JobProfile], claim: Group, rules: PlannerRules
) -> Group:
    """``packing`` on the nodes of ``claim``: blocks take the old node that most of them were on."""
    old = {m.job.job: m.nodes for m in claim.members}
    votes: list[tuple[int, int, int]] = []
    for block in range(packing.rollout_nodes):
        for node in claim.nodes:
            same = sum(
                1
                for job, nodes in zip(jobs, packing.nodes, strict=True)
                if block in nodes and node in old.get(job.job, ())
            )
            if same:
                votes.append((-same, block, node))
    names: dict[int, int] = {}
    for _, block, node in sorted(votes):
        if block not in names and node not in names.values():
            names[block] = node
    fresh = claim.next_node
    for block in range(packing.rollout_nodes):
        if block not in names:
            names[block] = fresh
            fresh += 1
    members = [
        Member(job, tuple(sorted(names[block] for block in nodes)))
        for job, nodes in zip(jobs, packing.nodes, strict=True)
    ]
    order = {m.job.job: i for i, m in enumerate(claim.members)}
    members.sort(key=lambda m: (order.get(m.job.job, len(order)), m.job.job))
    return build_group(claim.group_id, claim.train_nodes, members, rules, next_node=fresh)


def _homes(window: _Window, jobs: Sequence[JobProfile]) -> list[tuple[int, int, Group]]:
    """Groups of ``jobs``, those first that fewest running jobs would have to join."""
    groups = {window.home[job.job].group_id: window.home[job.job] for job in jobs}
    started = [window.home[job.job].group_id for job in jobs if job.job not in window.free]
    return sorted(
        (sum(home != group_id for home in started), group_id, group)
        for group_id, group in groups.items()
    )


def _choices(window: _Window, entry: FeasibleSet) -> list[_Choice]:
    """Every way to realise one set: keeping some group's nodes, or as a new group."""
    jobs = [window.jobs[i] for i in entry.jobs]
    names = {job.job for job in jobs}
    must = {window.home[name].group_id for name in names & window.stuck}
    if len(must) > 1:
        return []
    best = entry.best(window.usd_per_progress_h)
    least = best.score(window.usd_per_progress_h)
    found: list[_Choice] = [] if must else [window.anew(best, jobs)]
    for joining, _, group in _homes(window, jobs):
        here = {m.job.job for m in group.members}
        if not (here & window.stuck) <= names or (must and group.group_id not in must):
            continue
        bound = least + joining * window.move_usd_per_h
        grown = _grown(window, group, jobs)
        choice = window.in_place(grown, group) if grown is not None else None
        if best.train_nodes == group.train_nodes and (choice is None or bound < choice.weight):
            pinned = window.in_place(_pinned(best, jobs, group, window.rules), group)
            if pinned is not None and (choice is None or pinned.weight < choice.weight):
                choice = pinned
        if choice is not None:
            found.append(choice)
    return found


def _least_weight(window: _Window, entry: FeasibleSet) -> float:
    """A lower bound of every choice of a set: its best packing, and the moves it cannot avoid."""
    jobs = [window.jobs[i] for i in entry.jobs]
    joining = _homes(window, jobs)[0][0]
    score = entry.best(window.usd_per_progress_h).score(window.usd_per_progress_h)
    return score + joining * window.move_usd_per_h


def _solve(window: _Window, most_sets: int) -> list[_Choice] | None:
    """The cheapest partition of the window, or None if what stands is as good.

    Sets start at their lower bound; those that the cheapest partition uses are realised, and it is
    solved again until all of its sets are real. The result is that of realising every set.
    """
    try:
        sets = feasible_sets(window.jobs, window.rules, at_most=most_sets)
    except OverflowError:
        return None
    weights = [_least_weight(window, entry) for entry in sets]
    real: dict[int, list[_Choice]] = {}
    standing = sum(window.charge(group) for group in window.groups) - GAIN_FLOOR_USD_PER_H
    while True:
        weighted = [(entry.jobs, weight) for entry, weight in zip(sets, weights, strict=True)]
        try:
            hoped, chosen = partition_by_subsets(len(window.jobs), weighted)
        except PolicyError:
            return None  # a group beyond its SLO whose members lack the slack to move
        if hoped >= standing:
            return None
        unreal = [position for position in chosen if position not in real]
        if not unreal:
            break
        for position in unreal:
            real[position] = _choices(window, sets[position])
            weights[position] = min((c.weight for c in real[position]), default=math.inf)
    # Two sets may have hoped for the nodes of one group: the larger set keeps them.
    taken: set[int] = set()
    settled: list[_Choice] = []
    for position in sorted(chosen, key=lambda p: (-len(sets[p].jobs), p)):
        free = [c for c in real[position] if c.claim is None or c.claim not in taken]
        if not free:
            return None
        best = min(free, key=lambda c: c.weight)
        if best.claim is not None:
            taken.add(best.claim)
        settled.append(best)
    return settled if sum(choice.weight for choice in settled) < standing else None


def _windows(plan: Plan, touched: Sequence[int], repack: RepackRules) -> list[tuple[Group, ...]]:
    """Windows around the touched groups: neighbours in period, and the poorest of the plan."""
    if not plan.groups:
        return []
    poor = sorted(plan.groups, key=lambda g: (-(g.usd_per_hour / g.progress), g.group_id))
    seeds = [g for g in plan.groups if g.group_id in touched] or poor[:1]
    found: list[tuple[Group, ...]] = []
    jobs = sum(len(group.members) for group in plan.groups)
    most = repack.small_window_jobs if jobs <= repack.small_plan_jobs else repack.window_jobs

    def fill(seed: Group, order: Sequence[Group]) -> None:
        window, size = [seed], len(seed.members)
        for group in order:
            if size >= most:
                break
            if group.group_id != seed.group_id and size + len(group.members) <= most:
                window.append(group)
                size += len(group.members)
        key = tuple(sorted(window, key=lambda g: g.group_id))
        if key not in found:
            found.append(key)

    for seed in [*seeds, *poor]:
        if len(found) >= repack.windows:
            break
        near = sorted(
            plan.groups, key=lambda g: (abs(g.t_meta_s / seed.t_meta_s - 1.0), g.group_id)
        )
        fill(seed, near)
        fill(seed, poor)
    return found[: repack.windows]


def repack(
    plan: Plan,
    rules: PlannerRules,
    moves: MoveRules,
    standings: Mapping[str, Standing],
    *,
    touched: Sequence[int] = (),
    free: frozenset[str] = frozenset(),
    repack_rules: RepackRules | None = None,
) -> tuple[Plan, list[Decision]]:
    """Re-pack windows around the touched groups; ``free`` jobs have not started and move freely."""
    repack_rules = repack_rules or RepackRules()
    decisions: list[Decision] = []
    price = progress_usd(plan, rules)
    for groups in _windows(plan, touched, repack_rules):
        present = {g.group_id: g for g in plan.groups}
        if any(present.get(g.group_id) is not g for g in groups):
            continue
        jobs = tuple(m.job for g in groups for m in g.members)
        stuck = frozenset(
            job.job
            for job in jobs
            if job.job not in free
            and not may_move(job.slo, standings.get(job.job, FRESH), moves.move_h)
        )
        window = _Window(
            groups,
            jobs,
            {m.job.job: g for g in groups for m in g.members},
            stuck,
            free,
            price,
            moves.move_usd / moves.horizon_h,
            rules,
        )
        settled = _solve(window, repack_rules.most_sets)
        if settled is None:
            continue
        plan, made = _applied(plan, window, settled)
        decisions += made
    return plan, decisions


def _applied(
    plan: Plan, window: _Window, settled: Sequence[_Choice]
) -> tuple[Plan, list[Decision]]:
    gone = {g.group_id: g for g in window.groups}
    kept = {choice.claim: choice.group for choice in settled if choice.group is not None}
    before = plan.usd_per_hour
    groups: list[Group] = []
    for group in plan.groups:
        if group.group_id not in gone:
            groups.append(group)
        elif group.group_id in kept:
            groups.append(kept[group.group_id])
    result = Plan(tuple(groups), plan.next_group)
    fresh: list[Group] = []
    for choice in settled:
        if choice.packing is not None:
            places = zip(choice.jobs, choice.packing.nodes, strict=True)
            pins = [Member(job, nodes) for job, nodes in places]
            group = build_group(result.next_group, choice.packing.train_nodes, pins, window.rules)
            fresh.append(group)
            result = result.added(group)
    delta = result.usd_per_hour - before
    decisions: list[Decision] = []
    for group in (*kept.values(), *fresh):
        claim = gone.get(group.group_id)
        for name in window.changed(group, claim):
            position = group.jobs().index(name)
            decisions.append(
                Decision(
                    name,
                    Cause.REPACK,
                    Strategy.ISOLATED if len(group.members) == 1 else Strategy.REGROUPED,
                    group.group_id,
                    group.members[position].nodes,
                    delta,
                    group.t_meta_s,
                    group.t_meta_s / group.loads[position].solo_s,
                    note=f"of {len(window.groups)} groups together",
                )
            )
    return result, decisions
