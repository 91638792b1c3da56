"""``reproduce characterise``: what the RAN leaves of a site's GPU, how bursty it is, over a day.

Micro: one GPU slot by slot in the bench, PF with PHY tasks at saturation SMs. Macro: sites over a
day, their SMs by the micro curve. Owns what is run and compared; a missed target is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from testbed.experiments.experiment import BadInput, Experiment, Row, finish
from testbed.host.traces import load_profile
from testbed.ran.importers.common import ReadOptions
from testbed.ran.importers.profile import LoadProfile
from testbed.weaver_cli.characterise_checks import macro_checks, micro_checks
from testbed.weaver_cli.characterise_macro import (
    Sites,
    curve_of,
    logged_sites,
    macro_row,
    simulated_name,
    simulated_sites,
    site_rows,
    variation_rows,
)
from testbed.weaver_cli.characterise_micro import Micro, free_runs, over_seeds, run_point
from testbed.weaver_cli.characterise_scenarios import (
    COMMAG,
    FGN,
    FGN_LONG,
    NR_SCOPE,
    Case,
    commag_case,
    fgn_case,
    full_case,
    long_case,
    nr_scope_case,
)
from testbed.weaver_cli.characterise_series import Floats
from testbed.weaver_cli.grid_pool import Task, pool

CELLS = (1, 2, 4, 8)
LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
QUICK_LOADS = (0.05, 0.3, 0.5, 0.7)
SHOWN_CELLS, SHOWN_LOAD = 4, 0.3
"""Of the pictures: those of the scenario of record."""

SEED = 1

SITE_CELLS = 2
"""Cells of a site's GPU in the macro part: at most so many that the unshaped RAN works at all
loads of a day."""

SITES = (8, 128)
SPREADS_H = (0.0, 8.0, 24.0)
_PICTURED = 1
"""Which of the groups of few sites is drawn: with a log the log, else the 8 hours."""

_ANY_MBPS = 100.0
"""Any rate does: what is read is scaled to a load."""

POINT_COLUMNS = (
    *("ul_layers", "cells", "load", "ran_works", "overload", "ul_miss_rate", "dl_miss_rate"),
    *("idle_fraction", "idle_fraction_ul_only", "usable_fraction_5_ms", "demand_cv"),
    "hurst_by_dfa",
)
OTHER_COLUMNS = (
    *("traffic", "cells", "measured_s", "ul_offered_load", "ran_works", "ul_miss_rate"),
    *("idle_fraction", "sm_share_while_decoding", "hurst_by_variance", "hurst_by_dfa"),
)
RUN_COLUMNS = (
    *("free_sms", "share_of_time", "share_in_runs_of_5_ms", "runs_per_s"),
    *("median_us", "p95_us", "longest_us"),
)
MACRO_COLUMNS = (
    *("source", "sites", "idle_fraction", "correlation_mean", "complementarity"),
    *("peak_to_mean_site", "peak_to_mean_sum", "cv_site", "cv_sum", "cv_ratio"),
)
"""What the terminal shows of the rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is run. ``long_s``: one run for the demand's long memory."""

    loads: tuple[float, ...]
    two_layer_loads: tuple[float, ...]
    seeds: tuple[int, ...]
    measured_s: float
    long_s: float


FULL = Plan(LOADS, LOADS, (1, 2, 3), 10.0, 80.0)
QUICK = Plan(QUICK_LOADS, (0.05, 0.3), (1,), 5.0, 40.0)


def cases(plan: Plan) -> list[Case]:
    """Every run of the micro part."""
    grid = [
        fgn_case(cells, layers, load, seed, plan.measured_s)
        for layers, loads in ((1, plan.loads), (2, plan.two_layer_loads))
        for cells in CELLS
        for load in loads
        for seed in plan.seeds
    ]
    full = [full_case(cells, 1.0) for cells in CELLS]
    return [*grid, long_case(0.5, plan.long_s), *full, nr_scope_case(), commag_case()]


@dataclass(frozen=True, slots=True)
class Log:
    """A log of real cells; ``peak_load``: the load of each cell's busiest interval."""

    path: Path
    kind: str
    peak_load: float


def run(out: Path, quick: bool, logged: Log | None = None) -> Experiment:
    """Run both parts; writes ``characterise.json`` and its pictures.

    Args:
        out: the directory.
        quick: fewer loads, one seed.
        logged: a log of real sites.

    Raises:
        TraceError: a log that cannot be read.
    """
    plan = QUICK if quick else FULL
    profile = None if logged is None else _profile(logged)
    with pool() as workers:
        micros: list[Micro] = workers.run([_task(case) for case in cases(plan)])
    rows = [micro.row for micro in micros]
    points = over_seeds(row for row in rows if row["traffic"] == FGN)
    others = [row for row in rows if row["traffic"] != FGN]
    runs = [row for micro in micros if micro.works for row in free_runs(micro)]

    curve = _curve(points)
    groups = [simulated_sites(max(SITES), hours, SEED, curve) for hours in SPREADS_H]
    few = [simulated_sites(min(SITES), hours, SEED, curve) for hours in SPREADS_H]
    everyone = [*few, *groups]
    if logged and profile:
        real = logged_sites(f"{logged.kind} log", profile, logged.peak_load, curve)
        groups, few, everyone = [real, *groups], [real, *few], [real, *everyone]
    macro = [macro_row(sites) for sites in everyone]
    variations = [row for sites in groups for row in variation_rows(sites, SEED)]
    sites = [row for one in few for row in site_rows(one)]

    experiment = Experiment("characterise", list(plan.seeds), quick)
    for kind, some in (
        ("run", rows),
        ("point", points),
        ("free_runs", runs),
        ("sites", macro),
        ("variation", variations),
        ("site", sites),
    ):
        experiment.rows += [{"kind": kind, **row} for row in some]
    experiment.checks = [*micro_checks(points, others), *macro_checks(_apart(macro))]
    pictured = few[0 if logged else _PICTURED]
    _draw(experiment, out, micros, points, pictured, groups, variations)
    finish(experiment, out, _sections(points, others, runs, macro, variations))
    return experiment


def _task(case: Case) -> Task:
    label = f"{case.named}, {case.ul_layers} UL layer{'s' if case.ul_layers > 1 else ''}"
    return Task(run_point, (case,), case.cells * case.measured_s, label)


def _curve(points: Sequence[Row]) -> Callable[[Floats], Floats]:
    """Share of SM time that the RAN takes over the load, of a site's GPU."""
    site = [p for p in points if (p["cells"], p["ul_layers"]) == (SITE_CELLS, 1) and p["ran_works"]]
    return curve_of([p["load"] for p in site], [1 - p["idle_fraction"] for p in site])


def _profile(log: Log) -> LoadProfile:
    """The log, read before anything runs."""
    of_milan = ReadOptions(peak_mbps=_ANY_MBPS, peak_of="each")
    return load_profile(log.path, log.kind, of_milan if log.kind == "milan" else None)


def _apart(macro: Sequence[Row]) -> list[Row]:
    """Without the sites that peak together by construction: those are for comparison."""
    together = simulated_name(0.0)
    return [row for row in macro if row["source"] != together]


def _shown(micros: Sequence[Micro]) -> Micro:
    """The run of the pictures."""
    return next(
        micro
        for micro in micros
        if (micro.case.traffic, micro.case.cells, micro.case.ul_layers, micro.case.load)
        == (FGN, SHOWN_CELLS, 1, SHOWN_LOAD)
    )


def _draw(
    experiment: Experiment,
    out: Path,
    micros: Sequence[Micro],
    points: Sequence[Row],
    few: Sites,
    groups: Sequence[Sites],
    variations: Sequence[Row],
) -> None:
    from testbed.weaver_cli.characterise_pictures import draw_bursts, draw_idle, draw_macro

    out.mkdir(parents=True, exist_ok=True)
    shown = _shown(micros)
    remembered = [m for m in micros if m.case.traffic in (FGN_LONG, NR_SCOPE, COMMAG)]
    draw_idle(out / "characterise_idle.png", points, shown)
    draw_bursts(
        out / "characterise_bursts.png",
        free_runs(shown),
        {m.case.named: m.row["autocorrelation"] for m in (shown, *remembered)},
    )
    draw_macro(out / "characterise_sites.png", few, groups, variations)
    experiment.figures += [f"characterise_{name}.png" for name in ("idle", "bursts", "sites")]


def _sections(
    points: Sequence[Row],
    others: Sequence[Row],
    runs: Sequence[Row],
    macro: Sequence[Row],
    variations: Sequence[Row],
) -> dict[str, list[Row]]:
    """Tables of the terminal."""
    return {
        "the scenario of record, median over seeds": [
            {key: point[key] for key in POINT_COLUMNS} for point in points
        ],
        "full cells and real logs": [{key: row[key] for key in OTHER_COLUMNS} for row in others],
        f"how long SMs stay free, {SHOWN_CELLS} cells, load {SHOWN_LOAD:g}": [
            {key: row[key] for key in RUN_COLUMNS}
            for row in runs
            if (row["traffic"], row["cells"], row["ul_layers"], row["load"], row["seed"])
            == (FGN, SHOWN_CELLS, 1, SHOWN_LOAD, SEED)
        ],
        "sites over a day": [{key: row[key] for key in MACRO_COLUMNS} for row in macro],
        "variation of the sum of n sites": list(variations),
    }


@click.command("characterise")
@click.option("--quick", is_flag=True, help="Fewer loads, one seed; ends within a minute.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), show_default=True)
@click.option(
    "--load",
    "log",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="log of real cells over a day, as sites beside the simulated ones",
)
@click.option("--format", "kind", type=click.Choice(["milan", "plain"]), help="of that log")
@click.option(
    "--peak-load",
    type=click.FloatRange(0, max(LOADS), min_open=True),
    default=0.5,
    show_default=True,
    help="load of each logged cell's busiest interval",
)
def command(quick: bool, out: Path, log: Path | None, kind: str | None, peak_load: float) -> None:
    """What the RAN leaves of a site's GPU, how bursty it is, how sites complement each other."""
    if (log is None) != (kind is None):
        raise BadInput("--load and --format go together: the log, and milan or plain")
    run(out, quick, None if log is None or kind is None else Log(log, kind, peak_load))
