"""``reproduce partition``: what each way of parting a GPU could have lent to training.

The RAN runs once per scenario, arm and seed; its SMs over time, and what it promised, go through
green contexts, MPS, MIG and the best fixed share. With foresight all of the run is known ahead: no
mechanism can do better under the policy of ``testbed.gpu.partitions``. As promised, each slot's
plan rests on what the RAN's policy had promised by then, and on the worst case behind that.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import click

from testbed.experiments.experiment import Experiment, finish, progress
from testbed.gpu.partitions import MIG_SWITCH_US, MPS_SWITCH_US
from testbed.weaver_cli.arms import MAIN_ARMS, SHAPED, UNSHAPED
from testbed.weaver_cli.grid import HEADLINE_US, MEASURED_S, OF_RECORD, SEEDS, Point
from testbed.weaver_cli.grid_pool import pool
from testbed.weaver_cli.partition_checks import checks_of
from testbed.weaver_cli.partition_picture import draw_lent, draw_timeline
from testbed.weaver_cli.partition_runs import KINDS, Case, Row, lent, over_seeds, rows_of

ONE_LAYER, GH200 = "weaver_one_layer", "weaver_gh200"
CELLS = 4
LOADS = (0.1, 0.3, 0.5)
LONG_S = 60.0
"""Several times what two switches of MIG take."""

PAPER_SWITCH = {
    "green_context": "microseconds",
    "mps": f"about 0.3 s; measured 0.27 s; here {MPS_SWITCH_US / 1e6:g} s",
    "mig": f"about 7 s; measured 6.9 s; here {MIG_SWITCH_US / 1e6:g} s",
    "static": "never",
}
"""What a switch takes: Weaver (arXiv 2609.35276), as YinYangRAN (INFOCOM'24) measured it, here."""


def cases(quick: bool) -> list[Case]:
    """What is run; the longest first, so that two workers end together.

    On the GPU of record the unshaped RAN of the scenario of record misses most of its deadlines;
    the scenario with one uplink layer stands beside it. Only ``weaver_gh200`` has MIG, and its
    long runs give MIG the time to switch.
    """
    if quick:
        return [
            Case(Point(name, CELLS, 0.3, SEEDS[0], seconds), arm, static=name == ONE_LAYER)
            for name, seconds in ((GH200, 2.0), (ONE_LAYER, 2.0))
            for arm in (UNSHAPED, SHAPED)
        ]
    long_runs = [
        Case(Point(GH200, CELLS, 0.3, SEEDS[0], LONG_S), arm, static=False)
        for arm in (UNSHAPED, SHAPED)
    ]
    grid = [
        Case(Point(name, CELLS, load, seed, MEASURED_S), arm)
        for name in (GH200, ONE_LAYER, OF_RECORD)
        for load in LOADS
        for arm in MAIN_ARMS
        for seed in SEEDS
    ]
    return long_runs + grid


def run_cases(wanted: Sequence[Case], workers: int) -> Generator[list[Row], None, None]:
    """The rows of each case, in the order given. Close it where it is left before its end."""
    if workers == 1:
        yield from map(rows_of, wanted)
        return
    with pool(workers) as started:
        yield from started.in_order(rows_of, wanted)


def run(out: Path, quick: bool, workers: int) -> Experiment:
    """All cases; writes ``partition.json`` and its pictures."""
    wanted = cases(quick)
    seeds = sorted({case.point.seed for case in wanted})
    experiment = Experiment("partition", seeds, quick)
    with closing(run_cases(wanted, workers)) as results:
        for case, rows in zip(wanted, results, strict=True):
            experiment.rows += rows
            progress(f"{len(experiment.rows)} rows: {case.point}, arm {case.arm.name}")
    experiment.checks = checks_of(experiment.rows)
    out.mkdir(parents=True, exist_ok=True)
    draw_lent(experiment.rows, out / "partition.png")
    draw_timeline(Point(GH200, CELLS, 0.3, SEEDS[0], 2.0), out / "partition-timeline.png")
    experiment.figures = ["partition.png", "partition-timeline.png"]
    finish(experiment, out, tables_of(experiment.rows))
    return experiment


def tables_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """By scenario: medians over the seeds, with the range where there are several."""
    tables: dict[str, list[Row]] = {}
    shown: set[tuple[Any, ...]] = set()
    for shared, group in over_seeds(rows):
        title = (
            f"{shared['scenario']}: {shared['gpu']}, {shared['cells']} cells, {len(group)} x "
            f"{shared['measured_s']:g} s; lent for quanta of {HEADLINE_US / 1000:g} ms, of the GPU"
        )
        table = tables.setdefault(title, [])
        place = (title, shared["load"], shared["arm"])
        if place not in shown:
            shown.add(place)
            table.append(_left_row(shared, group))
        table.append(_table_row(shared, group))
    paper = [{"mechanism": name, "a switch takes": text} for name, text in PAPER_SWITCH.items()]
    return {"mechanisms (Weaver; YinYangRAN)": paper, **tables}


def _left_row(shared: Row, group: Sequence[Row]) -> Row:
    """What the RAN leaves, without a partition between it and training."""
    fractions = ("promised_fraction", "usable_fraction")
    promised, usable = ([row[name][str(HEADLINE_US)] for row in group] for name in fractions)
    return _columns(shared, "(left by RAN)", promised, usable)


def _table_row(shared: Row, group: Sequence[Row]) -> Row:
    fractions = ([lent(row, kind) for row in group] for kind in KINDS)
    return _columns(shared, shared["mechanism"].removesuffix("_context"), *fractions) | {
        "switches/s": ", ".join(_per_s(group, kind) for kind in KINDS),
        "lost in them": _middle([row["foresight"]["lost_share"] for row in group]),
        "SMs": _middle([row["training_sms"] for row in group]),
        "misses": _middle([row["deadline_misses"] for row in group]),
        "note": next((row["reason"] for row in group if row["reason"]), ""),
    }


def _columns(
    shared: Row, what: str, promised: Sequence[float | None], foresight: Sequence[float | None]
) -> Row:
    """A row with all columns; what is no matter of every row is empty."""
    return {
        "load": shared["load"],
        "arm": shared["arm"],
        "mechanism": what,
        "as promised": _spread(promised),
        "foresight": _spread(foresight),
        **dict.fromkeys(("switches/s", "lost in them", "SMs", "misses", "note"), ""),
    }


def _per_s(group: Sequence[Row], kind: str) -> str:
    counts = [row[kind]["switches"] for row in group]
    return "-" if None in counts else f"{median(counts) / group[0]['measured_s']:.3g}"


def _middle(values: Sequence[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def _spread(values: Sequence[float | None]) -> str:
    """Median, and lowest to highest where they differ."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = min(known), max(known)
    text = f"{median(known):.3f}"
    return text if low == high else f"{text} ({low:.3f}-{high:.3f})"


@click.command("partition")
@click.option("--quick", is_flag=True, help="Two scenarios at one load; ends within a minute.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), show_default=True)
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True)
def command(quick: bool, out: Path, workers: int) -> None:
    """Weaver's partition switch: green contexts, MPS, MIG and a fixed share on the same RAN."""
    run(out, quick, workers)
