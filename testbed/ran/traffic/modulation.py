"""How the intensity of Poisson arrivals moves: fractional Gaussian noise, a diurnal profile.

Owns factors of mean 1 over time. Knows nothing of arrivals.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from testbed import rng
from testbed.ran.traffic.specs import Diurnal, Fgn

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NOISE_STEPS = 32_768
"""Steps of noise that are drawn together, and within which its correlation is exact.

Part of what a seed means. It does not depend on the length of a run, so a longer run begins with
the shorter one; the steps after it are drawn anew, without correlation to those before.
"""


def autocovariance(hurst: float, lag: Ints) -> Floats:
    """Of fractional Gaussian noise: (|k+1|^2H - 2|k|^2H + |k-1|^2H) / 2 (Mandelbrot, Van Ness)."""
    power = 2 * hurst
    k = np.abs(lag).astype(np.float64)
    return (np.abs(k + 1) ** power - 2 * k**power + np.abs(k - 1) ** power) / 2


@lru_cache(maxsize=4)
def _spectrum(hurst: float, steps: int) -> Floats:
    """Eigenvalues 0 to ``steps`` of the circulant of order 2 steps (those beyond mirror them)."""
    row = autocovariance(hurst, np.arange(steps + 1))
    eigenvalues = np.fft.rfft(np.concatenate([row, row[-2:0:-1]])).real
    # All are positive for fractional Gaussian noise (Craigmile 2003); rounding may say otherwise.
    return np.maximum(eigenvalues, 0.0)


def fractional_noise(hurst: float, normals: Floats) -> Floats:
    """Exact fractional Gaussian noise by circulant embedding (Davies and Harte 1987).

    Args:
        hurst: 0.5 to below 1.
        normals: [2n], independent standard normal.

    Returns:
        [n], mean 0, variance 1; a linear function of ``normals``.
    """
    order = len(normals)
    steps = order // 2
    waves = np.zeros(steps + 1, np.complex128)
    waves[0], waves[steps] = normals[0], normals[1]
    waves[1:steps] = (normals[2 : steps + 1] + 1j * normals[steps + 1 :]) / math.sqrt(2)
    waves *= np.sqrt(order * _spectrum(hurst, steps))
    noise: Floats = np.fft.irfft(waves, order)[:steps]
    return noise


@lru_cache(maxsize=64)
def _noise_block(hurst: float, seed: int, stream: str, cell: int, block: int) -> Floats:
    """[NOISE_STEPS], a pure function of its key; read-only."""
    draw = rng.generator(seed, stream, cell, block)
    noise = fractional_noise(hurst, draw.standard_normal(2 * NOISE_STEPS))
    noise.flags.writeable = False
    return noise


@lru_cache(maxsize=64)
def mean_of_cut(cv: float) -> float:
    """E[max(0, 1 + cv g)] for a standard normal g: Phi(1/cv) + cv phi(1/cv)."""
    normal = NormalDist()
    return normal.cdf(1 / cv) + cv * normal.pdf(1 / cv)


def fgn_factors(spec: Fgn, seed: int, stream: str, cell: int, times_us: Ints) -> Floats:
    """The noise's factor at each of some times (not before 0, ascending)."""
    steps = times_us // spec.step_us
    blocks = range(int(steps[0]) // NOISE_STEPS, int(steps[-1]) // NOISE_STEPS + 1)
    drawn = [_noise_block(spec.hurst, seed, stream, cell, block) for block in blocks]
    noise = drawn[0] if len(drawn) == 1 else np.concatenate(drawn)
    g = noise[steps - blocks.start * NOISE_STEPS]
    factors: Floats = np.maximum(0.0, 1 + spec.cv * g) / mean_of_cut(spec.cv)
    return factors


def diurnal_factors(spec: Diurnal, times_us: Ints) -> Floats:
    """The profile's factor at each of some times."""
    x = times_us / (spec.period_s * 1e6) + spec.phase
    if spec.peak_to_trough is not None:
        # (1 + a) / (1 - a) is the ratio of peak and trough.
        swing = (spec.peak_to_trough - 1) / (spec.peak_to_trough + 1)
        sinusoid: Floats = 1 - swing * np.cos(2 * math.pi * x)
        return sinusoid
    levels = np.array(spec.points) / np.mean(spec.points)
    profile: Floats = np.interp(x % 1.0, np.linspace(0, 1, len(levels) + 1), [*levels, levels[0]])
    return profile
