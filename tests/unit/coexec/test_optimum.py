"""Feasible sets and the exact optimum against brute force, subset DP against HiGHS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.coexec.batch import place_many
from testbed.coexec.groups import Member, build_group
from testbed.coexec.jobs import JobProfile
from testbed.coexec.optimum import cheapest_partition, partition_by_milp, partition_by_subsets
from testbed.coexec.packing import feasible_sets
from testbed.coexec.rules import PHASES_FULL, Objective, PlannerRules
from testbed.errors import PolicyError

from .makers import job, job_lists

RULES = PlannerRules(prune=False)
PRICED = replace(RULES, objective=Objective.COST_PER_PROGRESS, phases=PHASES_FULL)


def brute_group(jobs: Sequence[JobProfile], rules: PlannerRules) -> float | None:
    """Least price of one group of one-node jobs, by trying every pinning."""
    best: float | None = None
    for pins in product(range(len(jobs)), repeat=len(jobs)):
        members = [Member(one, (pin,)) for one, pin in zip(jobs, pins, strict=True)]
        group = build_group(0, 1, members, rules)
        fits = (
            group.t_meta_s <= group.limit_s
            and max(group.node_used_gb) < rules.pools.rollout.host_gb
            and group.train_used_gb < rules.pools.train.host_gb
        )
        if fits and (best is None or group.usd_per_hour < best):
            best = group.usd_per_hour
    return best


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for i, part in enumerate(smaller):
            yield [*smaller[:i], [first, *part], *smaller[i + 1 :]]


@given(job_lists(1, 5))
@settings(max_examples=15)
def test_feasible_sets_are_those_of_brute_force(jobs: list[JobProfile]) -> None:
    rules = replace(RULES, max_group=4)
    found = {entry.jobs: entry.best().usd_per_hour for entry in feasible_sets(jobs, rules)}
    for size in range(1, 5):
        for members in combinations(range(len(jobs)), size):
            brute = brute_group([jobs[i] for i in members], rules)
            assert found.get(members) == (None if brute is None else pytest.approx(brute))


@given(job_lists(1, 5))
@settings(max_examples=12)
def test_optimum_is_that_of_brute_force(jobs: list[JobProfile]) -> None:
    prices = {
        members: brute_group([jobs[i] for i in members], RULES)
        for size in range(1, len(jobs) + 1)
        for members in combinations(range(len(jobs)), size)
    }
    totals = []
    for parts in partitions(list(range(len(jobs)))):
        each = [prices[tuple(sorted(part))] for part in parts]
        if None not in each:
            totals.append(sum(usd for usd in each if usd is not None))
    assert cheapest_partition(jobs, RULES).usd_per_hour == pytest.approx(min(totals))


@given(job_lists(6, 11))
@settings(max_examples=8)
def test_subsets_and_highs_agree(jobs: list[JobProfile]) -> None:
    weighted = [(e.jobs, e.best().usd_per_hour) for e in feasible_sets(jobs, RULES)]
    by_subsets, _ = partition_by_subsets(len(jobs), weighted)
    by_milp, _, proven = partition_by_milp(len(jobs), weighted)
    assert proven
    assert by_milp == pytest.approx(by_subsets)


@given(job_lists(2, 9, most_nodes=2))
@settings(max_examples=40)
def test_no_plan_is_cheaper_than_the_optimum(wide: list[JobProfile]) -> None:
    # Pools of the plan have the founder's size, those of the optimum any member's: so it bounds.
    jobs = [replace(one, rollout_nodes=1) for one in wide]
    rules = replace(RULES, max_group=3)
    plan, _ = place_many(jobs, rules)
    best = cheapest_partition(jobs, rules)
    assert best.proven
    assert plan.usd_per_hour >= best.usd_per_hour - 1e-9


def test_the_optimum_of_jobs_on_several_rollout_nodes_claims_no_proof() -> None:
    assert not cheapest_partition([job("a", 10, 10, rollout_nodes=2)], RULES).proven


@given(job_lists(2, 5))
@settings(max_examples=30)
def test_the_unsaturated_optimum_is_dearer_or_equal(jobs: list[JobProfile]) -> None:
    free = cheapest_partition(jobs, RULES).usd_per_hour
    assert cheapest_partition(jobs, RULES, unsaturated=True).usd_per_hour >= free - 1e-9
    for entry in feasible_sets(jobs, RULES, unsaturated=True):
        if len(entry.jobs) > 1:
            longest = max(jobs[i].t_rollout_s + jobs[i].t_train_s for i in entry.jobs)
            assert entry.best().t_meta_s == pytest.approx(longest)


def test_two_pairs_by_hand() -> None:
    # Long and short jobs pair among themselves: two groups, 57.04 each; across, the short ones'
    # SLO (1.2 x 100) forbids T_cycle = 400.
    jobs = [job("a", 200, 200, 1.2), job("b", 50, 50, 1.2), job("c", 200, 200, 1.2)]
    jobs.append(job("d", 50, 50, 1.2))
    best = cheapest_partition(jobs, RULES)
    assert sorted(best.groups) == [(0, 2), (1, 3)]
    assert best.usd_per_hour == pytest.approx(2 * 57.04)


def test_more_nodes_buy_progress_where_it_is_priced() -> None:
    # Rollouts 100 + 100 on one node: period 200; on two: 150 = T_cycle. Progress 300/200 or 2.
    jobs = [job("a", 100, 50, 2), job("b", 100, 50, 2)]
    (both,) = [
        e for e in feasible_sets(jobs, replace(PRICED, phases=RULES.phases)) if len(e.jobs) > 1
    ]
    assert [(p.rollout_nodes, p.t_meta_s) for p in both.packings] == [(1, 200), (2, 150)]
    assert both.best(0.0).rollout_nodes == 1
    assert both.best(40.0).rollout_nodes == 2  # 0.5 solo hours for 14.80: worth it above 29.60


def test_a_job_that_fits_nowhere_has_no_optimum() -> None:
    with pytest.raises(PolicyError, match="no partition"):
        cheapest_partition([job("a", 10, 10, host_rollout_gb=5000.0)], RULES)


def test_too_many_sets_is_an_error_of_its_own() -> None:
    with pytest.raises(OverflowError, match="more than 3"):
        feasible_sets([job(str(i), 10, 10, 9.0) for i in range(6)], RULES, at_most=3)


@given(st.integers(1, 9), st.data())
@settings(max_examples=30)
def test_subset_programme_covers_exactly_once(count: int, data: st.DataObject) -> None:
    sets = [((i,), float(data.draw(st.integers(1, 50)))) for i in range(count)]
    for _ in range(data.draw(st.integers(0, 12))):
        members = tuple(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
        sets.append((members, float(data.draw(st.integers(1, 50)))))
    weight, chosen = partition_by_subsets(count, sets)
    assert sorted(member for p in chosen for member in sets[p][0]) == list(range(count))
    assert weight == sum(sets[p][1] for p in chosen)
