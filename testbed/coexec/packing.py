"""Which sets of jobs may share a group, and the cheapest group of each such set.

The building block of re-packing and of the exact optimum (exact where every job rolls out on one
node: wider jobs are pinned least loaded first, and only the given cyclic order is tried). Feasible
means: size, host memory, and the SLO of every member under the strict round-robin period. A set is
cut early by conditions that every larger set inherits: the enumeration goes from long to short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.coexec.groups import Load, Member, load_of, shared_period_s
from testbed.coexec.jobs import JobProfile
from testbed.coexec.rules import Objective, PlannerRules


@dataclass(frozen=True, slots=True)
class Packing:
    """One way to run a set of jobs as a group: ``nodes[i]`` are the rollout nodes of job i."""

    train_nodes: int
    rollout_nodes: int
    nodes: tuple[tuple[int, ...], ...]
    t_meta_s: float
    usd_per_hour: float
    progress: float

    def score(self, usd_per_progress_h: float) -> float:
        return self.usd_per_hour - usd_per_progress_h * self.progress


@dataclass(frozen=True, slots=True)
class FeasibleSet:
    """Indices of jobs that may share a group, and the packings worth considering.

    ``packings``: one per number of rollout nodes, each with a shorter period than the one before.
    """

    jobs: tuple[int, ...]
    packings: tuple[Packing, ...]

    def best(self, usd_per_progress_h: float = 0.0) -> Packing:
        """The packing of least price, lost progress charged; the first of equals."""
        return min(self.packings, key=lambda packing: packing.score(usd_per_progress_h))


_Spread = tuple[float, tuple[tuple[int, ...], ...]]
"""Seconds of the busiest node, and the nodes of each job."""


def _spread(
    loads: Sequence[Load],
    jobs: Sequence[JobProfile],
    bins: int,
    cap_s: float,
    floor_s: float,
    cap_gb: float,
) -> _Spread | None:
    """Pin jobs to exactly ``bins`` nodes so that the busiest is least busy; None if impossible.

    Depth-first, long rollouts first, a new node only after all earlier ones are in use (no
    symmetric repeats). Stops at the first spread whose busiest node is within ``floor_s``. A job of
    several nodes takes the least loaded ones.
    """
    need_s = [load.rollout_s for load in loads]
    total_s = sum(s * job.rollout_nodes for s, job in zip(need_s, jobs, strict=True))
    if total_s > cap_s * bins * (1.0 + 1e-12):
        return None
    order = sorted(range(len(jobs)), key=lambda i: (-need_s[i], i))
    depth_end = len(order)
    single = all(job.rollout_nodes == 1 for job in jobs)
    best_s = cap_s
    best: tuple[tuple[int, ...], ...] | None = None
    load_s, used_gb = [0.0] * bins, [0.0] * bins
    chosen: list[tuple[int, ...]] = [()] * len(jobs)

    def descend(depth: int, opened: int) -> bool:
        nonlocal best_s, best
        if depth == depth_end:
            busiest = max(load_s)
            if opened == bins and (busiest < best_s or best is None):
                best_s, best = busiest, tuple(chosen)
            return best_s <= floor_s and best is not None
        if single and opened + depth_end - depth < bins:
            return False  # too few jobs are left to open all nodes
        i = order[depth]
        s, gb, wanted = need_s[i], jobs[i].host_rollout_gb, jobs[i].rollout_nodes
        if wanted == 1:
            for n in range(min(opened + 1, bins)):
                if load_s[n] + s > best_s or used_gb[n] + gb >= cap_gb:
                    continue
                load_s[n] += s
                used_gb[n] += gb
                chosen[i] = (n,)
                if descend(depth + 1, max(opened, n + 1)):
                    return True
                load_s[n] -= s
                used_gb[n] -= gb
            return False
        nodes = tuple(sorted(sorted(range(bins), key=lambda n: (load_s[n], n))[:wanted]))
        if any(load_s[n] + s > best_s or used_gb[n] + gb >= cap_gb for n in nodes):
            return False
        before_s, before_gb = list(load_s), list(used_gb)
        for n in nodes:
            load_s[n] += s
            used_gb[n] += gb
        chosen[i] = nodes
        if descend(depth + 1, max(opened, nodes[-1] + 1)):
            return True
        load_s[:], used_gb[:] = before_s, before_gb
        return False

    descend(0, 0)
    return None if best is None else (best_s, best)


def packings_of(
    jobs: Sequence[JobProfile],
    train_nodes: int,
    rules: PlannerRules,
    *,
    unsaturated: bool = False,
    loads: Sequence[Load] | None = None,
) -> tuple[Packing, ...]:
    """Feasible packings on a pool of ``train_nodes``, by rising number of rollout nodes.

    Where only the price counts, the one of fewest nodes. ``unsaturated``: also require T_load <=
    T_cycle (the optimum's second variant). ``loads``: those of the jobs on this pool, if at hand.
    """
    loads = loads or [load_of(job, train_nodes, rules) for job in jobs]
    shared = len(jobs) > 1
    t_cycle = max(load.cycle_s if shared else load.alone_s for load in loads)
    train_s = sum(load.train_s for load in loads) if shared else 0.0
    cap_s = min(load.limit_s for load in loads)
    if not shared:
        cap_s *= 1.0 + rules.slo_margin  # the margin is for sharing: a job alone needs none
    elif unsaturated:
        cap_s = min(cap_s, t_cycle)
    floor_s = max(t_cycle, train_s)
    if floor_s > cap_s or sum(load.train_gb for load in loads) >= rules.pools.train.host_gb:
        return ()
    solo_sum_s = sum(load.solo_s for load in loads)
    fewest = max(job.rollout_nodes for job in jobs)
    most = sum(job.rollout_nodes for job in jobs)
    host_gb = rules.pools.rollout.host_gb
    wide = most > len(jobs)
    found: list[Packing] = []
    for bins in range(fewest, (most if rules.rollout_scaling else fewest) + 1):
        if shared:
            spread = _spread(loads, jobs, bins, cap_s, floor_s, host_gb)
        elif jobs[0].host_rollout_gb < host_gb:
            spread = (0.0, (tuple(range(fewest)),))
        else:
            spread = None
        if spread is None:
            continue
        t_meta = max(floor_s, spread[0])
        if wide and shared:
            members = [Member(job, nodes) for job, nodes in zip(jobs, spread[1], strict=True)]
            t_meta = shared_period_s(t_meta, members, loads, rules)
            if t_meta > cap_s:
                continue
        if found and t_meta >= found[-1].t_meta_s:
            break
        usd = rules.pools.usd_per_hour(bins, train_nodes)
        found.append(Packing(train_nodes, bins, spread[1], t_meta, usd, solo_sum_s / t_meta))
        if t_meta <= floor_s or rules.objective is Objective.COST:
            break  # no further node shortens the period, or a shorter one earns nothing
    return tuple(found)


def feasible_sets(
    jobs: Sequence[JobProfile],
    rules: PlannerRules,
    *,
    unsaturated: bool = False,
    at_most: int | None = None,
) -> list[FeasibleSet]:
    """All sets of at most ``rules.max_group`` jobs that may share a group, singletons included.

    The pool has the size of one member's own (the founder's). Indices refer to ``jobs``.

    Raises:
        OverflowError: more than ``at_most`` sets.
    """
    by_pool: dict[tuple[int, ...], list[Packing]] = {}
    for train_nodes in sorted({job.train_nodes for job in jobs}):
        loads = [load_of(job, train_nodes, rules) for job in jobs]
        order = sorted(range(len(jobs)), key=lambda i: (-loads[i].cycle_s, i))

        def extend(
            start: int,
            chosen: tuple[int, ...],
            limit_s: float,
            train_s: float,
            train_gb: float,
            *,
            loads: Sequence[Load] = loads,
            order: Sequence[int] = order,
            train_nodes: int = train_nodes,
        ) -> None:
            for position in range(start, len(order)):
                i = order[position]
                load = loads[i]
                limit = min(limit_s, load.limit_s)
                total_s, total_gb = train_s + load.train_s, train_gb + load.train_gb
                shared = bool(chosen)
                longest_s = loads[chosen[0]].cycle_s if shared else load.alone_s
                if longest_s > limit and shared:
                    continue
                if total_gb >= rules.pools.train.host_gb:
                    continue
                if shared and total_s > (min(limit, longest_s) if unsaturated else limit):
                    continue
                grown = (*chosen, i)
                key = tuple(sorted(grown))
                if any(jobs[k].train_nodes == train_nodes for k in key):
                    packed = packings_of(
                        [jobs[k] for k in key],
                        train_nodes,
                        rules,
                        unsaturated=unsaturated,
                        loads=[loads[k] for k in key],
                    )
                    if packed:
                        by_pool.setdefault(key, []).extend(packed)
                        if at_most is not None and len(by_pool) > at_most:
                            raise OverflowError(f"more than {at_most} feasible groups")
                if len(grown) < rules.max_group:
                    extend(position + 1, grown, limit, total_s, total_gb)

        extend(0, (), float("inf"), 0.0, 0.0)
    return [FeasibleSet(key, tuple(by_pool[key])) for key in sorted(by_pool)]
