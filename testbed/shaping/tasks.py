"""Sets of PHY tasks that the controller tries, and what is left for them: compiled."""

from __future__ import annotations

from testbed.shaping.arrays import Ints, RadioTables
from testbed.shaping.compiled import compiled
from testbed.shaping.levels import lowest_promise, received_us
from testbed.shaping.packing import latest_end_us
from testbed.shaping.state import (
    DECODES_UNTIL,
    LEVEL_SMS,
    PROMISED_UNTIL,
    RING_SLOTS,
    SHAPED,
    SPLIT_SLOTS,
    SPLIT_SMS,
    UPLINK,
    ControllerParams,
    ControllerState,
)


@compiled
def level_at(params: ControllerParams, state: ControllerState, run_slot: int) -> int:
    """SMs that work planned now for ``run_slot`` may use together with all else.

    The least of the levels promised from there on: what fails now is sent again later, and then has
    to fit as well.
    """
    if params.mode == SHAPED:
        return lowest_promise(state, run_slot, state.marks[PROMISED_UNTIL])
    return int(state.marks[LEVEL_SMS])


@compiled
def lanes_sms(params: ControllerParams, state: ControllerState, run_slot: int) -> int:
    """SMs that downlink may use in ``run_slot``: the level less the decodes planned there."""
    level = level_at(params, state, run_slot)
    return int(level - state.decoding[run_slot & (RING_SLOTS - 1)])


@compiled
def expected_lanes_sms(params: ControllerParams, state: ControllerState, run_slot: int) -> int:
    """The same for a slot whose decodes may not be planned yet: then as the last ones were."""
    sms = lanes_sms(params, state, run_slot)
    if run_slot < state.marks[DECODES_UNTIL]:
        return sms
    for back in range(1, state.marks[SPLIT_SLOTS] + 1):
        if params.carries[UPLINK, (run_slot - back) % params.period_slots]:
            return int(sms - state.marks[SPLIT_SMS])
    return sms


@compiled
def mark_must(
    params: ControllerParams,
    state: ControllerState,
    tables: RadioTables,
    direction: int,
    air_slot: int,
    wait_slots: int,
) -> bool:
    """``must``: retransmissions, and what would be late after ``wait_slots`` more. Any of it?"""
    now_us = received_us(params, direction, air_slot)
    later_us = now_us + wait_slots * params.slot_us
    any_must = False
    n_cells, n_ues = (params.n_cells, params.n_ues)
    for c in range(n_cells):
        state.must[c] = state.retx_blocks[c]
        if state.kind[c] < 0:
            continue
        urgent = 0
        for ue in range(n_ues):
            deadline_us = state.head_deadline_us[c, ue]
            if (
                state.backlog[c, ue] > 0
                and now_us <= deadline_us
                and deadline_us - params.margin_us[c, ue] < later_us
            ):
                sizes = tables.tbs_bytes[c, state.kind[c], state.mcs[c, ue]]
                blocks = tables.code_blocks[c, state.kind[c], state.mcs[c, ue]]
                n_prb = 1
                while n_prb < tables.n_prb[c] and sizes[n_prb] < state.head_bytes[c, ue]:
                    n_prb += 1
                urgent += blocks[n_prb]
        state.must[c] += min(urgent, state.full[c])
        any_must = any_must or state.must[c] > 0
    return any_must


@compiled
def take(params: ControllerParams, state: ControllerState, blocks: Ints) -> int:
    """Make the cells with blocks the tasks to be tried; returns how many."""
    n = 0
    for c in range(params.n_cells):
        if blocks[c] > 0:
            state.task_blocks[n] = blocks[c]
            fresh = max(0, blocks[c] - state.retx_blocks[c])
            state.task_milli[n] = state.retx_milli[c] + fresh * state.full_milli[c]
            n += 1
    return n


@compiled
def latest_us(
    params: ControllerParams,
    state: ControllerState,
    blocks: Ints,
    uplink: bool,
    sms: int,
) -> int:
    n = take(params, state, blocks)
    return latest_end_us(
        params.gpu, sms, uplink, n, state.task_blocks, state.task_milli, state.packing
    )


@compiled
def queue_order(params: ControllerParams, state: ControllerState) -> None:
    """Cells by what they ask for per delay budget, the most first."""
    n_cells, n_ues = (params.n_cells, params.n_ues)
    for c in range(n_cells):
        asks = 0.0
        for ue in range(n_ues):
            asks += state.backlog[c, ue] / params.budget_us[c, ue]
        place = c
        while place > 0 and state.cell_key[place - 1] < asks:
            state.cell_key[place] = state.cell_key[place - 1]
            state.cell_order[place] = state.cell_order[place - 1]
            place -= 1
        state.cell_key[place] = asks
        state.cell_order[place] = c
