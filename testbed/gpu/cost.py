"""Time and SMs of PHY work on a GPU: the cost model, as pure arithmetic.

Uplink (LDPC decode of one cell and slot), after the model fitted to published GB10 figures:

    t = fixed + per_block * work * max(1, saturation / sms) * (1 + g * max(0, bandwidth - 1))

with ``work`` the code blocks weighted by decoder iterations / 10, saturation 8 SMs per 10 code
blocks, and ``bandwidth`` the sum of the decode's and the co-running work's memory-bandwidth shares.
Downlink: a fixed part and a part per code block, on a fixed number of SMs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.gpu.profile import GpuProfile

DOWNLINK = 0
UPLINK = 1
_ROUNDING_US = 1e-6
"""Work below this is an error of rounding, not work."""


@dataclass(frozen=True, slots=True)
class PhyDemand:
    """What one PHY task needs: ``fixed_us`` at any SM count, ``work_us`` on ``sms`` SMs."""

    sms: int
    fixed_us: float
    work_us: float
    bandwidth_permille: int


@dataclass(frozen=True, slots=True)
class Segment:
    """From ``from_us`` on, a task has ``sms`` SMs beside work of ``other_bandwidth_permille``."""

    from_us: int
    sms: int
    other_bandwidth_permille: int


def decoder_iterations(rule: str, spectral_efficiency: float) -> int:
    """LDPC iterations of a transport block.

    ``"fixed"``: 10. ``"efficiency"``: 7 above 7.2 bit/s/Hz, 20 below 0.4, else 10 (the rule of
    NVIDIA's cuPHY).
    """
    if rule == "fixed":
        return 10
    return 7 if spectral_efficiency > 7.2 else 20 if spectral_efficiency < 0.4 else 10


def phy_demand(gpu: GpuProfile, direction: int, code_blocks: int, work_milli: int) -> PhyDemand:
    """Demand of one cell and slot.

    Args:
        gpu: the profile with the constants.
        direction: DOWNLINK or UPLINK.
        code_blocks: over all transport blocks of the task, at least 1.
        work_milli: code blocks weighted by iterations / 10, in thousandths (uplink only).
    """
    phy = gpu.phy
    if direction == DOWNLINK:
        sms = _round_up(gpu, phy.dl_sms)
        return PhyDemand(sms, phy.dl_fixed_us, phy.dl_code_block_us * code_blocks, 0)
    saturation = _round_up(gpu, phy.ul_sms_per_10_code_blocks * math.ceil(code_blocks / 10))
    share = phy.ul_bandwidth_permille_peak * min(1.0, code_blocks / phy.ul_peak_code_blocks)
    work_us = phy.ul_code_block_us * work_milli / 1000
    return PhyDemand(saturation, phy.ul_fixed_us, work_us, round(share))


def duration_us(gpu: GpuProfile, demand: PhyDemand, sms: int, other_permille: int = 0) -> int:
    """Duration on ``sms`` SMs throughout, rounded up to whole microseconds."""
    return finish_us(gpu, demand, (Segment(0, sms, other_permille),))


def rate(gpu: GpuProfile, demand: PhyDemand, sms: int, other_permille: int) -> float:
    """Progress of ``work_us`` per microsecond on ``sms`` SMs beside other work; at most 1."""
    crowded = (demand.bandwidth_permille + other_permille) / 1000 - 1
    return min(1.0, sms / demand.sms) / (1 + gpu.phy.contention_slope * max(0.0, crowded))


def finish_us(gpu: GpuProfile, demand: PhyDemand, segments: Iterable[Segment]) -> int:
    """When a task ends that has these SMs over time.

    The task begins at the first segment with any SMs; each segment lasts until the next begins,
    the last one for ever. Raises ValueError where the last segment has no SMs.
    """
    ordered = list(segments)
    fixed_us, work_us = demand.fixed_us, demand.work_us
    for index, segment in enumerate(ordered):
        last = index == len(ordered) - 1
        room_us = math.inf if last else float(ordered[index + 1].from_us - segment.from_us)
        if segment.sms <= 0:
            if last:
                raise ValueError("a task needs SMs in its last segment")
            continue
        spent_us = min(fixed_us, room_us)
        fixed_us -= spent_us
        room_us -= spent_us
        speed = rate(gpu, demand, segment.sms, segment.other_bandwidth_permille)
        needed_us = work_us / speed
        if fixed_us == 0 and needed_us <= room_us + _ROUNDING_US:
            return math.ceil(segment.from_us + spent_us + needed_us - _ROUNDING_US)
        work_us -= room_us * speed
    raise ValueError("a task without segments never ends")


def _round_up(gpu: GpuProfile, sms: int) -> int:
    steps = math.ceil(max(sms, gpu.min_sms) / gpu.sm_step) * gpu.sm_step
    return min(steps, gpu.sms - gpu.sms % gpu.sm_step)
