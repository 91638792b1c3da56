"""What a load asks of the GPU before any policy has its say: is the point an overload?

Pure arithmetic on the configuration, the same for every seed and arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.gpu.cost import DOWNLINK, UPLINK, PhyDemand, decoder_iterations, phy_demand, rate
from testbed.gpu.profile import GpuProfile
from testbed.ran.channel import adapt_mcs
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction, res_per_prb
from testbed.ran.tables import MCS_TABLES
from testbed.ran.tbs import block_sizes
from testbed.slotbench.scenario import Setup

OVERLOAD = 0.9
"""Offered GPU work over this share of S T makes a point an *overload*: reported, no target."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What a load asks for.

    Attributes:
        gpu_share: offered GPU work over S T. The work is ``load`` times that of full-carrier blocks
            at the mean MCS in every slot of each direction, each cell's decode or encode alone on
            the GPU, on the SMs that saturate it.
        decode_share: SM-time of an uplink slot's decodes if each cell's offered bytes were spread
            evenly over all its uplink slots, over what the RAN's SMs give within the decode budget.
            Above 1 no scheduler can serve the load for long.
    """

    gpu_share: float
    decode_share: float

    @property
    def overload(self) -> bool:
        """More offered work than ``OVERLOAD``."""
        return self.gpu_share > OVERLOAD

    @property
    def phy_infeasible(self) -> bool:
        """Even perfectly even decodes do not fit into their budget."""
        return self.decode_share > 1


def offered(setup: Setup, load: float) -> Offered:
    """Both shares at a load of every cell and direction."""
    gpu, cells = setup.ran_gpu, setup.cells
    other = setup.training_bandwidth_permille
    period_us = cells[0].tdd.period_us(cells[0].scs_khz)
    full = [
        _sm_us(gpu, phy_demand(gpu, kind, blocks, _milli(gpu, cell, blocks)), other)
        for kind, direction in ((DOWNLINK, Direction.DL), (UPLINK, Direction.UL))
        for cell in cells
        for blocks in _full_blocks(cell, direction)
    ]
    even = max(_even_decodes(gpu, cells, load, other), default=0.0)
    decoding_sms = min(gpu.sms, max(gpu.phy.ran_sm_cap, gpu.min_sms))
    return Offered(
        gpu_share=load * sum(full) / (setup.gpu.sms * period_us),
        decode_share=even / (decoding_sms * setup.ul_decode_budget_us),
    )


def _even_decodes(
    gpu: GpuProfile, cells: Sequence[CellConfig], load: float, other: int
) -> Iterator[float]:
    """SM-us of the decodes of all cells, for each uplink slot of the period."""
    for blocks_of_slot in zip(*(_full_blocks(c, Direction.UL) for c in cells), strict=True):
        total = 0.0
        for cell, blocks in zip(cells, blocks_of_slot, strict=True):
            served = math.ceil(load * blocks)
            total += _sm_us(gpu, phy_demand(gpu, UPLINK, served, _milli(gpu, cell, served)), other)
        yield total


def _full_blocks(cell: CellConfig, direction: Direction) -> list[int]:
    """Code blocks of the whole carrier at the mean MCS, per slot of the period that carries any."""
    mcs = adapt_mcs(round(100 * cell.sinr_mean_db), cell.mcs_table)
    res = (res_per_prb(kind, direction) for kind in cell.tdd.kinds)
    return [
        block_sizes(cell.n_prb, re, cell.mcs_table, mcs, cell.layers(direction))[-1].code_blocks
        for re in res
        if re
    ]


def _milli(gpu: GpuProfile, cell: CellConfig, blocks: int) -> int:
    mcs = adapt_mcs(round(100 * cell.sinr_mean_db), cell.mcs_table)
    efficiency = MCS_TABLES[cell.mcs_table][mcs].spectral_efficiency
    return 100 * blocks * decoder_iterations(gpu.phy.ul_iterations, efficiency)


def _sm_us(gpu: GpuProfile, demand: PhyDemand, other: int) -> float:
    """Least SM-time: the fixed part on the fewest SMs, the work on those that saturate it."""
    slowest = rate(gpu, demand, demand.sms, other)
    return gpu.min_sms * demand.fixed_us + demand.sms * demand.work_us / slowest
