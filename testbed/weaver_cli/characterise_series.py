"""Arithmetic of a varying demand: its memory, its bursts, how it adds up over sites.

Owns estimators on plain arrays. Knows nothing of topologies, runs or files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.gpu.spare import Steps, edges

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SIZES = 24
"""Block lengths of a fit at most, equally spaced in their logarithm."""

_FEWEST_SIZES = 4


def autocorrelation(series: Floats, lags: Ints) -> Floats:
    """Sample autocorrelation at each lag, [lags]; NaN for a constant series or a lag beyond it.

    The sums over pairs are divided by the length of the series, not by the number of pairs, the
    usual estimator (Box and Jenkins).
    """
    centred = series - series.mean()
    power = float((centred**2).sum())
    n = len(series)
    return np.array(
        [
            float((centred[: n - lag] * centred[lag:]).sum()) / power
            if power and lag < n
            else np.nan
            for lag in lags.tolist()
        ]
    )


def _sizes(least: int, most: int) -> Ints:
    sizes = np.unique(np.geomspace(least, max(least, most), _SIZES).round().astype(np.int64))
    return sizes[sizes <= most]


def _slope(sizes: Ints, values: Floats) -> float | None:
    """Of log(values) over log(sizes); None where too few sizes have a value above 0."""
    used = values > 0
    if used.sum() < _FEWEST_SIZES:
        return None
    return float(np.polyfit(np.log(sizes[used]), np.log(values[used]), 1)[0])


def hurst_by_variance(series: Floats, least: int = 1) -> float | None:
    """Hurst parameter by aggregated variance (Taqqu, Teverovsky, Willinger 1995).

    Means of m values have a variance proportional to m^(2H - 2); fitted over blocks of ``least``
    values up to a fiftieth of the series. The variance about the sample's own mean is too small by
    that of the mean, which biases H towards 0.5, more so the closer it is to 1.

    Returns:
        None where the series is constant or too short.
    """
    sizes = _sizes(least, len(series) // 50)
    variances = [
        float(series[: len(series) // m * m].reshape(-1, m).mean(axis=1).var())
        for m in sizes.tolist()
    ]
    slope = _slope(sizes, np.array(variances))
    return None if slope is None else 1 + slope / 2


def hurst_by_dfa(series: Floats, least: int = 8) -> float | None:
    """Hurst parameter by detrended fluctuation analysis (Peng et al. 1994), first order.

    The sums of the series about its mean, cut into windows of n values, leave a residual of size
    proportional to n^H about a straight line in each; fitted over windows of ``least`` (at least
    4) values up to a quarter of the series.

    Returns:
        None where the series is constant or too short.
    """
    if least < 4:
        raise ValueError(f"least = {least}: a line through fewer than 4 values leaves nothing")
    sums = np.cumsum(series - series.mean())
    sizes = _sizes(least, len(series) // 4)
    fluctuations = [_residual(sums, n) for n in sizes.tolist()]
    return _slope(sizes, np.array(fluctuations))


def _residual(sums: Floats, n: int) -> float:
    """Root mean square of what straight lines through windows of n values leave."""
    windows = sums[: len(sums) // n * n].reshape(-1, n)
    time = np.arange(n) - (n - 1) / 2
    centred = windows - windows.mean(axis=1, keepdims=True)
    slopes = centred @ time / np.dot(time, time)
    return float(np.sqrt(np.mean((centred - np.outer(slopes, time)) ** 2)))


def per_period(steps: Steps, from_us: int, to_us: int, period_us: int) -> Floats:
    """Time mean of a step function in each whole period from ``from_us`` on, [periods]."""
    bounds = np.arange(from_us, to_us + 1, period_us)
    points = np.union1d(edges(from_us, to_us, steps), bounds)
    area = np.concatenate(([0], np.cumsum(steps.at(points[:-1]) * np.diff(points))))
    return np.diff(area[np.searchsorted(points, bounds)]) / period_us


def free_runs_us(steps: Steps, sms: int, wanted: int, from_us: int, to_us: int) -> Ints:
    """Lengths of the maximal intervals in which ``wanted`` of ``sms`` SMs stay free.

    Those at the ends of [from_us, to_us) are cut there.
    """
    points = edges(from_us, to_us, steps)
    free = sms - steps.at(points[:-1]) >= wanted
    change = np.diff(np.concatenate(([False], free, [False])).astype(np.int8))
    return points[np.flatnonzero(change == -1)] - points[np.flatnonzero(change == 1)]


@dataclass(frozen=True, slots=True)
class Complementarity:
    """How sites add up over time.

    Attributes:
        complementarity: 1 - max of the sum / sum of the maxima: 0 where all peak together,
            at most 1 - 1/n where they never meet.
        peak_to_mean_site: mean over sites of peak / mean.
        peak_to_mean_sum: of the sum of all.
    """

    complementarity: float
    peak_to_mean_site: float
    peak_to_mean_sum: float


def complementarity(demand: Floats) -> Complementarity:
    """Of a demand [sites, times]; no site may be 0 throughout (ValueError)."""
    if not (demand.max(axis=1) > 0).all():
        raise ValueError("a site without any demand has no peak")
    total = demand.sum(axis=0)
    return Complementarity(
        float(1 - total.max() / demand.max(axis=1).sum()),
        float((demand.max(axis=1) / demand.mean(axis=1)).mean()),
        float(total.max() / total.mean()),
    )


def pair_correlations(demand: Floats) -> Floats:
    """Pearson's correlation of each pair of sites over time, [n (n - 1) / 2]; NaN for a constant.

    Args:
        demand: [sites, times].
    """
    with np.errstate(invalid="ignore"):
        matrix = np.atleast_2d(np.corrcoef(demand))
    return np.asarray(matrix[np.triu_indices(len(demand), 1)], dtype=np.float64)


def variation(series: Floats) -> float:
    """Standard deviation over mean."""
    return float(series.std() / series.mean())
