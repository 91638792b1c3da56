"""Rows, sweep, checks and tables of ``reproduce partition``, on runs and rows made by hand.

GB10 has 48 SMs in steps of 8 and changes a green context in 5 us; MPS takes 300 ms. In the run made
by hand, 80 slots of 0.5 ms, the RAN takes 16 SMs for 20 ms, then 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testbed.gpu.partitions import mechanism
from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.slotbench.results import BenchRun, Table
from testbed.slotbench.rows import PIECE_COLUMNS, PROMISE_COLUMNS
from testbed.slotbench.scenario import Setup
from testbed.topology.profiles import gpu_profile
from testbed.weaver_cli import partition_runs
from testbed.weaver_cli.arms import SHAPED, UNSHAPED
from testbed.weaver_cli.grid import Point
from testbed.weaver_cli.partition import cases, tables_of
from testbed.weaver_cli.partition_checks import checks_of
from testbed.weaver_cli.partition_runs import (
    Case,
    Row,
    as_good,
    as_promised,
    fixed_row,
    foresight_of,
    lent,
    nothing_lent,
    rows_of,
    shares_of,
)

GB10, GH200 = gpu_profile("gb10"), gpu_profile("gh200")
GREEN, MPS = mechanism("green_context", GB10), mechanism("mps", GB10)
CASE = Case(Point("weaver_usable", 1, 0.3, 1, 0.04), SHAPED)


def nothing(*columns: str) -> Table:
    return Table(columns, np.zeros((0, len(columns)), np.int64))


def handmade_run() -> BenchRun:
    setup = Setup(
        cells=(),
        gpu=GB10,
        ran_gpu=GB10,
        seed=1,
        slot_us=500,
        mac_phase_us=200,
        message_us=1,
        lookahead_slots=3,
        k2_slots=3,
        warmup_us=0,
        end_us=40_000,
        drain_us=0,
        ul_decode_budget_us=1500,
        fronthaul_lead_us=125,
        training_bandwidth_permille=0,
        worst_sms=(48, 48),
    )
    pieces = np.array([(0, 0, 20_000, 16), (0, 20_000, 40_000, 8)])
    promises = np.array([(slot, *[16] * len(PROMISE_WINDOWS_US)) for slot in range(80)])
    return BenchRun(
        setup=setup,
        blocks=nothing("cell"),
        tasks=nothing("cell"),
        pieces=Table(PIECE_COLUMNS, pieces),
        sdus=nothing("cell"),
        promises=Table(PROMISE_COLUMNS, promises),
        emergencies=nothing("slot"),
        counters=(),
        end_us=40_000,
    )


def figures(misses: int = 0, late: float | None = 0.0, settled: int = 1000) -> Row:
    unknown = dict.fromkeys(map(str, PROMISE_WINDOWS_US), 0.5)
    return {
        "deadline_misses": {"dl": 0, "ul": misses},
        "late_byte_share": late,
        "settled_bytes": {"dl": settled, "ul": settled},
        "delay_us": {"9": {"late_byte_share": late}, "80": {"late_byte_share": 0.0}},
        "usable_fraction": unknown,
        "promised_fraction": unknown,
    }


def test_green_contexts_with_foresight_follow_the_ran() -> None:
    """5 ms quanta may start in 71 slots. Until 20 ms, that slot too (the switch takes 5 us), 32 SMs
    are left throughout: 41 slots; 40 SMs in the 30 after them."""
    of = foresight_of(handmade_run(), GREEN)
    assert of.switches == 1
    assert of.fraction(5000, 48) == pytest.approx((41 * 32 + 30 * 40) / (71 * 48))


def test_mps_neither_follows_nor_trusts_a_short_promise() -> None:
    """No switch fits into 40 ms: 32 SMs throughout; 20 ms of promise do not cover one."""
    run = handmade_run()
    known, promised = foresight_of(run, MPS), as_promised(run, MPS)
    assert (known.switches, promised.switches) == (0, 0)
    assert known.fraction(5000, 48) == pytest.approx(32 / 48)
    assert promised.fraction(5000, 48) == 0


def test_a_row_per_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    run = handmade_run()
    monkeypatch.setattr(partition_runs, "run_arm", lambda *_: run)
    monkeypatch.setattr(partition_runs, "run_figures", lambda *_: figures())
    green, mps, mig, static = rows_of(CASE)
    assert [row["mechanism"] for row in (green, mps, mig, static)] == [
        "green_context",
        "mps",
        "mig",
        "static",
    ]
    assert green["as_promised_fraction"]["5000"] == pytest.approx(32 / 48, abs=1e-6)
    assert green["as_promised_fraction"]["20000"] is None
    # (40 - 32) SMs for 5 us of 48 SMs for 40 ms
    assert green["foresight"] == {
        "switches": 1,
        "switching_share": 0.000125,
        "lost_share": pytest.approx(8 * 5 / (48 * 40_000), abs=1e-6),
    }
    assert (mps["switch_us"], lent(mps, "as_promised")) == (300_000, 0.0)
    assert (mig["reason"], lent(mig, "foresight")) == ("gb10 has no MIG", None)
    assert (static["training_sms"], lent(static, "foresight")) == (40, round(40 / 48, 6))


def test_shares_leave_the_ran_a_partition() -> None:
    """GH200 has 132 SMs: beside 120 the RAN has 12, beside 128 fewer than the 8 it must have."""
    assert shares_of(GB10) == [8, 16, 24, 32, 40]
    assert shares_of(GH200)[-1] == 120


@pytest.mark.parametrize(
    ("ours", "good"),
    [
        (figures(), True),
        (figures(misses=1), False),
        (figures(late=0.0009), True),
        (figures(late=0.0011), False),
        (figures(late=None), False),
        (figures(settled=989), False),
        (figures(settled=991), True),
    ],
)
def test_what_leaves_the_ran_as_it_was(ours: Row, good: bool) -> None:
    assert as_good(ours, figures()) is good


@pytest.mark.parametrize(("misses_above", "best"), [(24, 24), (0, None)])
def test_the_best_share_is_the_largest_that_adds_no_miss(
    monkeypatch: pytest.MonkeyPatch, misses_above: int, best: int | None
) -> None:
    """A RAN that misses a deadline wherever training has more than so many SMs."""
    run = handmade_run()

    def confined(_scenario: object, _arm: object, ran_sms: int = 48) -> tuple[BenchRun, int]:
        return run, int(48 - ran_sms > misses_above)

    monkeypatch.setattr(partition_runs, "run_arm", confined)
    monkeypatch.setattr(partition_runs, "run_figures", lambda _, got: figures(got[1]))
    row = partition_runs.static_row(CASE, None, GB10, figures())  # type: ignore[arg-type]
    assert row["training_sms"] == best
    assert bool(row["reason"]) is (best is None)


@pytest.mark.parametrize("late", [0.02, None])
def test_no_share_is_sought_beside_a_ran_that_is_late_on_the_whole_gpu(late: float | None) -> None:
    whole = figures(late=late)
    row = partition_runs.static_row(CASE, None, GB10, whole)  # type: ignore[arg-type]
    assert (row["training_sms"], lent(row, "foresight")) == (None, None)
    assert row["reason"] == "the RAN is late on the whole GPU already"


def test_what_fails_early_is_not_run_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares above 16 SMs miss a deadline in the first second already; 8 to 40 are tried."""
    lengths: list[tuple[float, int]] = []

    def confined(scenario: float, _arm: object, ran_sms: int) -> tuple[BenchRun, int]:
        lengths.append((scenario, 48 - ran_sms))
        return handmade_run(), int(48 - ran_sms > 16)

    monkeypatch.setattr(partition_runs, "scenario_at", lambda point: point.measured_s)
    monkeypatch.setattr(partition_runs, "run_arm", confined)
    monkeypatch.setattr(partition_runs, "run_figures", lambda _, got: figures(got[1]))
    case = Case(Point("weaver_usable", 1, 0.3, 1, 10.0), SHAPED)
    row = partition_runs.static_row(case, 10.0, GB10, figures())  # type: ignore[arg-type]
    assert row["training_sms"] == 16
    assert lengths == [(1.0, 40), (1.0, 32), (1.0, 24), (1.0, 16), (10.0, 16)]


def row(mechanism_row: Row, share: float | None = None, **more: Any) -> Row:
    place = {"scenario": "s", "gpu": "gh200", "cells": 4, "load": 0.3, "measured_s": 10.0}
    shares = dict.fromkeys(map(str, PROMISE_WINDOWS_US), share)
    fractions = {f"{kind}_fraction": dict(shares) for kind in partition_runs.KINDS}
    common = {"seed": 1, "arm": "c", "deadline_misses": 0} | place
    left = {"usable_fraction": dict(shares), "promised_fraction": dict(shares)}
    return common | left | mechanism_row | (fractions if share is not None else {}) | more


def mechanisms(green: float, mps: float, mig: float | None, **more: Any) -> list[Row]:
    lost = {"switches": 10, "switching_share": 0.0, "lost_share": 0.002}
    of = {"foresight": lost, "as_promised": lost}
    slow = nothing_lent("mig", "no MIG" if mig is None else "")
    return [
        row(nothing_lent("green_context", "") | of, green, **more),
        row(nothing_lent("mps", "") | of, mps, **more),
        row(slow, mig, **more),
        row(fixed_row(66, GH200), **more),
    ]


def test_checks_of_rows_in_order() -> None:
    """Shaped: green 0.9, MPS 0.8, MIG 0.4, fixed 66 of 132; unshaped: 0.3, 0.1, 0."""
    rows = mechanisms(0.9, 0.8, 0.4) + mechanisms(0.3, 0.1, 0.0, arm=UNSHAPED.name)
    values = [check.value for check in checks_of(rows)]
    expected = [0, 0, 0.9 / 0.5, 0.9 / 0.5, 0.002, 0.8 / 0.9, 0.4 / 0.9, 0.7]
    assert values == pytest.approx(expected)
    assert all(check.met for check in checks_of(rows))


def test_checks_see_a_wrong_order_with_and_without_mig() -> None:
    rows = mechanisms(0.5, 0.6, None) + mechanisms(0.5, 0.2, 0.3, seed=2)
    first = checks_of(rows)[0]
    assert (first.value, first.met) == (2, False)


def test_without_rows_nothing_is_met() -> None:
    assert {check.met for check in checks_of([])} == {None}


def test_tables_show_medians_and_ranges_over_seeds() -> None:
    rows = [one for seed in (1, 2, 3) for one in mechanisms(0.5 + 0.1 * seed, 0.5, None, seed=seed)]
    table = tables_of(rows)
    (shown,) = [rows for title, rows in table.items() if title.startswith("s: gh200, 4 cells, 3 x")]
    left, green, mps, mig, static = shown
    assert left["mechanism"] == "(left by RAN)"
    assert green["foresight"] == "0.700 (0.600-0.800)"
    assert (mps["foresight"], mps["switches/s"]) == ("0.500", "1, 1")
    assert (mig["foresight"], mig["switches/s"], mig["note"]) == ("-", "-, -", "no MIG")
    assert static["SMs"] == 66
    assert all(list(line) == list(left) for line in shown)


def test_the_whole_grid_gives_mig_the_time_for_two_switches() -> None:
    longest = max(case.point.measured_s for case in cases(quick=False))
    assert longest > 2 * 7.0
    assert {case.point.scenario for case in cases(quick=True)} == {
        "weaver_gh200",
        "weaver_one_layer",
    }
