"""``spare``: what the RAN left idle, what of it could be used, what was, where the rest went."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from testbed.gpu import spare
from testbed.record.measure.numbers import Figures, put, ratio
from testbed.record.measure.violations import violations
from testbed.record.recording import Recording, SiteTimeline
from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.record.scope import SiteScope
from testbed.record.tables import ints

_NOTHING = "nothing was measured"


def spare_section(recording: Recording, tolerance_us: int, site_tokens: Figures) -> Figures:
    """The section: totals, and the same per site under ``sites``.

    Args:
        recording: the run.
        tolerance_us: overlaps up to this length are jitter.
        site_tokens: declared tokens/s by site, for ``efficiency``.
    """
    sites = {
        name: _site(recording, timeline, tolerance_us, site_tokens.get(name))
        for name, timeline in recording.timelines.items()
    }
    total = _total(recording, sites)
    for figures in sites.values():
        figures.pop("_parts")
    return total | {"sites": sites}


def _site(
    recording: Recording, timeline: SiteTimeline, tolerance_us: int, tokens_per_s: float | None
) -> Figures:
    site = timeline.site
    from_us, to_us = recording.from_us, recording.to_us
    whole = site.sms * recording.measured_us
    busy = spare.integral(timeline.ran, from_us, to_us)
    went = spare.where_it_went(
        site.sms,
        from_us,
        to_us,
        ran=timeline.ran,
        lease=timeline.lease,
        committed=timeline.committed,
        wasted=timeline.wasted,
        state=timeline.state,
    )
    quantum_us = recording.scope.headline_window_us(site.name)
    usable, promised = _fractions(recording, timeline, quantum_us)
    parts = {"whole": whole, "busy": busy, "went": went, "usable": usable, "promised": promised}
    parts["headline"] = None if quantum_us is None else usable.get(quantum_us)
    figures = _figures(parts, quantum_us)
    put(
        figures,
        "envelope_changes_per_s",
        _envelope_changes(recording, site, quantum_us),
        "no promise was recorded",
    )
    reference = _reference_tokens_per_s(recording, timeline)
    put(
        figures,
        "efficiency",
        None if tokens_per_s is None or not reference else tokens_per_s / reference,
        "no job trained here",
    )
    figures |= violations(recording, timeline, tolerance_us)
    return figures | {"sms": site.sms, "gpu": site.gpu.name, "_parts": parts}


def _figures(parts: dict[str, Any], quantum_us: int | None) -> Figures:
    whole, busy, went = parts["whole"], parts["busy"], parts["went"]
    idle = whole - busy
    figures: Figures = {}
    put(figures, "idle_fraction", ratio(idle, whole), _NOTHING)
    for name in ("usable", "promised"):
        fractions: Figures = {}
        reason = "no slot whose window lies within the interval"
        for window_us, value in sorted(parts[name].items()):
            put(fractions, str(window_us), value, reason)
        figures[f"{name}_fraction"] = fractions
    put(figures, "headline_window_us", quantum_us, "no job, so no quantum")
    idle_reason = "the RAN left nothing idle" if whole else _NOTHING
    put(figures, "utilisation", ratio(went.committed, idle), idle_reason)
    headline = parts["headline"]
    usable_time = 0.0 if headline is None else headline * whole
    put(
        figures,
        "used_of_usable",
        ratio(went.committed, usable_time),
        "no job, so no quantum" if quantum_us is None else "nothing was usable at quantum_us",
    )
    figures["wasted"] = _shares(dict(went.wasted), idle)
    figures["idle_sm_us"] = idle
    figures["where_it_went"] = _shares(
        {
            "committed": went.committed,
            "wasted": sum(went.wasted.values()),
            "leased_fewer_sms": went.narrow,
            "leased_gap": went.gaps,
            "leased_waiting": went.waiting,
            "leased_idle": went.idle,
            "not_leased": went.not_leased,
        },
        idle,
    )
    return figures


def _shares(parts: dict[str, int], idle: int) -> Figures:
    rows: Figures = {}
    for name, sm_us in parts.items():
        row: Figures = {"sm_us": sm_us}
        put(row, "share", ratio(sm_us, idle), "the RAN left nothing idle")
        rows[name] = row
    return rows


def _fractions(
    recording: Recording, timeline: SiteTimeline, quantum_us: int | None
) -> tuple[dict[int, float | None], dict[int, float | None]]:
    """(usable, promised) by window, over the same slots; promised only for recorded windows."""
    site = timeline.site
    windows = {*PROMISE_WINDOWS_US} | ({quantum_us} if quantum_us else set())
    promises = recording.rows("promises", site)
    slot_start = ints(promises, "slot") * site.slot_us
    usable: dict[int, float | None] = {}
    promised: dict[int, float | None] = {}
    for window_us in sorted(windows):
        starts = spare.slots_within(site.slot_us, recording.from_us, recording.to_us, window_us)
        usable[window_us] = spare.usable_fraction(timeline.ran, site.sms, starts, window_us)
        if window_us in PROMISE_WINDOWS_US:
            taken = ints(promises, f"within_{window_us}_us")[np.isin(slot_start, starts)]
            promised[window_us] = spare.spare_mean(taken, site.sms)
    return usable, promised


def _envelope_changes(
    recording: Recording, site: SiteScope, quantum_us: int | None
) -> float | None:
    """Changes per second of the SMs promised to the RAN within the headline window.

    The recorded window that is next to ``quantum_us`` from above (the shortest without a job).
    """
    window_us = next(
        (w for w in PROMISE_WINDOWS_US if w >= (quantum_us or 0)), PROMISE_WINDOWS_US[-1]
    )
    rows = recording.rows("promises", site).filter(
        pl.col("at_us").is_between(recording.from_us, recording.to_us, closed="left")
    )
    if not len(rows):
        return None
    return spare.changes_per_s(
        rows.sort("slot")[f"within_{window_us}_us"].to_numpy(), recording.measured_us
    )


def _reference_tokens_per_s(recording: Recording, timeline: SiteTimeline) -> float:
    """Declared tokens/s of a GPU of its own that has, at any time, the SMs that the RAN left.

    The dedicated GPU's tokens/s times the time mean of speed(S - R), by the profile's curve.
    """
    site = timeline.site
    dedicated = [job.dedicated_tokens_per_s.get(site.name, 0.0) for job in recording.scope.jobs]
    if not recording.measured_us or not any(dedicated):
        return 0.0
    points = spare.edges(recording.from_us, recording.to_us, timeline.ran)
    idle = site.sms - timeline.ran.at(points[:-1])
    curve = np.array([site.gpu.speed(sms) for sms in range(site.sms + 1)])
    speed = float(np.dot(curve[idle], np.diff(points))) / recording.measured_us
    return max(dedicated) * speed


def _total(recording: Recording, sites: Figures) -> Figures:
    """Sums of SM-time over sites; fractions weighted by SMs."""
    parts = [figures["_parts"] for figures in sites.values()]
    weight = [figures["sms"] for figures in sites.values()]
    wents = [part["went"] for part in parts]
    causes = {cause: sum(went.wasted[cause] for went in wents) for cause in wents[0].wasted}
    merged: dict[str, Any] = {
        "whole": sum(part["whole"] for part in parts),
        "busy": sum(part["busy"] for part in parts),
        "went": spare.IdleTime(
            wasted=causes,
            **{
                name: sum(getattr(went, name) for went in wents)
                for name in ("committed", "narrow", "gaps", "waiting", "idle", "not_leased")
            },
        ),
    }
    for name in ("usable", "promised"):
        merged[name] = {
            window: _weighted([part[name].get(window) for part in parts], weight)
            for window in sorted({w for part in parts for w in part[name]})
        }
    merged["headline"] = _weighted([part["headline"] for part in parts], weight)
    headlines = {figures["headline_window_us"] for figures in sites.values()} - {None}
    figures = _figures(merged, max(headlines, default=None))
    for key in ("envelope_changes_per_s", "efficiency"):
        put(
            figures,
            key,
            _weighted([site[key] for site in sites.values()], weight),
            "not known for every site",
        )
    for key in ("violations", "violation_jitter"):
        each = [site[key] for site in sites.values()]
        figures[key] = {name: sum(item[name] for item in each) for name in ("count", "sm_us")}
        duties = [item["duty"] for item in each]
        put(figures[key], "duty", _weighted(duties, [1] * len(duties)), _NOTHING)
    return figures


def _weighted(values: list[float | None], weights: list[int]) -> float | None:
    """Weighted mean; None where any value is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return float(np.dot(known, weights)) / sum(weights)
