"""``spare.violations``: where RAN and training together wanted more SMs than the GPU has, and why.

An overlap is of what the RAN *wanted* (its SMs without training, from its planned start on) and
what quanta held. One that lasts longer than the tolerance is a violation and gets one row that
names its cause; a shorter one is jitter of the wake-ups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import numpy as np
import polars as pl

from protocols.messages import UPLINK
from testbed.gpu.quanta import QuantumKind
from testbed.gpu.spare import Overlap, Steps, edges, overlaps, split_by_tolerance
from testbed.record.measure.host_speed import samples, slowest_between
from testbed.record.measure.numbers import Figures, put, ratio
from testbed.record.recording import Recording, SiteTimeline
from testbed.record.schema import HOST_AT_SPEED_PERMILLE, HOST_SLOW_PERMILLE
from testbed.record.scope import SiteScope

MOST_ROWS = 500
"""Violations that are listed one by one; the count is of all."""

_NOT_LISTED = "not_listed"


class Cause(Enum):
    """Why a quantum ran while the RAN wanted its SMs; the first that applies is named."""

    FAULT = "injected_fault"
    OVERRUN = "quantum_overran"
    EMERGENCY = "ran_emergency"
    OUTSIDE_LEASE = "outside_lease"
    RAN_LATE = "ran_past_its_plan"
    RAN_EARLY = "ran_before_its_plan"
    LEASE_OVER_PLAN = "lease_over_plan"


@dataclass(frozen=True, slots=True)
class _Quantum:
    kind: int
    block: int
    step: int
    start_us: int
    modelled_end_us: int
    end_us: int
    real_us: int
    sms: int


@dataclass(frozen=True, slots=True)
class _Task:
    cell: int
    air_slot: int
    direction: int
    planned_start_us: int
    planned_end_us: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class _Emergency:
    slot: int
    at_us: int
    until_us: int

    def meets(self, overlap: Overlap) -> bool:
        return overlap.start_us < self.until_us and overlap.end_us > self.at_us

    def known_us(self, site: SiteScope) -> int:
        """By then the agent has granted the leases anew."""
        return (self.slot + 1) * site.slot_us


def violations(recording: Recording, timeline: SiteTimeline, tolerance_us: int) -> Figures:
    """``violations`` (count, duty, rows) and ``violation_jitter`` of one site."""
    found = overlaps(
        timeline.wanted, timeline.running, timeline.site.sms, recording.from_us, recording.to_us
    )
    real, jitter = split_by_tolerance(found, tolerance_us)
    broken = [
        _Emergency(*row)
        for row in recording.rows("ran_emergencies", timeline.site)
        .select(field.name for field in fields(_Emergency))
        .iter_rows()
    ]
    speed = samples(recording)
    rows = [_row(timeline, broken, speed, item) for item in real[:MOST_ROWS]]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["cause"]] = counts.get(row["cause"], 0) + 1
    if len(real) > len(rows):
        counts[_NOT_LISTED] = len(real) - len(rows)
    figures: Figures = {
        "violations": {
            "count": len(real),
            "sm_us": sum(item.sm_us for item in real),
            "by_cause": counts,
            "rows": rows,
            "rows_left_out": len(real) - len(rows),
            "tolerance_us": tolerance_us,
        },
        "violation_jitter": {
            "count": len(jitter),
            "sm_us": sum(item.sm_us for item in jitter),
        },
    }
    for name, items in (("violations", real), ("violation_jitter", jitter)):
        duty = ratio(sum(item.duration_us for item in items), recording.measured_us)
        put(figures[name], "duty", duty, "nothing was measured")
    return figures


def _row(
    timeline: SiteTimeline, broken: Sequence[_Emergency], speed: pl.DataFrame, overlap: Overlap
) -> dict[str, Any]:
    # Where a task that should be over still runs, it is the one that was not reckoned with.
    past_plan = (pl.col("planned_end_us") <= overlap.start_us) & (
        pl.col("end_us") > overlap.start_us
    )
    tasks = timeline.tasks.filter(past_plan)
    if tasks.is_empty():
        tasks = timeline.tasks
    task = _Task(**_foremost(tasks, overlap, _Task, "planned_start_us"))
    quantum = _Quantum(**_foremost(timeline.quanta, overlap, _Quantum, "start_us"))
    known_us = next((e.known_us(timeline.site) for e in broken if e.meets(overlap)), None)
    cause, text = _explain(timeline.lease, task, quantum, overlap, known_us)
    slowdown = slowest_between(speed, timeline.site, quantum.start_us, quantum.end_us)
    if slowdown is not None and slowdown * HOST_AT_SPEED_PERMILLE >= HOST_SLOW_PERMILLE:
        text += f", while the host's cores ran at 1/{slowdown:.0f} of their best speed"
    row = {
        "at_us": overlap.start_us,
        "site": timeline.site.name,
        "cell": task.cell,
        "air_slot": task.air_slot,
        "direction": "ul" if task.direction == UPLINK else "dl",
        "quantum": _name(quantum),
        "step": quantum.step,
        "overlap_us": overlap.duration_us,
        "overlap_sms": overlap.most_sms,
        "cause": cause.value,
        "explanation": text,
    }
    put(row, "host_slowdown", slowdown, "no sample of the host's speed within the quantum")
    return row


def _foremost(
    frame: pl.DataFrame, overlap: Overlap, kind: type[_Task] | type[_Quantum], begin: str
) -> dict[str, int]:
    """The row that shares most time with the overlap; of equals the one that began last."""
    first = pl.min_horizontal(begin, "start_us")
    shared = pl.min_horizontal("end_us", overlap.end_us) - pl.max_horizontal(
        first, overlap.start_us
    )
    best = (
        frame.with_columns(shared.alias("_shared"))
        .sort("_shared", "start_us", descending=True, maintain_order=True)
        .row(0, named=True)
    )
    return {field.name: best[field.name] for field in fields(kind)}


def _explain(
    lease: Steps, task: _Task, quantum: _Quantum, overlap: Overlap, emergency_us: int | None
) -> tuple[Cause, str]:
    if quantum.kind == QuantumKind.FAULT:
        return Cause.FAULT, f"a fault held {quantum.sms} SMs whatever the lease said"
    over_us = quantum.end_us - quantum.modelled_end_us
    if over_us > 0 and overlap.start_us >= quantum.modelled_end_us:
        return Cause.OVERRUN, (
            f"the quantum ended {over_us} us after its modelled end "
            f"(its real work took {quantum.real_us} us)"
        )
    if emergency_us is not None and quantum.start_us < emergency_us:
        return Cause.EMERGENCY, (
            f"the quantum began before {emergency_us} us, when the RAN took back what it had "
            "promised"
        )
    granted = _least(lease, quantum.start_us, quantum.modelled_end_us)
    if granted < quantum.sms:
        return Cause.OUTSIDE_LEASE, (
            f"the lease held {granted} SMs at some time of the quantum, which ran on {quantum.sms}"
        )
    if overlap.start_us >= task.planned_end_us:
        late_us = task.end_us - task.planned_end_us
        return Cause.RAN_LATE, f"the RAN task ended {late_us} us after its plan"
    if overlap.end_us <= task.planned_start_us:
        early_us = task.planned_start_us - task.start_us
        return Cause.RAN_EARLY, f"the RAN task began {early_us} us before its plan"
    return Cause.LEASE_OVER_PLAN, (
        f"the lease of {granted} SMs covers [{overlap.start_us}, {overlap.end_us}) us, "
        "where the RAN had its plan"
    )


def _least(steps: Steps, from_us: int, to_us: int) -> int:
    points = edges(from_us, max(to_us, from_us + 1), steps)
    return int(np.min(steps.at(points[:-1])))


def _name(quantum: _Quantum) -> str:
    known = {kind.value: kind.name.lower() for kind in QuantumKind}
    return f"{known.get(quantum.kind, str(quantum.kind))} {quantum.block}"
