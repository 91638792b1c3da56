"""``reproduce usable``: how much of the GPU can be used, and promised, by arm, load and cells.

Scenarios of ``topologies/`` (or a given file) over a grid of loads and cells with several seeds:
the unshaped RAN, the RAN with decodes stretched to their deadlines, the shaped RAN, baselines, the
offline bound; the RAN's own figures beside each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from testbed.errors import RanloomError
from testbed.experiments.experiment import BadInput, Experiment, finish
from testbed.record.schema import PROMISE_WINDOWS_US as QUANTA_US
from testbed.weaver_cli.arms import ARMS, MAIN_ARMS
from testbed.weaver_cli.grid import (
    CELLS,
    HEADLINE_US,
    LOADS,
    MEASURED_S,
    OF_RECORD,
    SEEDS,
    Point,
    scenario_name,
)
from testbed.weaver_cli.grid_figures import Row
from testbed.weaver_cli.grid_pool import Pool, Task, pool
from testbed.weaver_cli.usable_checks import checks_of
from testbed.weaver_cli.usable_gains import gain_rows, point_rows_over_seeds, summary_rows
from testbed.weaver_cli.usable_ran import ran_rows
from testbed.weaver_cli.usable_runs import BoundPlan, bound_rows, dl_cost_variants, point_rows
from testbed.weaver_cli.usable_table import sections_of

ADDED = ("weaver_one_layer", "weaver_gh200")
"""Scenarios beside the one of record: smaller decodes, a larger GPU."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is run; ``--quick`` takes a part of everything.

    Attributes:
        scenarios: with their own full grid each.
        loads, cells, seeds, measured_s: of the grid.
        bound_s: the bound at the headline quantum is of that much of a run of the first seed: at
            all points of the first scenario, at ``bound_load`` in the others.
        quanta_s: the same at all quanta, at ``bound_load`` of the first scenario.
        sensitivity: (cells, load) at which the downlink's assumed cost is halved and doubled.
    """

    scenarios: tuple[str, ...] = (OF_RECORD, *ADDED)
    loads: tuple[float, ...] = LOADS
    cells: tuple[int, ...] = CELLS
    seeds: tuple[int, ...] = SEEDS
    measured_s: float = MEASURED_S
    bound_load: float = 0.3
    bound_s: float = 3.0
    quanta_s: float = 1.0
    sensitivity: tuple[tuple[int, float], ...] = ((1, 0.3), (2, 0.3), (4, 0.3))


QUICK = Scope(
    scenarios=(OF_RECORD,),
    loads=(0.1, 0.3, 0.5),
    cells=(1, 4),
    seeds=(1,),
    measured_s=2.0,
    bound_s=0.4,
    quanta_s=0.1,
    sensitivity=((1, 0.3),),
)


def run(out: Path, scope: Scope, *, quick: bool, live: bool = False) -> Experiment:
    """All runs, their checks and pictures; writes ``usable.json``. ``live``: also three live runs.

    Raises:
        RanloomError: a scenario that cannot be read, or that the bench cannot run; a live run that
            failed.
    """
    experiment = Experiment("usable", list(scope.seeds), quick)
    rows = experiment.rows
    if live:
        from testbed.weaver_cli.usable_live import live_checks, live_rows

        rows += live_rows(scope.scenarios[0], scope.seeds[0], out)
        experiment.checks += live_checks(rows)
    with pool() as workers:
        for batch in (_grid(scope), _sensitivity(scope), _bounds(scope)):
            rows += _collected(workers, batch)
    gains = gain_rows(rows)
    derived = [*gains, *summary_rows(gains), *point_rows_over_seeds(rows), *ran_rows(rows)]
    rows += derived
    for scenario in map(scenario_name, scope.scenarios):
        experiment.checks += checks_of(rows, scenario)
    _pictures(experiment, scope, out)
    finish(experiment, out, sections_of(rows))
    return experiment


def _grid(scope: Scope) -> list[Task]:
    points = [
        Point(scenario, cells, load, seed, scope.measured_s)
        for scenario in scope.scenarios
        for cells in scope.cells
        for load in scope.loads
        for seed in scope.seeds
    ]
    return [Task(point_rows, (point, ARMS), float(point.cells), str(point)) for point in points]


def _sensitivity(scope: Scope) -> list[Task]:
    points = [
        Point(scope.scenarios[0], cells, load, seed, scope.measured_s)
        for cells, load in scope.sensitivity
        for seed in scope.seeds
    ]
    return [
        Task(_unfixed_rows, (changed,), float(changed.cells), str(changed))
        for point in points
        for changed in dl_cost_variants(point)
    ]


def _unfixed_rows(point: Point) -> list[Row]:
    return point_rows(point, MAIN_ARMS, fixed=False)


def _bounds(scope: Scope) -> list[Task]:
    def task(kind: str, point: Point, bounded_s: float, windows_us: tuple[int, ...]) -> Task:
        plan = BoundPlan(kind, point, bounded_s, windows_us)
        return Task(bound_rows, (plan,), bounded_s * len(windows_us), f"{kind}: {point}")

    def at(scenario: str, cells: int, load: float) -> Point:
        return Point(scenario, cells, load, scope.seeds[0], scope.measured_s)

    first, *others = scope.scenarios
    headline = [at(first, cells, load) for cells in scope.cells for load in scope.loads]
    headline += [at(name, cells, scope.bound_load) for name in others for cells in scope.cells]
    return [
        *(task("bound", point, scope.bound_s, (HEADLINE_US,)) for point in headline),
        *(
            task("bound by quantum", at(first, cells, scope.bound_load), scope.quanta_s, QUANTA_US)
            for cells in scope.cells
        ),
    ]


def _collected(workers: Pool, tasks: Sequence[Task]) -> list[Row]:
    return [row for rows in workers.run(tasks) for row in rows]


def _pictures(experiment: Experiment, scope: Scope, out: Path) -> None:
    from testbed.weaver_cli.usable_pictures import gain_bars, over_load, over_quantum

    out.mkdir(parents=True, exist_ok=True)
    middle = min(scope.loads, key=lambda load: abs(load - scope.bound_load))
    for scenario in map(scenario_name, scope.scenarios):
        mine = [row for row in experiment.rows if row["scenario"] == scenario]
        gains = [row for row in mine if row["kind"] == "gain"]
        stem = f"usable-{scenario.removeprefix('weaver_')}".removesuffix("-usable")
        over_load(out / f"{stem}-load.png", mine, f"{scenario}: what training can use")
        over_quantum(out / f"{stem}-quantum.png", mine, middle, f"{scenario}: by quantum")
        gain_bars(out / f"{stem}-gain.png", gains, f"{scenario}: what the shaped RAN leaves more")
        experiment.figures += [f"{stem}-{name}.png" for name in ("load", "quantum", "gain")]


@click.command("usable")
@click.option("--quick", is_flag=True, help="A part of everything; ends within a minute.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), show_default=True)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="FILE",
    help="A topology in place of those of the experiment; again for several.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Also run three points live, a second each, beside the simulator (minutes; Linux).",
)
def command(quick: bool, out: Path, scenarios: tuple[str, ...], live: bool) -> None:
    """Usable and promised spare GPU time: unshaped, stretched, shaped, baselines, bound."""
    scope = QUICK if quick else Scope()
    if scenarios:
        scope = replace(scope, scenarios=scenarios)
    try:
        run(out, scope, quick=quick, live=live)
    except RanloomError as error:
        raise BadInput(str(error)) from error
