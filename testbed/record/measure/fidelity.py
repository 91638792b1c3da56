"""``fidelity``: may the figures of this run be trusted, and if not, why.

On time (per process and slot): every wake-up at most 10 % of a slot late, and real work within its
hold.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from testbed.record.measure.host_speed import at_speed, host_speed
from testbed.record.measure.numbers import Figures, percentile, put, rounded
from testbed.record.recording import Recording
from testbed.record.tables import NODE

LATE_PERMILLE = 100
"""A wake-up later than this share of a slot makes the slot late (thousandths)."""

_NOTED = 0.001
"""Share of stolen time that is worth a word."""

_WITHIN = "within bounds"
_OUTSIDE = "outside its bounds"
_UNKNOWN = "unknown"


def fidelity(recording: Recording) -> Figures:
    """Figures of the section, the verdict among them."""
    manifest, scope = recording.manifest, recording.scope
    rows = _with_slots(recording)
    late_us = rows["lateness_us"].to_numpy()
    figures: Figures = {
        "clock_source": manifest.get("clock_source") or "unknown",
        "scheduling": manifest.get("scheduling") or {},
    }
    none = "no slot was recorded after the warm-up"
    by_node = _on_time(rows)
    figures["slots_on_time_by_node"] = by_node
    worst = min(by_node, key=lambda node: (by_node[node], node), default=None)
    put(figures, "slots_on_time", None if worst is None else by_node[worst], none)
    put(figures, "slots_on_time_worst_node", worst, none)
    lateness: Figures = {"n": len(late_us)}
    for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        put(lateness, name, percentile(late_us, percent), none)
    figures["lateness_us"] = lateness
    figures |= host_speed(recording)
    figures |= _at_speed(recording, rows)
    stolen = (manifest.get("host") or {}).get("steal_share")
    why = "virtual time has no host" if scope.simulated else "the run did not note it"
    put(figures, "host_steal_share", stolen, why)
    tolerance_us = figures["lateness_us"]["p99"] or 0
    figures["tolerance_us"] = tolerance_us
    figures["overruns"] = int((rows["overrun_us"] > 0).sum())
    figures["overrun_us_max"] = int(rows["overrun_us"].to_numpy().max(initial=0))
    figures |= _quanta_overruns(recording, tolerance_us)
    figures["late_feedback"] = late_feedback(recording)
    slot_us = min((site.slot_us for site in scope.sites if site.cells), default=None)
    figures["bounds"] = {"slots_on_time_min": scope.slots_on_time_min}
    limit_us = None if slot_us is None else slot_us * scope.lateness_p99_max_permille // 1000
    put(figures["bounds"], "lateness_p99_max_us", limit_us, "no cell, so no slot")
    figures["verdict"], figures["reason"] = _verdict(recording, figures)
    return figures


def late_feedback(recording: Recording) -> int:
    """Results that came after the slot in which the MAC uses them, after the warm-up."""
    counters = recording.tables["ran_counters"].sort("at_us")
    total = 0
    for _, rows in counters.group_by(NODE, "cell", "direction", maintain_order=True):
        before = rows.filter(pl.col("at_us") <= recording.from_us)["late_feedback"].to_list()
        total += rows["late_feedback"].to_list()[-1] - (before[-1] if before else 0)
    return int(total)


def _with_slots(recording: Recording) -> pl.DataFrame:
    """Rows of ``lateness`` within the interval, each with its slot's ``late_over_us``."""
    lateness = recording.tables["lateness"].filter(
        pl.col("at_us").is_between(recording.from_us, recording.to_us, closed="left")
    )
    allowed = {
        node: site.slot_us * LATE_PERMILLE // 1000
        for site in recording.scope.sites
        for node in site.nodes
    }
    limit = pl.col(NODE).replace_strict(allowed, default=50, return_dtype=pl.Int64)
    return lateness.with_columns(limit.alias("late_over_us"))


def _on_time(rows: pl.DataFrame) -> dict[str, float]:
    """Share of slots on time by node; a slot with several wake-ups is as good as its worst."""
    good = (pl.col("lateness_us") <= pl.col("late_over_us")) & (pl.col("overrun_us") <= 0)
    slots = rows.group_by(NODE, "slot").agg(good.all().alias("good"))
    shares = slots.group_by(NODE).agg(pl.col("good").sum(), pl.len().alias("n")).sort(NODE)
    return {node: round(ok / n, 6) for node, ok, n in shares.iter_rows()}


def _at_speed(recording: Recording, rows: pl.DataFrame) -> Figures:
    """The same two figures over the slots in which the host's cores were not slow."""
    kept = at_speed(recording, rows)
    by_node = _on_time(kept)
    figures: Figures = {}
    none = "no slot in which the host ran at speed"
    put(figures, "slots_on_time_at_speed", min(by_node.values(), default=None), none)
    late_us = percentile(kept["lateness_us"].to_numpy(), 99)
    put(figures, "lateness_p99_at_speed_us", late_us, none)
    return figures


def _quanta_overruns(recording: Recording, tolerance_us: int) -> Figures:
    quanta = recording.tables["quanta"].filter(
        pl.col("start_us").is_between(recording.from_us, recording.to_us, closed="left")
    )
    over = quanta["end_us"] - quanta["modelled_end_us"]
    late = int((over > tolerance_us).sum())
    return {
        "quanta_overruns": late,
        "quanta_overrun_share": rounded(late / len(quanta)) if len(quanta) else 0.0,
    }


def _verdict(recording: Recording, figures: Figures) -> tuple[str, str]:
    if recording.measured_us == 0:
        return _UNKNOWN, "the run ended before its warm-up did"
    if recording.scope.simulated:
        return _WITHIN, "virtual time: nothing can be late"
    if figures["slots_on_time"] is None:
        if not any(site.cells for site in recording.scope.sites):
            return _WITHIN, "no cell, so no slot that could be late"
        return _UNKNOWN, figures["slots_on_time_reason"]
    bounds: dict[str, Any] = figures["bounds"]
    reasons = []
    if figures["slots_on_time"] < bounds["slots_on_time_min"]:
        reasons.append(
            f"{figures['slots_on_time_worst_node']} kept {figures['slots_on_time']:.2%} of its "
            f"slots on time, at least {bounds['slots_on_time_min']:.2%} are needed"
        )
    limit_us = bounds["lateness_p99_max_us"]
    p99_us = figures["lateness_us"]["p99"]
    if limit_us is not None and p99_us > limit_us:
        reasons.append(f"wake-ups were {p99_us} us late (p99), at most {limit_us} us are allowed")
    if reasons:
        scale = recording.scope.time_scale
        hint = f". A larger time.scale than {scale:g} helps"
        return _OUTSIDE, "; ".join(reasons) + _slow_host(figures) + _refused(figures) + hint
    return _WITHIN, f"{figures['slots_on_time']:.2%} of slots on time in the worst process"


def _slow_host(figures: Figures) -> str:
    """What part a slow host has in it, or one that is not there at all."""
    text = ""
    share, on_time = figures["host_slow_share"], figures["slots_on_time_at_speed"]
    if share and on_time is not None:
        worst, late_us = figures["host_slowdown"]["max"], figures["lateness_p99_at_speed_us"]
        text += (
            f". This host's cores ran below half of their best speed in {share:.1%} of the samples "
            f"(at worst 1/{worst:.0f}); in the other slots {on_time:.2%} were on time, wake-ups "
            f"{late_us} us late (p99)"
        )
    stolen = figures["host_steal_share"] or 0.0
    if stolen >= _NOTED:
        text += f". The hypervisor gave {stolen:.1%} of this host's CPU time to others"
    return text


def _refused(figures: Figures) -> str:
    """What the host did not permit."""
    without = [node for node, obtained in figures["scheduling"].items() if "refused" in obtained]
    return f". Real-time priority was refused to {len(without)} processes" if without else ""
