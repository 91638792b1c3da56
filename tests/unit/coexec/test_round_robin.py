"""Strict round robin: hand calculations, the closed form against the exact period, FIFO."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.coexec.round_robin import (
    Phases,
    certified_period_s,
    closed_form_s,
    fifo_iterations_s,
    period_s,
    starts_s,
    t_cycle_s,
    t_load_s,
)
from testbed.coexec.rules import SyncHolds

seconds = st.integers(1, 400).map(float)


@st.composite
def groups(draw: st.DrawFn, holds: SyncHolds = SyncHolds.TRAIN_POOL) -> list[Phases]:
    nodes = draw(st.integers(1, 3))
    members = []
    for _ in range(draw(st.integers(2, 5))):
        members.append(
            Phases(
                nodes=(draw(st.integers(0, nodes - 1)),),
                rollout_s=draw(seconds),
                train_s=draw(seconds),
                sync_s=draw(st.integers(0, 20).map(float)),
                sync_holds=holds,
            )
        )
    return members


def test_two_jobs_that_fill_each_others_bubbles() -> None:
    # A: 100 + 50, B: 40 + 60 on one node. T_cycle = 150; loads: node 140, pool 110. By hand: A
    # rolls out 0-100 and trains 100-150; B rolls out 100-140 and trains 150-210; A's next rollout
    # starts at 150, and so does everything, 150 later.
    group = [Phases((0,), 100, 50), Phases((0,), 40, 60)]
    assert (t_cycle_s(group), t_load_s(group)) == (150, 140)
    assert period_s(group) == 150
    table = starts_s(group, 3)
    assert table[0] == [(0, 100), (100, 150)]
    assert table[1] == [(150, 250), (250, 300)]


def test_saturated_node_sets_the_period() -> None:
    # Rollouts of 100 and 90 on one node: 190 > T_cycle = 120.
    group = [Phases((0,), 100, 20), Phases((0,), 90, 10)]
    assert period_s(group) == closed_form_s(group) == 190


def test_a_job_alone_runs_at_its_own_pace() -> None:
    group = [Phases((0, 1), 70, 30, 5, SyncHolds.TRAIN_POOL)]
    assert period_s(group) == 105


def test_a_migrated_tail_frees_its_node_early() -> None:
    # Node busy for 80 + 80 = 160 instead of 200; the pool for 20.
    group = [Phases((0,), 100, 10, tail_s=20), Phases((0,), 100, 10, tail_s=20)]
    assert t_load_s(group) == 160
    assert period_s(group) == 160


def test_rendezvous_on_both_pools_destroys_the_overlap() -> None:
    # One node, sync holds both: every job runs alone, 110 + 110, although T_cycle is 110.
    group = [Phases((0,), 50, 50, 10, SyncHolds.BOTH_POOLS)] * 2
    assert closed_form_s(group) == 110
    assert period_s(group) == 220


def test_latency_only_sync_can_exceed_the_closed_form() -> None:
    """Why planners assume a sync that holds the training pool: search finds a longer period."""
    import random

    rng = random.Random(3)
    worst = 0.0
    for _ in range(1500):
        group = [
            Phases(
                (rng.randrange(3),), rng.randint(50, 600), rng.randint(25, 300), rng.randint(0, 60)
            )
            for _ in range(5)
        ]
        worst = max(worst, period_s(group) / closed_form_s(group) - 1)
    assert 1e-6 < worst < 0.05


@given(groups())
@settings(max_examples=300)
def test_period_is_the_closed_form(group: list[Phases]) -> None:
    assert period_s(group) == pytest.approx(closed_form_s(group), rel=1e-12)


def test_a_job_on_two_nodes_can_stretch_a_saturated_group() -> None:
    # Found by hypothesis. One circuit takes two meta-iterations and 55 s, so 27.5 s each: c rolls
    # out (23), a on the same node (1), b on a's other node (5), b trains and syncs (22), c (4).
    group = [
        Phases((0, 1), 1, 1, 0, SyncHolds.TRAIN_POOL),
        Phases((1,), 5, 2, 20, SyncHolds.TRAIN_POOL),
        Phases((0,), 23, 1, 3, SyncHolds.TRAIN_POOL),
    ]
    assert closed_form_s(group) == 27
    assert period_s(group) == 27.5


@st.composite
def wide_groups(draw: st.DrawFn) -> list[Phases]:
    nodes = draw(st.integers(2, 3))
    pins = st.sets(st.integers(0, nodes - 1), min_size=1, max_size=nodes)
    return [replace(job, nodes=tuple(sorted(draw(pins)))) for job in draw(groups())]


@given(wide_groups())
@settings(max_examples=150)
def test_the_certified_period_is_the_exact_one(group: list[Phases]) -> None:
    exact = period_s(group)
    assert exact >= closed_form_s(group) * (1 - 1e-12)
    assert certified_period_s(group, closed_form_s(group)) == pytest.approx(exact, rel=1e-9)


@given(groups())
@settings(max_examples=60)
def test_period_is_the_growth_of_the_recurrence(group: list[Phases]) -> None:
    # Independent of Karp's theorem: run the recurrence and divide.
    rounds = 240
    table = starts_s(group, rounds)
    growth = (table[-1][0][0] - table[rounds // 2 - 1][0][0]) / (rounds // 2)
    assert growth == pytest.approx(period_s(group), rel=2e-2)


def test_fifo_breaks_an_unsaturated_group() -> None:
    """RollMux's execution plane (plain FIFO queues) misses T_cycle; strict order does not."""
    # Node 0 serves a long rollout and a short job that loops freely; the pool serves all three.
    group = [Phases((0,), 300, 100), Phases((1,), 60, 90), Phases((0,), 60, 100)]
    assert t_load_s(group) < t_cycle_s(group) == 400
    assert period_s(group) == 400
    best = min(
        fifo_iterations_s(group, order)[0]
        for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    )
    assert best > 400 * 1.01


def test_fifo_of_one_job_is_its_own_iteration() -> None:
    assert fifo_iterations_s([Phases((0,), 30, 20, 5)], [0]) == (55.0,)
