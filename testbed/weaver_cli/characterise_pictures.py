"""Pictures of the characterisation. Owns their looks; computes nothing that a row does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from testbed.experiments.experiment import Row
from testbed.gpu.spare import Steps
from testbed.weaver_cli.characterise_macro import Sites
from testbed.weaver_cli.characterise_micro import LAGS_MS, Micro
from testbed.weaver_cli.characterise_series import pair_correlations

PAPER_BAND = (0.40, 0.85)

_SAMPLE_US = 100_000


def draw_idle(path: Path, points: Sequence[Row], sample: Micro) -> None:
    """Idle share over load, and a stretch of the SMs' timeline."""
    figure = Figure(figsize=(12.0, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _idle(left, [point for point in points if point["ul_layers"] == 1])
    _timeline(right, sample)
    figure.savefig(path, dpi=110)


def _idle(axes: Axes, points: Sequence[Row]) -> None:
    axes.axhspan(*PAPER_BAND, color="tab:green", alpha=0.12, label="paper: 0.40-0.85 unused")
    for number, cells in enumerate(sorted({point["cells"] for point in points})):
        same = [point for point in points if point["cells"] == cells]
        colour = f"C{number}"
        works = [point for point in same if point["ran_works"]]
        broken = [point for point in same if not point["ran_works"]]
        axes.plot(
            [point["load"] for point in works],
            [point["idle_fraction"] for point in works],
            marker="o",
            color=colour,
            label=f"{cells} cell{'s' if cells > 1 else ''}",
        )
        axes.plot(
            [point["load"] for point in broken],
            [point["idle_fraction"] for point in broken],
            marker="x",
            linestyle="none",
            color=colour,
        )
    axes.plot([], [], "kx", label="RAN does not keep its deadlines")
    axes.set_ylim(0, 1.25)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_xlabel("load of the radio, both directions")
    axes.set_ylabel("idle share of SM time")
    axes.set_title("What the unshaped RAN leaves of one GPU (1 uplink layer)", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", ncols=3)


def _timeline(axes: Axes, micro: Micro) -> None:
    from_us = (micro.from_us + micro.to_us - _SAMPLE_US) // 2
    for steps, colour, label in (
        (micro.ran, "tab:orange", "downlink"),
        (micro.ul, "tab:red", "uplink"),
    ):
        at_ms, sms = _stairs(steps, from_us, from_us + _SAMPLE_US)
        axes.fill_between(at_ms, sms, step="post", color=colour, linewidth=0, label=label)
    axes.set_xlim(0, _SAMPLE_US / 1000)
    axes.set_ylim(0, micro.sms)
    axes.set_yticks(range(0, micro.sms + 1, 8))
    axes.set_xlabel("ms")
    axes.set_ylabel("SMs")
    axes.set_title(
        f"SMs that the RAN takes: {micro.case.cells} cells, load {micro.case.load:g}", fontsize=10
    )
    axes.legend(fontsize=8, loc="upper right")


def _stairs(steps: Steps, from_us: int, to_us: int) -> tuple[np.ndarray, np.ndarray]:
    inside = steps.at_us[(steps.at_us > from_us) & (steps.at_us < to_us)]
    at_us = np.concatenate(([from_us], inside, [to_us]))
    return (at_us - from_us) / 1000, steps.at(at_us)


def draw_bursts(
    path: Path, runs: Sequence[Row], memories: Mapping[str, Mapping[str, float]]
) -> None:
    """How long SMs stay free at a stretch, and how long the demand remembers.

    Args:
        path: the file.
        runs: rows of free runs of one run, by SM level.
        memories: autocorrelation by lag, by name of the run.
    """
    figure = Figure(figsize=(12.0, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    levels = [row["free_sms"] for row in runs]
    width = 3.2
    for offset, key, label, colour in (
        (-width / 2, "share_of_time", "free", "tab:blue"),
        (width / 2, "share_in_runs_of_5_ms", "free for 5 ms or more", "tab:green"),
    ):
        bars = left.bar(
            [k + offset for k in levels], [row[key] for row in runs], width, label=label
        )
        for bar in bars:
            bar.set_color(colour)
    for row in runs:
        if row["median_us"] is not None:
            text = f"{row['median_us'] / 1000:.2g} ms"
            left.annotate(text, (row["free_sms"], 1.01), fontsize=7, ha="center")
    left.set_ylim(0, 1.3)
    left.set_yticks(np.linspace(0, 1, 6))
    left.set_xticks(levels)
    left.set_xlabel("SMs wanted at once (above: median length of a free run)")
    left.set_ylabel("share of time")
    left.set_title(
        f"How long SMs stay free: {runs[0]['cells']} cells, load {runs[0]['load']:g}", fontsize=10
    )
    left.legend(fontsize=8, loc="upper right")
    for name, memory in memories.items():
        right.plot(LAGS_MS, list(memory.values()), marker="o", label=name)
    right.axhline(0, color="k", lw=0.8)
    right.set_xscale("log")
    right.set_xlabel("lag, ms")
    right.set_ylabel("autocorrelation of SM demand per TDD period")
    right.set_title("How long the demand remembers", fontsize=10)
    right.grid(alpha=0.3)
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def draw_macro(path: Path, few: Sites, groups: Sequence[Sites], variations: Sequence[Row]) -> None:
    """Sites over a day, their sum, how its variation falls, how pairs correlate."""
    figure = Figure(figsize=(14.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    day, falling, pairs = figure.subplots(1, 3)
    for busy in few.busy:
        day.plot(few.hours, 1 - busy, lw=0.8, alpha=0.7)
    day.plot(few.hours, 1 - few.busy.mean(axis=0), color="k", lw=2, label="mean of the sites")
    day.set_xlabel("hour")
    day.set_ylabel("idle share of SM time")
    day.set_title(f"{len(few.names)} sites ({few.source})", fontsize=10)
    day.legend(fontsize=8)
    day.grid(alpha=0.3)
    for source in dict.fromkeys(row["source"] for row in variations):
        rows = [row for row in variations if row["source"] == source]
        falling.plot(
            [row["sites"] for row in rows], [row["cv_ratio"] for row in rows], "o-", label=source
        )
    most = max(row["sites"] for row in variations)
    n = np.geomspace(1, max(2, most), 50)
    falling.plot(n, n**-0.5, "k--", lw=1, label="1/sqrt(n)")
    falling.set_xscale("log", base=2)
    falling.set_yscale("log")
    sizes = sorted({row["sites"] for row in variations})
    falling.set_xticks(sizes, [str(n) for n in sizes])
    falling.yaxis.set_major_formatter(ScalarFormatter())
    falling.yaxis.set_minor_formatter(NullFormatter())
    falling.set_yticks([1, 0.5, 0.2, 0.1])
    falling.set_xlabel("sites n")
    falling.set_ylabel("variation of the sum over that of a site")
    falling.set_title("How the sum steadies", fontsize=10)
    falling.grid(alpha=0.3)
    falling.legend(fontsize=7)
    for sites in groups:
        known = pair_correlations(sites.busy)
        known = known[~np.isnan(known)]
        if len(known):
            pairs.ecdf(known, label=sites.source)
    pairs.set_xlim(-1.02, 1.02)
    pairs.set_xlabel("correlation of two sites over the time")
    pairs.set_ylabel("share of pairs below")
    pairs.set_title("How alike sites are", fontsize=10)
    pairs.grid(alpha=0.3)
    pairs.legend(fontsize=7, loc="upper left")
    figure.savefig(path, dpi=110)
