"""What holds for every trace and every planner (hypothesis)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.coexec.batch import place_many, settle
from testbed.coexec.consolidation import MoveRules
from testbed.coexec.groups import Plan, phases_of
from testbed.coexec.jobs import FRESH, JobProfile, Standing
from testbed.coexec.named import PLANNER_NAMES, planner_named
from testbed.coexec.policies import Planner
from testbed.coexec.repacking import RepackRules
from testbed.coexec.replay import ReplayRules, Residency, TraceJob, replay
from testbed.coexec.round_robin import period_s
from testbed.coexec.rules import PHASES_FULL, PHASES_PRINTED, PlannerRules

from .makers import job_lists, profiles, traces

SHARING = tuple(name for name in PLANNER_NAMES if name != "dedicated")
names = st.sampled_from(SHARING)
phases = st.sampled_from((PHASES_PRINTED, PHASES_FULL))


def solo_usd(jobs: list[JobProfile], rules: PlannerRules) -> float:
    return sum(rules.pools.usd_per_hour(one.rollout_nodes, one.train_nodes) for one in jobs)


def assert_keeps_its_promises(plan: Plan, rules: PlannerRules) -> None:
    """Memory and the SLO of every member, by the exact period of the schedule."""
    for group in plan.groups:
        assert 1 <= len(group.members) <= rules.max_group
        assert max(group.node_used_gb) < rules.pools.rollout.host_gb
        assert group.train_used_gb < rules.pools.train.host_gb
        period = period_s(phases_of(group.members, group.loads, rules))
        assert period == pytest.approx(group.t_meta_s, rel=1e-9)
        for member, load in zip(group.members, group.loads, strict=True):
            assert period <= member.job.slo * load.solo_s * (1 + 1e-9)
            assert len(set(member.nodes)) == member.job.rollout_nodes


@given(job_lists(1, 9, most_nodes=2), names, phases)
@settings(max_examples=60)
def test_plans_keep_memory_and_slos_and_cost_at_most_solo(
    jobs: list[JobProfile], name: str, parts: object
) -> None:
    planner = planner_named(name, PlannerRules(phases=parts))  # type: ignore[arg-type]
    plan = Plan()
    for i, one in enumerate(jobs):
        plan = planner.arrive(plan, one, {}).plan
        assert_keeps_its_promises(plan, planner.rules)
        assert sorted(plan.jobs()) == sorted(job.job for job in jobs[: i + 1])
        assert plan.usd_per_hour <= solo_usd(jobs[: i + 1], planner.rules) + 1e-9


@given(job_lists(2, 9), names)
@settings(max_examples=40)
def test_plans_still_do_after_departures(jobs: list[JobProfile], name: str) -> None:
    planner = planner_named(name)
    standings = {one.job: Standing(10.0, 10.0) for one in jobs}
    plan = Plan()
    for one in jobs:
        plan = planner.arrive(plan, one, {}).plan
    left = list(jobs)
    for one in jobs[:-1]:
        before = plan
        outcome = planner.depart(plan, one.job, standings)
        plan = outcome.plan
        left.remove(one)
        assert_keeps_its_promises(plan, planner.rules)
        assert sorted(plan.jobs()) == sorted(job.job for job in left)
        assert plan.usd_per_hour <= solo_usd(left, planner.rules) + 1e-9
        assert set(outcome.moved) <= set(before.jobs())


@given(traces(), names, phases)
@settings(max_examples=40)
def test_every_job_keeps_its_slo_in_a_replay(
    trace: list[TraceJob], name: str, parts: object
) -> None:
    planner = planner_named(name, PlannerRules(phases=parts))  # type: ignore[arg-type]
    for residency in Residency:
        result = replay(trace, planner, ReplayRules(residency))
        assert len(result.jobs) == len(trace)
        assert result.violation_share == 0
        assert result.slo_attainment == 1


@given(traces(2, 7), profiles("new"), st.integers(0, 60), names)
@settings(max_examples=30)
def test_another_job_makes_no_one_miss_its_slo(
    trace: list[TraceJob], extra: JobProfile, at: int, name: str
) -> None:
    result = replay([*trace, TraceJob(extra, at / 4, 3.0)], planner_named(name))
    assert all(job.met for job in result.jobs)


@given(traces(), names)
@settings(max_examples=15)
def test_a_plan_is_a_pure_function_of_its_inputs(trace: list[TraceJob], name: str) -> None:
    planner = planner_named(name)
    assert replay(trace, planner) == replay(trace, planner_named(name))
    plan, _ = place_many([job.profile for job in trace], planner.rules)
    standings = dict.fromkeys(plan.jobs(), Standing(5.0, 5.0))
    one = planner.depart(plan, trace[0].profile.job, standings)
    two = planner.depart(plan, trace[0].profile.job, dict(reversed(standings.items())))
    assert one == two


@given(job_lists(1, 12, most_nodes=2), names)
@settings(max_examples=40)
def test_indexed_planning_is_one_arrival_after_another(jobs: list[JobProfile], name: str) -> None:
    rules = planner_named(name).rules
    planner: Planner = planner_named("algorithm-1", rules)
    planner = replace(planner, rules=rules)  # type: ignore[type-var]
    plan = Plan()
    made = []
    for one in jobs:
        outcome = planner.arrive(plan, one, {})
        plan = outcome.plan
        made.append((outcome.decisions[0].group_id, outcome.decisions[0].strategy))
    batch, decisions = place_many(jobs, rules)
    assert batch == plan
    assert [(d.group_id, d.strategy) for d in decisions] == made


@given(job_lists(2, 10))
@settings(max_examples=25)
def test_settling_a_waiting_plan_never_makes_it_worse(jobs: list[JobProfile]) -> None:
    planner = planner_named("ranloom")
    plan, _ = place_many(jobs, planner.rules)
    price = plan.usd_per_hour / plan.progress
    after, _ = settle(plan, planner.rules, MoveRules(), RepackRules(), 12)
    assert_keeps_its_promises(after, planner.rules)
    assert sorted(after.jobs()) == sorted(plan.jobs())
    assert after.usd_per_hour / after.progress <= price + 1e-9


def test_a_fresh_job_has_no_slack() -> None:
    assert FRESH.slack_h(2.0) == 0
