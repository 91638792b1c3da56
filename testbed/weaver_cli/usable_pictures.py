"""Pictures of ``reproduce usable``: fractions over load and over the quantum, gains by point.

Owns the look; reads rows, computes nothing but medians.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from testbed.weaver_cli.arms import (
    FIXED_LABEL,
    FIXED_SHARE,
    ROUND_ROBIN,
    SHAPED,
    SMOOTHER,
    STRETCHED,
    UNSHAPED,
)
from testbed.weaver_cli.grid import HEADLINE_US
from testbed.weaver_cli.grid_figures import Row

LOOKS = {
    UNSHAPED.name: (UNSHAPED.label, "#d62728", "o"),
    ROUND_ROBIN.name: (ROUND_ROBIN.label, "#ff9896", "v"),
    STRETCHED.name: (STRETCHED.label, "#ff7f0e", "s"),
    SMOOTHER.name: (SMOOTHER.label, "#7f7f7f", "x"),
    FIXED_SHARE: (FIXED_LABEL, "#8c564b", "D"),
    SHAPED.name: (SHAPED.label, "#1f77b4", "^"),
}
"""Arm -> label, colour, marker; drawn in this order, the shaped arm on top."""

_BOUND_LOOKS = (
    ("bound_fraction", ":", "bound"),
    ("bound_fraction_granular", "--", "bound in SM steps"),
)


def over_load(path: Path, rows: Sequence[Row], title: str) -> None:
    """Usable and promised fraction over load at the headline quantum, a column per cell count.

    Markers are medians over seeds, bands their range; hollow markers stand for overload.
    """
    rows = [row for row in rows if row["kind"] in ("run", "bound") and not row["variant"]]
    cells = sorted({row["cells"] for row in rows})
    figure = Figure(figsize=(3.3 * len(cells) + 0.6, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, len(cells), squeeze=False, sharex=True, sharey=True)
    for column, count in enumerate(cells):
        mine = [row for row in rows if row["cells"] == count]
        for line, what in enumerate(("usable", "promised")):
            axes = grid[line][column]
            _arms_over_load(axes, mine, f"{what}_fraction")
            _bounds_over(
                axes,
                [row for row in mine if row["kind"] == "bound"],
                lambda row: float(row["load"]),
            )
            axes.set_ylim(-0.02, 1.02)
            axes.grid(alpha=0.3)
            if column == 0:
                axes.set_ylabel(f"{what} fraction, {HEADLINE_US / 1000:g} ms")
        grid[0][column].set_title(f"{count} cell{'s' if count > 1 else ''}", fontsize=10)
        grid[1][column].set_xlabel("load")
    _legend(figure, rows)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=110)


def over_quantum(path: Path, rows: Sequence[Row], load: float, title: str) -> None:
    """Usable (solid) and promised (dashed) fraction over the quantum, a panel per cell count."""
    mine = [row for row in rows if row["kind"] == "run" and row["load"] == load]
    cells = sorted({row["cells"] for row in mine})
    figure = Figure(figsize=(3.3 * len(cells) + 0.6, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1, len(cells), squeeze=False, sharey=True)[0]
    for axes, count in zip(grid, cells, strict=True):
        for arm, (_, colour, marker) in LOOKS.items():
            runs = _runs([row for row in mine if row["cells"] == count], arm)
            for key, style in (("usable_fraction", "-"), ("promised_fraction", "--")):
                windows = sorted({int(q) for run in runs for q in run[key]})
                values = [median(run[key][str(q)] for run in runs) for q in windows]
                axes.plot(
                    [q / 1000 for q in windows], values, style, marker=marker, color=colour, ms=4
                )
        limits = [
            row for row in rows if row["kind"] == "bound by quantum" and row["cells"] == count
        ]
        _bounds_over(axes, limits, lambda row: row["q_us"] / 1000)
        axes.set_xscale("log")
        axes.set_xticks([1, 2.5, 5, 10, 20], ["1", "2.5", "5", "10", "20"])
        axes.minorticks_off()
        axes.set_ylim(-0.02, 1.02)
        axes.grid(alpha=0.3)
        axes.set_title(f"{count} cell{'s' if count > 1 else ''}", fontsize=10)
        axes.set_xlabel("quantum, ms")
    grid[0].set_ylabel(f"fraction at load {load:g}")
    styles = [("usable", "-", "black"), ("promised", "--", "black")]
    _legend(figure, rows, styles)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=110)


def gain_bars(path: Path, gains: Sequence[Row], title: str) -> None:
    """What c has more than a and than b at each point, in points; the ratio where there is one."""
    mine = [row for row in gains if row["q_us"] == HEADLINE_US and not row["variant"]]
    places = sorted({(row["cells"], row["load"]) for row in mine})
    figure = Figure(figsize=(0.55 * len(places) + 2.4, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, 1, squeeze=False, sharex=True)[:, 0]
    for axes, what in zip(grid, ("usable", "promised"), strict=True):
        for offset, step, colour in ((-0.2, "a->c", "#d62728"), (0.2, "b->c", "#ff7f0e")):
            for x, place in enumerate(places):
                for row in mine:
                    if (row["cells"], row["load"], row["step"], row["what"]) == (
                        *place,
                        step,
                        what,
                    ):
                        _bar(axes, x + offset, row, colour)
        axes.axhline(0, color="black", lw=0.8)
        axes.set_ylabel(f"{what} fraction, difference")
        axes.grid(alpha=0.3, axis="y")
        axes.margins(y=0.18)
    grid[-1].set_xticks(
        range(len(places)),
        [f"{cells} x {load:g}" for cells, load in places],
        rotation=90,
        fontsize=8,
    )
    grid[-1].set_xlabel("cells x load (hatched: overload)")
    handles = [
        Line2D([], [], color=colour, lw=6, label=label)
        for colour, label in (("#d62728", "c - a"), ("#ff7f0e", "c - b"))
    ]
    grid[0].legend(handles=handles, fontsize=8, title="ratio above a bar", title_fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=110)


def _bar(axes: Axes, x: float, row: Row, colour: str) -> None:
    value = row["points"]
    low, high = value - row["points_min"], row["points_max"] - value
    axes.bar(
        x,
        value,
        0.38,
        color=colour,
        alpha=0.75,
        hatch="//" if row["overload"] else None,
        yerr=[[low], [high]],
        error_kw={"lw": 0.8},
    )
    if row["ratio"] is not None:
        top = max(value, 0.0) + max(high, 0.0)
        axes.annotate(
            f"{row['ratio']:.1f}x",
            (x, top),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=6.5,
            rotation=90,
        )


def _runs(rows: Sequence[Row], arm: str) -> list[Row]:
    return [
        row
        for row in rows
        if row["kind"] == "run"
        and row["arm"] == arm
        and not row["variant"]
        and row["idle_fraction"] is not None
    ]


def _arms_over_load(axes: Axes, rows: Sequence[Row], key: str) -> None:
    for arm, (_, colour, marker) in LOOKS.items():
        runs = _runs(rows, arm)
        loads = sorted({run["load"] for run in runs})
        of_load = [[run for run in runs if run["load"] == load] for load in loads]
        values = [[run[key][str(HEADLINE_US)] for run in group] for group in of_load]
        middle = [median(group) for group in values]
        low, high = [min(group) for group in values], [max(group) for group in values]
        axes.plot(loads, middle, color=colour, lw=1.6)
        axes.fill_between(loads, low, high, color=colour, alpha=0.15, lw=0)
        for x, y, group in zip(loads, middle, of_load, strict=True):
            face = "white" if group[0]["overload"] else colour
            axes.plot([x], [y], marker=marker, color=colour, mfc=face, ms=5)


def _bounds_over(axes: Axes, rows: Sequence[Row], x_of: Callable[[Row], float]) -> None:
    xs = sorted({x_of(row) for row in rows})
    for key, style, _ in _BOUND_LOOKS:
        values = [median(row[key] for row in rows if x_of(row) == x) for x in xs]
        axes.plot(xs, values, style, color="black", marker="_", lw=1.2)


def _legend(figure: Figure, rows: Sequence[Row], more: Sequence[tuple[str, str, str]] = ()) -> None:
    shown = {
        row["arm"] for row in rows if row["kind"] == "run" and row["idle_fraction"] is not None
    }
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=5, label=label)
        for arm, (label, colour, marker) in LOOKS.items()
        if arm in shown
    ]
    if any(str(row["kind"]).startswith("bound") for row in rows):
        handles += [
            Line2D([], [], color="black", ls=style, label=label) for _, style, label in _BOUND_LOOKS
        ]
    handles += [
        Line2D([], [], color=colour, ls=style, label=label) for label, style, colour in more
    ]
    columns = min(5, int(figure.get_figwidth() // 2))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )
