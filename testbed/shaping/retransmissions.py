"""How much of a slot's retransmissions the level has room for: compiled.

Asked cell by cell. A sum of SM time, so an estimate: what does not fit after all is an emergency.
"""

from __future__ import annotations

from testbed.shaping.compiled import compiled
from testbed.shaping.state import (
    DOWNLINK,
    RETX_DIRECTION,
    RETX_SLOT,
    ControllerParams,
    ControllerState,
)
from testbed.shaping.tasks import lanes_sms, level_at


@compiled
def retransmission_limit(
    params: ControllerParams, state: ControllerState, direction: int, air_slot: int
) -> int:
    """Code blocks that the next cell's retransmissions may have in an air slot."""
    _open_retransmissions(state, direction, air_slot)
    gpu = params.gpu
    if direction == DOWNLINK:
        sms = lanes_sms(params, state, air_slot - 1)
        lanes = sms // max(gpu.dl_sms, gpu.min_sms)
        room_us = lanes * params.dl_budget_us - state.retx_us - gpu.dl_fixed_us
        most = min(room_us, params.dl_budget_us - gpu.dl_fixed_us)
        return int(most / max(gpu.dl_code_block_us, 1e-9)) if most > 0 else 0
    level = max(gpu.min_sms, level_at(params, state, air_slot + 1))
    room = level * params.ul_budget_us - state.retx_us
    blocks = 0
    while _decode_sm_us(params, blocks + 1) <= room and blocks < 1000:
        blocks += 1
    return blocks


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
        state.retx_us += _decode_sm_us(params, blocks)


@compiled
def _open_retransmissions(state: ControllerState, direction: int, air_slot: int) -> None:
    if state.marks[RETX_SLOT] != air_slot or state.marks[RETX_DIRECTION] != direction:
        state.marks[RETX_SLOT] = air_slot
        state.marks[RETX_DIRECTION] = direction
        state.retx_us = 0.0


@compiled
def _decode_sm_us(params: ControllerParams, blocks: int) -> float:
    gpu = params.gpu
    sms = gpu.ul_sms_per_10_code_blocks * ((blocks + 9) // 10)
    sms = min(max(sms, gpu.min_sms), gpu.sms)
    return sms * blocks * gpu.ul_code_block_us + gpu.min_sms * gpu.ul_fixed_us
