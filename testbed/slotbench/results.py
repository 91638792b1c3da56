"""What a bench run leaves: rows as the nodes would have recorded them, and the byte counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.shaping.arrays import Ints
from testbed.slotbench.rows import (
    BLOCK_COLUMNS,
    EMERGENCY_COLUMNS,
    PIECE_COLUMNS,
    PROMISE_COLUMNS,
    SDU_COLUMNS,
    TASK_COLUMNS,
    Rows,
)
from testbed.slotbench.scenario import Setup
from testbed.slotbench.state import (
    ACKNOWLEDGED,
    ARRIVED,
    BACKLOG,
    BUSY_MOST,
    IN_FLIGHT,
    LATE_FEEDBACK,
    RLC_RETX,
    BenchState,
)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of integers with named columns; ``table["end_us"]`` is a column."""

    columns: tuple[str, ...]
    rows: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> Ints:
        """A column, as int64. KeyError where there is no such column."""
        if column not in self.columns:
            raise KeyError(f"{column!r}: the columns are {', '.join(self.columns)}")
        return self.rows[:, self.columns.index(column)].astype(np.int64)

    def where(self, kept: npt.NDArray[np.bool_]) -> Table:
        """The rows for which ``kept`` is true."""
        return Table(self.columns, self.rows[kept])


@dataclass(frozen=True, slots=True)
class Counters:
    """Bytes and events of each link (2 c: downlink of the c-th cell, 2 c + 1: its uplink) since
    the start, at ``at_us``. ``ue_buffered_bytes``: [L, U], ``buffered_bytes`` by UE."""

    at_us: int
    arrived_bytes: Ints
    delivered_bytes: Ints
    buffered_bytes: Ints
    ue_buffered_bytes: Ints
    in_flight_bytes: Ints
    rlc_retx_bytes: Ints
    late_feedback: Ints
    harq_busy_most: Ints

    @classmethod
    def of(cls, state: BenchState, n_links: int, at_us: int) -> Counters:
        """Those of the first links of a state."""
        total = state.counters[:n_links].T.copy()
        return cls(
            at_us,
            total[ARRIVED],
            total[ACKNOWLEDGED],
            state.ue[:n_links, :, BACKLOG].sum(axis=1),
            state.ue[:n_links, :, BACKLOG].copy(),
            total[IN_FLIGHT],
            total[RLC_RETX],
            total[LATE_FEEDBACK],
            total[BUSY_MOST],
        )


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run.

    ``cell`` in the tables is the cell's number in the topology, ``task`` in ``pieces`` a row of
    ``tasks``. ``counters``: at the end of the warm-up, and at the end of the run (``end_us``).
    """

    setup: Setup
    blocks: Table
    tasks: Table
    pieces: Table
    sdus: Table
    promises: Table
    emergencies: Table
    counters: tuple[Counters, ...]
    end_us: int


def bench_run(setup: Setup, rows: Rows, counters: list[Counters], end_us: int) -> BenchRun:
    """The run as the nodes record it: without what they would learn only after ``end_us``."""
    known_us = end_us - setup.message_us
    ended = rows.tasks[:, TASK_COLUMNS.index("end_us")] < known_us
    pieces = rows.pieces[ended[rows.pieces[:, 0]]]
    pieces[:, 0] = (np.cumsum(ended) - 1)[pieces[:, 0]]
    promises, emergencies = (
        table[table[:, 0] * setup.slot_us + setup.mac_phase_us < known_us]
        for table in (rows.promises, rows.emergencies)
    )
    cell_ids = np.array([cell.cell_id for cell in setup.cells])
    blocks, tasks, sdus = rows.blocks.copy(), rows.tasks[ended], rows.sdus.copy()
    for table in (blocks, tasks, sdus):
        table[:, 0] = cell_ids[table[:, 0]]
    return BenchRun(
        setup=setup,
        blocks=Table(BLOCK_COLUMNS, blocks),
        tasks=Table(TASK_COLUMNS, tasks),
        pieces=Table(PIECE_COLUMNS, pieces),
        sdus=Table(SDU_COLUMNS, sdus),
        promises=Table(PROMISE_COLUMNS, promises),
        emergencies=Table(EMERGENCY_COLUMNS, emergencies),
        counters=tuple(counters),
        end_us=end_us,
    )
