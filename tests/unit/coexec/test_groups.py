"""Sums of a group: hand calculations for swaps, sync, pool size and memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.coexec.groups import Member, build_group, load_of, with_member, without_member
from testbed.coexec.pools import DEFAULT_POOLS, Pools
from testbed.coexec.rules import (
    PHASES_FULL,
    PhaseRules,
    PlannerRules,
    SyncHolds,
    TrainRescale,
)

from .makers import job

PLAIN = PlannerRules()
FULL = PlannerRules(phases=PHASES_FULL)


def test_prices_are_those_of_the_paper() -> None:
    # 8 x 1.85 + 8 x 5.28 = 57.04 dollars per hour.
    assert DEFAULT_POOLS.usd_per_hour(1, 1) == pytest.approx(57.04)
    assert Pools().usd_per_hour(3, 2) == pytest.approx(3 * 14.80 + 2 * 42.24)


def test_load_with_swap_and_sync() -> None:
    one = job("a", 100, 50, 1.5, swap_rollout_s=1, swap_train_s=4, sync_s=2)
    load = load_of(one, 1, FULL)
    assert load.rollout_s == 101
    assert load.train_s == 4 + 50 + 2  # the sync holds the pool
    assert load.cycle_s == 1 + 100 + 4 + 50 + 2
    assert load.alone_s == load.solo_s == 152  # a job alone never swaps
    assert load.limit_s == 1.5 * 152


def test_margin_tightens_the_limit() -> None:
    load = load_of(job("a", 100, 100, 1.5), 1, PlannerRules(slo_margin=0.25))
    assert load.limit_s == pytest.approx(240)


@pytest.mark.parametrize(
    ("rescale", "pool", "train_s", "gb"),
    [
        (TrainRescale.LINEAR, 1, 100, 200),
        (TrainRescale.LINEAR, 4, 25, 100),
        (TrainRescale.SLOWER_ONLY, 1, 100, 200),
        (TrainRescale.SLOWER_ONLY, 4, 50, 100),
        (TrainRescale.NONE, 1, 50, 100),
        (TrainRescale.NONE, 4, 50, 100),
    ],
)
def test_a_job_of_two_training_nodes_on_another_pool(
    rescale: TrainRescale, pool: int, train_s: float, gb: float
) -> None:
    load = load_of(job("a", 10, 50, train_nodes=2), pool, PlannerRules(train_rescale=rescale))
    assert (load.train_s, load.train_gb) == (train_s, gb)
    assert load.solo_s == 60  # the SLO is owed against the job's own pool


def test_group_sums_and_period() -> None:
    a, b, c = job("a", 100, 50), job("b", 60, 40), job("c", 80, 30)
    group = build_group(0, 1, [Member(a, (0,)), Member(b, (0,)), Member(c, (1,))], PLAIN)
    assert group.t_cycle_s == 150
    assert group.train_load_s == 120
    assert group.node_load_s == (160, 80)
    assert group.t_load_s == group.t_meta_s == 160
    assert group.saturated
    assert group.progress == pytest.approx((150 + 100 + 110) / 160)
    assert group.usd_per_hour == pytest.approx(2 * 14.80 + 42.24)


def test_a_job_alone_runs_without_swaps_and_sharing_brings_them() -> None:
    a = job("a", 100, 50, swap_rollout_s=1, swap_train_s=4)
    b = job("b", 20, 20, slo=9, swap_rollout_s=1, swap_train_s=4)
    alone = build_group(0, 1, [Member(a, (0,))], FULL)
    assert alone.t_meta_s == 150
    shared = with_member(alone, b, (0,), FULL)
    assert shared.t_meta_s == 155
    again = without_member(shared, "b", FULL)
    assert again is not None
    assert again.t_meta_s == 150


def test_leaving_releases_the_empty_node_but_never_the_pool() -> None:
    a, b = job("a", 100, 50, train_nodes=2), job("b", 60, 40)
    group = build_group(0, 2, [Member(a, (0,)), Member(b, (1,))], PLAIN)
    left = without_member(group, "a", PLAIN)
    assert left is not None
    assert (left.nodes, left.train_nodes) == ((1,), 2)
    kept = without_member(group, "a", replace(PLAIN, release_empty_nodes=False))
    assert kept is not None
    assert kept.nodes == (0, 1)
    assert without_member(left, "b", PLAIN) is None


def test_node_names_are_not_used_again() -> None:
    a, b = job("a", 100, 50), job("b", 60, 40)
    group = build_group(0, 1, [Member(a, (0,)), Member(b, (1,))], PLAIN)
    left = without_member(group, "b", PLAIN)
    assert left is not None
    assert left.next_node == 2


@pytest.mark.parametrize("holds", [SyncHolds.NOTHING, SyncHolds.BOTH_POOLS])
def test_planners_refuse_a_sync_without_an_exact_closed_form(holds: SyncHolds) -> None:
    with pytest.raises(ValueError, match="exact only where the sync holds the training pool"):
        PlannerRules(phases=PhaseRules(sync=True, sync_holds=holds))


@pytest.mark.parametrize(
    "wrong",
    [
        {"t_rollout_s": 0.0},
        {"slo": 0.99},
        {"rollout_nodes": 0},
        {"host_train_gb": -1.0},
        {"sync_s": -0.1},
    ],
)
def test_impossible_profiles_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="job a"):
        replace(job("a", 10, 10), **wrong)
