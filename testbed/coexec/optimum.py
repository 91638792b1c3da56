"""The exact optimum of one set of jobs: a cheapest partition into feasible groups.

Two independent solvers, for tests and for bounds: a dynamic programme over subsets (small sets) and
set partitioning by HiGHS. The optimum is over round-robin groups with the fewest rollout nodes; a
planner with another discipline may be cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.coexec.jobs import JobProfile
from testbed.coexec.packing import FeasibleSet, feasible_sets
from testbed.coexec.rules import PlannerRules
from testbed.errors import PolicyError

DP_JOBS = 14
"""Above this the 2^n table costs more than the mixed-integer programme."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least price and its groups (indices of jobs).

    ``proven``: no time limit was hit, and every job rolls out on one node: pins of wider jobs are
    tried least loaded first only, so that a group may exist on fewer nodes.
    """

    usd_per_hour: float
    groups: tuple[tuple[int, ...], ...]
    proven: bool


def partition_by_subsets(
    jobs: int, sets: Sequence[tuple[tuple[int, ...], float]]
) -> tuple[float, tuple[int, ...]]:
    """Cheapest exact cover of ``jobs`` by weighted sets: dynamic programme over subsets.

    Returns the weight and the positions in ``sets``. Work is 2^jobs x (sets that hold the lowest
    uncovered job).

    Raises:
        PolicyError: no cover exists.
    """
    holding: list[list[tuple[int, float, int]]] = [[] for _ in range(jobs)]
    for position, (members, weight) in enumerate(sets):
        mask = sum(1 << member for member in members)
        holding[min(members)].append((mask, weight, position))
    full = (1 << jobs) - 1
    least = [math.inf] * (full + 1)
    last = [-1] * (full + 1)
    least[0] = 0.0
    for covered in range(full):
        base = least[covered]
        if base == math.inf:
            continue
        lowest = (~covered & (covered + 1)).bit_length() - 1
        for mask, weight, position in holding[lowest]:
            if covered & mask:
                continue
            total = base + weight
            if total < least[covered | mask]:
                least[covered | mask], last[covered | mask] = total, position
    if least[full] == math.inf:
        raise PolicyError("no partition into feasible groups: a job fits no empty node")
    chosen: list[int] = []
    covered = full
    while covered:
        position = last[covered]
        chosen.append(position)
        covered &= ~sum(1 << member for member in sets[position][0])
    return least[full], tuple(reversed(chosen))


def partition_by_milp(
    jobs: int, sets: Sequence[tuple[tuple[int, ...], float]], limit_s: float = 60.0
) -> tuple[float, tuple[int, ...], bool]:
    """The same by set partitioning with HiGHS; the third value says whether it is proven.

    Raises:
        PolicyError: no cover exists, or none was found within ``limit_s``.
    """
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csc_array

    rows = [member for members, _ in sets for member in members]
    columns = [position for position, (members, _) in enumerate(sets) for _ in members]
    cover = csc_array((np.ones(len(rows)), (rows, columns)), shape=(jobs, len(sets)))
    answer = milp(
        np.array([weight for _, weight in sets]),
        constraints=LinearConstraint(cover, 1, 1),
        integrality=np.ones(len(sets)),
        bounds=Bounds(0, 1),
        options={"time_limit": limit_s, "mip_rel_gap": 0.0},
    )
    if answer.x is None:
        raise PolicyError(f"no partition into feasible groups: {answer.message}")
    chosen = tuple(position for position, value in enumerate(answer.x) if value > 0.5)
    return math.fsum(sets[p][1] for p in chosen), chosen, answer.status == 0


def cheapest_partition(
    jobs: Sequence[JobProfile],
    rules: PlannerRules,
    *,
    unsaturated: bool = False,
    limit_s: float = 60.0,
    at_most_sets: int = 200_000,
) -> Optimum:
    """The optimum for ``jobs``; with ``unsaturated`` groups must also keep T_load <= T_cycle.

    Raises:
        PolicyError: a job fits no empty node, or nothing was found in time.
        OverflowError: more than ``at_most_sets`` feasible groups.
    """
    if not jobs:
        return Optimum(0.0, (), True)
    found: list[FeasibleSet] = feasible_sets(
        jobs, rules, unsaturated=unsaturated, at_most=at_most_sets
    )
    weighted = [(entry.jobs, entry.best().usd_per_hour) for entry in found]
    if len(jobs) <= DP_JOBS:
        usd, chosen = partition_by_subsets(len(jobs), weighted)
        proven = True
    else:
        usd, chosen, proven = partition_by_milp(len(jobs), weighted, limit_s)
    proven = proven and all(job.rollout_nodes == 1 for job in jobs)
    return Optimum(usd, tuple(weighted[p][0] for p in chosen), proven)
