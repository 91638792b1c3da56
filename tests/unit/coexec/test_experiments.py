"""Experiments: verdicts, rows, and that their checks can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.coexec.replay import TraceJob
from testbed.coexec_cli import EXPERIMENTS
from testbed.coexec_cli.planner_times import decision_rows, optimum_rows
from testbed.coexec_cli.round_robin import SETTINGS, _cell, _fifo
from testbed.coexec_cli.scenarios import against_optimum, gains, named
from testbed.coexec_cli.weave_checks import generated_checks, trace_checks
from testbed.experiments.experiment import Experiment, check, finish

from .makers import job


def test_a_check_is_met_missed_or_not_measured() -> None:
    assert check("x", 1.22, ">=", 1.22).met is True
    assert check("x", 1.21, ">=", 1.22).met is False
    assert check("x", 0.05, "<=", 0.04).met is False
    assert check("x", 0, "==", 0).met is True
    assert check("x", None, ">=", 1).met is None
    assert check("x", float("nan"), ">=", 1).met is None


def test_files_of_an_experiment(tmp_path: Path) -> None:
    experiment = Experiment("demo", [1], True, rows=[{"a": 1.5}], checks=[check("x", 2.0, ">=", 1)])
    finish(experiment, tmp_path, {"rows": experiment.rows})
    data = json.loads((tmp_path / "demo.json").read_text())
    assert data["rows"] == [{"a": 1.5}]
    assert data["checks"][0] == {
        "name": "x",
        "value": 2.0,
        "target": ">= 1",
        "met": True,
        "paper": None,
        "note": "",
    }


def test_all_experiments_take_the_common_options() -> None:
    assert set(EXPERIMENTS) == {"weave-replay", "planner", "round-robin"}
    for command in EXPERIMENTS.values():
        with command.make_context(command.name, []) as context:
            assert {"quick", "out"} <= set(context.params)


def test_decision_rows() -> None:
    rows = decision_rows(8, repeats=3)
    assert {(row["policy"], row["event"]) for row in rows} == {
        (policy, event)
        for policy in ("algorithm-1", "ranloom, placement only", "ranloom")
        for event in ("arrival", "departure")
    }
    assert all(0 < row["wall_ms_p50"] <= row["wall_ms_max"] for row in rows)
    (best,) = optimum_rows([6])
    assert best["proven"]
    assert best["algorithm_1_of_optimum"] >= 1 - 1e-9


def test_round_robin_cells_show_what_breaks() -> None:
    plain = _cell(SETTINGS[0], 2, 30, seed=1)
    assert [row["longer_than_formula"] for row in plain] == [0, 0]
    held = _cell(next(s for s in SETTINGS if "both pools" in s.name), 1, 30, seed=1)
    assert all(row["longer_than_formula"] == 30 for row in held)
    assert _fifo(2, 12, seed=1)["longest_job_slower_than_t_cycle"] > 0


def test_against_the_optimum_by_hand() -> None:
    # The prune keeps c (30 + 20 s) out of a saturated pair that would take it: 2 groups for 1.
    trace = [
        TraceJob(job("a", 200, 100, 2), 0, 10),
        TraceJob(job("b", 100, 50, 3), 0, 10),
        TraceJob(job("c", 30, 20, 9), 0, 10),
    ]
    planners = named("algorithm-1")
    (row,) = against_optimum("t", trace, planners, most_jobs=9, unsaturated=False)
    assert row["of_optimum"] > 1.5
    (none,) = against_optimum("t", trace, planners, most_jobs=0, unsaturated=False)
    assert none["of_optimum"] is None
    assert none["hours_left_out"] == pytest.approx(1.0)


def test_targets_are_missed_by_bad_rows() -> None:
    def row(trace: str, policy: str, usd: float) -> dict[str, object]:
        return {
            "scenario": "trace",
            "trace": trace,
            "policy": policy,
            "residency": "work-conserving",
            "usd": usd,
            "ratio_solo": 1.0,
            "slo_attainment": 0.99,
        }

    rows = [row("prod_1", "algorithm-1", 100.0), row("prod_1", "ranloom", 90.0)]
    assert gains(rows, "ranloom", "algorithm-1") == [pytest.approx(100 / 90)]
    verdicts = {one.name: one.met for one in trace_checks(rows)}
    assert verdicts["prod: cost of algorithm-1 / ranloom, mean"] is False
    assert verdicts["ranloom: least SLO attainment, no drift"] is False
    assert verdicts["philly_mixed: cost of algorithm-1 / ranloom, mean"] is None
    assert all(one.met is None for one in generated_checks([]))
