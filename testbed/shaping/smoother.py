"""The load smoother, a baseline: a level that follows the demand slowly, blind to deadlines.

An exponentially weighted average of the SMs that the backlog would take, limited in how fast it may
move and deaf to small changes; the constants are those of an earlier public shaper of the same kind
(facts of the field: average 0.15, slew 0.08 per uplink slot, dead band 0.04). It promises nothing.
"""

from __future__ import annotations

import math

from testbed.shaping.compiled import compiled
from testbed.shaping.packing import latest_end_us
from testbed.shaping.state import LEVEL_SMS, WANTED_SMS, YES, ControllerParams, ControllerState

AVERAGE = 0.15
SLEW = 0.08
DEAD_BAND = 0.04


@compiled
def smoothed_level(params: ControllerParams, state: ControllerState) -> int:
    """The level of this uplink slot; also kept for the downlink until the next one."""
    gpu = params.gpu
    n = 0
    for c in range(params.n_cells):
        blocks = state.retx_blocks[c] + state.full[c]
        if blocks > 0:
            state.task_blocks[n] = blocks
            state.task_milli[n] = state.retx_milli[c] + state.full[c] * state.full_milli[c]
            n += 1
    sms = gpu.min_sms
    while (
        sms + gpu.sm_step <= gpu.sms
        and latest_end_us(gpu, sms, YES, n, state.task_blocks, state.task_milli, state.packing)
        > params.ul_budget_us
    ):
        sms += gpu.sm_step
    state.marks[WANTED_SMS] = sms
    load = (sms - gpu.min_sms) / max(1, gpu.sms - gpu.min_sms)
    target = AVERAGE * load + (1 - AVERAGE) * state.smooth
    change = min(SLEW, max(-SLEW, target - state.smooth))
    state.smooth += change
    exact = gpu.min_sms + state.smooth * (gpu.sms - gpu.min_sms)
    band = DEAD_BAND * (gpu.sms - gpu.min_sms)
    level = state.marks[LEVEL_SMS]
    if exact > level or exact < level - gpu.sm_step - band:
        level = math.ceil(exact / gpu.sm_step - 1e-9) * gpu.sm_step
    state.marks[LEVEL_SMS] = min(gpu.sms, max(gpu.min_sms, level))
    return int(state.marks[LEVEL_SMS])
