"""``trace.json.gz``: a window of the run for Perfetto or chrome://tracing.

One process per site (RAN tasks, quanta, trainer, counters) and one for the coordinator. Slices on
a track nest or follow each other, as the viewers need it: what overlaps is an asynchronous span.
Per-slot values are counters. The same recording gives the same bytes (no time stamp in the gzip).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from protocols.messages import UPLINK
from testbed.gpu.quanta import QuantumKind
from testbed.gpu.spare import Steps, TrainerState, edges, overlaps
from testbed.record.recording import Recording, SiteTimeline
from testbed.record.schema import StepEvent
from testbed.record.tables import NODE

MOST_EVENTS = 300_000
"""More than this makes viewers slow or fail; the window is cut until it fits."""

Event = dict[str, Any]
_COORDINATOR = 1


def chrome_trace(
    recording: Recording,
    from_us: int | None = None,
    to_us: int | None = None,
    most_events: int = MOST_EVENTS,
) -> bytes:
    """The gzipped trace of [from_us, to_us), by default of the measured interval.

    Where that is more than ``most_events`` events the window is halved until it fits; the trace's
    ``otherData`` says which window it is.
    """
    start_us = recording.from_us if from_us is None else from_us
    end_us = recording.to_us if to_us is None else to_us
    events = trace_events(recording, start_us, end_us)
    while len(events) > most_events and end_us - start_us > 1:
        end_us = start_us + (end_us - start_us) // 2
        events = trace_events(recording, start_us, end_us)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "run": recording.scope.name,
            "seed": recording.scope.seed,
            "mode": recording.scope.mode,
            "window_us": [start_us, end_us],
            "time": "emulated microseconds since the run's epoch",
        },
        "traceEvents": events,
    }
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def trace_events(recording: Recording, from_us: int, to_us: int) -> list[Event]:
    """The events that touch [from_us, to_us), metadata first, then by time."""
    meta: list[Event] = list(_process(_COORDINATOR, "coordinator", {1: "steps"}))
    events: list[Event] = list(_steps(recording, from_us, to_us))
    for pid, timeline in enumerate(recording.timelines.values(), start=_COORDINATOR + 1):
        names = {1: "quanta", 2: "trainer"}
        meta += _process(pid, f"site {timeline.site.name}", names)
        events += _tasks(timeline, pid, from_us, to_us)
        events += _quanta(timeline, pid, from_us, to_us)
        events += _trainer(timeline, pid, from_us, to_us)
        for name, steps in (("RAN SMs", timeline.ran), ("leased SMs", timeline.lease)):
            events += _counter(pid, name, steps, from_us, to_us)
        events += _promises(recording, timeline, pid, from_us, to_us)
        events += _overlaps(timeline, pid, from_us, to_us)
        events += _members(recording, timeline, pid, from_us, to_us)
    # Of spans that begin together the longer one comes first, so that they nest.
    events.sort(key=lambda event: (event["ts"], event["pid"], -event.get("dur", 0)))
    return meta + events


def _process(pid: int, name: str, threads: dict[int, str]) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    for tid, text in threads.items():
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": text}}


def _within(frame: pl.DataFrame, from_us: int, to_us: int) -> Iterable[dict[str, Any]]:
    shown = frame.filter((pl.col("start_us") < to_us) & (pl.col("end_us") > from_us))
    return shown.sort("start_us", "end_us").iter_rows(named=True)


def _tasks(timeline: SiteTimeline, pid: int, from_us: int, to_us: int) -> Iterator[Event]:
    """RAN tasks: asynchronous spans, since tasks of one cell may overlap."""
    for number, row in enumerate(_within(timeline.tasks, from_us, to_us)):
        way = "UL" if row["direction"] == UPLINK else "DL"
        args = {
            "air_slot": row["air_slot"],
            "code_blocks": row["code_blocks"],
            "n_prb": row["n_prb"],
            "sms": row["sms"],
            "wanted_sms": row["wanted_sms"],
            "planned_us": [row["planned_start_us"], row["planned_end_us"]],
            "to_deadline_us": row["deadline_us"] - row["modelled_end_us"],
        }
        same = {"cat": "ran", "name": f"{way} cell {row['cell']}", "pid": pid, "id": number}
        yield {**same, "ph": "b", "ts": row["start_us"], "args": args}
        yield {**same, "ph": "e", "ts": row["end_us"]}


def _quanta(timeline: SiteTimeline, pid: int, from_us: int, to_us: int) -> Iterator[Event]:
    """Quanta: slices of one track; one that overlaps the one before is an asynchronous span."""
    kinds = {kind.value: kind.name.lower() for kind in QuantumKind}
    busy_until_us = from_us - 1
    for number, row in enumerate(_within(timeline.quanta, from_us, to_us)):
        kind = kinds.get(row["kind"], str(row["kind"]))
        args = {
            "sms": row["sms"],
            "step": row["step"],
            "fate": row["fate"],
            "real_us": row["real_us"],
            "over_model_us": row["end_us"] - row["modelled_end_us"],
        }
        name, start_us, end_us = f"{kind} {row['block']}", row["start_us"], row["end_us"]
        if start_us >= busy_until_us:
            busy_until_us = end_us
            yield {
                "ph": "X", "cat": "quantum", "name": name, "pid": pid, "tid": 1,
                "ts": start_us, "dur": end_us - start_us, "args": args,
            }  # fmt: skip
            continue
        same = {"cat": "quantum", "name": name, "pid": pid, "id": f"q{number}"}
        yield {**same, "ph": "b", "ts": start_us, "args": args}
        yield {**same, "ph": "e", "ts": end_us}


def _trainer(timeline: SiteTimeline, pid: int, from_us: int, to_us: int) -> Iterator[Event]:
    for start_us, end_us, value in _pieces(timeline.state, from_us, to_us):
        if value != TrainerState.IDLE:
            yield {
                "ph": "X", "cat": "trainer", "name": TrainerState(value).name.lower(), "pid": pid,
                "tid": 2, "ts": start_us, "dur": end_us - start_us,
            }  # fmt: skip


def _counter(pid: int, name: str, steps: Steps, from_us: int, to_us: int) -> Iterator[Event]:
    for start_us, _, value in _pieces(steps, from_us, to_us):
        yield {"ph": "C", "name": name, "pid": pid, "ts": start_us, "args": {"SMs": value}}


def _promises(
    recording: Recording, timeline: SiteTimeline, pid: int, from_us: int, to_us: int
) -> Iterator[Event]:
    rows = recording.rows("promises", timeline.site).filter(
        pl.col("at_us").is_between(from_us, to_us, closed="left")
    )
    for row in rows.sort("at_us").iter_rows(named=True):
        args = {
            name.removeprefix("within_"): value
            for name, value in row.items()
            if name.startswith("within_")
        }
        yield {
            "ph": "C",
            "name": "promised to the RAN",
            "pid": pid,
            "ts": row["at_us"],
            "args": args,
        }


def _overlaps(timeline: SiteTimeline, pid: int, from_us: int, to_us: int) -> Iterator[Event]:
    sms = timeline.site.sms
    for item in overlaps(timeline.wanted, timeline.running, sms, from_us, to_us):
        yield {
            "ph": "i", "s": "p", "cat": "overlap", "name": f"overlap {item.duration_us} us",
            "pid": pid, "tid": 1, "ts": item.start_us, "args": {"sms": item.most_sms},
        }  # fmt: skip


def _members(
    recording: Recording, timeline: SiteTimeline, pid: int, from_us: int, to_us: int
) -> Iterator[Event]:
    """Where the site's trainers were lost and came back."""
    for change in recording.member_changes:
        if change.site == timeline.site.name and from_us <= change.at_us < to_us:
            yield {
                "ph": "i", "s": "p", "cat": "member", "name": f"{change.node} {change.text}",
                "pid": pid, "tid": 2, "ts": change.at_us, "args": {"epoch": change.epoch},
            }  # fmt: skip


def _steps(recording: Recording, from_us: int, to_us: int) -> Iterator[Event]:
    """Training steps from assignment to commit, or to where they were abandoned; instants where
    they went on in another epoch."""
    names = {job.index: job.name for job in recording.scope.jobs}
    ends = (StepEvent.COMMITTED, StepEvent.ABANDONED)
    begun: dict[tuple[int, int], int] = {}
    rows = recording.tables["steps"].sort("at_us", NODE, "job", "step", "event")
    for row in rows.iter_rows(named=True):
        key = (row["job"], row["step"])
        if row["event"] == StepEvent.ASSIGNED:
            begun.setdefault(key, row["at_us"])
        elif row["event"] == StepEvent.REGROUPED and from_us <= row["at_us"] < to_us:
            name = f"{names.get(row['job'], row['job'])} step {row['step']} regrouped"
            yield {
                "ph": "i", "s": "p", "cat": "step", "name": name, "pid": _COORDINATOR, "tid": 1,
                "ts": row["at_us"], "args": {"epoch": row["epoch"]},
            }  # fmt: skip
        elif row["event"] in ends and key in begun:
            start_us = begun.pop(key)
            if start_us < to_us and row["at_us"] > from_us:
                fate = StepEvent(row["event"]).name.lower()
                same = {
                    "cat": "step",
                    "name": f"{names.get(row['job'], row['job'])} step {row['step']}",
                    "pid": _COORDINATOR,
                    "id": f"s{row['job']}.{row['epoch']}.{row['step']}",
                }
                yield {**same, "ph": "b", "ts": start_us, "args": {"fate": fate}}
                yield {**same, "ph": "e", "ts": row["at_us"]}


def _pieces(steps: Steps, from_us: int, to_us: int) -> Iterator[tuple[int, int, int]]:
    if to_us <= from_us:
        return
    points = edges(from_us, to_us, steps)
    values = steps.at(points[:-1]).tolist()
    last: tuple[int, int, int] | None = None
    for start_us, end_us, value in zip(points.tolist(), points[1:].tolist(), values, strict=False):
        if last is not None and last[2] == value:
            last = (last[0], end_us, value)
            continue
        if last is not None:
            yield last
        last = (start_us, end_us, value)
    if last is not None:
        yield last
