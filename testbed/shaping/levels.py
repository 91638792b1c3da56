"""How many SMs the RAN needs, and what it promises: compiled.

The **rate** of a cell and direction is its backlog over a fixed share of its delay budget (a
first-order low-pass of the arrivals), or what its deadlines need if that is more. A **level** is
an SM count that the RAN's work will not exceed; the envelope promised is a sequence of levels, each
decided a horizon ahead of its time. The level goes up as soon as the rates need it, and comes down
a partition step at a time after a lower one would have sufficed, with a margin, for a while.
"""

from __future__ import annotations

import math

from testbed.shaping.arrays import RadioTables
from testbed.shaping.compiled import compiled
from testbed.shaping.state import (
    AS_IS_PERMILLE,
    BREACHES,
    CALM_PERIODS,
    DOWNLINK,
    LEVEL_SMS,
    LIMIT_SMS,
    NO,
    PAYLOAD_BYTES,
    PERIOD_SEEN,
    PROMISED_UNTIL,
    RING_SLOTS,
    UPLINK,
    WANTED_SMS,
    YES,
    ControllerParams,
    ControllerState,
)

STEP_BLOCKS = 10
"""Code blocks by which the SMs that saturate a decode go up a step (the cost model's unit)."""

PACKING_LOSS = 0.08
"""Of the decodes' time, what is lost where tasks do not fill it exactly."""

ENOUGH = 0.999
"""Margin at which the rates fit; what the radio cannot exceed comes to 1 but for rounding."""


@compiled
def received_us(params: ControllerParams, direction: int, air_slot: int) -> int:
    """When a block of that air slot is received, an uplink decode taking all of its budget."""
    end_us = (air_slot + 1) * params.slot_us
    return int(end_us + params.ul_budget_us if direction == UPLINK else end_us)


@compiled
def note_rates(
    params: ControllerParams,
    state: ControllerState,
    tables: RadioTables,
    direction: int,
    air_slot: int,
) -> None:
    """Code blocks per TDD period that each cell's backlog asks for: ``rate`` and ``pressing``."""
    n_cells, n_ues = (params.n_cells, params.n_ues)
    period_us = params.period_slots * params.slot_us
    done_us = received_us(params, direction, air_slot)
    open_slots = 0
    for phase in range(params.period_slots):
        open_slots += params.carries[direction, phase]
    horizon = params.horizon_slots // params.period_slots + 1
    for c in range(n_cells):
        if state.kind[c] < 0:
            continue
        kind = tables.kind_of_phase[c].max()  # the slots that carry most
        drain, prbs, total, count = 0.0, 0.0, 0.0, 0
        n_prb = tables.n_prb[c]
        for ue in range(n_ues):
            backlog = state.backlog[c, ue]
            if backlog == 0:
                continue
            blocks = max(1.0, backlog / PAYLOAD_BYTES)
            drain_us = params.budget_us[c, ue] * params.drain_permille / 1000
            drain += blocks * min(1.0, period_us / drain_us)
            total += blocks
            prbs += backlog * n_prb / tables.tbs_bytes[c, kind, state.mcs[c, ue], n_prb]
            head = min(blocks, max(1.0, state.head_bytes[c, ue] / PAYLOAD_BYTES))
            margin_us = params.margin_us[c, ue]
            due_us = state.head_deadline_us[c, ue]
            if due_us >= done_us:  # what is late whatever is done has no deadline left to keep
                count = _add_chunk(state, count, due_us - margin_us, head)
            due_us = state.tail_deadline_us[c, ue]
            if blocks > head and due_us >= done_us:
                count = _add_chunk(state, count, due_us - margin_us, blocks - head)
        due, due_soon, until_now = 0.0, 0.0, 0.0
        for index in range(count):
            until_now += state.chunk_blocks[index]
            turns = 1 + max(0, state.chunk_due[index] - done_us) // period_us
            due = max(due, until_now / turns)
            if turns <= horizon:
                due_soon = max(due_soon, until_now / turns)
        # The radio cannot carry more than the carrier, whatever is due.
        carrier = total * n_prb / prbs if prbs > 0 else 0.0
        most = open_slots * carrier
        state.carrier[direction, c] = carrier
        state.rate[direction, c] = min(most, max(drain, due))
        state.pressing[direction, c] = min(most, due_soon)


@compiled
def _add_chunk(state: ControllerState, count: int, due_us: int, blocks: float) -> int:
    """Keep the chunks sorted by deadline; returns the new count."""
    place = count
    while place > 0 and state.chunk_due[place - 1] > due_us:
        state.chunk_due[place] = state.chunk_due[place - 1]
        state.chunk_blocks[place] = state.chunk_blocks[place - 1]
        place -= 1
    state.chunk_due[place] = due_us
    state.chunk_blocks[place] = blocks
    return count + 1


@compiled
def _decode_us(
    params: ControllerParams, state: ControllerState, pressing: bool, permille: int, sms: int
) -> float:
    """How long the rates' decodes take on that many SMs per uplink slot, on average.

    A rate between two steps of the cost is served by slots (and cells) at the one and at the other,
    so its cost is in between. Packing wastes ``PACKING_LOSS`` of the time.
    """
    ul_slots = 0
    for phase in range(params.period_slots):
        ul_slots += params.carries[UPLINK, phase]
    rates = state.pressing[UPLINK] if pressing else state.rate[UPLINK]
    total, longest = 0.0, 0.0
    for c in range(params.n_cells):
        blocks = rates[c] * permille / 1000 / ul_slots
        if blocks <= 0:
            continue
        low = math.floor(blocks / STEP_BLOCKS) * STEP_BLOCKS
        share = (blocks - low) / STEP_BLOCKS
        below, above = decode_sm_us(params, low), decode_sm_us(params, low + STEP_BLOCKS)
        cost = below + share * (above - below)
        total += cost
        longest = max(longest, cost / min(sms, _saturation_sms(params, math.ceil(blocks))))
    return max(longest, total / sms * (1 + PACKING_LOSS))


@compiled
def _saturation_sms(params: ControllerParams, blocks: int) -> int:
    gpu = params.gpu
    sms = gpu.ul_sms_per_10_code_blocks * ((blocks + STEP_BLOCKS - 1) // STEP_BLOCKS)
    return int(min(max(sms, gpu.min_sms), gpu.sms))


@compiled
def decode_sm_us(params: ControllerParams, blocks: int) -> float:
    """SM time (us) of a decode on the SMs that saturate it; 0 blocks take none."""
    if blocks == 0:
        return 0.0
    gpu = params.gpu
    sms = _saturation_sms(params, blocks)
    return float(sms * blocks * gpu.ul_code_block_us + gpu.min_sms * gpu.ul_fixed_us)


@compiled
def _downlink_room(
    params: ControllerParams, level: int, decode_sms: int, decode_slots: int
) -> tuple[float, int]:
    """Lane time (us) for downlink per TDD period within a level, and slots that have any lane.

    A lane is the SMs of one cell's downlink chain. Slots in which decodes run have
    ``level - decode_sms`` SMs for it.
    """
    lane_sms = max(params.gpu.dl_sms, params.gpu.min_sms)
    room_us, slots = 0.0, 0
    period = params.period_slots
    for air in range(period):
        if not params.carries[DOWNLINK, air]:
            continue
        beside = 0
        for back in range(1, decode_slots + 1):
            if params.carries[UPLINK, (air - 1 - back) % period]:
                beside = decode_sms
        lanes = (level - beside) // lane_sms
        if lanes > 0:
            room_us += lanes * (params.dl_budget_us - params.gpu.dl_fixed_us)
            slots += 1
    return room_us, slots


@compiled
def split(
    params: ControllerParams, state: ControllerState, level: int, pressing: bool, permille: int
) -> tuple[float, int, int]:
    """The best division of a level: (margin, SMs of decodes, how long decodes may take).

    The margin is how many times the rates fit; below 1 they do not.
    """
    gpu = params.gpu
    cap = min(level, max(gpu.min_sms, gpu.ran_sm_cap - gpu.ran_sm_cap % gpu.sm_step))
    decode_slots = -(-params.ul_budget_us // params.slot_us)
    needed_us = 0.0
    rates = state.pressing[DOWNLINK] if pressing else state.rate[DOWNLINK]
    for c in range(params.n_cells):
        if rates[c] > 0:
            needed_us += gpu.dl_fixed_us + rates[c] * permille / 1000 * gpu.dl_code_block_us
    lane_blocks = (params.dl_budget_us - gpu.dl_fixed_us) / max(gpu.dl_code_block_us, 1e-9)
    best, best_sms, best_us = -1.0, gpu.min_sms, params.ul_budget_us
    for sms in range(gpu.min_sms, cap + 1, gpu.sm_step):
        took_us = _decode_us(params, state, pressing, permille, sms)
        for slots in range(1, decode_slots + 1):
            if slots < decode_slots and sms > gpu.min_sms:
                continue  # the agent would stretch such decodes onto fewer SMs
            allowed_us = min(params.ul_budget_us, slots * params.slot_us)
            margin = allowed_us / took_us if took_us > 0 else 1e9
            room_us, open_slots = _downlink_room(params, level, sms, slots)
            if needed_us > 0:
                margin = min(margin, room_us / needed_us)
            for c in range(params.n_cells):
                if rates[c] > 0:  # a cell uses one lane at a time, and one carrier
                    reach = open_slots * min(state.carrier[DOWNLINK, c], lane_blocks)
                    margin = min(margin, 1000 * reach / (permille * rates[c]))
            if margin > best:
                best, best_sms, best_us = margin, sms, allowed_us
    return best, best_sms, best_us


@compiled
def needed_level(
    params: ControllerParams, state: ControllerState, pressing: bool, permille: int, most: int
) -> int:
    """The smallest level at which the rates fit, at most ``most``."""
    gpu = params.gpu
    level = gpu.min_sms
    while (
        level + gpu.sm_step <= most and split(params, state, level, pressing, permille)[0] < ENOUGH
    ):
        level += gpu.sm_step
    return level


@compiled
def promise_ahead(params: ControllerParams, state: ControllerState, now_slot: int) -> bool:
    """Once per TDD period: decide the level and promise further. Whether it was time for that."""
    period = now_slot // params.period_slots
    marks = state.marks
    if period <= marks[PERIOD_SEEN]:
        return False
    marks[PERIOD_SEEN] = period
    limit = marks[LIMIT_SMS]
    marks[WANTED_SMS] = needed_level(params, state, NO, AS_IS_PERMILLE, params.gpu.sms)
    level = marks[LEVEL_SMS]
    needed = min(limit, marks[WANTED_SMS])
    if needed > level:
        level = needed
        marks[CALM_PERIODS] = 0
    elif needed_level(params, state, NO, params.down_permille, limit) < level:
        marks[CALM_PERIODS] += 1
        if marks[CALM_PERIODS] >= params.hold_periods:
            level -= params.gpu.sm_step
            marks[CALM_PERIODS] = 0
    else:
        marks[CALM_PERIODS] = 0
    level = min(level, limit)
    ring = RING_SLOTS - 1
    until = (period + 1) * params.period_slots + params.horizon_slots
    for run_slot in range(max(_first_open(params, now_slot), marks[PROMISED_UNTIL]), until):
        state.promised[run_slot & ring] = level
        state.decoding[run_slot & ring] = 0
    marks[LEVEL_SMS] = level
    marks[PROMISED_UNTIL] = until
    return True


@compiled
def _first_open(params: ControllerParams, now_slot: int) -> int:
    """The first slot in which work runs that is planned from now on."""
    return int(now_slot + params.lookahead_slots - 1)


@compiled
def press(params: ControllerParams, state: ControllerState, now_slot: int) -> None:
    """Break the promise where what is due within the horizon does not fit it."""
    marks = state.marks
    pressing = needed_level(params, state, YES, AS_IS_PERMILLE, params.gpu.sms)
    if pressing > marks[LEVEL_SMS]:
        marks[LEVEL_SMS] = pressing
        marks[CALM_PERIODS] = 0
    first, until = _first_open(params, now_slot), marks[PROMISED_UNTIL]
    if pressing > lowest_promise(state, first, until):
        raise_promise(state, first, until, pressing)


@compiled
def lowest_promise(state: ControllerState, first_slot: int, until_slot: int) -> int:
    """The smallest level promised for these slots."""
    ring = RING_SLOTS - 1
    lowest = 1 << 40
    for run_slot in range(first_slot, until_slot):
        lowest = min(lowest, state.promised[run_slot & ring])
    return lowest


@compiled
def raise_promise(state: ControllerState, first_slot: int, until_slot: int, sms: int) -> None:
    """An emergency: the RAN takes more than it had promised for these slots."""
    ring = RING_SLOTS - 1
    state.marks[BREACHES] += 1
    for run_slot in range(first_slot, until_slot):
        state.promised[run_slot & ring] = max(state.promised[run_slot & ring], sms)
