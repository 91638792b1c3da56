"""Tiny recordings with rows written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from protocols.messages import TableBatch
from testbed.record.recording import Recording
from testbed.record.schema import TABLES
from testbed.record.scope import CellScope, JobScope, RunScope, SiteScope
from testbed.record.tables import build_tables

from .fabricate import GPU

SITE = SiteScope(
    name="one",
    gpu=GPU,
    cells=(CellScope(0, "cell 0", "DDDSU", 500, 4),),
    nodes=("one.agent", "one.g1.mac", "one.g1.phy", "one.job.trainer"),
)
SCOPE = RunScope(
    name="hand",
    mode="live",
    seed=1,
    time_scale=20.0,
    warmup_us=1000,
    measured_us=10_000,
    sites=(SITE,),
    jobs=(JobScope("job", 0, ("one",), 100, 1000, {"one": 50_000.0}),),
    trainers={"one.job.trainer": 0},
)
WRITER = {
    "ran_tasks": "one.agent",
    "ran_pieces": "one.agent",
    "promises": "one.agent",
    "ran_emergencies": "one.agent",
    "leases": "one.agent",
    "quanta": "one.job.trainer",
    "trainer_events": "one.job.trainer",
    "steps": "coordinator",
    "membership": "coordinator",
    "samples": "coordinator",
}
DONE = {"outcome": {"status": "done", "reason": ""}}


def by_hand(
    rows: Mapping[str | tuple[str, str], list[dict[str, int]]],
    manifest: dict[str, Any] | None = None,
    **changes: Any,
) -> Recording:
    """A recording of one site; columns that a row leaves out are 0. ``changes``: of the scope.

    ``rows`` are by table, or by table and the node that wrote them where it isn't the usual one.
    """
    batches = []
    if "ran_tasks" in rows:
        rows = {**rows, "ran_pieces": [p for row in rows["ran_tasks"] for p in pieces(row)]}
    for key, found in rows.items():
        table, node = (key, WRITER.get(key, "one.g1.mac")) if isinstance(key, str) else key
        unknown = {key for row in found for key in row} - set(TABLES[table])
        assert not unknown, unknown
        columns = {
            name: np.array([row.get(name, 0) for row in found], dtype=np.int64)
            for name in TABLES[table]
        }
        batches.append(TableBatch(node, table, columns))
    scope = replace(SCOPE, **changes)
    return Recording(scope, DONE if manifest is None else manifest, build_tables(batches))


def pieces(row: dict[str, int]) -> list[dict[str, int]]:
    """The two pieces of a task whose SMs do not change: as reserved, and as run."""
    planned = (1, row["planned_start_us"], row["planned_end_us"], row["wanted_sms"])
    run = (0, row["start_us"], row["end_us"], row["sms"])
    names = ("planned", "from_us", "to_us", "sms")
    return [dict(zip(names, values, strict=True)) for values in (planned, run)]


def quantum(start_us: int, end_us: int, **more: int) -> dict[str, int]:
    """A quantum that ended as modelled, unless ``more`` says otherwise."""
    return {"start_us": start_us, "end_us": end_us, "modelled_end_us": end_us, "sms": 48} | more


def task(start_us: int, end_us: int, **more: int) -> dict[str, int]:
    """A PHY task of 16 SMs that ran as planned, unless ``more`` says otherwise."""
    row = {"start_us": start_us, "end_us": end_us, "modelled_end_us": end_us, "sms": 16}
    row |= {"planned_start_us": start_us, "planned_end_us": end_us, "deadline_us": end_us}
    row |= {"direction": 1, "wanted_sms": 16}
    return row | more
