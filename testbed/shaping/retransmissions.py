"""How much of a slot's retransmissions the level has room for: compiled.

Asked cell by cell. A sum of SM time, so an estimate: what does not fit after all is an emergency.
"""

from __future__ import annotations

from testbed.shaping.arrays import RadioTables
from testbed.shaping.compiled import compiled
from testbed.shaping.levels import decode_sm_us
from testbed.shaping.state import (
    DOWNLINK,
    RETX_DIRECTION,
    RETX_SLOT,
    ControllerParams,
    ControllerState,
)
from testbed.shaping.tasks import lanes_sms, level_at

RETX_SHARE = 0.8
"""Of the code blocks that a slot has room for: the others are left to what cannot wait."""


PATIENCE_PERIODS = 8
"""TDD periods for which a retransmission may be held back before it breaks the envelope."""


@compiled
def retransmission_limit(
    params: ControllerParams,
    state: ControllerState,
    tables: RadioTables,
    direction: int,
    air_slot: int,
    c: int,
    oldest_blocks: int,
) -> int:
    """Code blocks that cell ``c``'s retransmissions may have in an air slot.

    ``oldest_blocks``: those of the retransmission that waits longest for a slot of this kind (a
    block needs a slot of the size that it was made for). Where the level has come down below what
    it takes, it is held back for a while and then let through, as an emergency.
    """
    _open_retransmissions(state, direction, air_slot)
    limit = _blocks_in(params, state, direction, air_slot, state.retx_us)
    kind = tables.kind_of_phase[c, air_slot % params.period_slots]
    if kind < 0:
        return limit
    since = state.held_since[direction, c]
    if oldest_blocks <= limit:
        since[kind] = 0
        return limit
    if since[kind] == 0:
        since[kind] = air_slot
    if air_slot - since[kind] < PATIENCE_PERIODS * params.period_slots:
        return limit
    since[kind] = 0
    return oldest_blocks


@compiled
def largest_block(
    params: ControllerParams, state: ControllerState, direction: int, air_slot: int
) -> int:
    """Code blocks of a transport block, at most: it may have to be sent again at this level."""
    return max(1, _blocks_in(params, state, direction, air_slot, 0.0))


@compiled
def _blocks_in(
    params: ControllerParams,
    state: ControllerState,
    direction: int,
    air_slot: int,
    taken_us: float,
) -> int:
    gpu = params.gpu
    if direction == DOWNLINK:
        lanes = lanes_sms(params, state, air_slot - 1) // max(gpu.dl_sms, gpu.min_sms)
        room_us = lanes * params.dl_budget_us - taken_us
        room_us = min(room_us, params.dl_budget_us) - gpu.dl_fixed_us
        most = room_us / max(gpu.dl_code_block_us, 1e-9)
        return int(RETX_SHARE * most) if room_us > 0 else 0
    sms = min(level_at(params, state, air_slot + 1), gpu.ran_sm_cap)
    room = max(gpu.min_sms, sms) * params.ul_budget_us - taken_us
    blocks = 0
    while decode_sm_us(params, blocks + 1) <= room and blocks < 1000:
        blocks += 1
    return int(RETX_SHARE * blocks)


@compiled
def note_retransmissions(
    params: ControllerParams, state: ControllerState, direction: int, air_slot: int, blocks: int
) -> None:
    """A cell's retransmissions have been placed in that air slot."""
    _open_retransmissions(state, direction, air_slot)
    if blocks == 0:
        return
    if direction == DOWNLINK:
        state.retx_us += params.gpu.dl_fixed_us + blocks * params.gpu.dl_code_block_us
    else:
        state.retx_us += decode_sm_us(params, blocks)


@compiled
def _open_retransmissions(state: ControllerState, direction: int, air_slot: int) -> None:
    if state.marks[RETX_SLOT] != air_slot or state.marks[RETX_DIRECTION] != direction:
        state.marks[RETX_SLOT] = air_slot
        state.marks[RETX_DIRECTION] = direction
        state.retx_us = 0.0
