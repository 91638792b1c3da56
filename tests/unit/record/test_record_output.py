"""Figures, trace, page and terminal: deterministic, self-contained, and true to the tables."""

from __future__ import annotations

import gzip
import io
import json
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from testbed.record.chrome_trace import chrome_trace, trace_events
from testbed.record.figures import overview_figure, timeline_figure, timeline_window
from testbed.record.recording import Recording
from testbed.record.report import print_summary, render_html
from testbed.record.report_tables import tables, verdict
from testbed.record.summary import summarise_recording

from .fabricate import SLOT_US
from .handmade import by_hand


@pytest.fixture(scope="module")
def summary(recording: Recording) -> dict[str, Any]:
    return summarise_recording(recording)


# --- figures ------------------------------------------------------------------------------------


def test_the_window_begins_a_slot_before_an_uplink_decode(recording: Recording) -> None:
    start_us, end_us = timeline_window(recording, "north")
    assert end_us - start_us == 20_000
    assert start_us >= recording.from_us
    tasks = recording.timelines["north"].tasks
    begins = tasks.filter(tasks["direction"] == 1)["start_us"].to_list()
    assert any(start_us <= begin < start_us + 2 * SLOT_US for begin in begins)


def test_figures_are_the_same_bytes_each_time(recording: Recording) -> None:
    one = timeline_figure(recording, "south", 198_000, 218_000, 20)
    two = timeline_figure(recording, "south", 198_000, 218_000, 20)
    assert one == two
    assert one.png.startswith(b"\x89PNG")
    for text in ("south: gb10, 48 SMs", "injected fault", "RAN uplink", "lease"):
        assert text in one.svg
    assert "<dc:date>" not in one.svg


def test_figures_of_runs_with_nothing_in_them() -> None:
    empty = by_hand({})
    assert timeline_figure(empty, "one", *timeline_window(empty, "one")).svg
    assert "no step committed" in overview_figure(empty).svg
    no_job = by_hand({}, {}, jobs=(), trainers={}, mode="sim")
    assert overview_figure(no_job).svg


# --- trace --------------------------------------------------------------------------------------


def test_slices_of_a_track_nest_and_spans_are_closed(recording: Recording) -> None:
    events = trace_events(recording, recording.from_us, recording.to_us)
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    opened: dict[tuple[int, str, str], int] = {}
    for event in events:
        if event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            tracks.setdefault((event["pid"], event["tid"]), []).append(span)
        elif event["ph"] in "be":
            key = (event["pid"], event["cat"], str(event["id"]))
            opened[key] = opened.get(key, 0) + (1 if event["ph"] == "b" else -1)
    assert set(opened.values()) == {0}
    assert len(tracks) == 4  # quanta and trainer of each site
    for spans in tracks.values():
        stack: list[tuple[int, int]] = []
        for start, end in spans:
            while stack and stack[-1][1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1][1]
            stack.append((start, end))


def test_the_trace_is_the_same_bytes_each_time_and_says_its_window(recording: Recording) -> None:
    packed = chrome_trace(recording)
    assert packed == chrome_trace(recording)
    document = json.loads(gzip.decompress(packed))
    assert document["otherData"]["window_us"] == [recording.from_us, recording.to_us]
    names = {event["args"]["name"] for event in document["traceEvents"] if event["ph"] == "M"
             and event["name"] == "process_name"}  # fmt: skip
    assert names == {"coordinator", "site north", "site south"}


def test_a_trace_that_would_be_too_large_is_cut_to_a_shorter_window(recording: Recording) -> None:
    document = json.loads(gzip.decompress(chrome_trace(recording, most_events=2000)))
    assert 500 < len(document["traceEvents"]) <= 2000
    start_us, end_us = document["otherData"]["window_us"]
    assert start_us == recording.from_us
    assert end_us < recording.to_us


# --- page and terminal --------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects what a page would load, and checks that its tags are balanced."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for key, value in attrs:
            local = (value or "").startswith(("#", "data:"))
            if key in ("src", "href", "xlink:href") and value and not local:
                self.loads.append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_begins_with_the_verdict(
    recording: Recording, summary: dict[str, Any]
) -> None:
    figures = {"overview": overview_figure(recording).svg}
    text = render_html(summary, figures, recording.tables["decisions"].rows(named=True))
    page = Page(text)
    assert page.loads == []
    assert page.open == []
    assert "url(http" not in text
    assert "<script" not in text
    order = ["fidelity: within bounds", "<h2>Goals", "<h2>Where the idle", "one by one"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "the measured interval is over" in text


def test_names_are_escaped(summary: dict[str, Any]) -> None:
    run = summary["run"] | {"name": "<b>x</b>"}
    assert "<b>x</b>" not in render_html(summary | {"run": run}, {})


def test_every_row_has_a_unit_and_one_value_per_column(summary: dict[str, Any]) -> None:
    found = tables(summary)
    assert {table.title for table in found} >= {"Spare compute", "Radio", "Training", "Fidelity"}
    for table in found:
        assert table.scope
        for row in table.rows:
            assert len(row.values) == len(table.columns)
            assert row.unit or row.label == "clock"


def shown(summary: dict[str, Any]) -> str:
    out = io.StringIO()
    print_summary(summary, Console(file=out, width=120, force_terminal=False))
    return out.getvalue()


def test_the_terminal_says_the_verdict_first(summary: dict[str, Any]) -> None:
    lines = shown(summary).splitlines()
    assert lines[0] == "fidelity: within bounds"
    assert "run: done" in lines[2]
    assert any("violation at 200.100 ms: south" in line for line in lines)


def test_a_run_out_of_bounds_says_why_in_its_first_line() -> None:
    late = [{"slot": s, "at_us": 500 * s, "lateness_us": 300} for s in range(22)]
    recording = by_hand(
        {"lateness": late}, {"outcome": {"status": "failed", "reason": "trainer [x] was killed"}}
    )
    summary = summarise_recording(recording)
    first = verdict(summary)
    assert (first.good, first.outcome_good) == (False, False)
    lines = shown(summary).splitlines()
    assert lines[0].startswith("fidelity: one.g1.mac kept 0.00% of its slots on time")
    assert "run: failed: trainer [x] was killed" in shown(summary)


def test_a_simulated_run_has_a_page_and_a_terminal_summary(simulated: Recording) -> None:
    summary = summarise_recording(simulated)
    assert "Virtual time" in render_html(summary, {})
    assert shown(summary).startswith("fidelity: within bounds")


def test_an_empty_run_has_them_too() -> None:
    for recording in (by_hand({}), by_hand({}, {}, jobs=(), trainers={})):
        summary = summarise_recording(recording)
        assert Page(render_html(summary, {})).open == []
        assert shown(summary)
