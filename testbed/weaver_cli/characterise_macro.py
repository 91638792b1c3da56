"""Many sites over a day: how their loads add up, and what that leaves of their GPUs.

Owns the profiles of sites and their figures. Slots are beyond it: a site's SMs follow from its load
by the curve of one GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed import rng
from testbed.errors import TraceError
from testbed.experiments.experiment import Row
from testbed.ran.importers.profile import LoadProfile
from testbed.ran.traffic import Diurnal, Fgn
from testbed.ran.traffic.modulation import diurnal_factors, fractional_noise
from testbed.weaver_cli.characterise_series import (
    Floats,
    complementarity,
    pair_correlations,
    variation,
)

DAY_S = 86_400
INTERVAL_S = 600
MEAN_LOAD = 0.3
PEAK_TO_TROUGH = 5.0
"""Chosen: with the mean, loads from 0.1 at night to 0.5 at the peak."""

SLOT_NOISE = Fgn(hurst=0.85, cv=0.45, step_us=2_500)
"""The noise of the scenario of record."""

ORDERS = 32
"""Random orders of the sites over which sums of n of them are averaged."""

_STREAM = "weaver.characterise"


@dataclass(frozen=True, slots=True)
class Sites:
    """Sites over time.

    ``names``: [sites], ``hours``: [times], starts of the intervals; ``load``: [sites, times], of
    the radio; ``busy``: [sites, times], share of the GPU's SM time that the RAN takes.
    """

    source: str
    names: tuple[str, ...]
    hours: Floats
    load: Floats
    busy: Floats


def interval_cv() -> float:
    """Deviation over mean of the noise's mean over an interval: means of m values of fractional
    Gaussian noise are the same noise, its deviation times m^(H - 1) (self-similarity)."""
    steps = INTERVAL_S * 1_000_000 / SLOT_NOISE.step_us
    return float(SLOT_NOISE.cv * steps ** (SLOT_NOISE.hurst - 1))


def simulated_name(spread_h: float) -> str:
    """What rows and pictures call simulated sites."""
    return f"peaks within {spread_h:g} h"


def simulated_sites(n: int, spread_h: float, seed: int, curve: Callable[[Floats], Floats]) -> Sites:
    """Sites with a sinusoidal day each, whose peaks are spread uniformly over ``spread_h`` hours,
    and noise.

    Args:
        n: how many sites.
        spread_h: 0: all peak at the same time; 24: at any time of the day.
        seed: of the peaks and the noise; the first sites of a larger n are those of a smaller.
        curve: share of the GPU's SM time that the RAN takes at each load.
    """
    times_us = np.arange(0, DAY_S, INTERVAL_S, dtype=np.int64) * 1_000_000
    load = np.empty((n, len(times_us)))
    for site in range(n):
        late_s = float(rng.generator(seed, f"{_STREAM}.peak", site).uniform()) * spread_h * 3600
        day = Diurnal(DAY_S, phase=-late_s / DAY_S % 1.0, peak_to_trough=PEAK_TO_TROUGH)
        normals = rng.generator(seed, f"{_STREAM}.noise", site).standard_normal(2 * len(times_us))
        noise = np.maximum(0.0, 1 + interval_cv() * fractional_noise(SLOT_NOISE.hurst, normals))
        load[site] = MEAN_LOAD * diurnal_factors(day, times_us) * noise
    return Sites(
        simulated_name(spread_h),
        tuple(str(site) for site in range(n)),
        times_us / 3.6e9,
        load,
        curve(load),
    )


def logged_sites(
    source: str, profile: LoadProfile, peak_load: float, curve: Callable[[Floats], Floats]
) -> Sites:
    """The cells of a log as sites, each scaled so that its busiest interval has ``peak_load``.

    The load is that of both directions together; an interval that the log does not have counts as
    empty, and a cell without any bytes is left out.

    Raises:
        TraceError: a log without bytes, or of a load that never changes.
    """
    at_s, column = np.unique(profile.time_s, return_inverse=True)
    names, site = np.unique(profile.cell, return_inverse=True)
    rate = np.zeros((len(names), len(at_s)))
    np.add.at(rate, (site, column), (profile.dl_bytes + profile.ul_bytes) / profile.length_s)
    kept = rate.max(axis=1) > 0
    if not np.ptp(rate, axis=1).any():
        raise TraceError(
            f"{source}: {len(names)} cells over {len(at_s)} intervals, and no load that changes; "
            "needed is one cell whose load does"
        )
    load = peak_load * rate[kept] / rate[kept].max(axis=1, keepdims=True)
    chosen = tuple(str(name) for name in names[kept])
    return Sites(source, chosen, at_s / 3600, load, curve(load))


def curve_of(loads: Sequence[float], busy: Sequence[float]) -> Callable[[Floats], Floats]:
    """Straight lines between measured points and through the origin (no traffic takes no SMs);
    beyond the largest load, its value."""
    x, y = np.array([0.0, *loads]), np.array([0.0, *busy])
    order = np.argsort(x)
    x, y = x[order], y[order]

    def busy_share(load: Floats) -> Floats:
        return np.asarray(np.interp(load, x, y), dtype=np.float64)

    return busy_share


def macro_row(sites: Sites) -> Row:
    """How the sites' GPU demand adds up over the time; correlations are None for one site."""
    n, busy = len(sites.names), sites.busy
    together = complementarity(busy)
    pairs = pair_correlations(busy)
    idle = 1 - busy
    alone = float(np.mean([variation(one) for one in busy]))
    return {
        "source": sites.source,
        "sites": n,
        "idle_fraction": float(idle.mean()),
        "idle_least_site_interval": float(idle.min()),
        "idle_most_site_interval": float(idle.max()),
        "correlation_mean": _or_none(np.mean, pairs),
        "correlation_least": _or_none(np.min, pairs),
        "correlation_most": _or_none(np.max, pairs),
        "complementarity": together.complementarity,
        "peak_to_mean_site": together.peak_to_mean_site,
        "peak_to_mean_sum": together.peak_to_mean_sum,
        "cv_site": alone,
        "cv_sum": variation(busy.sum(axis=0)),
        "cv_ratio": variation(busy.sum(axis=0)) / alone,
        "one_over_sqrt_sites": n**-0.5,
        # What is idle at every time of the day, together and by site.
        "idle_floor_of_sum": float(idle.mean(axis=0).min()),
        "idle_floor_of_sites": float(idle.min(axis=1).mean()),
    }


def _or_none(function: Callable[[Floats], np.floating], values: Floats) -> float | None:
    return float(function(values)) if len(values) and not np.isnan(values).any() else None


def site_rows(sites: Sites) -> list[Row]:
    """Each site's idle share over the time, and its hourly means (hours that the log has)."""
    hour = sites.hours.astype(np.int64)
    rows: list[Row] = []
    for name, busy in zip(sites.names, sites.busy, strict=True):
        idle = 1 - busy
        rows.append(
            {
                "source": sites.source,
                "site": name,
                "idle_fraction": float(idle.mean()),
                "idle_least": float(idle.min()),
                "idle_most": float(idle.max()),
                "peak_hour": float(sites.hours[int(busy.argmax())]),
                "idle_by_hour": [float(idle[hour == h].mean()) for h in np.unique(hour)],
            }
        )
    return rows


def variation_rows(sites: Sites, seed: int) -> list[Row]:
    """How the variation of a sum falls with the number of sites in it.

    The coefficient of variation over the time, mean of ``ORDERS`` random choices of n sites, over
    its mean for a single site; 1/sqrt(n) is what independent sites would have.
    """
    total = len(sites.names)
    sizes = sorted({*(2**k for k in range(total.bit_length()) if 2**k <= total), total})
    found = np.zeros((ORDERS, len(sizes)))
    for order in range(ORDERS):
        sums = np.cumsum(sites.busy[_order(total, seed, order)], axis=0)
        found[order] = [variation(sums[n - 1]) for n in sizes]
    alone = float(np.mean([variation(one) for one in sites.busy]))
    return [
        {
            "source": sites.source,
            "sites": n,
            "cv": float(mean),
            "cv_ratio": float(mean) / alone,
            "one_over_sqrt_sites": n**-0.5,
        }
        for n, mean in zip(sizes, found.mean(axis=0), strict=True)
    ]


def _order(n: int, seed: int, number: int) -> npt.NDArray[np.int64]:
    return rng.generator(seed, f"{_STREAM}.order", number).permutation(n).astype(np.int64)
