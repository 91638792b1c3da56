"""Least-squares fit of the PHY cost model's two constants to measured times. Pure arithmetic.

Both directions of ``testbed.gpu.cost`` are, at saturation and alone, a straight line:
t = fixed + per_block * work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_BLOCK_US = 0.001
"""The least time per code block that a profile may have."""


@dataclass(frozen=True, slots=True)
class LineFit:
    """``fixed_us + code_block_us * work``, and how well that describes the measurements.

    ``r_squared``: 1 - residual / total sum of squares. ``worst_residual``: the largest
    |model - measured| / measured, and ``worst``: the index of that measurement.
    """

    fixed_us: float
    code_block_us: float
    r_squared: float
    worst_residual: float
    worst: int

    def time_us(self, work: float) -> float:
        """What the line says."""
        return self.fixed_us + self.code_block_us * work


def fit_line(work: Sequence[float], time_us: Sequence[float]) -> LineFit:
    """The line of least squares whose constants a profile may have.

    Neither constant is negative: where the best line would have it so, the best of those lines for
    which it is at its bound is taken.

    Args:
        work: code blocks, weighted by decoder iterations / 10 in the uplink.
        time_us: as many measured times, all positive.

    Raises:
        ValueError: fewer than two different amounts of work, unequal lengths, a time of 0 or less.
    """
    if len(work) != len(time_us):
        raise ValueError(f"{len(work)} amounts of work, {len(time_us)} times")
    if len(set(work)) < 2:
        raise ValueError("a line needs two different amounts of work at least")
    if min(time_us) <= 0:
        raise ValueError(f"a time of {min(time_us)} us")
    fixed_us, code_block_us = _least_squares(work, time_us)
    model = [fixed_us + code_block_us * amount for amount in work]
    residuals = [abs(said - seen) / seen for said, seen in zip(model, time_us, strict=True)]
    worst = max(range(len(residuals)), key=residuals.__getitem__)
    return LineFit(fixed_us, code_block_us, _r_squared(model, time_us), residuals[worst], worst)


def _least_squares(work: Sequence[float], time_us: Sequence[float]) -> tuple[float, float]:
    mean_work = math.fsum(work) / len(work)
    mean_us = math.fsum(time_us) / len(time_us)
    spread = math.fsum((amount - mean_work) ** 2 for amount in work)
    together = math.fsum(
        (amount - mean_work) * (time - mean_us) for amount, time in zip(work, time_us, strict=True)
    )
    slope = together / spread
    if slope < LEAST_BLOCK_US:
        return max(0.0, mean_us - LEAST_BLOCK_US * mean_work), LEAST_BLOCK_US
    fixed_us = mean_us - slope * mean_work
    if fixed_us >= 0:
        return fixed_us, slope
    through_origin = math.fsum(
        amount * time for amount, time in zip(work, time_us, strict=True)
    ) / math.fsum(amount * amount for amount in work)
    return 0.0, through_origin


def _r_squared(model: Sequence[float], time_us: Sequence[float]) -> float:
    mean_us = math.fsum(time_us) / len(time_us)
    total = math.fsum((seen - mean_us) ** 2 for seen in time_us)
    left = math.fsum((said - seen) ** 2 for said, seen in zip(model, time_us, strict=True))
    return 1 - left / total if total else float(left == 0)
