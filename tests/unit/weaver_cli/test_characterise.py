"""The experiment around the arithmetic: figures of one run, what is run for how long, the files."""

import csv
import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from testbed.ran.nr_scope import parse_nr_scope
from testbed.ran.numerology import Direction
from testbed.ran.traces import busiest_window
from testbed.slotbench.simulate import run_bench
from testbed.weaver_cli import EXPERIMENTS, characterise, characterise_micro
from testbed.weaver_cli.characterise_checks import micro_checks
from testbed.weaver_cli.characterise_micro import (
    LAGS_MS,
    free_runs,
    over_seeds,
    run_case,
    run_point,
)
from testbed.weaver_cli.characterise_scenarios import (
    Case,
    commag_case,
    fgn_case,
    full_case,
    nr_scope_case,
    scenario,
)

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def micro():
    return run_case(fgn_case(2, 1, 0.3, 1, 0.2))


def test_idle_time_is_what_the_pieces_leave(micro):
    """Expected: SMs of every microsecond summed over the pieces, at most 48 at once."""
    bench = run_bench(scenario(micro.case))
    taken = np.zeros(micro.to_us + 10_000, dtype=np.int64)
    columns = ("from_us", "to_us", "sms")
    for start, end, sms in zip(*(bench.pieces[name] for name in columns), strict=True):
        taken[start:end] += sms
    taken = np.minimum(taken[micro.from_us : micro.to_us], 48)
    idle = 48 - taken
    assert micro.row["idle_fraction"] == pytest.approx(idle.mean() / 48, abs=1e-12)
    assert micro.row["demand_mean_sms"] == pytest.approx(taken.mean())
    assert micro.demand == pytest.approx(taken.reshape(-1, 2500).mean(axis=1))
    worst = np.array([taken[t : t + 5000].max() for t in range(0, len(taken) - 4999, 500)])
    assert micro.row["usable_fraction_5_ms"] == pytest.approx((48 - worst).mean() / 48)
    assert free_runs(micro)[2]["share_of_time"] == pytest.approx((idle >= 24).mean())


def test_a_row_says_what_was_run_and_how_the_radio_fared(micro):
    row = micro.row
    assert (row["cells"], row["ul_layers"], row["load"], row["measured_s"]) == (2, 1, 0.3, 0.2)
    assert row["ran_works"] is True
    assert row["idle_fraction"] < row["idle_fraction_ul_only"] < 1
    assert 0 < row["ul_offered_load"] < 1
    assert list(row["autocorrelation"]) == [f"{ms:g} ms" for ms in LAGS_MS]
    assert row["autocorrelation"]["1000 ms"] is None, "the run is shorter"
    json.dumps(row, allow_nan=False)


def test_a_full_cell_decodes_on_24_sms():
    """By hand: 237,776 bits (MCS 28 of table 1, 273 PRBs) are 29 code blocks: 8 x 3 of 48 SMs for
    60 + 22 x 29 = 698 us of every 2.5 ms."""
    row = run_case(full_case(1, 0.05)).row
    assert row["sm_share_while_decoding"] == 0.5
    assert row["idle_fraction"] == pytest.approx(1 - 0.5 * 698 / 2500)
    assert (row["delivered_share"], row["ul_offered_load"]) == (None, None)


FULL_BYTES_PER_S = 9_631_200
"""By hand, MCS 17 of table 2 on 273 PRBs of one layer: 24,078 bytes in 400 slots a second."""


def test_an_nr_scope_log_is_replayed():
    """Expected: the bytes of the busiest 2 s after the first 0.2 s, times 200."""
    with (DATA / "nr_scope_dci.csv").open(encoding="utf-8") as lines:
        trace = parse_nr_scope(lines, "log").trace
    begun_us = busiest_window(trace, 2_000_000) + 200_000
    n_bytes = sum(
        arrival.n_bytes
        for arrival in trace.arrivals
        if arrival.direction is Direction.UL and 0 <= arrival.time_us - begun_us < 1_800_000
    )
    row = run_case(nr_scope_case()).row
    assert row["ran_works"]
    assert row["ul_offered_load"] == pytest.approx(200 * n_bytes / 1.8 / FULL_BYTES_PER_S, rel=0.03)


def test_a_commag_log_is_replayed():
    """Expected: the mean of the reported rates from 0.25 to 4.25 s, times 100."""
    with (DATA / "commag_bs.csv").open(encoding="utf-8") as lines:
        rates = [float(row["ul_brate"]) for row in csv.DictReader(lines)][1:17]
    row = run_case(commag_case()).row
    assert row["ran_works"]
    assert row["measured_s"] == 4.05
    assert row["ul_offered_load"] == pytest.approx(
        100 * np.mean(rates) / 8 / FULL_BYTES_PER_S, rel=0.05
    )


@pytest.mark.parametrize(("works", "lengths"), [(True, [1.0, 10.0]), (False, [1.0])])
def test_a_point_whose_ran_fails_is_not_run_for_long(micro, monkeypatch, works, lengths):
    asked: list[float] = []

    def run(case: Case):
        asked.append(case.measured_s)
        return replace(micro, case=case, row={**micro.row, "ran_works": works})

    monkeypatch.setattr(characterise_micro, "run_case", run)
    assert run_point(fgn_case(8, 1, 0.7, 1, 10.0)).case.measured_s == lengths[-1]
    assert asked == lengths


@pytest.mark.parametrize(("failing", "works"), [((), True), ((3,), True), ((1, 3), False)])
def test_points_are_medians_and_work_where_most_seeds_do(micro, failing, works):
    rows = [
        {**micro.row, "seed": seed, "idle_fraction": idle, "ran_works": seed not in failing}
        for seed, idle in ((1, 0.5), (2, 0.9), (3, 0.6))
    ]
    (point,) = over_seeds(rows)
    assert (point["seeds"], point["idle_fraction"], point["ran_works"]) == (3, 0.6, works)
    assert (point["idle_fraction_least"], point["idle_fraction_most"]) == (0.5, 0.9)


def stand_in(micro, case: Case):
    """The run of one case for another: rows that only say so."""
    idle = 1 - 0.05 * case.cells * (1 if case.load is None else case.load)
    row = {
        **micro.row,
        **{key: getattr(case, key) for key in ("traffic", "cells", "ul_layers", "load", "seed")},
        "idle_fraction": idle,
    }
    return replace(micro, case=case, row=row)


def checks_by_name(micro, idle: float | None = None, works: bool = True):
    made = [stand_in(micro, case).row for case in characterise.cases(characterise.QUICK)]
    for row in made:
        row["ran_works"] = works
        row["idle_fraction"] = row["idle_fraction"] if idle is None else idle
    points = over_seeds(row for row in made if row["traffic"] == "fgn files")
    checks = micro_checks(points, [row for row in made if row["traffic"] != "fgn files"])
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("idle", "least", "most"), [(0.3, False, True), (0.6, True, True), (0.9, True, False)]
)
def test_the_papers_band_is_held_against_the_idle_fraction(micro, idle, least, most):
    """Band: 0.40 to 0.85."""
    checks = checks_by_name(micro, idle)
    assert checks["4 cells, loads 0.22-0.58: least idle fraction"].met is least
    assert checks["4 cells, loads 0.22-0.58: most idle fraction"].met is most


def test_idle_time_of_a_failing_ran_has_no_verdict(micro):
    checks = checks_by_name(micro, works=False)
    assert checks["4 cells, loads 0.22-0.58: least idle fraction"].met is None
    share = checks["4 cells, loads 0.22-0.58: share of points where the unshaped RAN works"]
    assert (share.value, share.met) == (0.0, False)


@pytest.fixture
def quick_run(micro, monkeypatch):
    """The command with one run for all cases, in this process."""

    @contextmanager
    def pool():
        class Here:
            def run(self, tasks):
                return [stand_in(micro, *task.arguments) for task in tasks]

        yield Here()

    monkeypatch.setattr(characterise, "pool", pool)
    return lambda *options: CliRunner().invoke(EXPERIMENTS["characterise"], list(options))


def test_the_command_writes_rows_checks_and_pictures(quick_run, tmp_path):
    log = tmp_path / "milan.tsv"
    lines = [
        f"{square}\t{1385910000000 + 600_000 * t}\t39\t\t\t\t\t{1 + (t + 3 * square) % 6}"
        for t in range(6)
        for square in (1, 2)
    ]
    log.write_text("\n".join(lines) + "\n")
    done = quick_run("--quick", "--out", str(tmp_path), "--load", str(log), "--format", "milan")
    assert done.exit_code == 0, done.output
    data = json.loads((tmp_path / "characterise.json").read_text())
    kinds = {row["kind"] for row in data["rows"]}
    assert kinds == {"run", "point", "free_runs", "sites", "variation", "site"}
    (real,) = (row for row in data["rows"] if row["kind"] == "sites" and row["sites"] == 2)
    assert real["source"] == "milan log"
    assert real["complementarity"] == pytest.approx(1 - 9 / 12)
    for name in data["figures"]:
        assert (tmp_path / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(data["figures"]) == 3


def test_a_log_needs_its_format(quick_run, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("")
    done = quick_run("--load", str(log), "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "--load and --format go together" in done.output
