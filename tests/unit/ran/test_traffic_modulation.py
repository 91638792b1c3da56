"""Fractional Gaussian noise against its definition; the diurnal profile by hand."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from testbed import rng
from testbed.ran.traffic import Diurnal, Fgn, Ftp3
from testbed.ran.traffic.modulation import (
    NOISE_STEPS,
    diurnal_factors,
    fgn_factors,
    fractional_noise,
    mean_of_cut,
)

from .traffic_helpers import SLOT_US, SLOTS_PER_S, drawn

KEY = {"seed": 5, "stream": "test", "cell": 3}


@pytest.mark.parametrize("hurst", [0.5, 0.6, 0.85, 0.95])
def test_the_noise_has_exactly_the_covariance_of_its_definition(hurst):
    """The noise is linear in its normals, x = A z, so its covariance A A' needs no sampling.

    Expected: (|k+1|^2H - 2 |k|^2H + |k-1|^2H) / 2 (Mandelbrot and Van Ness 1968).
    """
    steps = 24
    columns = [fractional_noise(hurst, row) for row in np.eye(2 * steps)]
    covariance = np.array(columns).T @ np.array(columns)
    expected = [
        [
            (abs(i - j + 1) ** (2 * hurst) - 2 * abs(i - j) ** (2 * hurst)
             + abs(i - j - 1) ** (2 * hurst)) / 2
            for j in range(steps)
        ]
        for i in range(steps)
    ]  # fmt: skip
    assert covariance == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("hurst", [0.5, 0.7, 0.85])
def test_the_hurst_parameter_by_aggregated_variance(hurst):
    """Means of m values of fractional Gaussian noise have the variance m^(2H - 2)."""
    noise = np.concatenate(
        [
            fractional_noise(hurst, rng.generator(1, "test", k).standard_normal(2 * NOISE_STEPS))
            for k in range(4)
        ]
    )
    sizes = 2 ** np.arange(10)
    variances = [np.mean(noise.reshape(-1, m).mean(axis=1) ** 2) for m in sizes]
    slope = np.polyfit(np.log(sizes), np.log(variances), 1)[0]
    assert 1 + slope / 2 == pytest.approx(hurst, abs=0.02)
    assert variances[0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("cv", [0.1, 0.45, 2.0])
def test_the_divisor_is_the_mean_of_the_cut_noise(cv):
    """Against numerical integration (scipy) of max(0, 1 + cv g) over the normal density."""
    expected, _ = quad(
        lambda g: max(0.0, 1 + cv * g) * math.exp(-g * g / 2) / math.sqrt(2 * math.pi),
        -1 / cv if cv > 0.2 else -9,
        9,
    )
    assert mean_of_cut(cv) == pytest.approx(expected, rel=1e-7)


def test_factors_hold_for_a_step_and_do_not_depend_on_what_else_is_asked():
    spec = Fgn(step_us=1000)
    times_us = np.arange(0, 50_000, 250)
    factors = fgn_factors(spec, **KEY, times_us=times_us)
    assert (factors.reshape(-1, 4) == factors[::4, None]).all()
    assert len(set(factors[::4].tolist())) == 50
    assert (fgn_factors(spec, **KEY, times_us=times_us[77:99]) == factors[77:99]).all()
    assert (fgn_factors(Fgn(hurst=0.6, step_us=1000), **KEY, times_us=times_us) != factors).any()


def test_factors_have_the_mean_and_deviation_that_were_asked_for():
    """One block: 2^15 steps of H 0.6, whose mean is within 4 x 0.2 x n^(H - 1) = 0.013 of 1."""
    times_us = np.arange(NOISE_STEPS) * 500
    factors = fgn_factors(Fgn(hurst=0.6, cv=0.2, step_us=500), **KEY, times_us=times_us)
    assert factors.mean() == pytest.approx(1.0, abs=0.013)
    assert factors.std() == pytest.approx(0.2, rel=0.03)


def test_beyond_a_block_of_noise_it_is_drawn_anew():
    end_us = NOISE_STEPS * 500
    spec = Fgn(step_us=500)
    across = fgn_factors(spec, **KEY, times_us=np.array([end_us - 500, end_us, end_us + 500]))
    first = fgn_factors(spec, **KEY, times_us=np.array([0, 500]))
    after = fgn_factors(spec, **KEY, times_us=np.array([end_us, end_us + 500]))
    assert across[1:].tolist() == after.tolist()
    assert after.tolist() != first.tolist()


def test_noisy_arrivals_are_poisson_around_their_intensity():
    """Given the factors, counts per step have the Poisson mean and variance rate x factor.

    2 UEs of 4,000 files/s: 20 per step of 2.5 ms on average. Sum of (n - l)^2 / l over 4,000
    steps: 4,000 +- 90, as each term has the variance 2 + 1/l.
    """
    fgn, steps = Fgn(cv=0.2), 4000
    files = drawn(Ftp3(4000.0, 1, fgn=fgn), steps * 5, n_ues=2)
    counts = np.bincount((files.slot + 4) // 5, minlength=steps + 1)
    # Slots 5k - 4 to 5k hold the arrivals of step k - 1.
    middles_us = np.arange(1, steps) * fgn.step_us - fgn.step_us // 2
    factors = fgn_factors(fgn, 1, "ran.traffic.UL.fgn", 0, middles_us)
    expected, counts = 20 * factors, counts[1:steps]
    assert expected.min() > 0
    assert counts.sum() == pytest.approx(expected.sum(), abs=4 * math.sqrt(expected.sum()))
    assert ((counts - expected) ** 2 / expected).sum() == pytest.approx(steps, abs=4 * 90)
    assert counts.var() / counts.mean() > 1.5  # 1 + 20 x 0.2^2 = 1.8, less what is outside 10 s


def test_a_sinusoid_by_hand():
    """Peak over trough 3: 1 -+ 0.5; the trough at the start, mean 1, half way up at a quarter."""
    day = Diurnal(period_s=8.0, peak_to_trough=3.0)
    times_us = np.array([0, 2, 4, 6, 8]) * 1_000_000
    assert diurnal_factors(day, times_us) == pytest.approx([0.5, 1, 1.5, 1, 0.5])
    at_peak = Diurnal(period_s=8.0, phase=0.5, peak_to_trough=3.0)
    assert diurnal_factors(at_peak, times_us) == pytest.approx([1.5, 1, 0.5, 1, 1.5])


def test_points_by_hand():
    """Levels 1, 3, 4, 0 have the mean 2: factors 0.5, 1.5, 2, 0, and lines between them."""
    day = Diurnal(period_s=8.0, points=(1.0, 3.0, 4.0, 0.0))
    times_us = np.arange(10) * 1_000_000
    assert diurnal_factors(day, times_us) == pytest.approx(
        [0.5, 1.0, 1.5, 1.75, 2.0, 1.0, 0.0, 0.25, 0.5, 1.0]
    )


def test_arrivals_follow_the_day_and_keep_its_mean():
    """1,000 files/s over 8 days of 1 s: 8,000 +- 89; the inner half of a day has 1/2 + 1/pi x a."""
    spec = Ftp3(250.0, 1, diurnal=Diurnal(period_s=1.0, peak_to_trough=3.0))
    files = drawn(spec, 8 * SLOTS_PER_S)
    assert len(files.slot) == pytest.approx(8000, abs=4 * 89)
    inner = np.abs((files.arrival_us % 1_000_000) - 500_000) < 250_000
    share = 0.5 + 0.5 / math.pi
    assert inner.mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 8000))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fgn(hurst=1.0), "hurst = 1.0: allowed is 0.5 to below 1"),
        (lambda: Fgn(hurst=float("nan")), "hurst = nan"),
        (lambda: Fgn(cv=0.0), "cv = 0.0: allowed is above 0, at most 2"),
        (lambda: Fgn(step_us=0), "step_us = 0"),
        (lambda: Diurnal(), "needs peak_to_trough or points"),
        (lambda: Diurnal(peak_to_trough=2.0, points=(1.0,)), "and not both"),
        (lambda: Diurnal(peak_to_trough=0.5), "peak_to_trough = 0.5: allowed is 1"),
        (lambda: Diurnal(points=(0.0, 0.0)), "not all 0"),
        (lambda: Diurnal(points=(1.0, -1.0)), "allowed are numbers >= 0"),
        (lambda: Diurnal(phase=1.5, points=(1.0,)), "phase = 1.5: allowed is 0 to 1"),
        (lambda: Diurnal(period_s=0.0, points=(1.0,)), "period_s = 0.0"),
    ],
)
def test_values_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_slot_is_the_unit_of_intensity():
    """A step that ends within a slot changes the intensity at the next one: no slot is split."""
    assert SLOT_US == 500
    spec = Ftp3(1e5, 1, fgn=Fgn(step_us=700, cv=2.0))
    files = drawn(spec, 1000)
    middles_us = np.arange(1, 1000) * SLOT_US - SLOT_US // 2
    factors = fgn_factors(Fgn(step_us=700, cv=2.0), 1, "ran.traffic.UL.fgn", 0, middles_us)
    counts = np.bincount(files.slot, minlength=1000)[1:]
    assert counts[factors == 0].sum() == 0
    assert np.corrcoef(counts, factors)[0, 1] > 0.99
