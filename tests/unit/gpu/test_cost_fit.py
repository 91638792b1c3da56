"""The fit of the PHY constants: exact lines, a textbook example, bounds, bad input."""

from __future__ import annotations

import pytest

from testbed.gpu.cost_fit import LEAST_BLOCK_US, fit_line


def test_a_known_line_is_found_exactly() -> None:
    """Gb10's uplink: 60 us and 22 us per code block, no noise."""
    work = [1, 2, 7, 13, 29]
    fit = fit_line(work, [60 + 22 * blocks for blocks in work])
    assert (fit.fixed_us, fit.code_block_us) == pytest.approx((60, 22), rel=1e-12)
    assert fit.r_squared == pytest.approx(1)
    assert fit.worst_residual < 1e-12
    assert fit.time_us(10) == pytest.approx(280)


def test_a_noisy_line_is_that_of_least_squares() -> None:
    """By hand: means 2 and 16/3, slope 3/2, intercept 7/3, residuals 1/6, -1/3, 1/6."""
    fit = fit_line([1, 2, 3], [4, 5, 7])
    assert (fit.fixed_us, fit.code_block_us) == pytest.approx((7 / 3, 3 / 2))
    assert fit.r_squared == pytest.approx(1 - (1 / 6) / (14 / 3))
    assert (fit.worst, fit.worst_residual) == (1, pytest.approx(1 / 3 / 5))


def test_a_line_below_zero_goes_through_the_origin() -> None:
    """By hand: sum(w t) / sum(w w) = (1 + 10) / (1 + 4)."""
    fit = fit_line([1, 2], [1, 5])
    assert (fit.fixed_us, fit.code_block_us) == (0, pytest.approx(11 / 5))


def test_a_falling_line_has_the_least_slope_that_a_profile_may_have() -> None:
    fit = fit_line([1, 3], [10, 6])
    assert fit.code_block_us == LEAST_BLOCK_US
    assert fit.fixed_us == pytest.approx(8 - 2 * LEAST_BLOCK_US)
    assert fit.r_squared < 0.01


@pytest.mark.parametrize(
    ("work", "times", "said"),
    [
        ([1, 1], [2, 3], "two different amounts of work"),
        ([1, 2], [3], "2 amounts of work, 1 times"),
        ([1, 2], [3, 0], "a time of 0 us"),
    ],
)
def test_what_is_no_line_is_refused(work: list[float], times: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit_line(work, times)
