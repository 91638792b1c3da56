"""Traces, policies and replays that the ``weave-replay`` experiment is made of."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from testbed.coexec.baselines import (
    ColdSlicing,
    GavelLike,
    MostIdle,
    RandomGroups,
    colocated,
    colocated_usd,
)
from testbed.coexec.jobs import JobProfile
from testbed.coexec.named import planner_named
from testbed.coexec.optimum import cheapest_partition
from testbed.coexec.policies import Planner
from testbed.coexec.pools import GPUS_PER_NODE
from testbed.coexec.replay import ReplayResult, ReplayRules, Residency, TraceJob, replay
from testbed.coexec.rules import PHASES_FULL, PHASES_PRINTED, PhaseRules, PlannerRules
from testbed.coexec_cli.tables import read_jobs
from testbed.errors import PolicyError
from testbed.experiments.experiment import Row, quiet_solver

SHIPPED = (
    "prod_1",
    "prod_2",
    "prod_3",
    "philly_bl_1",
    "philly_rh_1",
    "philly_th_1",
    "philly_mixed_1",
)
PRINTED = PlannerRules(phases=PHASES_PRINTED)
FULL = PlannerRules(phases=PHASES_FULL)
TAIL = PlannerRules(phases=PhaseRules(tail_freed=0.2))
POLICIES: Mapping[str, Callable[[], Planner]] = {
    "dedicated": lambda: planner_named("dedicated", PRINTED),
    "algorithm-1": lambda: planner_named("algorithm-1", PRINTED),
    "consolidating": lambda: planner_named("consolidating", PRINTED),
    "ranloom": lambda: planner_named("ranloom", PRINTED),
    "ranloom-cost": lambda: planner_named("ranloom-cost", PRINTED),
    "algorithm-1, swap and sync": lambda: planner_named("algorithm-1", FULL),
    "ranloom, swap and sync": lambda: planner_named("ranloom", FULL),
    "ranloom, tail at 0.8": lambda: planner_named("ranloom", TAIL),
    "algorithm-1, tail at 0.8": lambda: planner_named("algorithm-1", TAIL),
    "cold slicing": lambda: ColdSlicing(FULL),
    "gavel-like": lambda: GavelLike(PRINTED),
    "random": lambda: RandomGroups(1, rules=PRINTED),
    "most idle": lambda: MostIdle(PRINTED),
}


def shipped(name: str) -> list[TraceJob]:
    """One of the reference traces that come with the package."""
    path = files("testbed.coexec") / "traces" / f"weave_jobs_{name}.csv"
    return list(read_jobs(Path(str(path)), trace=True).jobs)


def with_slo(trace: Sequence[TraceJob], slo: float) -> list[TraceJob]:
    """The same trace with one SLO for all jobs."""
    return [replace(job, profile=replace(job.profile, slo=slo)) for job in trace]


def row_of(
    scenario: str, trace: str, policy: str, residency: Residency, result: ReplayResult
) -> Row:
    """One replay as a row of the JSON."""
    return {
        "scenario": scenario,
        "trace": trace,
        "policy": policy,
        "residency": residency.value,
        "ratio_solo": result.ratio_solo,
        "slo_attainment": result.slo_attainment,
        "moves": result.moves,
        "peak_rollout_nodes": result.peak_rollout_nodes,
        "peak_train_nodes": result.peak_train_nodes,
        "peak_rollout_gpus": result.peak_rollout_nodes * GPUS_PER_NODE,
        "peak_train_gpus": result.peak_train_nodes * GPUS_PER_NODE,
        "violation_share": result.violation_share,
        "usd": result.usd,
        "jobs": len(result.jobs),
    }


def replayed(
    scenario: str,
    name: str,
    trace: Sequence[TraceJob],
    policies: Mapping[str, Planner],
    rules: ReplayRules | None = None,
) -> list[Row]:
    """One row per policy."""
    rules = rules or ReplayRules()
    return [
        row_of(scenario, name, policy, rules.residency, replay(trace, planner, rules))
        for policy, planner in policies.items()
    ]


def named(*names: str) -> dict[str, Planner]:
    """Fresh planners of :data:`POLICIES`."""
    return {name: POLICIES[name]() for name in names}


def colocated_rows(name: str, trace: Sequence[TraceJob]) -> list[Row]:
    """The two co-located models: arithmetic, residency work-conserving."""
    pools = PRINTED.pools
    solo_usd = sum(
        job.solo_duration_h * pools.usd_per_hour(job.profile.rollout_nodes, job.profile.train_nodes)
        for job in trace
    )
    rows: list[Row] = []
    for label, hbm in (("co-located, equal speed", False), ("co-located, HBM bound", True)):
        usd = colocated_usd(trace, pools, hbm_bound=hbm)
        met = [
            colocated(job.profile, pools, hbm_bound=hbm).slowdown <= job.profile.slo
            for job in trace
        ]
        rows.append(
            {
                "scenario": "baseline",
                "trace": name,
                "policy": label,
                "residency": Residency.WORK_CONSERVING.value,
                "ratio_solo": solo_usd / usd,
                "slo_attainment": sum(met) / len(met),
                "moves": 0,
                "peak_rollout_nodes": None,
                "peak_train_nodes": None,
                "usd": usd,
                "jobs": len(trace),
            }
        )
    return rows


def against_optimum(
    name: str,
    trace: Sequence[TraceJob],
    policies: Mapping[str, Planner],
    *,
    most_jobs: int,
    unsaturated: bool,
) -> list[Row]:
    """Cost over the optimum of the policy's own job sets, weighted by time.

    Intervals with more than ``most_jobs`` jobs are left out of both sides, and their share of the
    hours is reported; where all are left out the ratio is None. The optimum bounds round-robin
    groups only, and the variant is named.
    """
    rows: list[Row] = []
    variant = "SLO and unsaturated" if unsaturated else "SLO only"
    for policy, planner in policies.items():
        result = replay(trace, planner, ReplayRules(keep_intervals=True))
        known: dict[tuple[str, ...], float | None] = {}
        ours = best = left_out_h = hours = 0.0
        for interval in result.intervals:
            hours += interval.hours
            key = tuple(sorted(job.job for job in interval.jobs))
            if key not in known:
                known[key] = None
                if len(key) <= most_jobs:
                    known[key] = _least_usd(interval.jobs, unsaturated)
            least = known[key]
            if least is None:
                left_out_h += interval.hours
                continue
            ours += interval.hours * interval.usd_per_hour
            best += interval.hours * least
        rows.append(
            {
                "scenario": "optimum",
                "trace": name,
                "policy": policy,
                "residency": Residency.WORK_CONSERVING.value,
                "variant": variant,
                "of_optimum": ours / best if best else None,
                "hours_left_out": left_out_h / hours,
                "ratio_solo": result.ratio_solo,
                "slo_attainment": result.slo_attainment,
                "moves": result.moves,
                "peak_rollout_nodes": result.peak_rollout_nodes,
                "peak_train_nodes": result.peak_train_nodes,
            }
        )
    return rows


def _least_usd(jobs: Sequence[JobProfile], unsaturated: bool) -> float | None:
    rules = replace(PRINTED, prune=False)
    try:
        with quiet_solver():
            best = cheapest_partition(jobs, rules, unsaturated=unsaturated, limit_s=20.0)
    except (OverflowError, PolicyError):
        return None
    return best.usd_per_hour if best.proven else None


def gains(rows: Sequence[Row], policy: str, base: str) -> list[float]:
    """Cost of ``base`` / cost of ``policy``, trace by trace."""
    usd = {(row["trace"], row["policy"]): float(row["usd"]) for row in rows}
    return [usd[trace, base] / value for (trace, name), value in usd.items() if name == policy]


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
