"""Algorithm 1 as printed (RollMux, arXiv 2512.11306v2, Alg. 1), rule by rule, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.coexec.algorithm1 import place
from testbed.coexec.decisions import Because, Decision, Strategy
from testbed.coexec.groups import Plan
from testbed.coexec.jobs import JobProfile
from testbed.coexec.rules import Objective, PlannerRules, TrainRescale
from testbed.errors import PolicyError

from .makers import job

PRINTED = PlannerRules()


def put(*jobs: JobProfile, rules: PlannerRules = PRINTED) -> tuple[Plan, Decision]:
    plan, decision = Plan(), None
    for one in jobs:
        placed = place(one, plan, rules)
        assert placed is not None
        plan, decision = placed
    assert decision is not None
    return plan, decision


def test_first_job_gets_an_isolated_group() -> None:
    plan, decision = put(job("a", 100, 100))
    assert decision.strategy is Strategy.ISOLATED
    assert plan.usd_per_hour == pytest.approx(57.04)


def test_direct_packing_costs_nothing() -> None:
    plan, decision = put(job("a", 100, 100), job("b", 100, 100))
    assert decision.strategy is Strategy.DIRECT
    assert decision.delta_usd_per_hour == 0
    assert plan.groups[0].t_meta_s == 200
    assert decision.slowdown == 1


def test_rollout_scaling_when_the_node_would_be_too_slow() -> None:
    # Rollouts 150 + 140 = 290 > 1.2 x 200, training 100 <= 240: one more node, 14.80 $/h.
    plan, decision = put(job("a", 150, 50, 1.2), job("b", 140, 50, 1.2))
    assert decision.strategy is Strategy.SCALED
    assert decision.delta_usd_per_hour == pytest.approx(14.80)
    assert plan.groups[0].nodes == (0, 1)


def test_isolated_when_training_does_not_fit() -> None:
    plan, decision = put(job("a", 50, 150, 1.2), job("b", 50, 140, 1.2))
    assert decision.strategy is Strategy.ISOLATED
    assert len(plan.groups) == 2
    refusal = decision.refusals[0]
    assert (refusal.because, refusal.value, refusal.limit) == (Because.SLO, 290, pytest.approx(228))
    assert refusal.job == "b"  # 1.2 x 190 is tighter than 1.2 x 200
    assert "group 0" in refusal.text()


def test_the_slo_of_every_member_counts() -> None:
    # b (SLO 9) would be happy at 200, a (100 s, SLO 1.5) would not.
    _, decision = put(job("a", 50, 50, 1.5), job("b", 100, 100, 9))
    assert decision.strategy is Strategy.ISOLATED
    assert decision.refusals[0].job == "a"


def test_the_slo_test_takes_equality() -> None:
    # T_coexec = 200 = 2 x 100 exactly.
    _, decision = put(job("a", 50, 50, 2.0), job("b", 100, 100, 2.0))
    assert decision.strategy is Strategy.DIRECT


def test_a_saturated_group_is_pruned_before_the_insertion() -> None:
    # a + b: rollouts 200 + 100 = 300 >= T_cycle 300: saturated. c would meet every SLO.
    jobs = (job("a", 200, 100, 2), job("b", 100, 50, 3), job("c", 30, 20, 9))
    _, pruned = put(*jobs)
    assert pruned.strategy is Strategy.ISOLATED
    assert pruned.refusals[0].because is Because.SATURATED
    _, kept = put(*jobs, rules=replace(PRINTED, prune=False))
    assert kept.strategy is Strategy.DIRECT


def test_an_insertion_may_saturate_once() -> None:
    # 150 < 200 before; 150 + 100 > 200 after, within the SLOs: only the SLO stops over-saturation.
    plan, decision = put(job("a", 150, 50, 2), job("b", 100, 50, 2))
    assert decision.strategy is Strategy.DIRECT
    assert plan.groups[0].saturated


def test_memory_is_refused_at_equality() -> None:
    # 1,024 + 1,024 = 2,048 GB: Alg. 1 writes mem_req >= free.
    wide = {"host_rollout_gb": 1024.0}
    _, decision = put(job("a", 100, 100, **wide), job("b", 100, 100, **wide))
    assert decision.strategy is Strategy.SCALED
    _, decision = put(
        job("a", 100, 100, host_train_gb=1024.0), job("b", 9, 9, 99, host_train_gb=1024.0)
    )
    assert decision.strategy is Strategy.ISOLATED
    assert decision.refusals[0].because is Because.TRAIN_MEMORY


def test_a_job_larger_than_a_node_is_a_named_error() -> None:
    with pytest.raises(PolicyError, match="job big: 2048 GB per rollout node"):
        place(job("big", 1, 1, host_rollout_gb=2048.0), Plan(), PRINTED)


def test_groups_stay_within_the_largest_size() -> None:
    rules = replace(PRINTED, max_group=2, prune=False)
    plan, decision = put(*(job(str(i), 10, 10, 9) for i in range(3)), rules=rules)
    assert len(plan.groups) == 2
    assert decision.refusals[0].because is Because.FULL


def test_first_of_equals_wins() -> None:
    # Both groups take c at no cost; the older one gets it, on its first node.
    alike = (job("a", 100, 100, 1.05), job("b", 200, 200, 1.05), job("c", 40, 40, 9))
    plan, decision = put(*alike)
    assert decision.group_id == plan.groups[0].group_id == 0
    assert decision.nodes == (0,)


def test_cheaper_later_group_beats_an_earlier_dearer_one() -> None:
    # Group 0 needs a new node (rollouts 150 + 90 > 220); group 1 takes the job as it is.
    plan, decision = put(job("a", 150, 50, 1.1), job("b", 60, 180, 1.1), job("c", 90, 40, 2))
    assert (decision.group_id, decision.strategy) == (1, Strategy.DIRECT)
    assert plan.usd_per_hour == pytest.approx(2 * 57.04)


def test_scaling_can_be_switched_off() -> None:
    rules = replace(PRINTED, rollout_scaling=False)
    _, decision = put(job("a", 150, 50, 1.2), job("b", 140, 50, 1.2), rules=rules)
    assert decision.strategy is Strategy.ISOLATED


def test_a_job_of_two_rollout_nodes_takes_the_least_loaded() -> None:
    rules = replace(PRINTED, prune=False)
    plan, decision = put(
        job("a", 100, 20, 2, rollout_nodes=3),
        job("b", 60, 20, 2),
        job("c", 50, 20, 3, rollout_nodes=2),
        rules=rules,
    )
    # b sits on node 0 (100 + 60); c goes to nodes 1 and 2.
    assert decision.nodes == (1, 2)
    assert plan.groups[0].node_load_s == (160, 150, 150)


def test_the_pool_of_the_founder_stays_and_the_degree_follows() -> None:
    founder = job("a", 300, 100, 2, train_nodes=2)
    plan, decision = put(founder, job("b", 100, 200, 2))
    assert decision.strategy is Strategy.DIRECT
    assert plan.groups[0].train_nodes == 2
    assert plan.groups[0].train_load_s == 100 + 200 / 2
    rules = replace(PRINTED, train_rescale=TrainRescale.NONE)
    plan, _ = put(founder, job("b", 100, 200, 2), rules=rules)
    assert plan.groups[0].train_load_s == 300


def test_excluding_groups_and_forbidding_new_ones() -> None:
    plan, _ = put(job("a", 100, 100))
    other = job("b", 100, 100)
    assert place(other, plan, PRINTED, excluding={0}, allow_new=False) is None


def test_priced_progress_refuses_a_sharing_that_slows_everybody() -> None:
    # Two training-bound jobs on one pool: 190 s for two jobs of 100 s. Alg. 1 packs them (no cost
    # now); but each hour then buys 2 x 100/190 = 1.05 solo hours for the price of one, while a node
    # pair of its own buys one: with 57.04 $/h per solo hour joining scores -57.04 x 0.05 and an
    # own group 57.04 - 57.04. Joining still wins by a little; at 205 s it would break the SLO of 2.
    rules = replace(PRINTED, objective=Objective.COST_PER_PROGRESS)
    first, second = job("a", 5, 95, 2), job("b", 5, 95, 2)
    _, decision = put(first, second, rules=rules)
    assert decision.strategy is Strategy.DIRECT
    # With a scaled node the same sharing costs 14.80 for 0.05 solo hours: an own group is cheaper.
    full = {"host_rollout_gb": 1100.0}
    _, printed = put(job("a", 5, 95, 2, **full), job("b", 5, 95, 2, **full))
    assert printed.strategy is Strategy.SCALED
    _, priced = put(job("a", 5, 95, 2, **full), job("b", 5, 95, 2, **full), rules=rules)
    assert priced.strategy is Strategy.ISOLATED
