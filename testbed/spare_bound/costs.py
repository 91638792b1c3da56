"""SM-time of PHY work from below, as convex functions of the code blocks of a cell and slot.

Owns the relaxation of the cost model (``testbed.gpu.cost``): whatever SMs a task is given over
time, it takes at least the SM-time stated here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from testbed.gpu.cost import DOWNLINK, UPLINK, PhyDemand, duration_us, phy_demand, rate
from testbed.spare_bound.inputs import BoundInput, Floats

BLOCK_BYTES = (8448 - 24) // 8
"""No code block carries more: 8448 bits of base graph 1 less a CRC (TS 38.212 5.2.2, 7.2.1). A
single block has the transport block's 24 bits of CRC, of several each has its own."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Convex and piecewise linear from (0, 0): ``slope`` ascends, SM-us per code block.

    ``width``: code blocks of each segment. Beyond the last one the work cannot end in its budget.
    """

    width: Floats
    slope: Floats

    @property
    def most_blocks(self) -> float:
        """The end of the last segment."""
        return float(self.width.sum())

    def sm_us(self, blocks: float) -> float:
        """Value at some number of code blocks, 0 to ``most_blocks``."""
        starts = np.concatenate(([0.0], np.cumsum(self.width)[:-1]))
        return float(self.slope @ np.clip(blocks - starts, 0.0, self.width))

    def widths_within(self, most: Floats) -> Floats:
        """[..., segments]: the segments cut off at ``most`` code blocks of each element."""
        starts = np.concatenate(([0.0], np.cumsum(self.width)[:-1]))
        return np.clip(most[..., None] - starts, 0.0, self.width)


def decode_envelope(given: BoundInput) -> Envelope:
    """The convex envelope of a decode's least SM-time.

    With n code blocks: min_sms x fixed + work x saturation x contention, since work done on s SMs
    advances at most s / saturation per microsecond, and the fixed part holds at least min_sms.
    """
    gpu, other = given.gpu, given.training_bandwidth_permille
    most_sms = min(gpu.sms, max(gpu.phy.ran_sm_cap, gpu.min_sms))
    points = [(0.0, 0.0)]
    while True:
        blocks = len(points)
        demand = phy_demand(gpu, UPLINK, blocks, blocks * given.ul_work_milli)
        if duration_us(gpu, demand, most_sms, other) > given.ul_decode_budget_us:
            break
        points.append((float(blocks), _least_sm_us(given, demand)))
    return _lower_hull(points)


def encode_envelope(given: BoundInput, most_blocks: float) -> Envelope:
    """The same of downlink work of one cell that can carry ``most_blocks`` in the slot.

    Its time is linear beyond the fixed part, so that the envelope is one segment. A cell that
    carries less gets a steeper one.
    """
    gpu = given.gpu
    room_us = given.slot_us - given.fronthaul_lead_us - gpu.phy.dl_fixed_us
    most = min(most_blocks, math.floor(room_us / gpu.phy.dl_code_block_us))
    if most <= 0:
        return Envelope(np.zeros(1), np.zeros(1))
    one = _least_sm_us(given, phy_demand(gpu, DOWNLINK, 1, 0))
    two = _least_sm_us(given, phy_demand(gpu, DOWNLINK, 2, 0))
    each = two - one
    return Envelope(np.array([float(most)]), np.array([each + (one - each) / most]))


def earliest_done_us(given: BoundInput, direction: int) -> int:
    """From the start of an air slot to the earliest receipt of what it carries.

    Downlink: the end of the slot. Uplink: the end of a decode of one code block, saturated.
    """
    if direction == DOWNLINK:
        return given.slot_us
    demand = phy_demand(given.gpu, UPLINK, 1, given.ul_work_milli)
    return given.slot_us + duration_us(given.gpu, demand, demand.sms)


def _least_sm_us(given: BoundInput, demand: PhyDemand) -> float:
    slowest = rate(given.gpu, demand, demand.sms, given.training_bandwidth_permille)
    return given.gpu.min_sms * demand.fixed_us + demand.sms * demand.work_us / slowest


def _lower_hull(points: list[tuple[float, float]]) -> Envelope:
    """The largest convex function below points of ascending abscissa, from the first on."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x1) < (y - y1) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    corners = np.array(hull)
    width = np.diff(corners[:, 0])
    return Envelope(width, np.diff(corners[:, 1]) / width)
