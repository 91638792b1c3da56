"""``faults``: what was injected, which processes died and came back, what the tables show of it."""

from __future__ import annotations

from typing import Any

import polars as pl

from testbed.record.fates import FAULT
from testbed.record.measure.numbers import Figures, put
from testbed.record.recording import Recording
from testbed.record.schema import MemberEvent, SampleEvent, StepEvent

_DEATH, _RESTART = "death", "restart"


def faults(recording: Recording) -> Figures:
    """The section. ``injected`` and ``deaths`` are by the manifest, ``seen`` by the tables;
    ``rows_lost``: a trainer died with rows that it had not sent yet."""
    noted = recording.manifest.get("faults") or []
    deaths = _deaths(recording, noted)
    trainers = {death["node"] for death in deaths} & set(recording.scope.trainers)
    lost = any(change.event is MemberEvent.LOST for change in recording.member_changes)
    return {
        "injected": [fault for fault in noted if fault.get("kind") not in (_DEATH, _RESTART)],
        "deaths": deaths,
        "rows_lost": not recording.scope.simulated and (lost or bool(trainers)),
        "seen": _seen(recording),
    }


def _deaths(recording: Recording, noted: list[dict[str, Any]]) -> list[Figures]:
    """Each death with what became of the node's next life, in order of time."""
    lives = {(f["node"], f["life"]): f for f in noted if f.get("kind") == _DEATH}
    ready = {(f["node"], f["life"]): f for f in noted if f.get("kind") == _RESTART}
    rows = []
    for (node, life), death in lives.items():
        row: Figures = {key: death[key] for key in ("at_us", "node", "life", "reason", "restarted")}
        again = ready.get((node, life + 1), {})
        ends = lives.get((node, life + 1))
        until = "it died" if ends else "the run ended"
        why = "it was not started again"
        if death["restarted"]:
            why = f"life {life + 1} was not ready when {until}"
        put(row, "ready_at_us", again.get("at_us"), why)
        put(row, "start_wall_ms", again.get("start_wall_ms"), why)
        healed_us: list[int] = []
        if again:
            why = f"it had not taken the state when {until}"
            healed_us = [
                change.at_us
                for change in recording.member_changes
                if change.node == node
                and change.event is MemberEvent.HEALED
                and change.at_us >= again["at_us"]
                and (ends is None or change.at_us <= ends["at_us"])
            ]
        put(row, "healed_at_us", min(healed_us, default=None), why)
        rows.append(row)
    return sorted(rows, key=lambda row: (row["at_us"], row["node"], row["life"]))


def _seen(recording: Recording) -> list[dict[str, Any]]:
    """What went wrong in the tables, in order of time."""
    seen: list[dict[str, Any]] = []
    for site, timeline in recording.timelines.items():
        for row in timeline.quanta.filter(pl.col("fate") == FAULT).iter_rows(named=True):
            what = f"held {row['sms']} SMs for {row['end_us'] - row['start_us']} us"
            seen.append({"at_us": row["start_us"], "where": site, "what": f"late quantum {what}"})
    names = {job.index: job.name for job in recording.scope.jobs}
    for row in recording.tables["steps"].iter_rows(named=True):
        words = {
            StepEvent.ABANDONED: "abandoned",
            StepEvent.REGROUPED: f"goes on in epoch {row['epoch']}",
        }
        if row["event"] in words:
            where = names.get(row["job"], f"job {row['job']}")
            what = f"step {row['step']} {words[row['event']]}"
            seen.append({"at_us": row["at_us"], "where": where, "what": what})
    for change in recording.member_changes:
        what = f"{change.node} {change.text}"
        seen.append({"at_us": change.at_us, "where": change.job.name, "what": what})
    samples = recording.tables["samples"]
    refused = samples.filter(pl.col("event") == SampleEvent.DUPLICATE)
    for row in refused.iter_rows(named=True):
        where = names.get(row["job"], f"job {row['job']}")
        what = f"late result of sample {row['sample']} refused"
        seen.append({"at_us": row["at_us"], "where": where, "what": what})
    return sorted(seen, key=lambda item: (item["at_us"], item["where"], item["what"]))
