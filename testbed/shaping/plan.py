"""The spare-compute controller's plan of one air slot and direction: compiled.

The order of a slot: the promise goes on, the backlog's rates are noted, the UEs are ordered, the
direction's own plan sets a budget of code blocks per cell, and the UEs are granted within it.
"""

from __future__ import annotations

from testbed.shaping.arrays import GrantArrays, RadioTables, SlotArrays
from testbed.shaping.compiled import compiled
from testbed.shaping.downlink import plan_downlink
from testbed.shaping.filling import NO_LIMIT, fill_cell, order_ues
from testbed.shaping.levels import note_rates, press, promise_ahead, received_us
from testbed.shaping.retransmissions import largest_block
from testbed.shaping.state import (
    PROMISED_UNTIL,
    RING_SLOTS,
    SHAPED,
    UPLINK,
    ControllerParams,
    ControllerState,
)
from testbed.shaping.uplink import plan_uplink


@compiled
def plan(
    params: ControllerParams,
    state: ControllerState,
    tables: RadioTables,
    slot: SlotArrays,
    direction: int,
    now_slot: int,
    air_slot: int,
    out: GrantArrays,
) -> None:
    """Grants of one air slot for all cells, planned in ``now_slot``, into ``out``."""
    _copy_in(params, state, slot)
    if params.mode == SHAPED:
        begins = promise_ahead(params, state, now_slot)
        note_rates(params, state, tables, direction, air_slot)
        if begins or direction == UPLINK:
            press(params, state, now_slot)
    else:
        _clear_ahead(params, state, air_slot)
    order_ues(params, state, tables, received_us(params, direction, air_slot))
    block_limit = largest_block(params, state, direction, air_slot)
    for c in range(params.n_cells):
        state.full[c] = 0
        state.full_milli[c] = 1000
        if state.kind[c] >= 0 and state.ue_count[c] > 0:
            state.full[c] = fill_cell(params, state, tables, c, NO_LIMIT, block_limit)
    if direction == UPLINK:
        plan_uplink(params, state, tables, air_slot)
    else:
        plan_downlink(params, state, tables, air_slot)
    for c in range(params.n_cells):
        out.granted[c] = 0
        if state.kind[c] >= 0 and state.budget[c] > state.retx_blocks[c]:
            fill_cell(params, state, tables, c, state.budget[c] - state.retx_blocks[c], block_limit)
            out.granted[c] = state.granted[c]
            for index in range(state.granted[c]):
                out.ue[c, index] = state.grant_ue[c, index]
                out.n_prb[c, index] = state.grant_prb[c, index]


@compiled
def _copy_in(params: ControllerParams, state: ControllerState, slot: SlotArrays) -> None:
    for c in range(params.n_cells):
        state.kind[c] = slot.kind[c]
        state.free_prb[c] = slot.free_prb[c]
        state.max_grants[c] = slot.max_grants[c]
        state.retx_blocks[c] = slot.retx_blocks[c]
        state.retx_milli[c] = slot.retx_milli[c]
        for ue in range(params.n_ues):
            state.backlog[c, ue] = slot.backlog[c, ue]
            state.mcs[c, ue] = slot.mcs[c, ue]
            state.head_bytes[c, ue] = slot.head_bytes[c, ue]
            state.head_deadline_us[c, ue] = slot.head_deadline_us[c, ue]
            state.tail_deadline_us[c, ue] = slot.tail_deadline_us[c, ue]
            state.average_rate[c, ue] = slot.average_rate[c, ue]


@compiled
def _clear_ahead(params: ControllerParams, state: ControllerState, air_slot: int) -> None:
    """Without a promise, slots come into view as they are planned."""
    until = air_slot + 2 + 2 * (-(-params.ul_budget_us // params.slot_us))
    for run_slot in range(state.marks[PROMISED_UNTIL], until):
        state.decoding[run_slot & (RING_SLOTS - 1)] = 0
    state.marks[PROMISED_UNTIL] = max(until, state.marks[PROMISED_UNTIL])
