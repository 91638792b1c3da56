"""The plan of a downlink slot, compiled: the lanes beside the decodes, the longest queues first.

A lane is the SMs of one cell's downlink chain.
"""

from __future__ import annotations

from testbed.shaping.arrays import RadioTables
from testbed.shaping.compiled import compiled
from testbed.shaping.levels import raise_promise
from testbed.shaping.state import (
    DOWNLINK,
    NO,
    RING_SLOTS,
    SHAPED,
    SPLIT_SLOTS,
    SPLIT_SMS,
    UPLINK,
    ControllerParams,
    ControllerState,
)
from testbed.shaping.tasks import (
    expected_lanes_sms,
    lanes_sms,
    latest_us,
    level_at,
    mark_must,
    queue_order,
)

EARLY_SLOTS = 2
"""What would be late within so many slots more goes now, if there is room: the next slot may turn
out to be taken."""


@compiled
def plan_downlink(
    params: ControllerParams,
    state: ControllerState,
    tables: RadioTables,
    air_slot: int,
) -> None:
    gpu = params.gpu
    n_cells = params.n_cells
    sms = lanes_sms(params, state, air_slot - 1)
    lane_sms = max(gpu.dl_sms, gpu.min_sms)
    wait = 1
    while wait < 2 * params.period_slots and not (
        params.carries[DOWNLINK, (air_slot + wait) % params.period_slots]
        and expected_lanes_sms(params, state, air_slot - 1 + wait) >= lane_sms
    ):
        wait += 1
    sms = max(0, sms)
    mark_must(params, state, tables, DOWNLINK, air_slot, wait + EARLY_SLOTS)
    if latest_us(params, state, state.must, NO, sms) > params.dl_budget_us:
        mark_must(params, state, tables, DOWNLINK, air_slot, wait)
    if params.mode != SHAPED:
        for c in range(n_cells):
            state.must[c] = state.retx_blocks[c]
    any_must = False
    for c in range(n_cells):
        any_must = any_must or state.must[c] > 0
    if any_must and latest_us(params, state, state.must, NO, sms) > params.dl_budget_us:
        beside = state.decoding[(air_slot - 1) & (RING_SLOTS - 1)]
        sms = max(sms, lane_sms)
        while (
            sms + gpu.sm_step <= gpu.sms - beside
            and latest_us(params, state, state.must, NO, sms) > params.dl_budget_us
        ):
            sms += gpu.sm_step
        if params.mode == SHAPED:
            raise_promise(state, air_slot - 1, air_slot, sms + beside)
        if latest_us(params, state, state.must, NO, sms) > params.dl_budget_us:
            for c in range(n_cells):  # more than there is time for at all: as much of it as can
                state.must[c] = state.retx_blocks[c]
    for c in range(n_cells):
        state.budget[c] = state.must[c]
    if sms < lane_sms or not _stays_open(params, state, tables, air_slot):
        return
    queue_order(params, state)
    for index in range(n_cells):
        c = state.cell_order[index]
        wanted = state.retx_blocks[c] + state.full[c]
        low, high = state.budget[c], wanted + 1
        if low >= wanted:
            continue
        middle = wanted  # mostly all of it fits, or nothing
        while high - low > 1:
            state.budget[c] = middle
            if latest_us(params, state, state.budget, NO, sms) <= params.dl_budget_us:
                low = middle
            else:
                high = middle
            middle = (low + high) // 2
        state.budget[c] = low


@compiled
def _stays_open(
    params: ControllerParams, state: ControllerState, tables: RadioTables, air_slot: int
) -> bool:
    """Whether a block that fails will find a lane again: it needs a slot of the same size."""
    level = level_at(params, state, air_slot - 1)
    lane_sms = max(params.gpu.dl_sms, params.gpu.min_sms)
    period = params.period_slots
    for air in range(period):
        same = True
        for c in range(params.n_cells):
            now_kind = tables.kind_of_phase[c, air_slot % period]
            same = same and tables.kind_of_phase[c, air] == now_kind
        beside = 0
        for back in range(1, state.marks[SPLIT_SLOTS] + 1):
            if params.carries[UPLINK, (air - 1 - back) % period]:
                beside = state.marks[SPLIT_SMS]
        if same and level - beside >= lane_sms:
            return True
    return False
