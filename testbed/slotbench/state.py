"""The bench's state between two slots: buffers, HARQ, blocks in the air, what has been promised.

Owns the layout of the record and of the pools, and how they grow. C cells have L = 2 C links:
link 2 c is the downlink of cell c, link 2 c + 1 its uplink. U UEs per cell, P HARQ processes each.
"""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np

from testbed.ran.config import MAX_HARQ_PROCESSES
from testbed.shaping.arrays import Floats, Ints
from testbed.shaping.compiled import new_record
from testbed.shaping.packing import PACKING_RECORD, Packing
from testbed.shaping.state import MAX_CELLS, MAX_GRANTS, MAX_UES, RING_SLOTS

MAX_LINKS = 2 * MAX_CELLS
AIR_SLOTS = 64
"""Air slots that are planned but not settled, at most."""

NONE = -1
"""End of a chain of segments; nothing promised; no slot."""

SEG_SDU, SEG_BYTES, SEG_NEXT = range(3)
SDU_BYTES, SDU_ARRIVAL_US, SDU_UNACKED, SDU_LAST_BYTE_US, SDU_NEXT = range(5)
BACKLOG, HEAD, TAIL, FREE_FIRST, N_FREE = range(5)
(P_HEAD, P_TAIL, P_CARRIED, P_TRANSMISSION, P_PRB, P_MCS, P_TBS, P_CODE_BLOCKS, P_KIND) = range(9)
SENT_UE, SENT_PROCESS, SENT_RESULT, SENT_MISSED = range(4)
N_SENT, SENT_SLOT, SENT_END_US = range(3)
ARRIVED, ACKNOWLEDGED, IN_FLIGHT, RLC_RETX, LATE_FEEDBACK, BUSY_MOST = range(6)
N_COUNTERS = 6
FREE_SEGMENT, N_FREE_SEGMENTS, FREE_SDU, N_FREE_SDUS = range(4)
N_TABLES = 7

FIRST_POOL = 1024
FIRST_BREAKPOINTS = 256


class BenchState(Protocol):
    """What changes from slot to slot, as a record.

    Attributes:
        ue: [L, U, 5], bytes that wait; first and last segment that waits, or ``NONE``; where the
            ring of free HARQ processes begins, and how many it holds (``BACKLOG`` to ``N_FREE``).
        average_rate: [L, U], newly sent bytes per slot of the direction, averaged.
        free_process: [L, U, P], that ring, longest free first.
        process: [L, U, P, 9], the block of each process (``P_*``), its segments as a chain.
        failed: [L, U P, 2], (UE, process) to be retransmitted, oldest failure first.
        n_failed: [L].
        sent: [L, AIR_SLOTS, G, 4], blocks by air slot (``SENT_UE`` to ``SENT_MISSED``).
        in_air: [L, AIR_SLOTS, 3], how many, of which air slot, and when their PHY work ends.
        pool: [4], first unused segment, how many, first unused SDU, how many.
        counters: [L, 6], totals since the start; ``BUSY_MOST``: HARQ processes of a UE at most.
        last_served: [L], the UE that round robin served last.
        committed: [RING_SLOTS], SMs that the RAN has promised not to exceed in a slot, or ``NONE``.
        n_breakpoints: rows of the timeline in use.
        n_rows: [7], rows written down (``rows``).
        packing: where the group that was placed last runs.
        task_cell, task_blocks, task_milli, task_prb: [C], that group's tasks.
        rank: [U], before: [RING_SLOTS], room to work in.
    """

    ue: Ints
    average_rate: Floats
    free_process: Ints
    process: Ints
    failed: Ints
    n_failed: Ints
    sent: Ints
    in_air: Ints
    pool: Ints
    counters: Ints
    last_served: Ints
    committed: Ints
    n_breakpoints: int
    n_rows: Ints
    packing: Packing
    task_cell: Ints
    task_blocks: Ints
    task_milli: Ints
    task_prb: Ints
    rank: Floats
    before: Ints


_PER_UE = (MAX_LINKS, MAX_UES)
_PROCESSES = (*_PER_UE, MAX_HARQ_PROCESSES)
_RECORD = np.dtype(
    [
        ("ue", np.int64, (*_PER_UE, 5)),
        ("average_rate", np.float64, _PER_UE),
        ("free_process", np.int64, _PROCESSES),
        ("process", np.int64, (*_PROCESSES, 9)),
        ("failed", np.int64, (MAX_LINKS, MAX_UES * MAX_HARQ_PROCESSES, 2)),
        ("n_failed", np.int64, (MAX_LINKS,)),
        ("sent", np.int64, (MAX_LINKS, AIR_SLOTS, MAX_GRANTS, 4)),
        ("in_air", np.int64, (MAX_LINKS, AIR_SLOTS, 3)),
        ("pool", np.int64, (4,)),
        ("counters", np.int64, (MAX_LINKS, N_COUNTERS)),
        ("last_served", np.int64, (MAX_LINKS,)),
        ("committed", np.int64, (RING_SLOTS,)),
        ("n_breakpoints", np.int64),
        ("n_rows", np.int64, (N_TABLES,)),
        ("packing", PACKING_RECORD),
        *((f"task_{name}", np.int64, (MAX_CELLS,)) for name in ("cell", "blocks", "milli", "prb")),
        ("rank", np.float64, (MAX_UES,)),
        ("before", np.int64, (RING_SLOTS,)),
    ]
)


class Pools:
    """SDUs that are not delivered yet, their segments, and the timeline: rows that grow.

    ``sdus``: [n, 5] (``SDU_*``). ``segments``: [n, 3] (``SEG_*``). Unused ones are chained; the
    record knows the first. ``timeline``: [n, 3], (from_us, SMs of all tasks, SMs of decodes), each
    row until the next; before the first row, and from the last one on, no SM is reserved.
    """

    def __init__(self, state: BenchState) -> None:
        self._state = state
        self.sdus: Ints = np.zeros((0, 5), np.int64)
        self.segments: Ints = np.zeros((0, 3), np.int64)
        self.timeline: Ints = np.zeros((FIRST_BREAKPOINTS, 3), np.int64)
        self.grow()

    def grow(self) -> None:
        """Twice the room for SDUs and for segments; those in use keep their places."""
        self.sdus = _extended(self.sdus, SDU_NEXT, self._state.pool[FREE_SDU:])
        self.segments = _extended(self.segments, SEG_NEXT, self._state.pool[FREE_SEGMENT:])

    def lengthen_timeline(self) -> None:
        """Twice the room for breakpoints."""
        self.timeline = np.concatenate((self.timeline, np.zeros_like(self.timeline)))


def new_state(n_links: int, n_ues: int, processes: Ints) -> BenchState:
    """Empty buffers of the first links and UEs. ``processes``: [L], HARQ processes per UE."""
    state = cast(BenchState, new_record(_RECORD))
    used = state.ue[:n_links, :n_ues]
    used[..., HEAD] = NONE
    used[..., TAIL] = NONE
    used[..., N_FREE] = processes[:n_links, None]
    state.free_process[:n_links, :n_ues] = np.arange(MAX_HARQ_PROCESSES)
    state.pool[[FREE_SEGMENT, FREE_SDU]] = NONE
    state.last_served[:] = NONE
    state.committed[:] = NONE
    return state


def _extended(old: Ints, next_column: int, free: Ints) -> Ints:
    """Twice as many rows; ``free``: the first unused row and how many there are, kept up to
    date."""
    n_old = len(old)
    rows = np.zeros((max(FIRST_POOL, 2 * n_old), old.shape[1]), np.int64)
    rows[:n_old] = old
    rows[n_old:, next_column] = np.arange(n_old + 1, len(rows) + 1)
    rows[-1, next_column] = free[0]
    free[0] = n_old
    free[1] += len(rows) - n_old
    return rows
