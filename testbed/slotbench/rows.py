"""What the bench writes down, as rows of numbers, until they are taken out.

Owns the columns and the room for them: a slot is begun only where all its rows fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.shaping.arrays import Ints
from testbed.shaping.packing import MAX_STEPS

Blocks = npt.NDArray[np.int32]

BLOCK_COLUMNS = (
    *("cell", "air_slot", "direction", "ue", "transmission"),
    *("result", "tbs_bytes", "n_prb", "mcs_index", "missed"),
)
TASK_COLUMNS = (
    *("cell", "air_slot", "direction", "n_prb", "code_blocks"),
    *("start_us", "end_us", "deadline_us", "sms"),
)
PIECE_COLUMNS = ("task", "from_us", "to_us", "sms")
SDU_COLUMNS = ("cell", "ue", "direction", "arrival_us", "delivered_us", "bytes")
PROMISE_COLUMNS = ("slot", *(f"within_{q}_us" for q in PROMISE_WINDOWS_US))
EMERGENCY_COLUMNS = ("slot", "from_us", "to_us", "promised_sms", "taken_sms")
BLOCKS, TASKS, PIECES, SDUS, PROMISES, EMERGENCIES, TASKS_BEFORE = range(7)
"""Places in ``BenchState.n_rows``: rows of each table in use, and tasks taken out earlier, so that
the ``task`` of a piece counts from the run's start."""

_SLOTS = 1024
"""How many busy slots there is room for, about."""


class Rows(NamedTuple):
    """Rows of a part of the run. ``cell`` is the place of the cell in the gNB, direction 0 is
    downlink."""

    blocks: Blocks
    tasks: Ints
    pieces: Ints
    sdus: Ints
    promises: Ints
    emergencies: Ints


def new_rows(n_links: int, n_blocks: int) -> Rows:
    """Room for some slots of ``n_links`` links, each of ``n_blocks`` blocks per slot at most."""
    blocks = _SLOTS * n_links * n_blocks
    return Rows(
        np.zeros((blocks, len(BLOCK_COLUMNS)), np.int32),
        np.zeros((_SLOTS * n_links, len(TASK_COLUMNS)), np.int64),
        np.zeros(((_SLOTS + MAX_STEPS) * n_links, len(PIECE_COLUMNS)), np.int64),
        np.zeros((blocks, len(SDU_COLUMNS)), np.int64),
        np.zeros((_SLOTS, len(PROMISE_COLUMNS)), np.int64),
        np.zeros((_SLOTS, len(EMERGENCY_COLUMNS)), np.int64),
    )


def with_more_sdus(rows: Rows) -> Rows:
    """Twice the room for SDUs that one slot completes."""
    return rows._replace(sdus=np.concatenate((rows.sdus, np.zeros_like(rows.sdus))))


def taken_out(rows: Rows, n_rows: Ints) -> Rows:
    """A copy of the rows in use; the room is empty afterwards."""
    blocks, *others = rows
    copied = Rows(
        blocks[: n_rows[BLOCKS]].copy(),
        *(table[:n].copy() for table, n in zip(others, n_rows[TASKS:], strict=False)),
    )
    n_rows[TASKS_BEFORE] += n_rows[TASKS]
    n_rows[:TASKS_BEFORE] = 0
    return copied


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, in their order."""
    return Rows(*(np.concatenate(tables) for tables in zip(*parts, strict=True)))
