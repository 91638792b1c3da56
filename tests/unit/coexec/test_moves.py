"""Consolidation, re-packing and eviction: when jobs move, and when they must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.coexec.batch import place_many
from testbed.coexec.consolidation import MoveRules, consolidate, may_move
from testbed.coexec.decisions import Cause, Strategy
from testbed.coexec.eviction import evict, violators
from testbed.coexec.groups import Plan
from testbed.coexec.jobs import JobProfile, Standing
from testbed.coexec.policies import Ranloom, departed
from testbed.coexec.repacking import repack
from testbed.coexec.rules import Objective, PlannerRules

from .makers import job

RULES = PlannerRules(prune=False)
PRICED = replace(RULES, objective=Objective.COST_PER_PROGRESS)
MOVES = MoveRules()
RESTED = Standing(progress_h=10, elapsed_h=10)
TIRED = Standing(progress_h=10, elapsed_h=19.95)


def alone(*jobs: JobProfile) -> Plan:
    """Every job in a group of its own."""
    plan, _ = place_many(jobs, replace(RULES, max_group=1))
    return plan


def test_guard_by_hand() -> None:
    # SLO 2, 10 h of progress in 19.95 h: slack 0.05 h; a move of 0.04 h asks for 2 x 0.04.
    assert TIRED.slack_h(2.0) == pytest.approx(0.05)
    assert not may_move(2.0, TIRED, 0.04)
    assert may_move(2.0, TIRED, 0.02)


def test_two_lonely_jobs_are_put_together() -> None:
    plan = alone(job("a", 100, 100), job("b", 100, 100))
    after, decisions = consolidate(plan, RULES, MOVES, {"a": RESTED, "b": RESTED})
    assert after.usd_per_hour == pytest.approx(57.04)
    assert [(d.job, d.cause) for d in decisions] == [("a", Cause.CONSOLIDATION)]
    assert "group 0 dissolved" in decisions[0].reason()


def test_a_job_without_slack_stays_and_the_other_comes_to_it() -> None:
    plan = alone(job("a", 100, 100), job("b", 100, 100))
    after, decisions = consolidate(plan, RULES, MOVES, {"a": TIRED, "b": RESTED})
    assert [d.job for d in decisions] == ["b"]
    assert after.groups[0].group_id == 0
    same, none = consolidate(plan, RULES, MOVES, {"a": TIRED, "b": TIRED})
    assert (same, none) == (plan, [])


def test_a_new_job_has_no_slack() -> None:
    plan = alone(job("a", 100, 100), job("b", 100, 100))
    assert consolidate(plan, RULES, MOVES, {})[1] == []


def test_a_saving_below_the_cost_of_its_move_is_left() -> None:
    # Saves 57.04 $/h; a move of 10 h at 57.04 over 5 h costs 114.08 $/h.
    plan = alone(job("a", 100, 100), job("b", 100, 100))
    dear = MoveRules(move_h=10.0)
    rested = Standing(progress_h=100, elapsed_h=100)
    assert consolidate(plan, RULES, dear, {"a": rested, "b": rested})[1] == []


def test_largest_dissolved_group() -> None:
    pair = (job("a", 100, 100), job("b", 100, 100))
    plan, _ = place_many((*pair, job("c", 390, 390, 1.05)), RULES)
    standings = dict.fromkeys("abc", RESTED)
    small = MoveRules(largest_dissolved=0)
    assert consolidate(plan, RULES, small, standings)[1] == []


def test_repacking_finds_a_swap_that_consolidation_cannot() -> None:
    # Long with short and long with short, both groups full: none can be dissolved. Like with like
    # costs the same and slows nobody: 4 solo hours per hour instead of 2 x (1 + 240/400) = 3.2.
    rules = replace(PRICED, max_group=2)
    jobs = [
        job("a", 200, 200, 2),
        job("b", 120, 120, 2),
        job("c", 200, 200, 2),
        job("d", 120, 120, 2),
    ]
    plan, _ = place_many(jobs[:2], rules)
    more, _ = place_many(jobs[2:], rules)
    moved = replace(more.groups[0], group_id=1)
    plan = Plan((plan.groups[0], moved), 2)
    standings = dict.fromkeys("abcd", RESTED)
    assert consolidate(plan, rules, MOVES, standings)[1] == []
    after, decisions = repack(plan, rules, MOVES, standings)
    assert sorted(sorted(group.jobs()) for group in after.groups) == [["a", "c"], ["b", "d"]]
    assert after.usd_per_hour == plan.usd_per_hour
    assert after.progress == pytest.approx(4.0)
    assert len(decisions) == 2
    assert {d.cause for d in decisions} == {Cause.REPACK}


def test_repacking_leaves_stuck_jobs_where_they_are() -> None:
    plan = alone(job("a", 100, 100), job("b", 100, 100), job("c", 100, 100))
    standings = {"a": TIRED, "b": RESTED, "c": TIRED}
    after, decisions = repack(plan, PRICED, MOVES, standings)
    assert [d.job for d in decisions] == ["b"]
    homes = {name: group.group_id for group in after.groups for name in group.jobs()}
    assert (homes["a"], homes["c"]) == (0, 2)


def test_repacking_splits_a_group_whose_pool_has_become_too_large() -> None:
    # The founder with two training nodes has left; the other pays for its pool of two.
    big, small = job("a", 300, 100, 2, train_nodes=2), job("b", 100, 200, 2)
    plan, _ = place_many([big, small], PRICED)
    left = departed(plan, "a", PRICED)
    assert left.usd_per_hour == pytest.approx(14.80 + 2 * 42.24)
    after, _ = repack(left, PRICED, MOVES, {"b": RESTED})
    assert after.usd_per_hour == pytest.approx(57.04)


def test_ranloom_repacks_on_departure_and_names_who_moved() -> None:
    planner = Ranloom(PRICED)
    jobs = [job("a", 100, 100), job("b", 100, 100), job("c", 200, 200, 1.0)]
    plan = alone(*jobs)
    outcome = planner.depart(plan, "c", {"a": RESTED, "b": RESTED})
    assert outcome.plan.usd_per_hour == pytest.approx(57.04)
    assert len(outcome.moved) == 1
    assert outcome.moved == tuple(d.job for d in outcome.decisions)


def test_eviction_by_hand() -> None:
    # a and b of 200 s share at 200; b then grows to 150 + 120: T_cycle 270 > 1.2 x 200.
    a, b = job("a", 100, 100, 1.2), job("b", 100, 100, 1.2)
    plan, _ = place_many([a, b], RULES)
    grown = replace(b, t_rollout_s=150.0, t_train_s=120.0)
    after, decisions = evict(plan, {"b": grown}, RULES, MOVES, {"a": RESTED, "b": RESTED})
    assert len(after.groups) == 2
    assert all(not violators(group, RULES) for group in after.groups)
    assert [(d.job, d.strategy) for d in decisions] == [("a", Strategy.ISOLATED)]
    assert "ran at 270.0 s, too slow for a" in decisions[0].reason()


def test_eviction_prefers_a_job_that_can_pay_for_the_move() -> None:
    a, b = job("a", 100, 100, 1.2), job("b", 100, 100, 1.2)
    plan, _ = place_many([a, b], RULES)
    grown = replace(b, t_rollout_s=150.0, t_train_s=120.0)
    tired = Standing(progress_h=10, elapsed_h=12)
    _, decisions = evict(plan, {"b": grown}, RULES, MOVES, {"a": tired, "b": RESTED})
    assert [d.job for d in decisions] == ["b"]


def test_the_margin_is_for_planning_not_for_eviction() -> None:
    # Period 200 within 1.2 x 180 = 216, but not within 216 / 1.1.
    rules = replace(RULES, slo_margin=0.1)
    plan, _ = place_many([job("a", 100, 100, 1.4), job("b", 100, 100, 1.4)], rules)
    shorter = job("a", 90, 90, 1.2)
    after, decisions = evict(plan, {"a": shorter}, rules, MOVES, {"a": RESTED, "b": RESTED})
    assert decisions == []
    assert after.groups[0].members[0].job == shorter
