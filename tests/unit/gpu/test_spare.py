"""Spare arithmetic against hand calculations and against a microsecond-by-microsecond count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.gpu import spare
from testbed.gpu.spare import Steps, TrainerState

# One GPU of 10 SMs; the RAN holds 4 on [0, 1000), 6 on [2000, 3000), both 2 more on [2500, 3500).
START, END, SMS = [0, 2000, 2500], [1000, 3000, 3500], [4, 6, 2]


def sampled(steps: Steps, length: int) -> np.ndarray:
    """The function at each microsecond, by walking its pieces."""
    out = np.zeros(length, dtype=np.int64)
    for at, value in zip(steps.at_us.tolist(), steps.values.tolist(), strict=True):
        out[max(at, 0) :] = value
    return out


def filled(intervals: list[tuple[int, int, int]], length: int) -> np.ndarray:
    out = np.zeros(length, dtype=np.int64)
    for start, end, sms in intervals:
        out[start:end] += sms
    return out


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20)).map(
        lambda t: (min(t[:2]), max(t[:2]), t[2])
    ),
    max_size=8,
)


def stacked(rows: list[tuple[int, int, int]]) -> Steps:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return spare.stack(*columns)


def test_a_stack_is_the_sum_of_its_intervals() -> None:
    ran = spare.stack(START, END, SMS)
    assert ran.at_us.tolist() == [0, 1000, 2000, 2500, 3000, 3500]
    assert ran.values.tolist() == [4, 0, 6, 8, 2, 0]
    assert ran.at([-1, 0, 999, 1000, 2600, 9999]).tolist() == [0, 4, 4, 0, 8, 0]


def test_integral_by_hand() -> None:
    ran = spare.stack(START, END, SMS)
    assert spare.integral(ran, 0, 4000) == 4 * 1000 + 6 * 1000 + 2 * 1000
    assert spare.integral(ran, 500, 2600) == 4 * 500 + 6 * 500 + 8 * 100
    assert spare.integral(ran, 700, 700) == 0


def test_usable_fraction_by_hand() -> None:
    ran = spare.stack(START, END, SMS)
    starts = spare.slots_within(1000, 0, 4000, 1000)
    assert starts.tolist() == [0, 1000, 2000, 3000]
    # maxima over [t, t + 1000): 4, 0, 8, 2, so spare 6 + 10 + 2 + 8 of 4 x 10
    assert spare.usable_fraction(ran, 10, starts, 1000) == 26 / 40
    # over [t, t + 2000) from 0, 1000, 2000: 4, 8, 8
    starts = spare.slots_within(1000, 0, 4000, 2000)
    assert spare.usable_fraction(ran, 10, starts, 2000) == (6 + 2 + 2) / 30


def test_a_window_excludes_its_end_and_includes_what_holds_at_its_start() -> None:
    ran = spare.stack([1000], [2000], [7])
    assert spare.window_max(ran, [0, 1, 1999, 2000], 1000).tolist() == [0, 7, 7, 0]


def test_no_window_no_fraction() -> None:
    ran = spare.stack(START, END, SMS)
    assert spare.usable_fraction(ran, 10, spare.slots_within(500, 0, 900, 1000), 1000) is None
    assert spare.spare_mean([], 10) is None
    with pytest.raises(ValueError, match="must be positive"):
        spare.window_max(ran, [0], 0)


def test_a_gpu_that_the_ran_overbooks_has_nothing_spare_not_less() -> None:
    assert spare.spare_mean([12, 0], 10) == 0.5


def test_envelope_changes_per_second() -> None:
    assert spare.changes_per_s([8, 8, 16, 16, 8, 8], 500_000) == 4.0
    assert spare.changes_per_s([8], 500_000) == 0.0


@given(intervals, st.integers(1, 30))
def test_window_max_equals_a_scan(rows: list[tuple[int, int, int]], window: int) -> None:
    truth = filled(rows, 100)
    starts = np.arange(0, 70)
    expected = [int(truth[t : t + window].max()) for t in starts]
    assert spare.window_max(stacked(rows), starts, window).tolist() == expected


@given(intervals, intervals)
def test_plus_and_largest_equal_a_scan(
    left: list[tuple[int, int, int]], right: list[tuple[int, int, int]]
) -> None:
    one, two = filled(left, 100), filled(right, 100)
    both = spare.plus(stacked(left), stacked(right))
    assert sampled(both, 100).tolist() == (one + two).tolist()
    most = spare.largest([stacked(left), stacked(right)])
    assert sampled(most, 100).tolist() == np.maximum(one, two).tolist()


def test_the_last_of_equal_times_is_the_state() -> None:
    state = spare.states([30, 10, 10], [2, 0, 1])
    assert (state.at_us.tolist(), state.values.tolist()) == ([10, 30], [1, 2])


def test_where_it_went_by_hand() -> None:
    """10 SMs over 100 us; the RAN takes 2 throughout, so 800 SM-us are idle."""
    went = spare.where_it_went(
        10,
        0,
        100,
        ran=spare.stack([0], [100], [2]),
        lease=spare.stack([10], [90], [8]),
        committed=spare.stack([20], [40], [6]),
        wasted={"abandoned": spare.stack([40], [50], [8])},
        state=spare.states([0, 60, 80], [TrainerState.WORK, TrainerState.WAITING, 0]),
    )
    assert went.committed == 6 * 20
    assert went.wasted == {"abandoned": 8 * 10}
    assert went.narrow == 2 * 20  # leased 8, ran on 6
    assert went.gaps == 8 * (10 + 10)  # [10, 20) and [50, 60)
    assert went.waiting == 8 * 20  # [60, 80)
    assert went.idle == 8 * 10  # [80, 90)
    assert went.not_leased == 8 * (10 + 10)  # before and after the lease
    assert went.total == 800


def test_what_overlaps_the_ran_is_no_use_of_idle_time() -> None:
    went = spare.where_it_went(
        10,
        0,
        10,
        ran=spare.stack([0], [10], [6]),
        lease=spare.stack([0], [10], [10]),
        committed=spare.stack([0], [10], [10]),
        wasted={},
        state=spare.states([0], [TrainerState.WORK]),
    )
    assert (went.committed, went.total) == (40, 40)


@given(
    ran=intervals,
    lease=intervals,
    committed=intervals,
    wasted=st.lists(intervals, max_size=3),
    changes=st.lists(st.tuples(st.integers(0, 60), st.sampled_from(TrainerState)), max_size=6),
    span=st.tuples(st.integers(0, 70), st.integers(0, 70)).map(sorted),
)
def test_the_parts_sum_to_the_idle_time(
    ran: list, lease: list, committed: list, wasted: list, changes: list, span: list
) -> None:
    sms, (lo, hi) = 24, span
    columns = [list(column) for column in zip(*changes, strict=True)] or [[], []]
    went = spare.where_it_went(
        sms,
        lo,
        hi,
        ran=stacked(ran),
        lease=stacked(lease),
        committed=stacked(committed),
        wasted={str(i): stacked(rows) for i, rows in enumerate(wasted)},
        state=spare.states(*columns),
    )
    busy = spare.integral(stacked(ran).clipped(sms), lo, hi)
    assert went.total == sms * (hi - lo) - busy
    parts = (went.committed, went.narrow, went.gaps, went.waiting, went.idle, went.not_leased)
    assert all(part >= 0 for part in (*parts, *went.wasted.values()))


def test_overlaps_by_hand() -> None:
    ran = spare.stack([100, 150], [200, 250], [6, 4])
    quanta = spare.stack([0, 400], [180, 500], [8, 10])
    found = spare.overlaps(ran, quanta, 10, 0, 1000)
    # [100, 150): 6 + 8 - 10 = 4 over; [150, 180): 10 + 8 - 10 = 8 over; then no quantum runs
    assert [(o.start_us, o.end_us, o.most_sms, o.sm_us) for o in found] == [
        (100, 180, 8, 4 * 50 + 8 * 30)
    ]
    assert spare.split_by_tolerance(found, 79) == (found, [])
    assert spare.split_by_tolerance(found, 80) == ([], found)
    assert spare.overlaps(ran, quanta, 10, 0, 0) == []


def test_a_ran_that_overbooks_alone_is_no_violation() -> None:
    assert spare.overlaps(spare.stack([0], [100], [20]), stacked([]), 10, 0, 100) == []


@given(intervals, intervals)
def test_overlaps_equal_a_scan(ran: list, quanta: list) -> None:
    held = filled(quanta, 100)
    excess = np.minimum(filled(ran, 100) + held - 16, held).clip(min=0)
    found = spare.overlaps(stacked(ran), stacked(quanta), 16, 0, 100)
    assert sum(item.sm_us for item in found) == excess.sum()
    assert sum(item.duration_us for item in found) == np.count_nonzero(excess)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        spare.stack([0], [1, 2], [3])
