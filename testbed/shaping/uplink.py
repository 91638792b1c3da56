"""The plan of an uplink slot, compiled: what must go, then evenly what the decodes have time for.

Decoding many code blocks of one cell takes more than in proportion, hence evenly.
"""

from __future__ import annotations

from testbed.shaping.arrays import RadioTables
from testbed.shaping.compiled import compiled
from testbed.shaping.levels import STEP_BLOCKS, raise_promise, split
from testbed.shaping.packing import latest_end_us
from testbed.shaping.smoother import smoothed_level
from testbed.shaping.state import (
    AS_IS_PERMILLE,
    DECODES_UNTIL,
    NO,
    RING_SLOTS,
    SHAPED,
    SPLIT_SLOTS,
    SPLIT_SMS,
    UPLINK,
    YES,
    ControllerParams,
    ControllerState,
)
from testbed.shaping.tasks import latest_us, level_at, mark_must, queue_order, take


@compiled
def plan_uplink(
    params: ControllerParams,
    state: ControllerState,
    tables: RadioTables,
    air_slot: int,
) -> None:
    gpu = params.gpu
    n_cells = params.n_cells
    cap = max(gpu.min_sms, gpu.ran_sm_cap - gpu.ran_sm_cap % gpu.sm_step)
    if params.mode == SHAPED:
        level = max(gpu.min_sms, level_at(params, state, air_slot + 1))
        _, sms, decode_us = split(params, state, level, NO, AS_IS_PERMILLE)
    else:
        level = smoothed_level(params, state)
        sms, decode_us = level, params.ul_budget_us
    beside = 0
    for run_slot in range(air_slot + 1, air_slot + 1 - (-params.ul_budget_us // params.slot_us)):
        beside = max(beside, state.decoding[run_slot & (RING_SLOTS - 1)])
    sms = min(sms, cap, level - beside)
    wait = 1
    while not params.carries[UPLINK, (air_slot + wait) % params.period_slots]:
        wait += 1
    state.marks[DECODES_UNTIL] = air_slot + wait + 1
    state.marks[SPLIT_SMS] = sms
    state.marks[SPLIT_SLOTS] = -(-decode_us // params.slot_us)
    mark_must(params, state, tables, UPLINK, air_slot, wait)
    if params.mode != SHAPED:
        for c in range(n_cells):
            state.must[c] = state.retx_blocks[c]
    if latest_us(params, state, state.must, YES, sms) > decode_us:
        decode_us = params.ul_budget_us
        sms = max(sms, gpu.min_sms)
        while (
            sms + gpu.sm_step <= cap - beside
            and latest_us(params, state, state.must, YES, sms) > decode_us
        ):
            sms += gpu.sm_step
        if latest_us(params, state, state.must, YES, sms) > decode_us:
            for c in range(n_cells):  # more than can be decoded at all: as much of it as can
                state.must[c] = state.retx_blocks[c]
    for c in range(n_cells):
        state.budget[c] = state.must[c]
    _spread(params, state, sms, decode_us)
    _note_decodes(params, state, air_slot, level)


@compiled
def _spread(params: ControllerParams, state: ControllerState, sms: int, decode_us: int) -> None:
    """Fill the decodes' time: all cells to one height, then single ones a step higher, then rest.

    Heights are multiples of ``STEP_BLOCKS``: the cost of a decode jumps behind each, so that some
    cells at 20 code blocks and others at 10 cost less than all of them at 15.
    """
    height, most = 0, 0
    for c in range(params.n_cells):
        most = max(most, state.retx_blocks[c] + state.full[c])
    while height < most:
        _to_height(params, state, height + STEP_BLOCKS)
        if latest_us(params, state, state.budget, YES, sms) > decode_us:
            break
        height += STEP_BLOCKS
    _to_height(params, state, height)
    queue_order(params, state)
    for step in (STEP_BLOCKS, 1):
        for index in range(params.n_cells):
            c = state.cell_order[index]
            wanted = state.retx_blocks[c] + state.full[c]
            now = state.budget[c]
            if wanted <= now:
                continue
            if step > 1:
                more = min(wanted, (now // STEP_BLOCKS + 1) * STEP_BLOCKS)
                state.budget[c] = more
                if latest_us(params, state, state.budget, YES, sms) > decode_us:
                    state.budget[c] = now
                continue
            low, high = now, min(wanted, now + STEP_BLOCKS) + 1
            while high - low > 1:
                middle = (low + high) // 2
                state.budget[c] = middle
                if latest_us(params, state, state.budget, YES, sms) <= decode_us:
                    low = middle
                else:
                    high = middle
            state.budget[c] = low


@compiled
def _to_height(params: ControllerParams, state: ControllerState, height: int) -> None:
    for c in range(params.n_cells):
        wanted = min(height, state.retx_blocks[c] + state.full[c])
        state.budget[c] = max(state.must[c], wanted)


@compiled
def _note_decodes(
    params: ControllerParams, state: ControllerState, air_slot: int, level: int
) -> None:
    """Note the SMs of the decodes per slot, as the site agent will place them."""
    gpu = params.gpu
    ring = RING_SLOTS - 1
    n = take(params, state, state.budget)
    if n == 0:
        return
    sms = gpu.min_sms
    while (
        latest_end_us(gpu, sms, YES, n, state.task_blocks, state.task_milli, state.packing)
        > params.ul_budget_us
        and sms + gpu.sm_step <= gpu.sms
    ):
        sms += gpu.sm_step
    packing = state.packing
    run_slot, most = air_slot + 1, 0
    from_us = 0
    while True:
        peak = 0
        for task in range(-1, n):
            # The count can only rise where a task's SMs change, or as the slot begins.
            for step in range(packing.n_steps[task] if task >= 0 else 1):
                at_us = packing.steps[task, step, 0] if task >= 0 else from_us
                if not from_us <= at_us < from_us + params.slot_us:
                    continue
                total = 0
                for other in range(n):
                    if packing.end_us[other] <= at_us:
                        continue
                    now = 0
                    for index in range(packing.n_steps[other]):
                        if packing.steps[other, index, 0] <= at_us:
                            now = packing.steps[other, index, 1]
                    total += now
                peak = max(peak, total)
        if peak == 0:
            break
        state.decoding[run_slot & ring] += peak
        most = max(most, state.decoding[run_slot & ring])
        run_slot += 1
        from_us += params.slot_us
    if params.mode == SHAPED and most > level:
        raise_promise(state, air_slot + 1, run_slot, most)
