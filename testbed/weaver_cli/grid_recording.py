"""A bench run as the recording of a run: the same figures by the same code as ``summary.json``.

Owns the step from the bench's arrays to the tables of the schema; computes no figure.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from testbed.ran.config import CellConfig
from testbed.record.from_topology import scope_of
from testbed.record.recording import Recording
from testbed.record.tables import NODE, empty_tables, schema_of
from testbed.shaping.arrays import Ints
from testbed.slotbench.results import BenchRun, Table
from testbed.slotbench.scenario import DIRECTIONS, BenchScenario
from testbed.topology.views import node_name

_DONE = {"outcome": {"status": "done"}}


def recording_of(scenario: BenchScenario, run: BenchRun) -> Recording:
    """The recording that the figures of ``summary.json`` are computed from.

    Without message, lateness and training tables: the bench has none of these.
    """
    agent = node_name(scenario.site, "agent")
    mac = node_name(scenario.site, scenario.gnb, "mac")
    sdus, cells = run.sdus, run.setup.cells
    tables = empty_tables() | {
        "ran_tasks": _frame("ran_tasks", agent, _tasks(run)),
        "ran_pieces": _frame("ran_pieces", agent, _pieces(run)),
        "promises": _frame("promises", agent, _promises(run)),
        "ran_emergencies": _frame("ran_emergencies", agent, _emergencies(run)),
        "sdus": _frame("sdus", mac, _columns(sdus) | {"five_qi": five_qi_of(cells, sdus)}),
        "blocks": _frame("blocks", mac, _columns(run.blocks)),
        "ran_counters": _frame("ran_counters", mac, _counters(run)),
        "ue_backlogs": _frame("ue_backlogs", mac, _backlogs(run)),
    }
    return Recording(scope_of(scenario.topology, _DONE), _DONE, tables)


def five_qi_of(cells: tuple[CellConfig, ...], rows: Table) -> Ints:
    """The 5QI of each row's UE, by its columns ``cell`` and ``ue``."""
    most_ues = max(cell.n_ues for cell in cells)
    by_ue = np.zeros((max(cell.cell_id for cell in cells) + 1, most_ues), np.int64)
    for cell in cells:
        by_ue[cell.cell_id, : cell.n_ues] = [cell.ue_five_qi(ue) for ue in range(cell.n_ues)]
    return np.asarray(by_ue[rows["cell"], rows["ue"]])


def _frame(table: str, node: str, columns: Mapping[str, npt.NDArray[np.int64]]) -> pl.DataFrame:
    schema = pl.Schema(schema_of(table))
    frame = pl.DataFrame({name: columns[name] for name in schema if name != NODE})
    return frame.with_columns(pl.lit(node).alias(NODE)).cast(schema)


def _columns(table: Table) -> dict[str, Ints]:
    return {name: table[name] for name in table.columns}


def _tasks(run: BenchRun) -> dict[str, Ints]:
    """Nothing holds the GPU beside the RAN: tasks run as they were reserved."""
    columns = _columns(run.tasks)
    start, end, sms = (columns[name] for name in ("start_us", "end_us", "sms"))
    planned = {"planned_start_us": start, "planned_end_us": end, "wanted_sms": sms}
    return columns | planned | {"modelled_end_us": end}


def _pieces(run: BenchRun) -> dict[str, Ints]:
    columns, tasks = _columns(run.pieces), run.tasks
    of_task = {name: tasks[name][columns["task"]] for name in ("cell", "air_slot", "direction")}
    return columns | of_task | {"planned": np.zeros(len(run.pieces), np.int64)}


def _promises(run: BenchRun) -> dict[str, Ints]:
    columns = _columns(run.promises)
    return columns | {"at_us": columns["slot"] * run.setup.slot_us + run.setup.mac_phase_us}


def _emergencies(run: BenchRun) -> dict[str, Ints]:
    columns = _columns(run.emergencies)
    return columns | {"at_us": columns["from_us"], "until_us": columns["to_us"]}


def _counters(run: BenchRun) -> dict[str, Ints]:
    names = (
        *("arrived_bytes", "delivered_bytes", "buffered_bytes"),
        *("in_flight_bytes", "rlc_retx_bytes", "late_feedback"),
    )
    cells, times = run.setup.cells, run.counters
    links = np.arange(2 * len(cells))
    ids = np.array([cell.cell_id for cell in cells], np.int64)
    columns = {name: np.concatenate([getattr(at, name) for at in times]) for name in names}
    return columns | {
        "cell": np.tile(ids[links // 2], len(times)),
        "direction": np.tile(links % 2, len(times)),
        "at_us": np.repeat([at.at_us for at in times], len(links)),
    }


def _backlogs(run: BenchRun) -> dict[str, Ints]:
    last, cells = run.counters[-1], run.setup.cells
    link, ue = np.nonzero(last.ue_buffered_bytes)
    cell = link // 2
    five_qi = [cells[c].ue_five_qi(u) for c, u in zip(cell.tolist(), ue.tolist(), strict=True)]
    return {
        "cell": np.array([cells[c].cell_id for c in cell.tolist()], np.int64),
        "ue": ue,
        "direction": link % len(DIRECTIONS),
        "five_qi": np.array(five_qi, np.int64),
        "at_us": np.full(len(link), last.at_us),
        "buffered_bytes": last.ue_buffered_bytes[link, ue],
    }
