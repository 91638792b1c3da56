"""Pictures of what partition mechanisms lend: medians by load and arm, and a stretch of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from testbed.gpu.partitions import mechanism, mig_instances
from testbed.gpu.spare import Ints, Steps, slots_within, window_max
from testbed.weaver_cli.arms import SHAPED, UNSHAPED, Arm
from testbed.weaver_cli.grid import HEADLINE_US, Point, run_arm, scenario_at
from testbed.weaver_cli.partition_runs import (
    SWITCHING,
    Row,
    foresight_of,
    lent,
    over_seeds,
    ran_of,
)

COLOURS = {
    "green_context": "tab:green",
    "mps": "tab:blue",
    "mig": "tab:purple",
    "static": "tab:gray",
}
LABELS = {"green_context": "green contexts", "mps": "MPS", "mig": "MIG", "static": "fixed share"}


def draw_lent(rows: Sequence[Row], path: Path) -> None:
    """Bars: the share of the GPU lent for quanta of the headline length, a panel per scenario.

    Runs of the length that is most frequent; longer ones are in the table.
    """
    lengths = [row["measured_s"] for row in rows]
    usual = [row for row in rows if row["measured_s"] == max(lengths, key=lengths.count)]
    scenarios = list(dict.fromkeys(row["scenario"] for row in usual))
    figure = Figure(figsize=(9.0, 0.8 + 2.4 * len(scenarios)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(scenarios), 1, sharey=True, squeeze=False)
    for axes, name in zip(panels[:, 0], scenarios, strict=True):
        _bars(axes, [row for row in usual if row["scenario"] == name])
    handles = [Patch(color=COLOURS[name], label=LABELS[name]) for name in COLOURS]
    handles.append(Patch(facecolor="white", edgecolor="black", label="with foresight"))
    handles.append(Patch(facecolor="black", label="as promised"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.savefig(path, dpi=110)


def _bars(axes: Axes, rows: Sequence[Row]) -> None:
    groups = over_seeds(rows)
    places = list(dict.fromkeys((shared["load"], shared["arm"]) for shared, _ in groups))
    width = 0.8 / len(COLOURS)
    for shared, group in groups:
        name = shared["mechanism"]
        x = places.index((shared["load"], shared["arm"])) + width * list(COLOURS).index(name)
        for kind, fill in (("foresight", False), ("as_promised", True)):
            known = [value for row in group if (value := lent(row, kind)) is not None]
            if known:
                height = float(median(known))
                axes.bar(x, height, width, fill=fill, color=COLOURS[name], edgecolor=COLOURS[name])
    middle = 0.4 - width / 2
    axes.set_xticks(
        [place + middle for place in range(len(places))],
        [f"load {load:g}\narm {arm}" for load, arm in places],
        fontsize=7,
    )
    axes.set_ylim(0, 1)
    axes.set_ylabel("share of the GPU", fontsize=8)
    first = rows[0]
    quantum_ms = HEADLINE_US / 1000
    axes.set_title(
        f"{first['scenario']} ({first['gpu']}, {first['cells']} cells): lent for quanta of "
        f"{quantum_ms:g} ms",
        fontsize=9,
    )


def draw_timeline(point: Point, path: Path) -> None:
    """The RAN's SMs, and what each mechanism lends with foresight, unshaped and shaped."""
    figure = Figure(figsize=(9.0, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, arm in zip(panels, (UNSHAPED, SHAPED), strict=True):
        _timeline(axes, point, arm)
    panels[1].legend(fontsize=7, loc=(0.78, 0.2))
    panels[1].set_xlabel("seconds")
    figure.savefig(path, dpi=110)


def _timeline(axes: Axes, point: Point, arm: Arm) -> None:
    run = run_arm(scenario_at(point), arm)
    setup = run.setup
    starts = slots_within(setup.slot_us, setup.warmup_us, setup.end_us, HEADLINE_US)
    seconds = (starts - setup.warmup_us) / 1e6
    taken = window_max(ran_of(run), starts, setup.slot_us)
    axes.fill_between(
        seconds, taken, step="post", color="tab:red", alpha=0.6, lw=0, label="RAN, most per slot"
    )
    for name in SWITCHING:
        if name == "mig" and mig_instances(setup.gpu) is None:
            continue
        sms = _lent_at(foresight_of(run, mechanism(name, setup.gpu)).usable[HEADLINE_US], starts)
        axes.step(seconds, sms, where="post", color=COLOURS[name], lw=1.0, label=LABELS[name])
    axes.set_ylim(0, setup.gpu.sms)
    axes.set_xlim(0, float(seconds[-1]))
    axes.set_ylabel(f"SMs of {setup.gpu.sms}", fontsize=8)
    axes.set_title(
        f"{point.scenario}, {point.cells} cells, load {point.load:g}, arm {arm.label}; lent with "
        f"foresight for quanta of {HEADLINE_US / 1000:g} ms",
        fontsize=9,
    )


def _lent_at(usable: Steps, starts: Ints) -> Ints:
    return np.asarray(usable.at(starts), dtype=np.int64)
