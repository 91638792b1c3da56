"""Estimators on exact noise and on series that can be worked out by hand."""

import numpy as np
import pytest

from testbed import rng
from testbed.gpu.spare import stack
from testbed.ran.traffic.modulation import autocovariance, fractional_noise
from testbed.weaver_cli.characterise_series import (
    autocorrelation,
    complementarity,
    free_runs_us,
    hurst_by_dfa,
    hurst_by_variance,
    pair_correlations,
    per_period,
    variation,
)

N = 1 << 14


def noise(hurst: float, key: int) -> np.ndarray:
    """Exact fractional Gaussian noise (its covariance is tested where it is made)."""
    return fractional_noise(hurst, rng.generator(1, "characterise", key).standard_normal(2 * N))


@pytest.mark.parametrize("hurst", [0.5, 0.7, 0.85])
@pytest.mark.parametrize("estimate", [hurst_by_variance, hurst_by_dfa])
def test_the_hurst_parameter_of_exact_noise_is_found(estimate, hurst):
    """Expected: the parameter that the noise was made with, in the mean of six series."""
    found = [estimate(noise(hurst, key)) for key in range(6)]
    assert np.mean(found) == pytest.approx(hurst, abs=0.03)
    assert np.std(found) < 0.04


@pytest.mark.parametrize("estimate", [hurst_by_variance, hurst_by_dfa])
def test_the_hurst_parameter_knows_no_unit_and_no_level(estimate):
    """Expected: the same after a change of scale and offset, by the definitions."""
    series = noise(0.7, 1)
    assert estimate(40 * series + 1000) == pytest.approx(estimate(series), abs=1e-9)


@pytest.mark.parametrize("estimate", [hurst_by_variance, hurst_by_dfa])
def test_a_constant_or_short_series_has_no_hurst_parameter(estimate):
    assert estimate(np.full(1000, 3.0)) is None
    assert estimate(noise(0.7, 1)[:12]) is None


def test_dfa_refuses_windows_that_a_line_fits_exactly():
    with pytest.raises(ValueError, match="least = 2"):
        hurst_by_dfa(noise(0.7, 1), least=2)


def test_sums_that_stay_bounded_have_no_growing_fluctuation():
    """By hand: the sums of 1 -1 1 -1 are 1 0 1 0, of the same residual in windows of any length."""
    assert hurst_by_dfa(np.array([1.0, -1.0] * 400)) == pytest.approx(0.0, abs=0.05)


def test_autocorrelation_by_hand():
    """1 -1 1 -1 about its mean 0: products -1 -1 -1 at lag 1, 1 1 at lag 2, over 4."""
    series = np.array([1.0, -1.0, 1.0, -1.0])
    found = autocorrelation(series, np.array([0, 1, 2, 4]))
    assert found[:3] == pytest.approx([1.0, -0.75, 0.5])
    assert np.isnan(found[3])
    assert np.isnan(autocorrelation(np.ones(5), np.array([1]))).all()


def test_autocorrelation_of_exact_noise():
    """Expected: the autocovariance of fractional Gaussian noise, lags 1 to 8, in the mean."""
    lags = np.arange(1, 9)
    found = np.mean([autocorrelation(noise(0.7, key), lags) for key in range(6)], axis=0)
    assert found == pytest.approx(autocovariance(0.7, lags), abs=0.03)


STEPS = stack([10, 15, 40], [20, 30, 50], [8, 8, 24])
"""0 until 10, 8 until 15, 16 until 20, 8 until 30, 0 until 40, 24 until 50, 0."""


@pytest.mark.parametrize(
    ("wanted", "lengths"),
    [(48, [10, 10, 10]), (40, [15, 20, 10]), (32, [40, 10]), (24, [60]), (49, [])],
)
def test_free_runs_by_hand(wanted, lengths):
    """48 SMs, from 0 to 60: free are 48 40 32 40 48 24 48 of them."""
    assert free_runs_us(STEPS, 48, wanted, 0, 60).tolist() == lengths


def test_free_runs_are_cut_at_the_ends():
    assert free_runs_us(STEPS, 48, 40, 5, 25).tolist() == [10, 5]


def test_means_per_period_by_hand():
    """0-25: 8 x 10 + 8 x 10 = 160 over 25; 25-50: 8 x 5 + 24 x 10 = 280; 50-60 is no period."""
    assert per_period(STEPS, 0, 60, 25) == pytest.approx([160 / 25, 280 / 25])


def test_sites_that_peak_apart_complement_each_other():
    """Peaks 4 and 4, the sum never above 5: 1 - 5/8; means 2 and 2; 4/2 alone, 5/4 together."""
    found = complementarity(np.array([[4.0, 1.0, 1.0, 2.0], [1.0, 4.0, 2.0, 1.0]]))
    assert found.complementarity == pytest.approx(3 / 8)
    assert found.peak_to_mean_site == pytest.approx(2.0)
    assert found.peak_to_mean_sum == pytest.approx(1.25)


def test_sites_that_peak_together_do_not():
    demand = np.array([[1.0, 3.0], [2.0, 6.0]])
    assert complementarity(demand).complementarity == 0
    assert pair_correlations(demand) == pytest.approx([1.0])


def test_an_idle_site_has_no_peak():
    with pytest.raises(ValueError, match="without any demand"):
        complementarity(np.array([[1.0, 2.0], [0.0, 0.0]]))


def test_pairs_of_three_sites():
    """Rising, falling, rising: -1, 1, -1."""
    ramp = np.arange(5.0)
    assert pair_correlations(np.stack([ramp, -ramp, 2 * ramp])) == pytest.approx([-1, 1, -1])


def test_variation_by_hand():
    """1 and 3: deviation 1, mean 2."""
    assert variation(np.array([1.0, 3.0])) == 0.5
