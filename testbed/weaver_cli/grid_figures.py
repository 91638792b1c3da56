"""The figures of one bench run as a row, and what only two runs together say.

Owns which figures a grid keeps, under the names of ``summary.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from testbed.gpu import spare
from testbed.record.measure.numbers import percentile, ratio, rounded
from testbed.record.measure.ran import ran
from testbed.record.measure.spare import spare_section
from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.slotbench.results import BenchRun
from testbed.slotbench.scenario import BenchScenario
from testbed.weaver_cli.grid import HEADLINE_US
from testbed.weaver_cli.grid_recording import five_qi_of, recording_of

Row = dict[str, Any]

_DELAYS = ("n", "p50", "p95", "p99", "late_byte_share", "ran_delay_budget_us")
_BY_DIRECTION = ("scheduled_blocks", "deadline_miss_rate", "bler", "jain", "throughput_mbps")


def run_figures(scenario: BenchScenario, run: BenchRun) -> Row:
    """Figures of a run, over its measured interval.

    Shares are 0 to 1, times microseconds; ``usable_fraction`` and ``promised_fraction`` are by
    quantum in microseconds, ``delay_us`` by 5QI (SDUs that were delivered, both directions), others
    by direction. ``settled_bytes``: what ``throughput_ratio`` is of. A value is None where nothing
    of the kind happened.
    """
    recording = recording_of(scenario, run)
    radio = ran(recording)
    left = spare_section(recording, tolerance_us=0, site_tokens={})
    row: Row = {
        "idle_fraction": left["idle_fraction"],
        "usable_fraction": dict(left["usable_fraction"]),
        "promised_fraction": dict(left["promised_fraction"]),
        "envelope_changes_per_s": rounded(_envelope_changes_per_s(run)),
        "deadline_misses": {way: radio[way]["deadline_misses"] for way in ("dl", "ul")},
        **{key: {way: radio[key][way] for way in ("dl", "ul")} for key in _BY_DIRECTION},
        "settled_bytes": {way: radio["settled_bytes"][way] for way in ("dl", "ul")},
        "delivered_share": radio["bytes"]["delivered_share"],
        "late_byte_share": radio["late_byte_share"],
        "delay_us": {
            five_qi: {key: figures[key] for key in _DELAYS}
            for five_qi, figures in radio["delay_us"].items()
        },
        "emergencies": radio["emergencies"]["count"],
        "unaccounted_bytes": radio["bytes"]["unaccounted"],
    }
    return row


def _envelope_changes_per_s(run: BenchRun) -> float:
    """Changes of the SMs promised to the RAN within the headline quantum."""
    setup, promises = run.setup, run.promises
    at_us = promises["slot"] * setup.slot_us
    inside = promises.where((at_us >= setup.warmup_us) & (at_us < setup.end_us))
    levels = inside[f"within_{HEADLINE_US}_us"]
    return spare.changes_per_s(levels, setup.end_us - setup.warmup_us)


def fixed_share_figures(share: float) -> Row:
    """What a fixed share leaves to training: itself, at any quantum, known for ever."""
    by_window = {str(window): rounded(share) for window in PROMISE_WINDOWS_US}
    return {
        "usable_fraction": dict(by_window),
        "promised_fraction": dict(by_window),
        "envelope_changes_per_s": 0.0,
    }


def misses(figures: Mapping[str, Any]) -> int:
    """Blocks of both directions whose PHY work ended after its deadline."""
    return int(sum(figures["deadline_misses"].values()))


def throughput_ratio(figures: Mapping[str, Any], unshaped: Mapping[str, Any]) -> float | None:
    """Settled bytes to those of arm a: what arrived early enough to be due, and was delivered."""
    ours, theirs = (list(row["settled_bytes"].values()) for row in (figures, unshaped))
    if None in ours or None in theirs:
        return None
    return rounded(ratio(sum(ours), sum(theirs)))


def delay_curve(run: BenchRun, percents: Sequence[float]) -> dict[str, list[int]]:
    """Percentiles of the delay in microseconds, by 5QI; of SDUs that arrived when measured."""
    setup, sdus = run.setup, run.sdus
    arrival = sdus["arrival_us"]
    inside = sdus.where((arrival >= setup.warmup_us) & (arrival < setup.end_us))
    five_qi = five_qi_of(setup.cells, inside)
    delay = inside["delivered_us"] - inside["arrival_us"]
    return {
        str(value): [int(v) for v in _nearest_rank(delay[five_qi == value], percents)]
        for value in np.unique(five_qi).tolist()
    }


def _nearest_rank(values: spare.Ints, percents: Sequence[float]) -> spare.Ints:
    ordered = np.sort(values)
    ranks = np.ceil(np.asarray(percents) * len(ordered) / 100).astype(np.int64)
    return ordered[np.maximum(ranks - 1, 0)]


__all__ = [
    "delay_curve",
    "fixed_share_figures",
    "misses",
    "percentile",
    "run_figures",
    "throughput_ratio",
]
