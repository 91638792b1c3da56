"""Run directories: whole, half-dead, and what is none; comparing them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import RanloomError
from testbed.record.compare import compare, compare_summaries
from testbed.record.run_dir import load_run, run_report, summarise_run
from testbed.record.spool import SpoolWriter
from testbed.record.summary import dump_summary, summarise_recording

from .fabricate import TOPOLOGY_TEXT, Fabricated, fabricate


def write_run(directory: Path, run: Fabricated, manifest: bool = True) -> Path:
    directory.mkdir(parents=True)
    (directory / "topology.toml").write_text(TOPOLOGY_TEXT)
    if manifest:
        (directory / "manifest.json").write_text(json.dumps(run.manifest))
    with SpoolWriter(directory / "spool.bin") as spool:
        for message in (*run.batches, *run.decisions):
            spool.append(message)
    return directory


def test_a_report_from_the_spool_and_again_from_the_tables(
    live: Fabricated, tmp_path: Path
) -> None:
    """The figures are also those of the scope by hand: the topology says the same."""
    run = write_run(tmp_path / "run", live)
    summary = run_report(run)
    by_scope = summarise_recording(live.recording())
    for section in ("fidelity", "ran", "faults"):
        assert summary[section] == by_scope[section]
    assert summary["spare"]["utilisation"] == by_scope["spare"]["utilisation"]
    assert summary["training"]["tokens_per_s"] == by_scope["training"]["tokens_per_s"]
    assert summary["spare"]["efficiency"] > 0
    assert summary["run"]["missing"] == []
    names = {path.name for path in run.iterdir()}
    assert names >= {"summary.json", "report.html", "figures", "trace.json.gz", "tables"}
    assert {path.name for path in (run / "figures").iterdir()} == {
        f"{name}.{form}"
        for name in ("overview", "timeline-north", "timeline-south")
        for form in ("png", "svg")
    }
    written = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    (run / "spool.bin").unlink()
    assert run_report(run) == summary
    again = {path: path.read_bytes() for path in written if path.name != "spool.bin"}
    assert all(written[path] == data for path, data in again.items())
    assert json.loads((run / "summary.json").read_text()) == summary


def test_a_run_that_died_half_way(live: Fabricated, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", live, manifest=False)
    with (run / "spool.bin").open("r+b") as file:
        file.truncate((run / "spool.bin").stat().st_size * 2 // 3)
    summary = run_report(run)
    missing = "\n".join(summary["run"]["missing"])
    assert "manifest.json" in missing
    assert "bytes were dropped (torn" in missing
    assert summary["run"]["complete"] is False
    assert summary["run"]["outcome"]["status"] == "unknown"
    page = (run / "report.html").read_text()
    assert "bytes were dropped" in page


def test_a_run_that_recorded_nothing(tmp_path: Path) -> None:
    (tmp_path / "topology.toml").write_text(TOPOLOGY_TEXT)
    assert any("nothing was recorded" in line for line in load_run(tmp_path).missing)
    (tmp_path / "spool.bin").write_bytes(b"")
    summary = summarise_run(tmp_path)
    assert len(summary["run"]["missing"]) == 1  # the manifest
    assert summary["run"]["measured_us"] == 0
    assert summary["fidelity"]["verdict"] == "unknown"


def test_what_was_dropped_is_said_again_and_a_run_that_went_on_is_read_again(
    live: Fabricated, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", live)
    whole = (run / "spool.bin").read_bytes()
    (run / "spool.bin").write_bytes(whole[:-1])
    first, second = load_run(run), load_run(run)
    assert first.missing == second.missing != ()
    (run / "spool.bin").write_bytes(whole)
    assert load_run(run).missing == ()


def test_a_trace_file_that_is_gone_does_not_stop_the_report(tmp_path: Path) -> None:
    kind = '{ kind = "trace", path = "gone.csv" }'
    text = TOPOLOGY_TEXT.replace('{ kind = "ftp3", load = 0.4 }', kind)
    (tmp_path / "topology.toml").write_text(text)
    assert load_run(tmp_path).topology.name == "fabricated"


def test_what_is_no_run_directory_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RanloomError, match="not a run directory"):
        run_report(tmp_path)
    with pytest.raises(RanloomError, match="no such directory"):
        run_report(tmp_path / "nowhere")
    (tmp_path / "topology.toml").write_text(TOPOLOGY_TEXT)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RanloomError, match=r"manifest\.json: not JSON"):
        run_report(tmp_path)
    (tmp_path / "topology.toml").write_text("name = 3\n")
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(RanloomError, match=r"topology\.toml"):
        run_report(tmp_path)


def test_a_directory_that_cannot_be_written_is_named(live: Fabricated, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", live)
    (run / "tables").write_text("in the way")
    with pytest.raises(RanloomError, match="tables: cannot write"):
        run_report(run)


# --- comparing ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return summarise_recording(fabricate(600).recording())


def changed(summary: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(summary))
    *parents, last = path.split(".")
    at = copy
    for key in parents:
        at = at[key]
    at[last] = value
    return copy


def test_the_first_run_is_one(summary: dict[str, Any]) -> None:
    tokens = summary["training"]["tokens_per_s"]
    other = changed(summary, "training.tokens_per_s", 1.5 * tokens)
    rows = {row.figure: row for row in compare_summaries(("a", "b"), [summary, other]).rows}
    assert rows["training.tokens_per_s"].ratios == (1.0, 1.5)
    assert rows["training.tokens_per_s"].differences[1] == pytest.approx(0.5 * tokens, abs=1e-5)
    misses = rows["ran.deadline_miss_rate.ul"]
    assert (misses.ratios, misses.note) == ((1.0, None), "0 in the first run")
    assert "spare.usable_fraction.1000" in rows


def test_throughput_ratio_is_of_the_bytes_that_settled_in_both_directions(
    summary: dict[str, Any],
) -> None:
    first = changed(summary, "ran.settled_bytes", {"dl": 600, "ul": 400})
    other = changed(summary, "ran.settled_bytes", {"dl": 590, "ul": 390})
    rows = {row.figure: row for row in compare_summaries(("a", "b"), [first, other]).rows}
    row = rows["ran.throughput_ratio"]
    assert (row.values, row.ratios, row.differences) == ((1.0, 0.98), (1.0, 0.98), (0.0, -0.02))
    assert rows["ran.settled_bytes.ul"].ratios == (1.0, 0.975)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("ran.settled_bytes", {"dl": None, "ul": None}, "nothing was settled"),
        ("ran.settled_until_us", 7, "settle at different times"),
    ],
)
def test_throughput_ratio_that_means_nothing_says_why(
    summary: dict[str, Any], path: str, value: Any, told: str
) -> None:
    first = changed(summary, "ran.settled_bytes", {"dl": 600, "ul": 400})
    other = changed(first, path, value)
    row = {row.figure: row for row in compare_summaries(("a", "b"), [first, other]).rows}[
        "ran.throughput_ratio"
    ]
    assert row.values == (None, None)
    assert told in row.note


def test_a_gain_over_next_to_nothing_is_not_given(summary: dict[str, Any]) -> None:
    small = changed(summary, "spare.usable_fraction.1000", 0.04)
    rows = {row.figure: row for row in compare_summaries(("a", "b"), [small, summary]).rows}
    row = rows["spare.usable_fraction.1000"]
    assert (row.ratios[1], row.note) == (None, "below 0.05 in the first run")
    assert row.differences[1] is not None


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("run.arrivals.seed", 2, "b against a: seed 2 is not 1"),
        ("run.arrivals.traffic", {"cell 0": {}}, "the traffic of cell 0 differs"),
        ("run.measured_us", 5, "measured_us 5 is not 200000"),
        ("run.arrivals.arrived_bytes.cell 0 ul", 7, "cell 0 ul had 7 bytes arrive, not"),
    ],
)
def test_runs_of_other_arrivals_are_refused(
    summary: dict[str, Any], path: str, value: Any, reason: str
) -> None:
    with pytest.raises(RanloomError, match=reason):
        compare_summaries(("a", "b"), [summary, changed(summary, path, value)])


def test_doubts_are_said(summary: dict[str, Any]) -> None:
    other = changed(summary, "fidelity.verdict", "outside its bounds")
    other = changed(other, "run.complete", False)
    other = changed(other, "run.host", {"cpus": 64})
    doubts = "\n".join(compare_summaries(("a", "b"), [summary, other]).doubts)
    assert "b: fidelity" in doubts
    assert "did not end as planned" in doubts
    assert "different machines" in doubts


def test_compare_reads_directories_and_computes_missing_summaries(tmp_path: Path) -> None:
    run = fabricate(300)
    one, two = (write_run(tmp_path / name, run) for name in ("one", "two"))
    (two / "summary.json").write_text(dump_summary(summarise_run(one)))
    comparison = compare([one, two])
    assert all(row.ratios[1] in (1.0, None) for row in comparison.rows)
    (two / "summary.json").write_text('{"schema_version": 0}')
    with pytest.raises(RanloomError, match="schema_version 0; this version reads 1"):
        compare([one, two])
    with pytest.raises(RanloomError, match="at least two"):
        compare([one])
