"""One GPU, slot by slot: what the unshaped RAN leaves of it, and how steadily.

Owns the grid of runs and the figures of each. Knows nothing of days, sites or files.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from testbed.experiments.experiment import Row
from testbed.gpu.spare import Steps, edges, integral, slots_within, stack, usable_fraction
from testbed.ran.capacity import nominal_bytes_per_s
from testbed.ran.numerology import Direction
from testbed.ran.traffic import FullBuffer
from testbed.slotbench.results import BenchRun
from testbed.slotbench.simulate import run_bench
from testbed.weaver_cli.characterise_scenarios import Case, scenario
from testbed.weaver_cli.characterise_series import (
    Floats,
    Ints,
    autocorrelation,
    free_runs_us,
    hurst_by_dfa,
    hurst_by_variance,
    per_period,
    variation,
)
from testbed.weaver_cli.grid_offered import offered

QUANTUM_US = 5_000
"""Of the scenario of record: what a training kernel needs in one piece."""

LAGS_MS = (2.5, 5, 10, 20, 50, 100, 200, 500, 1000)
HURST_LEAST_MS = 20
"""Where the fit of a Hurst parameter begins: below, the service of one file shows."""

PROBE_S = 1.0

ON_TIME = 0.05
DELIVERED = 0.99
"""The RAN counts as working where at most ``ON_TIME`` of the blocks of either direction end after
their deadline, and at least ``DELIVERED`` of the bytes arrive by the end of the drain."""


@dataclass(frozen=True, slots=True)
class Micro:
    """What one run says.

    ``ran``: SMs of the RAN over time, ``ul``: those of the uplink alone; [``from_us``, ``to_us``)
    was measured. ``demand``: mean SMs of the RAN in each TDD period.
    """

    case: Case
    row: Row
    sms: int
    levels: tuple[int, ...]
    ran: Steps
    ul: Steps
    demand: Floats
    period_us: int
    from_us: int
    to_us: int

    @property
    def works(self) -> bool:
        """Whether the RAN did (see ``ON_TIME``)."""
        return bool(self.row["ran_works"])


def run_case(case: Case) -> Micro:
    """Run PF with PHY tasks at saturation SMs, the RAN as it is without us."""
    return _micro(case, run_bench(scenario(case)))


def run_point(case: Case) -> Micro:
    """Run a case to its length, but for one whose RAN does not work within a second.

    Such a point's queues grow without bound, and so does the time that a run takes; its second
    stands for it, and its ``measured_s`` says so.
    """
    if case.measured_s <= PROBE_S:
        return run_case(case)
    probe = run_case(replace(case, measured_s=PROBE_S))
    return run_case(case) if probe.works else probe


def _micro(case: Case, bench: BenchRun) -> Micro:
    setup, pieces = bench.setup, bench.pieces
    from_us, to_us = setup.warmup_us, setup.end_us
    is_ul = bench.tasks["direction"][pieces["task"]] == 1
    columns = pieces["from_us"], pieces["to_us"], pieces["sms"]
    ran = stack(*columns).clipped(setup.gpu.sms)
    ul = stack(*(column[is_ul] for column in columns)).clipped(setup.gpu.sms)
    period_us = math.lcm(*(len(cell.tdd.kinds) for cell in setup.cells)) * setup.slot_us
    micro = Micro(
        case,
        {},
        setup.gpu.sms,
        tuple(setup.gpu.sm_levels()),
        ran,
        ul,
        per_period(ran, from_us, to_us, period_us),
        period_us,
        from_us,
        to_us,
    )
    return replace(micro, row=_row(micro, bench))


def _row(micro: Micro, bench: BenchRun) -> Row:
    case, sms, from_us, to_us = micro.case, micro.sms, micro.from_us, micro.to_us
    least = max(4, round(HURST_LEAST_MS * 1000 / micro.period_us))
    lags = np.array([round(ms * 1000 / micro.period_us) for ms in LAGS_MS])
    starts = slots_within(bench.setup.slot_us, from_us, to_us, QUANTUM_US)
    whole = sms * (to_us - from_us)
    memory = autocorrelation(micro.demand, lags)
    hurst = hurst_by_variance(micro.demand, least), hurst_by_dfa(micro.demand, least)
    misses = _miss_rates(bench)
    delivered = _delivered(bench)
    return {
        "traffic": case.traffic,
        "cells": case.cells,
        "ul_layers": case.ul_layers,
        "load": case.load,
        "seed": case.seed,
        "measured_s": (to_us - from_us) / 1e6,
        **_offered(bench),
        **_asked(bench, case.load),
        "ran_works": all((rate or 0) <= ON_TIME for rate in misses.values())
        and (delivered is None or delivered >= DELIVERED),
        **misses,
        "delivered_share": delivered,
        "idle_fraction": 1 - integral(micro.ran, from_us, to_us) / whole,
        "idle_fraction_ul_only": 1 - integral(micro.ul, from_us, to_us) / whole,
        "sm_share_while_decoding": _mean_while_busy(micro.ul, from_us, to_us, sms),
        "usable_fraction_5_ms": usable_fraction(micro.ran, sms, starts, QUANTUM_US),
        "demand_mean_sms": float(micro.demand.mean()),
        "demand_sd_sms": float(micro.demand.std()),
        "demand_cv": variation(micro.demand) if micro.demand.any() else None,
        "hurst_by_variance": hurst[0],
        "hurst_by_dfa": hurst[1],
        "autocorrelation": {
            f"{ms:g} ms": None if math.isnan(value) else float(value)
            for ms, value in zip(LAGS_MS, memory, strict=True)
        },
    }


def _miss_rates(bench: BenchRun) -> Row:
    """Blocks of the measured interval whose PHY work ends after its deadline, None without any."""
    setup, blocks = bench.setup, bench.blocks
    air_us = blocks["air_slot"] * setup.slot_us
    measured = blocks.where((air_us >= setup.warmup_us) & (air_us < setup.end_us))
    rates: Row = {}
    for number, name in enumerate(("dl_miss_rate", "ul_miss_rate")):
        missed = measured["missed"][measured["direction"] == number]
        rates[name] = float(missed.mean()) if len(missed) else None
    return rates


def _delivered(bench: BenchRun) -> float | None:
    """Bytes delivered by the end over those that arrived; None where a buffer is always full."""
    if any(_endless(bench, direction) for direction in Direction):
        return None
    end = bench.counters[-1]
    return float(end.delivered_bytes.sum() / end.arrived_bytes.sum())


def _offered(bench: BenchRun) -> Row:
    """Bytes that arrived in the measured interval over full carriers at the mean MCS."""
    setup = bench.setup
    begun, ended = bench.counters
    arrived = ended.arrived_bytes - begun.arrived_bytes
    seconds = (setup.end_us - setup.warmup_us) / 1e6
    offered: Row = {}
    for number, direction in enumerate((Direction.DL, Direction.UL)):
        full = sum(nominal_bytes_per_s(cell, direction) for cell in setup.cells) * seconds
        load = None if _endless(bench, direction) else float(arrived[number::2].sum() / full)
        offered[f"{direction.value.lower()}_offered_load"] = load
    return offered


def _asked(bench: BenchRun, load: float | None) -> Row:
    """GPU work that the load asks for over S T, and whether that makes it an overload."""
    if load is None:
        return {"offered_gpu_share": None, "overload": None}
    asked = offered(bench.setup, load)
    return {"offered_gpu_share": asked.gpu_share, "overload": asked.overload}


def _endless(bench: BenchRun, direction: Direction) -> bool:
    return any(isinstance(cell.traffic(direction), FullBuffer) for cell in bench.setup.cells)


def _mean_while_busy(steps: Steps, from_us: int, to_us: int, sms: int) -> float | None:
    """Time mean of the share of SMs taken, over the time in which any is; None if never."""
    points = edges(from_us, to_us, steps)
    value, length = steps.at(points[:-1]), np.diff(points)
    busy_us = int(length[value > 0].sum())
    return float(np.dot(value, length) / (busy_us * sms)) if busy_us else None


def free_runs(micro: Micro) -> list[Row]:
    """For each SM level: for how long at a stretch that many SMs stay free."""
    seconds = (micro.to_us - micro.from_us) / 1e6
    return [
        {
            **{key: micro.row[key] for key in ("traffic", "cells", "ul_layers", "load", "seed")},
            "free_sms": wanted,
            **_lengths(
                free_runs_us(micro.ran, micro.sms, wanted, micro.from_us, micro.to_us), seconds
            ),
        }
        for wanted in micro.levels
    ]


def _lengths(runs_us: Ints, seconds: float) -> Row:
    some = len(runs_us) > 0
    return {
        "share_of_time": float(runs_us.sum() / 1e6 / seconds),
        "share_in_runs_of_5_ms": float(runs_us[runs_us >= QUANTUM_US].sum() / 1e6 / seconds),
        "runs_per_s": len(runs_us) / seconds,
        "median_us": float(np.median(runs_us)) if some else None,
        "p95_us": float(np.quantile(runs_us, 0.95)) if some else None,
        "longest_us": int(runs_us.max()) if some else None,
    }


OVER_SEEDS = (
    "idle_fraction",
    "idle_fraction_ul_only",
    "usable_fraction_5_ms",
    "demand_cv",
    "hurst_by_variance",
    "hurst_by_dfa",
    "ul_miss_rate",
    "dl_miss_rate",
    "delivered_share",
)


def over_seeds(rows: Iterable[Row]) -> list[Row]:
    """Median and range over seeds of each point, points in the order of their first row.

    ``ran_works`` where it does with most seeds.
    """
    points: dict[tuple[object, ...], list[Row]] = {}
    keys = ("traffic", "cells", "ul_layers", "load")
    for row in rows:
        points.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        {
            **dict(zip(keys, point, strict=True)),
            "seeds": len(same),
            "offered_gpu_share": same[0]["offered_gpu_share"],
            "overload": same[0]["overload"],
            "ran_works": 2 * sum(bool(row["ran_works"]) for row in same) > len(same),
            **{key: _median([row[key] for row in same]) for key in OVER_SEEDS},
            "idle_fraction_least": min(row["idle_fraction"] for row in same),
            "idle_fraction_most": max(row["idle_fraction"] for row in same),
        }
        for point, same in points.items()
    ]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
