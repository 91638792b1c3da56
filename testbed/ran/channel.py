"""Radio channel, block errors and link adaptation.

SINR per UE is a first-order autoregressive process around the UE's own mean, in dB. It stands for
the SINR *per layer after equalisation*, the same in both directions, and is kept in whole
centi-dB so that every decision drawn from it is an integer's. All draws are counter-based: the
value for (cell, UE, slot) does not depend on what was asked before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed import rng
from testbed.ran.numerology import Direction
from testbed.ran.plan import CellPlan
from testbed.ran.tables import CQI_TABLES, MCS_TABLES, mcs_entry

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_T = TypeVar("_T")
_S = TypeVar("_S", bound=np.generic)

BLOCK_SLOTS = 256
"""Slots drawn together; part of what a seed means."""

_KEPT_BLOCKS = 4
_KEPT_CRC_BLOCKS = 64  # of all cells and both directions: about 2 MB for 16 UEs per cell

SHANNON_GAP_DB = 2.5
"""Loss of a real receiver against log2(1 + SINR) where half of the blocks fail."""

BLER_SLOPE_DB = 0.5
"""Standard deviation of the error curve: it falls from 84 % to 16 % within twice this."""

TARGET_BLER = 0.1
"""Link adaptation's target for the first transmission (TS 38.214 5.2.2.1, CQI)."""

_ERFC_SCALE_DB = math.sqrt(2) * BLER_SLOPE_DB
_TARGET_QUANTILE = 1.2815515655446004  # of the normal distribution, at 1 - TARGET_BLER


def half_bler_sinr_db(spectral_efficiency: float) -> float:
    """SINR at which half of the blocks of that efficiency (bits per RE of a layer) fail."""
    return 10 * math.log10(2**spectral_efficiency - 1) + SHANNON_GAP_DB


def bler(sinr_db: float, mcs_table: int, mcs_index: int, transmissions: int = 1) -> float:
    """Block error rate: a Gaussian curve in dB around a threshold at Shannon's SINR plus a gap.

    Args:
        sinr_db: SINR of the latest transmission.
        mcs_table: 1 (64QAM) or 2 (256QAM).
        mcs_index: row of that table.
        transmissions: how many copies were combined; chase combining adds 10 log10(n) dB. (The
            extra coding gain of other redundancy versions is left out.)
    """
    effective_db = sinr_db + 10 * math.log10(transmissions)
    margin_db = effective_db - _half_bler_of_mcs(mcs_table, mcs_index)
    return 0.5 * math.erfc(margin_db / _ERFC_SCALE_DB)


@lru_cache(maxsize=64)
def _half_bler_of_mcs(mcs_table: int, mcs_index: int) -> float:
    return half_bler_sinr_db(mcs_entry(mcs_table, mcs_index).spectral_efficiency)


@lru_cache(maxsize=2)
def cqi_thresholds_cdb(cqi_table: int) -> tuple[int, ...]:
    """Lowest SINR in centi-dB at which CQI 1..15 still meets ``TARGET_BLER``; index 0 is CQI 1."""
    margin_db = _TARGET_QUANTILE * BLER_SLOPE_DB
    return tuple(
        math.ceil(100 * (half_bler_sinr_db(row.spectral_efficiency) + margin_db))
        for row in CQI_TABLES[cqi_table]
    )


@lru_cache(maxsize=2)
def mcs_of_cqi(mcs_table: int) -> tuple[int, ...]:
    """MCS for CQI 0..15: the largest that meets ``TARGET_BLER`` at the CQI's own threshold.

    CQI 0, and a CQI below the lowest MCS, give MCS 0: such a UE is served, at many retransmissions.
    """
    chosen = [0]
    for threshold_cdb in cqi_thresholds_cdb(mcs_table):
        fitting = [
            row.index
            for row in MCS_TABLES[mcs_table]
            if bler(threshold_cdb / 100, mcs_table, row.index) <= TARGET_BLER
        ]
        # Table 1's rows 16 and 17 are all but equal in efficiency, so the largest index is right.
        chosen.append(max(fitting, default=0))
    return tuple(chosen)


def adapt_mcs(sinr_cdb: int, mcs_table: int) -> int:
    """MCS that link adaptation picks for a reported SINR (centi-dB), quantised to its CQI."""
    cqi = int(np.searchsorted(cqi_thresholds_cdb(mcs_table), sinr_cdb, side="right"))
    return mcs_of_cqi(mcs_table)[cqi]


def mcs_margin_db(
    block_error_rate: float, fading_sd_db: float, correlation_per_slot: float, age_slots: int
) -> float:
    """How much below its SINR a UE's MCS must be picked for that error rate of the first block.

    The error curve's own spread and what the SINR may have changed by since it was measured (an
    AR(1) process: variance sd^2 (1 - rho^(2 age))) add up in variance; what ``adapt_mcs`` allows
    for already, ``TARGET_BLER`` on the curve alone, is taken off.
    """
    aged = fading_sd_db**2 * (1 - correlation_per_slot ** (2 * age_slots))
    quantile = NormalDist().inv_cdf(1 - block_error_rate)
    wanted_db = quantile * math.sqrt(BLER_SLOPE_DB**2 + aged)
    return max(0.0, wanted_db - _TARGET_QUANTILE * BLER_SLOPE_DB)


class Channel:
    """SINR, and the MCS that it would be given, of every UE of one cell in every slot.

    x(t+1) = mean + rho (x(t) - mean) + sqrt(1 - rho^2) sd w, with w standard normal and x(0) drawn
    from the stationary distribution. Blocks are drawn whole; the last value of each is kept, so
    any slot can be asked for in any order, at the cost of drawing the blocks before it once.
    """

    def __init__(
        self,
        *,
        seed: int,
        cell: int,
        n_ues: int,
        mcs_table: int,
        mean_db: float,
        ue_sd_db: float,
        fading_sd_db: float,
        correlation_per_slot: float,
        cqi_delay_slots: int,
        mcs_margin_cdb: Sequence[int] = (),
    ) -> None:
        """``mcs_margin_cdb``: per UE, taken off the SINR that its MCS is picked for; none: 0."""
        self._seed = seed
        self._cell = cell
        self._n_ues = n_ues
        self._fading_sd_db = fading_sd_db
        self._rho = correlation_per_slot
        self._cqi_delay_slots = cqi_delay_slots
        means = rng.generator(seed, "ran.sinr.mean", cell).standard_normal(n_ues)
        self._mean_db: Floats = mean_db + ue_sd_db * means
        start = rng.generator(seed, "ran.sinr.start", cell).standard_normal(n_ues)
        self._block_start: list[Floats] = [start * fading_sd_db]
        self._thresholds_cdb = np.array(cqi_thresholds_cdb(mcs_table))
        self._mcs_of_cqi = np.array(mcs_of_cqi(mcs_table))
        self._margin_cdb = np.array(mcs_margin_cdb or (0,) * n_ues)
        self._blocks: dict[int, tuple[Ints, Ints]] = {}
        self._rows: dict[int, tuple[list[list[int]], list[list[int]]]] = {}

    @property
    def mean_cdb(self) -> list[int]:
        """Each UE's mean SINR, centi-dB."""
        return [int(value) for value in np.rint(100 * self._mean_db)]

    def sinr_cdb(self, slot: int) -> list[int]:
        """SINR of each UE in that slot, centi-dB. Do not change the list."""
        block, at = divmod(slot, BLOCK_SLOTS)
        return (self._rows.get(block) or self._lists(block))[0][at]

    def reported_mcs(self, slot: int) -> list[int]:
        """MCS of each UE as known in that slot: from the CQI of ``cqi_delay_slots`` before.

        Do not change the list.
        """
        block, at = divmod(max(0, slot - self._cqi_delay_slots), BLOCK_SLOTS)
        return (self._rows.get(block) or self._lists(block))[1][at]

    def sinr_array(self, first_slot: int, n_slots: int) -> Ints:
        """``sinr_cdb`` of some slots in a row, shape (n_slots, n_ues)."""
        slots = np.arange(first_slot, first_slot + n_slots)
        return _gather(slots, lambda block: self._block(block)[0])

    def mcs_array(self, first_slot: int, n_slots: int) -> Ints:
        """``reported_mcs`` of some slots in a row, shape (n_slots, n_ues)."""
        slots = np.arange(first_slot, first_slot + n_slots)
        measured = np.maximum(0, slots - self._cqi_delay_slots)
        return _gather(measured, lambda block: self._block(block)[1])

    def _lists(self, block: int) -> tuple[list[list[int]], list[list[int]]]:
        """A block of both as lists, newly made and kept."""
        cdb, mcs = self._block(block)
        return _keep(self._rows, block, (cdb.tolist(), mcs.tolist()))

    def _block(self, block: int) -> tuple[Ints, Ints]:
        """SINR in centi-dB, and the MCS for it, each of shape (BLOCK_SLOTS, n_ues)."""
        made = self._blocks.get(block)
        if made is None:
            while len(self._block_start) <= block:
                self._deviations(len(self._block_start) - 1)
            cdb = np.rint(100 * (self._mean_db + self._deviations(block))).astype(np.int64)
            cqi = np.searchsorted(self._thresholds_cdb, cdb - self._margin_cdb, side="right")
            made = _keep(self._blocks, block, (cdb, self._mcs_of_cqi[cqi]))
        return made

    def _deviations(self, block: int) -> Floats:
        """Deviations from the mean, shape (BLOCK_SLOTS, n_ues), dB; notes where the next begins."""
        draw = rng.generator(self._seed, "ran.sinr.fading", self._cell, block)
        states = np.empty((BLOCK_SLOTS + 1, self._n_ues))
        states[0] = self._block_start[block]
        draw.standard_normal(out=states[1:])
        states[1:] *= math.sqrt(1 - self._rho**2) * self._fading_sd_db
        for before, after in pairwise(states):
            after += self._rho * before
        if len(self._block_start) == block + 1:
            self._block_start.append(states[-1].copy())
        return states[:-1]


def _keep(cache: dict[int, _T], block: int, made: _T) -> _T:
    """Remember a block, and forget the oldest; planned slots and delayed reports are apart."""
    if len(cache) == _KEPT_BLOCKS:
        del cache[next(iter(cache))]
    cache[block] = made
    return made


def _gather(slots: Ints, block_of: Callable[[int], NDArray[_S]]) -> NDArray[_S]:
    """The rows of some ascending slots (at least one), out of the blocks in which they stand."""
    blocks = slots // BLOCK_SLOTS
    return np.concatenate(
        [
            block_of(block)[slots[blocks == block] % BLOCK_SLOTS]
            for block in range(int(blocks[0]), int(blocks[-1]) + 1)
        ]
    )


def crc_draws(seed: int, cell: int, slot: int, direction: Direction, n_ues: int) -> list[float]:
    """One uniform number in [0, 1) per UE for the air slot; more UEs leave the first ones as is."""
    block = _crc_block(seed, cell, direction, slot // BLOCK_SLOTS, n_ues)
    drawn: list[float] = block[slot % BLOCK_SLOTS].tolist()
    return drawn


def crc_draws_array(
    seed: int, cell: int, direction: Direction, first_slot: int, n_slots: int, n_ues: int
) -> Floats:
    """``crc_draws`` of some slots in a row, shape (n_slots, n_ues)."""
    slots = np.arange(first_slot, first_slot + n_slots)
    return _gather(slots, lambda block: _crc_block(seed, cell, direction, block, n_ues))


@lru_cache(maxsize=_KEPT_CRC_BLOCKS)
def _crc_block(seed: int, cell: int, direction: Direction, block: int, n_ues: int) -> Floats:
    """Draws of the slots of a block, shape (BLOCK_SLOTS, n_ues), read-only."""
    draw = rng.generator(seed, f"ran.crc.{direction.value}", cell, block)
    # UE by UE, so that the draws of the first ones do not depend on how many there are.
    drawn: Floats = draw.random((n_ues, BLOCK_SLOTS)).T
    drawn.setflags(write=False)
    return drawn


def crc_ok(seed: int, plan: CellPlan, mcs_table: int, n_ues: int) -> list[bool]:
    """Whether each block of a plan decodes, in the plan's order.

    A pure function of what a PHY holds: the seed, the cell's MCS table and UEs, and the blocks,
    each of which carries its SINR at the slot of transmission and its transmission count.

    Raises:
        IndexError: a block of a UE that the cell does not have.
    """
    draws = _crc_block(seed, plan.cell, plan.direction, plan.slot // BLOCK_SLOTS, n_ues)
    at = plan.slot % BLOCK_SLOTS
    return [
        draws.item(at, block.ue)
        >= bler(block.sinr_cdb / 100, mcs_table, block.mcs_index, block.transmission)
        for block in plan.blocks
    ]
