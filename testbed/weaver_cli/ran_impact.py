"""``reproduce ran-impact``: what shaping does to the radio's users.

Delay distributions per class, deadline misses, throughput and fairness of the unshaped, stretched
and shaped RAN; and how much usable spare time each delay buys, over the controller's budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click

from testbed.errors import RanloomError
from testbed.experiments.experiment import BadInput, Check, Experiment, check, finish
from testbed.shaping.state import Tuning
from testbed.weaver_cli.arms import MAIN_ARMS, SHAPED, SMOOTHER
from testbed.weaver_cli.grid import (
    HEADLINE_US,
    MEASURED_S,
    OF_RECORD,
    SEEDS,
    Point,
    run_arm,
    scenario_at,
    scenario_name,
)
from testbed.weaver_cli.grid_figures import (
    Row,
    delay_curve,
    misses,
    run_figures,
    throughput_ratio,
)
from testbed.weaver_cli.grid_pool import Task, pool
from testbed.weaver_cli.usable_gains import by_place
from testbed.weaver_cli.usable_ran import ran_checks, ran_rows
from testbed.weaver_cli.usable_runs import common_of

ARMS = (*MAIN_ARMS, SMOOTHER)
DRAIN_PERMILLE = (50, 100, 200, 350, 500, 700)
PERCENTS = (
    *(step / 2 for step in range(1, 198)),
    *(99 + step / 10 for step in range(10)),
    *(99.95, 99.99, 100.0),
)
"""Of the delay curves."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is run; ``points``: (scenario, cells, load)."""

    points: tuple[tuple[str, int, float], ...] = (
        (OF_RECORD, 1, 0.1),
        (OF_RECORD, 1, 0.3),
        (OF_RECORD, 4, 0.3),
        ("weaver_one_layer", 1, 0.3),
        ("weaver_one_layer", 4, 0.3),
        ("weaver_gh200", 4, 0.3),
    )
    sweep: tuple[tuple[str, int, float], ...] = (
        (OF_RECORD, 1, 0.5),
        (OF_RECORD, 2, 0.3),
        (OF_RECORD, 4, 0.3),
        ("weaver_one_layer", 4, 0.5),
    )
    seeds: tuple[int, ...] = SEEDS
    measured_s: float = MEASURED_S


QUICK = Scope(
    points=((OF_RECORD, 1, 0.1), (OF_RECORD, 4, 0.3), ("weaver_one_layer", 4, 0.3)),
    sweep=((OF_RECORD, 4, 0.3),),
    seeds=(1,),
    measured_s=2.0,
)


def impact_rows(point: Point) -> list[Row]:
    """A row per arm, a first, with the delay distribution of each class (``delay_curve_us``)."""
    scenario = scenario_at(point)
    rows: list[Row] = []
    for arm in ARMS:
        run = run_arm(scenario, arm)
        row = common_of(point, scenario) | {"arm": arm.name} | run_figures(scenario, run)
        row["delay_curve_us"] = delay_curve(run, PERCENTS)
        rows.append(row)
    for row in rows:
        row["throughput_ratio"] = throughput_ratio(row, rows[0])
    return rows


def sweep_rows(point: Point) -> list[Row]:
    """A row per budget of arm c: the share of a delay budget in which a backlog must drain."""
    scenario = scenario_at(point)
    common = common_of(point, scenario) | {"kind": "sweep", "arm": SHAPED.name}
    return [
        common
        | {"drain_permille": share}
        | run_figures(scenario, run_arm(scenario, SHAPED, tuning=Tuning(drain_permille=share)))
        for share in DRAIN_PERMILLE
    ]


def run(out: Path, scope: Scope, *, quick: bool) -> Experiment:
    """All runs, their checks and pictures; writes ``ran-impact.json``.

    Raises:
        RanloomError: a scenario that cannot be read, or that the bench cannot run.
    """
    experiment = Experiment("ran-impact", list(scope.seeds), quick)
    tasks = [
        Task(function, (point,), float(cells) * weight, f"{label} {point}")
        for function, places, weight, label in (
            (impact_rows, scope.points, len(ARMS), "arms of"),
            (sweep_rows, scope.sweep, len(DRAIN_PERMILLE), "budgets of"),
        )
        for scenario, cells, load in places
        for seed in scope.seeds
        for point in (Point(scenario, cells, load, seed, scope.measured_s),)
    ]
    with pool() as workers:
        experiment.rows = [row for rows in workers.run(tasks) for row in rows]
    rows = experiment.rows
    rows += ran_rows(rows)
    for scenario in dict.fromkeys(scenario_name(scenario) for scenario, _, _ in scope.points):
        experiment.checks += ran_checks(rows, scenario)
    experiment.checks += _sweep_checks(rows)
    _pictures(experiment, out)
    finish(experiment, out, _sections(rows))
    return experiment


def sweep_places(rows: Sequence[Row]) -> dict[tuple[str, int, float], dict[int, list[Row]]]:
    """(scenario, cells, load) -> budget -> its runs."""
    places: dict[tuple[str, int, float], dict[int, list[Row]]] = {}
    for row in rows:
        if row["kind"] == "sweep":
            key = (row["scenario"], row["cells"], row["load"])
            places.setdefault(key, {}).setdefault(row["drain_permille"], []).append(row)
    return places


def _sweep_checks(rows: Sequence[Row]) -> list[Check]:
    """More delay should buy spare time, and no budget should cost deadlines."""
    checks = []
    for (scenario, cells, load), budgets in sweep_places(rows).items():
        place = f"{scenario}, budget sweep at {cells} x {load:g}"
        usable = {share: _usable(runs) for share, runs in sorted(budgets.items())}
        shares = list(usable)
        checks += [
            check(
                f"{place}: usable at {shares[-1]} less usable at {shares[0]} permille",
                round(usable[shares[-1]] - usable[shares[0]], 6),
                ">=",
                0.0,
                note=", ".join(f"{share}: {value:.3f}" for share, value in usable.items()),
            ),
            check(
                f"{place}: deadline misses at any budget",
                sum(misses(row) for runs in budgets.values() for row in runs),
                "==",
                0,
            ),
        ]
    return checks


def _usable(runs: Sequence[Row]) -> float:
    return median(float(row["usable_fraction"][str(HEADLINE_US)]) for row in runs)


def _pictures(experiment: Experiment, out: Path) -> None:
    from testbed.weaver_cli.ran_impact_pictures import budget_sweep, delay_curves

    out.mkdir(parents=True, exist_ok=True)
    delay_curves(out / "ran-impact-delay.png", experiment.rows, PERCENTS)
    budget_sweep(out / "ran-impact-budget.png", sweep_places(experiment.rows))
    experiment.figures += ["ran-impact-delay.png", "ran-impact-budget.png"]


def _sections(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """What the terminal shows; medians over seeds."""
    arms = [
        {"scenario": f"{scenario}, {cells} x {load:g}", "arm": arm}
        | _medians([of_arms[arm] for of_arms in seeds.values()])
        for (scenario, _, cells, load), seeds in by_place(rows).items()
        for arm in next(iter(seeds.values()))
    ]
    budgets = [
        {"scenario": f"{scenario}, {cells} x {load:g}", "drain": f"{share} permille"}
        | _medians(runs)
        for (scenario, cells, load), of_budget in sweep_places(rows).items()
        for share, runs in sorted(of_budget.items())
    ]
    return {"arms, medians over seeds": arms, "budgets of arm c, medians over seeds": budgets}


def _medians(runs: Sequence[Row]) -> Row:
    shown: Row = {
        "usable": _usable(runs),
        "misses": _median([misses(run) for run in runs]),
        "late bytes": _text("{:.3%}", _median([run["late_byte_share"] for run in runs])),
    }
    for five_qi in sorted({key for run in runs for key in run["delay_us"]}, key=int):
        values = [
            _median([run["delay_us"].get(five_qi, {}).get(name) for run in runs])
            for name in ("p50", "p95", "p99")
        ]
        delays = [_text("{:.1f}", None if value is None else value / 1000) for value in values]
        shown[f"5QI {five_qi}: p50, p95, p99 ms"] = ", ".join(delays)
    for name, key in (("Mb/s", "throughput_mbps"), ("Jain", "jain")):
        both = [_median([run[key][way] for run in runs]) for way in ("dl", "ul")]
        shown[f"{name} dl, ul"] = ", ".join(_text("{:.4g}", value) for value in both)
    return shown


def _text(form: str, value: float | None) -> str:
    return "-" if value is None else form.format(value)


def _median(values: Sequence[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


@click.command("ran-impact")
@click.option("--quick", is_flag=True, help="A part of everything; ends within a minute.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), show_default=True)
@click.option(
    "--scenario",
    metavar="FILE",
    help="A topology in place of those of the experiment, at the same cells and loads.",
)
def command(quick: bool, out: Path, scenario: str | None) -> None:
    """Delay, deadline misses, throughput and fairness of the shaped RAN; usable time per delay."""
    scope = QUICK if quick else Scope()
    if scenario is not None:
        scope = replace(
            scope,
            points=tuple(dict.fromkeys((scenario, *place[1:]) for place in scope.points)),
            sweep=tuple(dict.fromkeys((scenario, *place[1:]) for place in scope.sweep)),
        )
    try:
        run(out, scope, quick=quick)
    except RanloomError as error:
        raise BadInput(str(error)) from error
