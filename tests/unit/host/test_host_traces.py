"""import-trace from file to file, and load profiles."""

import json

import pytest
from click.testing import CliRunner

import run
from testbed.errors import TraceError
from testbed.host.traces import load_profile
from testbed.ran.importers.common import ReadOptions
from testbed.ran.traces import load_trace

PLAIN = "time_s,cell,dl_bytes,ul_bytes\n0,a,3000,10\n1,a,1500,0\n0,b,1,1\n1,b,1,1\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with a plain log in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(PLAIN)
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(run.main, ["import-trace", *arguments, "-o", "trace.csv"])


def test_a_log_becomes_a_trace(place):
    done = invoke("log.csv", "--format", "plain", "--cell", "a", "--ues", "2")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "trace.csv: 4 arrivals in 1.50 s, DL 4500 bytes, UL 10 bytes",
        "busiest 2 s begin at 0.250 s",
        "4 rows, cells a of 2, 2 s logged",
    ]
    # 3000 bytes of the first second at 1/4 and 3/4, 10 at the middle, then 1500 at 1.5 s.
    with (place / "trace.csv").open() as lines:
        trace = load_trace(lines, "trace.csv")
    assert [(a.time_us, a.rnti, a.direction.value, a.n_bytes) for a in trace.arrivals] == [
        (250_000, 1, "DL", 1500),
        (500_000, 1, "UL", 10),
        (750_000, 2, "DL", 1500),
        (1_500_000, 2, "DL", 1500),
    ]


def test_bad_rows_are_reported(place):
    with (place / "log.csv").open("a") as log:
        log.write("x,a,1,1\n" * 7)
    options = ("log.csv", "--format", "plain", "--cell", "a")
    refused = invoke(*options)
    assert refused.exit_code == 2
    assert "error: log.csv, line 6, column time_s: value 'x', allowed is" in refused.output
    done = invoke(*options, "--bad-rows", "skip")
    assert done.exit_code == 0
    assert "7 bad rows skipped:" in done.output
    assert "  log.csv, line 10, column time_s" in done.output
    assert "  and 2 more" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("log.csv", "--format", "plain"), "the log has 2 cells, choose one (--cell): a, b"),
        (("none.csv", "--format", "plain"), "cannot read none.csv: "),
        (("log.csv", "--format", "plain", "--clock", "frame"), "is for NR-Scope logs alone"),
        (("log.csv", "--format", "nr-scope"), "log.csv, line 1: not an NR-Scope DCI log"),
        (("log.csv", "log.csv", "--format", "nr-scope"), "an NR-Scope log is one file"),
        (("log.csv", "--format", "nr-scope", "--ues", "3"), "an NR-Scope log has exact arrivals"),
        (("log.csv", "--format", "nr-scope", "--cell", "a"), "an NR-Scope log holds one cell"),
        (("log.csv", "--format", "plain", "--file-bytes", "0"), "file_bytes = 0: allowed is 1"),
    ],
)
def test_what_cannot_be_imported_is_refused(place, arguments, message):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert not (place / "trace.csv").exists()


def test_profile_of_files(place):
    profile = load_profile(place / "log.csv", "plain")
    assert profile.cell.tolist() == ["a", "b", "a", "b"]
    assert profile.dl_bytes.tolist() == [3000, 1, 1500, 1]
    one = load_profile([place / "log.csv"], "plain", ReadOptions(cells=("b",)))
    assert one.cell.tolist() == ["b", "b"]
    # A byte order mark, as spreadsheets write it, is no part of the header.
    (place / "marked.csv").write_text(PLAIN, encoding="utf-8-sig")
    assert load_profile(place / "marked.csv", "plain").time_s.tolist() == [0, 0, 1, 1]


def test_profile_of_several_files(place):
    for day in (0, 1):
        report = {"timestamp": 10 + day, "cells": [{"ue_list": [
            {"pci": 4, "rnti": 1, "dl_brate": 80, "ul_brate": 8}
        ]}]}  # fmt: skip
        (place / f"{day}.json").write_text(json.dumps(report))
    profile = load_profile([place / "0.json", place / "1.json"], "srsran")
    assert (profile.time_s.tolist(), profile.dl_bytes.tolist()) == ([0, 1], [10, 10])


def test_profile_of_a_binary_file_is_an_error_of_the_trace(place):
    (place / "log.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match=r"cannot read .*log\.bin: 'utf-8' codec"):
        load_profile(place / "log.bin", "plain")
