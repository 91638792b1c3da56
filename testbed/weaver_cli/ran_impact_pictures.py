"""Pictures of ``reproduce ran-impact``: delay distributions, and usable time over delay.

Owns the look; reads rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from testbed.weaver_cli.grid import HEADLINE_US
from testbed.weaver_cli.grid_figures import Row
from testbed.weaver_cli.usable_pictures import LOOKS
from testbed.weaver_cli.usable_ran import late_share

_LEAST_SHARE = 1e-4
_STYLES = (("p95", "-", "o"), ("p99", "--", "x"))


def delay_curves(path: Path, rows: Sequence[Row], percents: Sequence[float]) -> None:
    """Share of SDUs that took longer, over the delay: a line per point, a column per class.

    Medians over seeds; dotted: the radio's budget. An SDU that was never delivered is in no curve:
    the legend says how many bytes were late or lost.
    """
    runs = [row for row in rows if row["kind"] == "run"]
    places = list(dict.fromkeys((r["scenario"], r["cells"], r["load"]) for r in runs))
    classes = sorted({five_qi for row in runs for five_qi in row["delay_us"]}, key=int)
    figure = Figure(figsize=(5.2 * len(classes), 2.9 * len(places) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(places), len(classes), squeeze=False)
    longer = np.maximum(1 - np.asarray(percents) / 100, _LEAST_SHARE / 10)
    for line, place in zip(grid, places, strict=True):
        scenario, cells, load = place
        mine = [r for r in runs if (r["scenario"], r["cells"], r["load"]) == place]
        for axes, five_qi in zip(line, classes, strict=True):
            for arm in LOOKS:
                of_arm = [row for row in mine if row["arm"] == arm]
                if of_arm:
                    _delay_curve(axes, of_arm, five_qi, longer)
            _delay_axes(axes, mine, five_qi)
            axes.set_title(f"{scenario}, {cells} x {load:g}, 5QI {five_qi}", fontsize=9)
        line[0].set_ylabel("share of SDUs that took longer", fontsize=8)
    figure.savefig(path, dpi=110)


def _delay_curve(
    axes: Axes, runs: Sequence[Row], five_qi: str, longer: npt.NDArray[np.float64]
) -> None:
    """One arm: the median over seeds of each percentile."""
    label, colour, _ = LOOKS[runs[0]["arm"]]
    label += f", {median(late_share(row, five_qi) for row in runs):.2%} of bytes late"
    curves = [row["delay_curve_us"][five_qi] for row in runs if five_qi in row["delay_curve_us"]]
    if curves:
        axes.plot(np.median(np.array(curves), axis=0) / 1000, longer, color=colour, label=label)
    else:
        axes.plot([], [], color=colour, label=f"{label} (none delivered)")


def _delay_axes(axes: Axes, runs: Sequence[Row], five_qi: str) -> None:
    for row in runs:
        if five_qi in row["delay_us"]:
            budget_us = row["delay_us"][five_qi]["ran_delay_budget_us"]
            axes.axvline(budget_us / 1000, color="black", ls=":", lw=1)
            break
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yscale("log")
    axes.set_ylim(_LEAST_SHARE, 1.05)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6.5, loc="lower left")
    axes.set_xlabel("delay, ms", fontsize=8)


def budget_sweep(
    path: Path, places: Mapping[tuple[str, int, float], Mapping[int, Sequence[Row]]]
) -> None:
    """Usable fraction of arm c over its p95 and p99 delay: a point per budget, a panel per class.

    Medians over seeds; the numbers are the budgets, in permille of the delay budget.
    """
    rows = [row for budgets in places.values() for runs in budgets.values() for row in runs]
    classes = sorted({five_qi for row in rows for five_qi in row["delay_us"]}, key=int)
    figure = Figure(figsize=(5.6 * len(classes), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1, len(classes), squeeze=False, sharey=True)[0]
    for axes, five_qi in zip(grid, classes, strict=True):
        for number, budgets in enumerate(places.values()):
            _budgets(axes, budgets, five_qi, f"C{number}")
        axes.set_xlabel("delay, ms")
        axes.set_title(f"5QI {five_qi}", fontsize=10)
        axes.grid(alpha=0.3)
    grid[0].set_ylabel(f"usable fraction, {HEADLINE_US / 1000:g} ms")
    handles = [
        Line2D([], [], color=f"C{number}", label=f"{scenario}, {cells} x {load:g}")
        for number, (scenario, cells, load) in enumerate(places)
    ]
    handles += [
        Line2D([], [], color="black", ls=style, marker=marker, ms=4, label=name)
        for name, style, marker in _STYLES
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def _budgets(axes: Axes, budgets: Mapping[int, Sequence[Row]], five_qi: str, colour: str) -> None:
    """One point of the grid: its budgets, ascending, where the class got anything."""
    window = str(HEADLINE_US)
    for name, style, marker in _STYLES:
        found: list[tuple[float, float, int]] = []
        for share, runs in sorted(budgets.items()):
            delays = [row["delay_us"].get(five_qi, {}).get(name) for row in runs]
            known = [delay for delay in delays if delay is not None]
            if known:
                usable = median(row["usable_fraction"][window] for row in runs)
                found.append((median(known) / 1000, usable, share))
        axes.plot(
            [x for x, _, _ in found],
            [y for _, y, _ in found],
            style,
            marker=marker,
            ms=4,
            color=colour,
        )
        for x, y, share in found if name == "p95" else []:
            axes.annotate(
                str(share), (x, y), xytext=(3, 3), textcoords="offset points", fontsize=6.5
            )
