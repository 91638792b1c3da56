"""The compiled controller as Python calls it: a view's rows in, grants out.

Owns the way from rows to a slot's arrays. Records come as arrays of one (``compiled.as_row``): the
compiler's dispatcher takes 10 us to recognise a record itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.shaping.arrays import Floats, GrantArrays, Ints, RadioTables, SlotArrays
from testbed.shaping.compiled import compiled
from testbed.shaping.plan import plan
from testbed.shaping.retransmissions import note_retransmissions, retransmission_limit
from testbed.shaping.state import RING_SLOTS, ControllerParams, ControllerState

ParamsRow = Sequence[ControllerParams]
StateRow = Sequence[ControllerState]

UE_ROWS = ("ue", "backlog_bytes", "mcs_index", "head_bytes", "deadline_us", "tail_deadline_us")
"""Fields of ``UeView`` by row of ``ues``."""


@compiled
def plan_rows(
    params: ParamsRow,
    state: StateRow,
    tables: RadioTables,
    cells: Ints,
    ues: Ints,
    average_rate: Floats,
    slot: SlotArrays,
    direction: int,
    now_slot: int,
    air_slot: int,
    out: GrantArrays,
) -> None:
    """``plan`` of a slot that comes as rows.

    Args:
        params, state: of the controller.
        tables: of this direction.
        cells: [cells of the view, 6], each (index, UEs, free PRBs, grants left, code blocks and
            work of its retransmissions).
        ues: [6, UEs of all these cells or more], rows as in ``UE_ROWS``, cell by cell.
        average_rate: [the same].
        slot: is overwritten.
        direction, now_slot, air_slot, out: as of ``plan``.
    """
    phase = air_slot % tables.kind_of_phase.shape[1]
    slot.kind[:] = -1
    slot.backlog[:] = 0
    place = 0
    for row in range(cells.shape[0]):
        c = cells[row, 0]
        slot.kind[c] = tables.kind_of_phase[c, phase]
        slot.free_prb[c] = cells[row, 2]
        slot.max_grants[c] = cells[row, 3]
        slot.retx_blocks[c] = cells[row, 4]
        slot.retx_milli[c] = cells[row, 5]
        for _ in range(cells[row, 1]):
            ue = ues[0, place]
            slot.backlog[c, ue] = ues[1, place]
            slot.mcs[c, ue] = ues[2, place]
            slot.head_bytes[c, ue] = ues[3, place]
            slot.head_deadline_us[c, ue] = ues[4, place]
            slot.tail_deadline_us[c, ue] = ues[5, place]
            slot.average_rate[c, ue] = average_rate[place]
            place += 1
    plan(params[0], state[0], tables, slot, direction, now_slot, air_slot, out)


@compiled
def limit_of(
    params: ParamsRow,
    state: StateRow,
    tables: RadioTables,
    direction: int,
    air_slot: int,
    c: int,
    oldest_blocks: int,
) -> int:
    """``retransmission_limit``."""
    return retransmission_limit(params[0], state[0], tables, direction, air_slot, c, oldest_blocks)


@compiled
def note(params: ParamsRow, state: StateRow, direction: int, air_slot: int, blocks: int) -> None:
    """``note_retransmissions``."""
    note_retransmissions(params[0], state[0], direction, air_slot, blocks)


@compiled
def promised_rows(state: StateRow, first_slot: int, until_slot: int, rows: Ints) -> int:
    """The promise from ``first_slot`` on as (slot, SMs) into ``rows``, one per change; how many."""
    count = 0
    for run_slot in range(first_slot, until_slot):
        sms = state[0].promised[run_slot & (RING_SLOTS - 1)]
        if count == 0 or rows[count - 1, 1] != sms:
            rows[count, 0] = run_slot
            rows[count, 1] = sms
            count += 1
    return count
