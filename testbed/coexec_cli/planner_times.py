"""``reproduce planner``: how long does one decision take, from 5 to 2,000 concurrent jobs?

One process, no index kept between decisions: what the coordinator would pay per arrival or
departure. Wall and processor time are both given, because wall time on a busy machine measures the
machine.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import click

from testbed.coexec.batch import place_many
from testbed.coexec.decisions import Outcome
from testbed.coexec.generate import generate
from testbed.coexec.groups import Plan
from testbed.coexec.jobs import JobProfile, Standing
from testbed.coexec.named import planner_named
from testbed.coexec.optimum import cheapest_partition
from testbed.coexec.policies import Planner, Ranloom
from testbed.coexec.rules import PHASES_PRINTED, PlannerRules
from testbed.coexec_cli.laws import read_laws
from testbed.experiments.experiment import Experiment, Row, check, finish, quiet_solver

PAPER_MS = {5: 5.6, 9: 6.5, 13: 7.6, 100: 41.9, 500: 198.0, 1000: 318.0, 2000: 591.0}
"""RollMux (arXiv 2512.11306v2), section 7: decision time by concurrent jobs."""
SEED = 7
RULES = PlannerRules(phases=PHASES_PRINTED)
SLACK = Standing(progress_h=10.0, elapsed_h=10.0)
"""Ten hours on dedicated nodes: slack enough that moves are looked at."""


def jobs_of(count: int, seed: int) -> list[JobProfile]:
    """``count`` jobs of the prod law."""
    laws = read_laws(Path(str(files("testbed.coexec") / "traces" / "weave_replay.toml")))
    return [entry.profile for entry in generate(replace(laws["prod"], jobs=count), seed)]


def timed(calls: Sequence[Callable[[], Outcome]]) -> tuple[list[float], list[float]]:
    """Wall and processor milliseconds of each call."""
    wall: list[float] = []
    busy: list[float] = []
    for call in calls:
        began, began_cpu = time.perf_counter(), time.process_time()
        call()
        wall.append(1e3 * (time.perf_counter() - began))
        busy.append(1e3 * (time.process_time() - began_cpu))
    return wall, busy


def decision_rows(count: int, repeats: int) -> list[Row]:
    """One row per planner and kind of event at ``count`` concurrent jobs."""
    jobs = jobs_of(count + repeats, SEED)
    running, coming = jobs[:count], jobs[count:]
    standings = {job.job: SLACK for job in running}
    ours = Ranloom(planner_named("ranloom", RULES).rules)
    planners: dict[str, Planner] = {
        "algorithm-1": planner_named("algorithm-1", RULES),
        "ranloom, placement only": replace(ours, repacking=None),
        "ranloom": ours,
    }
    rows: list[Row] = []
    for name, planner in planners.items():
        plan, _ = place_many(running, planner.rules)
        for event, calls in (
            ("arrival", _arrivals(planner, plan, coming, standings)),
            ("departure", _departures(planner, plan, running[: len(coming)], standings)),
        ):
            wall, busy = timed(calls)
            rows.append(
                {
                    "jobs": count,
                    "groups": len(plan.groups),
                    "saturated": sum(group.saturated for group in plan.groups),
                    "policy": name,
                    "event": event,
                    "wall_ms_p50": statistics.median(wall),
                    "wall_ms_max": max(wall),
                    "cpu_ms_p50": statistics.median(busy),
                    "cpu_ms_max": max(busy),
                    "paper_ms": PAPER_MS.get(count),
                }
            )
    return rows


def _arrivals(
    planner: Planner, plan: Plan, jobs: Sequence[JobProfile], standings: dict[str, Standing]
) -> list[Callable[[], Outcome]]:
    return [partial(planner.arrive, plan, job, standings) for job in jobs]


def _departures(
    planner: Planner, plan: Plan, jobs: Sequence[JobProfile], standings: dict[str, Standing]
) -> list[Callable[[], Outcome]]:
    return [partial(planner.depart, plan, job.job, standings) for job in jobs]


def optimum_rows(counts: Sequence[int]) -> list[Row]:
    """The exact optimum of a static set: subsets up to 14 jobs, HiGHS above."""
    rows: list[Row] = []
    for count in counts:
        jobs = jobs_of(count, SEED)
        began = time.perf_counter()
        with quiet_solver():
            best = cheapest_partition(jobs, replace(RULES, prune=False), limit_s=30.0)
        took = 1e3 * (time.perf_counter() - began)
        ours, _ = place_many(jobs, planner_named("algorithm-1", RULES).rules)
        rows.append(
            {
                "jobs": count,
                "policy": "optimum",
                "event": "static set",
                "wall_ms_p50": took,
                "proven": best.proven,
                "algorithm_1_of_optimum": ours.usd_per_hour / best.usd_per_hour,
            }
        )
    return rows


def run(out: Path, quick: bool) -> Experiment:
    """All sizes; writes ``planner.json``."""
    sizes = tuple(PAPER_MS)
    repeats = 15 if quick else 40
    rows = [row for count in sizes for row in decision_rows(count, repeats)]
    best = optimum_rows((5, 9, 13) if quick else (5, 9, 13, 20, 30))
    experiment = Experiment("planner", [SEED], quick, rows=[*rows, *best])

    def of(count: int, policy: str, key: str) -> float:
        return max(float(r[key]) for r in rows if r["jobs"] == count and r["policy"] == policy)

    large, small = 2000, 100
    growth = math.log(
        of(large, "ranloom, placement only", "cpu_ms_p50")
        / of(small, "ranloom, placement only", "cpu_ms_p50")
    ) / math.log(large / small)
    experiment.checks = [
        check(
            "2,000 jobs: placement, median ms",
            of(large, "ranloom, placement only", "wall_ms_p50"),
            "<=",
            20,
            paper=PAPER_MS[large],
        ),
        check(
            "2,000 jobs: algorithm-1, median ms",
            of(large, "algorithm-1", "wall_ms_p50"),
            "<=",
            20,
            paper=PAPER_MS[large],
        ),
        check(
            "2,000 jobs: with re-packing, median ms",
            of(large, "ranloom", "wall_ms_p50"),
            "<=",
            100,
            paper=PAPER_MS[large],
        ),
        check(
            "2,000 jobs: with re-packing, slowest, processor ms",
            of(large, "ranloom", "cpu_ms_max"),
            "<=",
            100,
            paper=PAPER_MS[large],
        ),
        check("growth exponent of placement, 100 to 2,000 jobs", growth, "<=", 1.1, paper="linear"),
    ]
    _figure(experiment, out, rows)
    finish(experiment, out, {"one decision": rows, "exact optimum": best})
    return experiment


def _figure(experiment: Experiment, out: Path, rows: Sequence[Row]) -> None:
    from testbed.coexec_cli.picture import curves

    series: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        "RollMux (paper)": (list(PAPER_MS), list(PAPER_MS.values()))
    }
    for name in dict.fromkeys(str(row["policy"]) for row in rows):
        mine = [r for r in rows if r["policy"] == name and r["event"] == "arrival"]
        series[name] = ([r["jobs"] for r in mine], [r["wall_ms_p50"] for r in mine])
    out.mkdir(parents=True, exist_ok=True)
    curves(
        out / "planner.png",
        "One arrival: median decision time",
        series,
        "concurrent jobs",
        "ms",
        log=True,
    )
    experiment.figures.append("planner.png")


@click.command("planner")
@click.option("--quick", is_flag=True, help="Fewer repetitions; ends within a minute.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), show_default=True)
def command(quick: bool, out: Path) -> None:
    """Weave's decision time, 5 to 2,000 jobs."""
    run(out, quick)
