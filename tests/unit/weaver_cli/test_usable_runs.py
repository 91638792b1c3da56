"""Runs of the bench as an experiment sees them: the node simulator's figures, and the bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.host.live_run import run_simulated
from testbed.record.run_dir import summarise_run
from testbed.slotbench.results import BenchRun
from testbed.weaver_cli.arms import SHAPED, UNSHAPED, Arm
from testbed.weaver_cli.grid import OF_RECORD, Point, grid_topology, run_arm, scenario_at
from testbed.weaver_cli.grid_bound import bound_figures
from testbed.weaver_cli.grid_figures import delay_curve, run_figures
from testbed.weaver_cli.ran_impact_pictures import budget_sweep, delay_curves
from testbed.weaver_cli.usable_gains import gain_rows
from testbed.weaver_cli.usable_pictures import gain_bars, over_load, over_quantum
from testbed.weaver_cli.usable_table import sections_of

from .usable_rows import run_row

WARMUP = "time.warmup_us=50000"
POINT = Point(OF_RECORD, 1, 0.5, 3, measured_s=0.35, sets=(WARMUP,))


@pytest.fixture(scope="module")
def shaped() -> BenchRun:
    return run_arm(scenario_at(POINT), SHAPED)


@pytest.mark.parametrize("arm", [UNSHAPED, SHAPED], ids=lambda arm: arm.name)
def test_figures_are_those_of_the_node_simulators_summary(arm: Arm, tmp_path: Path):
    """The reference is an independent run: nodes, messages, spool, tables, summary."""
    scenario = scenario_at(POINT)
    ours = run_figures(scenario, run_arm(scenario, arm))
    policies = (f"site.mac={arm.policy}", f"site.phy={arm.sizing}")
    topology = grid_topology(POINT, policies)
    run_simulated(topology, scenario.time_scale, tmp_path, journals=False)
    theirs = summarise_run(tmp_path)
    radio, left = theirs["ran"], theirs["spare"]
    for key in ("idle_fraction", "usable_fraction", "promised_fraction"):
        assert ours[key] == left[key], key
    keys = ("scheduled_blocks", "deadline_miss_rate", "bler", "jain", "settled_bytes")
    for key in (*keys, "throughput_mbps"):
        assert ours[key] == {way: radio[key][way] for way in ("dl", "ul")}, key
    assert ours["late_byte_share"] == radio["late_byte_share"]
    assert ours["emergencies"] == radio["emergencies"]["count"]
    for five_qi, figures in ours["delay_us"].items():
        assert figures.items() <= radio["delay_us"][five_qi].items()
    assert ours["deadline_misses"]["ul"] == radio["ul"]["deadline_misses"]
    assert ours["unaccounted_bytes"] == 0


def test_a_run_has_no_more_than_the_bound():
    """The bound is proven by duality; a run that had more would refute it, or the run."""
    run = run_arm(scenario_at(replace(POINT, measured_s=0.05)), SHAPED)
    (row,) = bound_figures(run, (5_000,))
    assert row["usable_fraction"] <= row["bound_fraction_granular"] <= row["bound_fraction"] <= 1
    assert row["starts"] == 91  # 100 slots of 500 us, windows of 10 of them


def test_delay_curves_are_nearest_ranks(shaped: BenchRun):
    """Of all values the 100th percentile is the largest, and half of them are at most the 50th."""
    sdus, setup = shaped.sdus, shaped.setup
    here = (sdus["arrival_us"] >= setup.warmup_us) & (sdus["arrival_us"] < setup.end_us)
    here &= sdus["ue"] >= 12  # the scenario's last four UEs are of 5QI 80
    delays = np.sort((sdus["delivered_us"] - sdus["arrival_us"])[here])
    middle, most = delay_curve(shaped, (50.0, 100.0))["80"]
    assert most == delays[-1]
    assert middle == delays[-(-len(delays) // 2) - 1]


def grid_rows() -> list[dict[str, Any]]:
    """Two points, one an overload, at which a and c were run; c is bounded."""
    rows = []
    for cells, usable in ((1, 0.2), (8, 0.0)):
        rows += [
            run_row("a", cells=cells, usable=usable, overload=cells == 8, p95=None, p99=None),
            run_row("c", cells=cells, usable=0.8, promised=0.7, overload=cells == 8),
        ]
        bound = {"kind": "bound", "q_us": 5_000, "starts": 10, "usable_fraction": 0.8}
        limits = {"bound_fraction": 0.9, "bound_fraction_granular": 0.85}
        rows.append(rows[-1] | bound | limits)
    return rows


def test_pictures_and_tables_of_a_small_grid(tmp_path: Path):
    rows = grid_rows()
    gains = gain_rows(rows)
    over_load(tmp_path / "load.png", [*rows, *gains], "title")
    over_quantum(tmp_path / "quantum.png", [*rows, {"kind": "gain summary"}], 0.3, "title")
    gain_bars(tmp_path / "gain.png", gains, "title")
    for row in rows:
        row["delay_curve_us"] = {"9": [3_000, 9_000]} if row["arm"] == "c" else {}
    delay_curves(tmp_path / "delay.png", rows, (50.0, 100.0))
    place = ("made", 8, 0.3)
    budget_sweep(tmp_path / "budget.png", {place: {50: [rows[0]], 500: [rows[1]]}})
    for name in ("load", "quantum", "gain", "delay", "budget"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    (usable, radio) = sections_of(rows).values()
    assert [line["load"] for line in usable] == ["0.3", "0.3*"]
    assert (usable[0]["a"], usable[0]["c"], usable[0]["bound"]) == ("0.20", "0.80", "0.90")
    assert radio[0]["p95 ms a, c (5QI 9)"] == "-, 9.0"
