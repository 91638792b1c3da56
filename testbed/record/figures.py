"""The two figures of a run: a site's GPU timeline over a few milliseconds, and the whole run.

Matplotlib's object interface on Agg and SVG, no pyplot and no state: the same recording gives the
same bytes. The RAN grows from the bottom and training hangs from the top, so that a violation is
seen as what it is: the two overlap.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from protocols.messages import DOWNLINK, UPLINK
from testbed.gpu.quanta import QuantumKind
from testbed.gpu.spare import (
    Ints,
    Steps,
    TrainerState,
    edges,
    overlaps,
    split_by_tolerance,
    stack,
)
from testbed.record.measure.training import loss_curve
from testbed.record.recording import Recording, SiteTimeline
from testbed.record.schema import MemberEvent
from testbed.record.tables import ints

WINDOW_US = 20_000

_RAN_UL = "#1f3a5f"
_RAN_DL = "#7f9bbd"
_ENVELOPE = "#111827"
_LEASE = "#d8ecd9"
_LEASE_EDGE = "#4d9a5b"
_VIOLATION = "#d7263d"
_INK = "#1f2933"
_FAINT = "#8a94a0"
_KINDS = {
    QuantumKind.FORWARD: "#f4b860",
    QuantumKind.HEAD: "#a05fb4",
    QuantumKind.BACKWARD: "#e2793d",
    QuantumKind.OPTIMISER: "#2a9d8f",
    QuantumKind.FAULT: "#b3001b",
}
_MEMBERS = {
    MemberEvent.LOST: _VIOLATION,
    MemberEvent.JOINED: _INK,
    MemberEvent.ADMITTED: _INK,
    MemberEvent.HEALED: "#1d7a46",
}
_STATES = {TrainerState.WORK: "#f7dcae", TrainerState.WAITING: "#c3c9d2"}

_STYLE = {
    "svg.hashsalt": "ranloom",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "path.simplify": True,
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure in both forms."""

    svg: str
    png: bytes


def timeline_window(recording: Recording, site: str, length_us: int = WINDOW_US) -> tuple[int, int]:
    """The first window after the warm-up in which the site decodes uplink (else its very first).

    It begins a slot before that decode.
    """
    timeline = recording.timelines[site]
    decodes = timeline.tasks.filter(
        (pl.col("direction") == UPLINK) & (pl.col("start_us") >= recording.from_us)
    )["start_us"].min()
    slot_us = timeline.site.slot_us
    start_us = recording.from_us
    if isinstance(decodes, int) and decodes < recording.to_us:
        start_us = max(start_us, (decodes // slot_us - 1) * slot_us)
    return start_us, start_us + length_us


def timeline_figure(
    recording: Recording, site: str, from_us: int, to_us: int, tolerance_us: int = 0
) -> Drawing:
    """A site's GPU over [from_us, to_us): RAN, committed envelope, lease, quanta, violations.

    Overlaps of at most ``tolerance_us`` are jitter and are not marked.
    """
    timeline = recording.timelines[site]
    with _styled():
        figure = Figure(figsize=(11.0, 4.3), layout="constrained")
        top, strip = figure.subplots(2, 1, sharex=True, height_ratios=(12, 1))
        _draw_gpu(top, recording, timeline, (from_us, to_us), tolerance_us)
        _draw_strip(strip, timeline, from_us, to_us)
        s = timeline.site
        top.set_title(f"{s.name}: {s.gpu.name}, {s.sms} SMs", pad=13)
        figure.legend(
            handles=_legend(timeline),
            loc="outside lower center",
            ncols=9,
            handlelength=1.2,
            columnspacing=1.2,
        )
        return _rendered(figure)


def overview_figure(recording: Recording, bins: int = 300) -> Drawing:
    """The whole run: per site the shares of the GPU over time; beside it loss over tokens."""
    sites = list(recording.timelines.values())
    with _styled():
        figure = Figure(figsize=(11.0, 1.1 + 1.75 * max(1, len(sites))), layout="constrained")
        wide = recording.scope.jobs != ()
        grid = figure.add_gridspec(len(sites), 2 if wide else 1, width_ratios=(2.3, 1)[: 1 + wide])
        left: list[Axes] = []
        for row, timeline in enumerate(sites):
            axes = figure.add_subplot(grid[row, 0], sharex=left[0] if left else None)
            _draw_shares(axes, recording, timeline, bins)
            axes.tick_params(labelbottom=row == len(sites) - 1)
            left.append(axes)
        if left:
            left[-1].set_xlabel("emulated time, ms")
        if wide:
            _draw_loss(figure.add_subplot(grid[:, 1]), recording)
        return _rendered(figure)


# --- the timeline -------------------------------------------------------------------------------


def _draw_gpu(
    axes: Axes,
    recording: Recording,
    timeline: SiteTimeline,
    window: tuple[int, int],
    tolerance_us: int,
) -> None:
    from_us, to_us = window
    site = timeline.site
    sms = site.sms
    _fill(axes, timeline.lease, from_us, to_us, top=sms, color=_LEASE, zorder=1)
    _outline(axes, timeline.lease, from_us, to_us, top=sms, color=_LEASE_EDGE, zorder=2)
    _draw_quanta(axes, timeline, from_us, to_us)
    _draw_members(axes, recording, timeline, (from_us, to_us), tuple(MemberEvent))
    downlink = _of_direction(timeline.tasks, DOWNLINK)
    both = stack(*(ints(timeline.tasks, name) for name in ("start_us", "end_us", "sms")))
    _fill(axes, both, from_us, to_us, color=_RAN_UL, zorder=4)
    _fill(axes, downlink, from_us, to_us, color=_RAN_DL, zorder=5)
    promises = recording.rows("promises", site).sort("slot")
    if len(promises):
        start = ints(promises, "slot") * site.slot_us
        envelope = Steps(start, ints(promises, "within_1000_us"))
        x, y = _corners(envelope, from_us, to_us)
        axes.plot(x / 1e3, y, color=_ENVELOPE, lw=1.1, ls=(0, (3, 2)), zorder=6)
    found = overlaps(timeline.wanted, timeline.running, sms, from_us, to_us)
    for item in split_by_tolerance(found, tolerance_us)[0]:
        middle = (item.start_us + item.end_us) / 2e3
        axes.axvspan(item.start_us / 1e3, item.end_us / 1e3, color=_VIOLATION, alpha=0.28, zorder=7)
        axes.plot([middle], [sms * 1.03], marker="v", ms=5, color=_VIOLATION, clip_on=False)
    axes.set_ylim(0, sms)
    axes.set_xlim(from_us / 1e3, to_us / 1e3)
    step = next(step for step in (4, 8, 12, 16, 24, 32, 64, 256) if sms / step <= 8)
    axes.set_yticks([*range(0, sms - step // 2, step), sms])
    axes.set_ylabel("SMs   (RAN from below, training from above)")
    axes.tick_params(labelbottom=False)


def _draw_quanta(axes: Axes, timeline: SiteTimeline, from_us: int, to_us: int) -> None:
    sms = timeline.site.sms
    shown = timeline.quanta.filter((pl.col("start_us") < to_us) & (pl.col("end_us") > from_us))
    for kind, color in _KINDS.items():
        boxes = [
            [(a, sms), (b, sms), (b, sms - held), (a, sms - held)]
            for a, b, held in shown.filter(pl.col("kind") == kind)
            .select(pl.col("start_us") / 1e3, pl.col("end_us") / 1e3, "sms")
            .iter_rows()
        ]
        if boxes:
            axes.add_collection(
                PolyCollection(boxes, facecolors=color, edgecolors="white", lw=0.4, zorder=3)
            )


def _draw_members(
    axes: Axes,
    recording: Recording,
    timeline: SiteTimeline,
    window: tuple[int, int],
    events: tuple[MemberEvent, ...],
) -> None:
    """Where the site's trainers were lost and came back: a line, with what it was beside it."""
    for change in recording.member_changes:
        inside = change.site == timeline.site.name and window[0] <= change.at_us < window[1]
        if inside and change.event in events:
            color = _MEMBERS[change.event]
            axes.axvline(change.at_us / 1e3, color=color, lw=1.4, ls=(0, (1, 1)), zorder=8)
            axes.annotate(
                change.text,
                (change.at_us / 1e3, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(3, -4),
                textcoords="offset points",
                va="top",
                fontsize=7.5,
                color=color,
                bbox={"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 1},
                zorder=8,
            )


def _draw_strip(axes: Axes, timeline: SiteTimeline, from_us: int, to_us: int) -> None:
    """Below the GPU: the trainer's state, and which slots carry uplink."""
    for start, end, state in _pieces(timeline.state, from_us, to_us):
        if state in _STATES:
            color = _STATES[TrainerState(state)]
            axes.axvspan(start / 1e3, end / 1e3, color=color, lw=0)
    cells = timeline.site.cells
    if cells:
        slot_us, tdd = cells[0].slot_us, cells[0].tdd
        for slot in range(from_us // slot_us, -(-to_us // slot_us)):
            at = slot * slot_us
            axes.axvline(at / 1e3, color="white", lw=0.6)
            if tdd[slot % len(tdd)] == "U" and from_us <= at < to_us:
                middle = (at + slot_us / 2) / 1e3
                text = axes.text(middle, 0.46, "U", ha="center", va="center", fontsize=7)
                text.set(color=_RAN_UL, fontweight="bold", in_layout=False)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(
        "emulated time, ms   (below the GPU: slots, U for uplink, and what the trainer is about)"
    )


def _legend(timeline: SiteTimeline) -> list[Patch]:
    entries = [
        Patch(color=_RAN_UL, label="RAN uplink"),
        Patch(color=_RAN_DL, label="RAN downlink"),
        Patch(facecolor="white", edgecolor=_ENVELOPE, ls="--", label="committed envelope (1 ms)"),
        Patch(facecolor=_LEASE, edgecolor=_LEASE_EDGE, label="lease"),
    ]
    seen = set(timeline.quanta["kind"].unique().to_list())
    entries += [
        Patch(
            color=color, label="injected fault" if kind is QuantumKind.FAULT else kind.name.lower()
        )
        for kind, color in _KINDS.items()
        if kind in seen
    ]
    entries.append(Patch(color=_VIOLATION, alpha=0.5, label="RAN + quanta > all SMs"))
    entries.append(Patch(color=_STATES[TrainerState.WORK], label="trainer works"))
    entries.append(Patch(color=_STATES[TrainerState.WAITING], label="trainer waits for others"))
    return entries


# --- the whole run ------------------------------------------------------------------------------


def _draw_shares(axes: Axes, recording: Recording, timeline: SiteTimeline, bins: int) -> None:
    """Mean shares of the GPU per bin: RAN from below, quanta and unused lease above it."""
    span = max(1, recording.to_us - 0)
    width_us = max(1000, -(-span // bins // 1000) * 1000)
    at = np.arange(0, span + width_us, width_us, dtype=np.int64)
    ran, used, lease = (
        100.0 * _binned(steps, at) / (timeline.site.sms * width_us)
        for steps in (timeline.ran, timeline.running, timeline.lease)
    )
    x = np.append(at[:-1], at[-1]) / 1e3
    unused = np.maximum(lease - used, 0)
    layers = (
        (ran, _RAN_UL, "RAN"),
        (used, "#e2793d", "quanta"),
        (unused, _LEASE, "leased, unused"),
    )
    base = np.zeros(len(at) - 1)
    for values, color, label in layers:
        top = np.minimum(base + values, 100.0)
        axes.fill_between(
            x, np.append(base, base[-1]), np.append(top, top[-1]), step="post", color=color, lw=0,
            label=label,
        )  # fmt: skip
        base = top
    if recording.from_us:
        axes.axvspan(0, recording.from_us / 1e3, color="white", alpha=0.55, lw=0)
    lost_and_back = (MemberEvent.LOST, MemberEvent.HEALED)
    _draw_members(axes, recording, timeline, (0, span), lost_and_back)
    axes.set_ylim(0, 100)
    axes.set_xlim(0, span / 1e3)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("% of SMs")
    pale = " (pale: warm-up)" if recording.from_us else ""
    axes.set_title(f"{timeline.site.name}: mean per {width_us // 1000} ms{pale}")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3, borderaxespad=0.0)


def _draw_loss(axes: Axes, recording: Recording) -> None:
    drawn = False
    for number, job in enumerate(recording.scope.jobs):
        curve = loss_curve(recording, job).drop_nulls("loss")
        if not len(curve):
            continue
        drawn = True
        tokens = curve["tokens"].to_numpy() / 1e3
        color = ("#1f3a5f", "#a05fb4", "#2a9d8f")[number % 3]
        axes.plot(tokens, curve["loss"].to_numpy(), marker="o", ms=3, lw=1.4, color=color)
        facts = (recording.manifest.get("training") or {}).get(job.name) or {}
        entropy = facts.get("unigram_entropy_nats")
        if entropy is not None:
            axes.axhline(entropy, color=_FAINT, lw=1.0, ls="--")
            axes.annotate(
                "unigram entropy of the text",
                (0.0, entropy),  # a loss begins above it: there is room below, on the left
                xycoords=("axes fraction", "data"),
                xytext=(3, -3),
                textcoords="offset points",
                ha="left",
                va="top",
                fontsize=7.5,
                color=_INK,
            )
    axes.set_title("Loss of the proxy model")
    axes.set_xlabel("declared tokens committed, thousands")
    axes.set_ylabel("nats per byte")
    axes.grid(axis="y", color="#e5e8ec", lw=0.7)
    if not drawn:
        why = "virtual time trains nothing" if recording.scope.simulated else "no step committed"
        axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color=_FAINT)
        axes.set_xticks([])
        axes.set_yticks([])


# --- helpers ------------------------------------------------------------------------------------


def _of_direction(tasks: pl.DataFrame, direction: int) -> Steps:
    mine = tasks.filter(pl.col("direction") == direction)
    return stack(*(ints(mine, name) for name in ("start_us", "end_us", "sms")))


def _pieces(steps: Steps, from_us: int, to_us: int) -> list[tuple[int, int, int]]:
    points = edges(from_us, to_us, steps)
    values = steps.at(points[:-1])
    return list(zip(points[:-1].tolist(), points[1:].tolist(), values.tolist(), strict=True))


def _corners(steps: Steps, from_us: int, to_us: int) -> tuple[Ints, Ints]:
    points = edges(from_us, to_us, steps)
    return np.repeat(points, 2)[1:-1], np.repeat(steps.at(points[:-1]), 2)


def _fill(
    axes: Axes, steps: Steps, from_us: int, to_us: int, *, color: str, zorder: int,
    top: int | None = None,
) -> None:  # fmt: skip
    x, y = _corners(steps, from_us, to_us)
    low, high = (np.zeros(len(y)), y) if top is None else (top - y, np.full(len(y), top))
    axes.fill_between(x / 1e3, low, high, color=color, lw=0, zorder=zorder)


def _outline(
    axes: Axes, steps: Steps, from_us: int, to_us: int, *, top: int, color: str, zorder: int
) -> None:
    x, y = _corners(steps, from_us, to_us)
    axes.plot(x / 1e3, top - y, color=color, lw=0.9, zorder=zorder)


def _binned(steps: Steps, at: Ints) -> Ints:
    """SM-us within each [at[i], at[i + 1])."""
    points = np.unique(np.concatenate((at, edges(int(at[0]), int(at[-1]), steps))))
    area = np.concatenate(([0], np.cumsum(steps.at(points[:-1]) * np.diff(points))))
    return np.diff(area[np.searchsorted(points, at)])


@contextmanager
def _styled() -> Iterator[None]:
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


def _rendered(figure: Figure) -> Drawing:
    text, image = io.StringIO(), io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(image, format="png", dpi=130, metadata={"Software": None})
    figure.set_layout_engine("none")  # laid out once is enough
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return Drawing(text.getvalue(), image.getvalue())
