"""Sites over a day: profiles against their definition, sums by hand."""

import numpy as np
import pytest

from testbed.errors import TraceError
from testbed.ran.importers.profile import LoadProfile
from testbed.weaver_cli.characterise_macro import (
    MEAN_LOAD,
    PEAK_TO_TROUGH,
    Sites,
    curve_of,
    interval_cv,
    logged_sites,
    macro_row,
    simulated_sites,
    variation_rows,
)


def same(load):
    return load


def test_the_noise_of_an_interval_is_that_of_its_steps():
    """10 minutes are 240,000 steps of 2.5 ms: cv 0.45 x 240,000^(0.85 - 1) (self-similarity)."""
    assert interval_cv() == pytest.approx(0.45 * 240_000**-0.15)


def test_sites_that_peak_together_have_the_sinusoid_of_a_day():
    """Mean load 0.3, peak at noon 5 times the trough at midnight; the noise leaves the mean."""
    sites = simulated_sites(64, 0.0, 1, same)
    mean = sites.load.mean(axis=0)
    assert sites.load.shape == (64, 144)
    assert sites.hours[[0, 6, 143]].tolist() == pytest.approx([0, 1, 143 / 6])
    assert mean.mean() == pytest.approx(MEAN_LOAD, rel=0.02)
    assert mean[70:75].mean() / mean[[0, 1, 142, 143]].mean() == pytest.approx(
        PEAK_TO_TROUGH, rel=0.1
    )


def test_peaks_are_spread_over_the_hours_asked_for():
    """From noon on, over 6 h; the peak of a site is that of its first harmonic, which the noise of
    7 % moves by minutes."""
    load = simulated_sites(64, 6.0, 1, same).load
    peak_h = -np.angle(np.fft.rfft(load)[:, 1]) / (2 * np.pi) * 24 % 24
    assert (peak_h.min(), peak_h.max()) == pytest.approx((12, 18), abs=0.7)
    assert peak_h.mean() == pytest.approx(15, abs=0.7)


def test_more_sites_begin_with_the_fewer():
    few, many = (simulated_sites(n, 24.0, 3, same) for n in (2, 5))
    assert (many.load[:2] == few.load).all()
    assert (simulated_sites(2, 24.0, 4, same).load != few.load).any()


def test_a_curve_goes_through_its_points_and_the_origin():
    curve = curve_of([0.4, 0.2], [0.3, 0.1])
    assert curve(np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.9])) == pytest.approx(
        [0, 0.05, 0.1, 0.2, 0.3, 0.3]
    )


def sites_of(busy) -> Sites:
    busy = np.array(busy, dtype=float)
    names = tuple(str(n) for n in range(len(busy)))
    return Sites("by hand", names, np.arange(busy.shape[1]) * 1.0, busy, busy)


def test_two_opposite_sites_by_hand():
    """0.1 0.3 and 0.3 0.1: sum 0.4 throughout, so no variation; each: deviation 0.1, mean 0.2."""
    row = macro_row(sites_of([[0.1, 0.3], [0.3, 0.1]]))
    assert row["idle_fraction"] == pytest.approx(0.8)
    assert row["correlation_mean"] == pytest.approx(-1)
    assert row["complementarity"] == pytest.approx(1 - 0.4 / 0.6)
    assert (row["peak_to_mean_site"], row["peak_to_mean_sum"]) == pytest.approx((1.5, 1.0))
    assert (row["cv_site"], row["cv_sum"], row["cv_ratio"]) == pytest.approx((0.5, 0, 0))
    assert (row["idle_floor_of_sum"], row["idle_floor_of_sites"]) == pytest.approx((0.8, 0.7))


def test_one_site_has_no_correlation():
    row = macro_row(sites_of([[0.1, 0.3]]))
    assert row["correlation_mean"] is None
    assert row["complementarity"] == 0


def test_the_variation_of_independent_sites_falls_with_the_root_of_their_number():
    """Expected: 1/sqrt(n), for sites of independent values (white noise), within sampling."""
    draw = np.random.Generator(np.random.Philox(key=5))
    rows = variation_rows(sites_of(draw.uniform(0.2, 0.8, (64, 400))), seed=1)
    assert [row["sites"] for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert [row["cv_ratio"] for row in rows] == pytest.approx(
        [row["one_over_sqrt_sites"] for row in rows], rel=0.12
    )


def test_the_variation_of_equal_sites_does_not_fall():
    rows = variation_rows(sites_of(np.tile([0.1, 0.3, 0.2], (3, 1))), seed=1)
    assert [row["sites"] for row in rows] == [1, 2, 3]
    assert [row["cv_ratio"] for row in rows] == pytest.approx([1, 1, 1])


def profile(rows) -> LoadProfile:
    """Rows: (time_s, length_s, cell, dl, ul)."""
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return LoadProfile(*columns[:2], columns[2].astype(np.str_), *columns[3:])


def test_the_cells_of_a_log_are_sites_of_their_own_peak():
    """a: 8 B/s, then 4; b: none, then 2 + 1 of 2 s; scaled to 0.5 each; c is empty and left out."""
    sites = logged_sites(
        "a log",
        profile(
            [
                (0.0, 1.0, "a", 6.0, 2.0),
                (0.0, 1.0, "c", 0.0, 0.0),
                (3600.0, 2.0, "a", 4.0, 4.0),
                (3600.0, 2.0, "b", 2.0, 1.0),
            ]
        ),
        0.5,
        same,
    )
    assert sites.names == ("a", "b")
    assert sites.hours.tolist() == [0, 1]
    assert sites.load == pytest.approx(np.array([[0.5, 0.25], [0, 0.5]]))


@pytest.mark.parametrize(
    "rows",
    [
        [(0.0, 1.0, "a", 6.0, 2.0)],
        [(0.0, 1.0, "a", 0.0, 0.0), (1.0, 1.0, "a", 0.0, 0.0)],
        [(0.0, 1.0, "a", 1.0, 0.0), (1.0, 1.0, "a", 0.0, 1.0)],
    ],
)
def test_a_log_without_a_load_that_changes_is_refused(rows):
    with pytest.raises(TraceError, match=r"a log: 1 cells .* no load that changes"):
        logged_sites("a log", profile(rows), 0.5, same)
