"""Pictures: a meta-iteration of each group as a Gantt chart of its two pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from testbed.coexec.groups import Group, phases_of
from testbed.coexec.round_robin import Phases, starts_s
from testbed.coexec.rules import PlannerRules

SETTLED_ROUNDS = 24
"""Meta-iterations before the one drawn, so that the start-up has died out."""


def _bar(axes: Axes, row: int, start: float, length: float, clip: float, **style: Any) -> None:
    """A bar within [0, clip]; what sticks out is cut."""
    left, right = max(0.0, start), min(clip, start + length)
    if right > left:
        axes.barh(row, right - left, left=left, height=0.72, **style)


def _draw(axes: Axes, group: Group, rules: PlannerRules) -> None:
    phases: Sequence[Phases] = phases_of(group.members, group.loads, rules)
    period = group.t_meta_s
    table = starts_s(phases, SETTLED_ROUNDS + 2)
    origin = table[SETTLED_ROUNDS][0][0]
    rows = {node: i for i, node in enumerate(group.nodes)}
    pool = len(rows)
    palette = colormaps["tab10"]
    for position, (member, phase) in enumerate(zip(group.members, phases, strict=True)):
        colour = palette(position % 10)
        for round_ in range(SETTLED_ROUNDS - 1, SETTLED_ROUNDS + 2):
            rollout, train = (start - origin for start in table[round_][position])
            for node in phase.nodes:
                _bar(axes, rows[node], rollout, phase.rollout_s, period, color=colour, alpha=0.55)
            _bar(axes, pool, train, phase.train_s, period, color=colour)
        slowdown = period / group.loads[position].solo_s
        axes.plot(
            [],
            [],
            color=colour,
            lw=6,
            label=f"{member.job.job}: {slowdown:.2f} of {member.job.slo:.2f}",
        )
    axes.set_yticks(
        range(pool + 1), [*(f"rollout {n}" for n in group.nodes), f"training x{group.train_nodes}"]
    )
    axes.set_xlim(0, period)
    axes.set_xlabel("seconds")
    axes.set_title(
        f"group {group.group_id}: {period:.0f} s, {group.usd_per_hour:.2f} $/h", fontsize=9
    )
    axes.legend(
        fontsize=7,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.03),
        frameon=False,
        title="slowdown of SLO",
        title_fontsize=7,
    )


def draw_plan(groups: Sequence[Group], rules: PlannerRules, path: Path, most_groups: int) -> int:
    """Write a PNG, PDF or SVG (by its suffix) of the largest groups; returns how many it shows."""
    shown = sorted(groups, key=lambda g: (-len(g.members), g.group_id))[:most_groups]
    shown.sort(key=lambda g: g.group_id)
    columns = 1 if len(shown) < 3 else 2
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(7.0 * columns, 2.1 * lines + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, group in zip(grid.flat, shown, strict=False):
        _draw(axes, group, rules)
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=110)
    return len(shown)


def bars(
    path: Path, title: str, labels: Sequence[str], series: Mapping[str, Sequence[float]], unit: str
) -> None:
    """Horizontal grouped bars, one colour per series."""
    figure = Figure(figsize=(9.0, 1.2 + 0.28 * len(labels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    height = 0.8 / len(series)
    for i, (name, values) in enumerate(series.items()):
        axes.barh([row + i * height for row in range(len(labels))], values, height, label=name)
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(labels))], labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def curves(
    path: Path,
    title: str,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    x_label: str,
    y_label: str,
    *,
    log: bool = False,
) -> None:
    """Lines with markers, one per series."""
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, (x, y) in series.items():
        axes.plot(x, y, marker="o", label=name)
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
