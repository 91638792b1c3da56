"""Reservations of the RAN: how tasks share SMs, what is left spare, and what may be promised."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.gpu.cost import DOWNLINK, UPLINK, Segment, finish_us, phy_demand
from testbed.gpu.lease_policy import WholeSpare
from testbed.gpu.phy_tasks import deadline_us, known_until_us, ready_us
from testbed.gpu.promise import CellWorst, WorstCase
from testbed.gpu.timeline import RanTimeline, TaskKey, TaskRequest
from testbed.topology.profiles import gpu_profile

GB10 = gpu_profile("gb10")
SETTINGS = settings(max_examples=150)
SLOT_US = 500
CAP = 40


def request(cell, direction, blocks, ready, air_slot=0):
    demand = phy_demand(GB10, direction, blocks, 1000 * blocks)
    return TaskRequest(TaskKey(cell, air_slot, direction), ready, ready + 1500, demand)


def steps(reservation):
    return list(reservation.steps), reservation.end_us


# --- by hand ------------------------------------------------------------------------------------


def test_one_decode_has_the_sms_that_saturate_it():
    (placed,) = RanTimeline(GB10).reserve([request(0, UPLINK, 29, 5000)])
    assert steps(placed) == ([(5000, 24)], 5698)
    assert placed.pieces() == [(5000, 5698, 24)]


def test_two_full_cells_share_the_cap_and_meet_their_deadline():
    """40 SMs for two: 24 and 16. The first ends at 698. By then the second has done
    (698 - 60) * 16 / 24 = 425.33 us; the other 212.67 us run on 24 SMs: 698 + 212.67 -> 911 us."""
    first, second = RanTimeline(GB10).reserve(
        [request(0, UPLINK, 29, 0), request(1, UPLINK, 29, 0)]
    )
    assert steps(first) == ([(0, 24)], 698)
    assert steps(second) == ([(0, 16), (698, 24)], 911)
    assert second.end_us <= 1500


def test_two_cells_full_at_256qam_meet_their_deadline_too():
    """The largest uplink block of 100 MHz (273 PRB, MCS 27 of table 2, one layer): 39 code blocks
    at most; 60 + 858 us on 32 SMs alone."""
    placed = RanTimeline(GB10).reserve([request(cell, UPLINK, 39, 0) for cell in range(2)])
    assert max(item.end_us for item in placed) <= 1500


def test_decode_that_becomes_ready_later_takes_what_is_left():
    """24 of 40 are taken until 698: 16 SMs from 400 on, 24 from 698 on.

    60 us fixed until 460, (698 - 460) * 2/3 = 158.67 of 638 us; 698 + 479.33 -> 1178."""
    timeline = RanTimeline(GB10)
    timeline.reserve([request(0, UPLINK, 29, 0)])
    (second,) = timeline.reserve([request(1, UPLINK, 29, 400)])
    assert steps(second) == ([(400, 16), (698, 24)], 1178)


def test_task_waits_where_no_smallest_partition_is_free():
    """48 SMs in six downlink chains of 8 until 130; the seventh begins then."""
    placed = RanTimeline(GB10).reserve([request(cell, DOWNLINK, 50, 0) for cell in range(7)])
    assert {item.end_us for item in placed[:6]} == {130}
    assert (placed[6].start_us, placed[6].end_us) == (130, 260)


def test_spare_is_what_the_ran_leaves_in_steps_of_a_partition():
    timeline = RanTimeline(GB10)
    timeline.reserve([request(0, UPLINK, 29, 100)])
    windows = [(w.start_us, w.end_us, w.sms) for w in timeline.spare_windows(0, 1000)]
    assert windows == [(0, 100, 48), (100, 798, 24), (798, 1000, 48)]
    assert timeline.spare_windows(500, 500) == ()


def test_windows_without_sms_are_left_out():
    timeline = RanTimeline(GB10)
    timeline.reserve([request(cell, DOWNLINK, 50, 100) for cell in range(6)])
    windows = [(w.start_us, w.end_us, w.sms) for w in timeline.spare_windows(0, 300)]
    assert windows == [(0, 100, 48), (230, 300, 48)]


def test_past_reservations_are_dropped_and_later_ones_kept():
    timeline = RanTimeline(GB10)
    timeline.reserve([request(0, UPLINK, 29, 0), request(0, UPLINK, 29, 2500, air_slot=5)])
    timeline.drop_before(697)
    assert len(timeline.reservations()) == 2
    timeline.drop_before(698)
    assert [item.start_us for item in timeline.reservations()] == [2500]


@pytest.mark.parametrize(
    ("direction", "ready", "deadline"),
    [(DOWNLINK, 9 * 500, 10 * 500 - 125), (UPLINK, 11 * 500, 11 * 500 + 1500)],
)
def test_when_work_of_slot_ten_may_begin_and_must_end(direction, ready, deadline):
    assert ready_us(direction, 10, SLOT_US) == ready
    assert deadline_us(direction, 10, SLOT_US, 1500, 125) == deadline


def test_plans_are_known_until_the_first_work_that_they_do_not_hold():
    """Downlink through slot 10: that of slot 11 could begin at 5000. Uplink through 13: 7500."""
    assert known_until_us(10, 13, SLOT_US) == 5000
    assert known_until_us(10, 7, SLOT_US) == 4500


# --- for any plans ------------------------------------------------------------------------------

TASKS = st.lists(
    st.tuples(
        st.integers(0, 3),  # cell
        st.sampled_from([DOWNLINK, UPLINK]),
        st.integers(1, 60),  # code blocks
        st.integers(0, 6),  # ready, in 300 us
    ),
    min_size=1,
    max_size=8,
)
BATCHES = st.lists(TASKS, min_size=1, max_size=4)


def place(timeline, batches):
    placed = []
    for number, tasks in enumerate(batches):
        before = list(timeline.reservations())
        placed += timeline.reserve(
            request(cell, direction, blocks, 300 * ready + 200 * number, air_slot=number)
            for cell, direction, blocks, ready in tasks
        )
        assert list(timeline.reservations())[: len(before)] == before, "RAN plans do not change"
    return placed


@SETTINGS
@given(BATCHES)
def test_never_more_sms_than_the_gpu_has_nor_decodes_above_the_cap(batches):
    timeline = RanTimeline(GB10)
    placed = place(timeline, batches)
    assert len(placed) == sum(map(len, batches))
    assert all(sms <= GB10.sms for _, _, sms in timeline.ran_steps(0, None))
    assert all(sms <= CAP for _, _, sms in timeline.ran_steps(0, None, uplink=True))


@SETTINGS
@given(BATCHES, st.sampled_from([0, 300, 700]))
def test_every_task_gets_the_work_done_that_it_needs(batches, other_permille):
    for item in place(RanTimeline(GB10, other_permille), batches):
        segments = [Segment(at_us, sms, other_permille) for at_us, sms in item.steps]
        assert finish_us(GB10, item.request.demand, segments) == item.end_us
        assert item.start_us >= item.request.ready_us
        assert all(0 <= sms <= item.request.demand.sms for _, sms in item.steps)
        assert [at_us for at_us, _ in item.steps] == sorted({at_us for at_us, _ in item.steps})
        undisturbed = item.request.demand.fixed_us + item.request.demand.work_us
        assert item.end_us - item.start_us >= math.floor(undisturbed)


@SETTINGS
@given(BATCHES, st.integers(0, 3000), st.integers(1, 3000))
def test_spare_windows_never_overlap_a_reservation(batches, start_us, length_us):
    timeline = RanTimeline(GB10)
    placed = place(timeline, batches)
    windows = timeline.spare_windows(start_us, start_us + length_us)
    edges = sorted(
        {start_us, *(at for item in placed for piece in item.pieces() for at in piece[:2])}
    )
    reached = start_us
    for window in windows:
        assert reached <= window.start_us < window.end_us <= start_us + length_us
        reached = window.end_us
        assert window.sms % GB10.sm_step == 0
        for at_us in [window.start_us, *(e for e in edges if window.start_us < e < window.end_us)]:
            ran = sum(p[2] for item in placed for p in item.pieces() if p[0] <= at_us < p[1])
            assert GB10.sms - GB10.sm_step < ran + window.sms <= GB10.sms


@SETTINGS
@given(BATCHES)
def test_largest_count_within_a_window_is_that_of_its_steps(batches):
    timeline = RanTimeline(GB10)
    place(timeline, batches)
    covered = timeline.ran_steps(100, 2000)
    assert covered[0][0] == 100
    assert covered[-1][1] == 2000
    assert all(left[1] == right[0] for left, right in pairwise(covered))
    assert timeline.ran_sms_within(100, 2000) == max(sms for _, _, sms in covered)


# --- the promise --------------------------------------------------------------------------------


def worst(cells, tdd=("DDDSU",)):
    """Cells of 100 MHz: at most 39 code blocks up, 78 down; one TDD pattern each, in turn."""
    found = []
    for cell in range(cells):
        kinds = tdd[cell % len(tdd)]
        downlink = tuple(i for i, kind in enumerate(kinds) if kind in "DS")
        uplink = tuple(i for i, kind in enumerate(kinds) if kind == "U")
        found.append(
            CellWorst(
                cell,
                len(kinds),
                downlink,
                uplink,
                phy_demand(GB10, DOWNLINK, 78, 78_000),
                phy_demand(GB10, UPLINK, 39, 39_000),
            )
        )
    return found


def test_promise_of_one_full_cell():
    """Uplink of slot 4 decodes 32 SMs from 2500 to 3418, over slots 5 and 6 (= 0 and 1 of the next
    period); downlink takes 8 SMs for 186 us one slot ahead of slots 0 to 3."""
    promise = WorstCase(GB10, SLOT_US, worst(1), 0)
    expected = [32 + 8, 32 + 8, 8, 0, 8]
    for slot, sms in enumerate(expected):
        assert promise.within(slot * SLOT_US, (slot + 1) * SLOT_US) == sms
        assert promise.within((slot + 50) * SLOT_US, (slot + 50) * SLOT_US + 1) == sms
    assert promise.within(0, 100_000) == 40
    assert promise.within(700, 700) == 0


PATTERNS = [("DDDSU",), ("DDSU",), ("DSUUU",), ("DDDSU", "DDSU"), ("DDDDDDDSUU", "DDSU")]


def check_promise(cells, load, slots):
    """Place what ``load(direction, most)`` code blocks ask for; nothing may exceed the promise."""
    promise = WorstCase(GB10, SLOT_US, cells, 0)
    timeline = RanTimeline(GB10)
    for air_slot in range(2, slots):
        tasks = []
        for cell in cells:
            phase = air_slot % cell.period_slots
            for direction, carried, most in (
                (DOWNLINK, cell.downlink_slots, 78),
                (UPLINK, cell.uplink_slots, 39),
            ):
                if phase in carried and (blocks := load(most)):
                    ready = ready_us(direction, air_slot, SLOT_US)
                    tasks.append(request(cell.cell, direction, blocks, ready, air_slot))
        timeline.reserve(tasks)
    for slot in range(slots):
        window = (slot * SLOT_US, (slot + 1) * SLOT_US)
        assert timeline.ran_sms_within(*window) <= promise.within(*window), slot


@pytest.mark.parametrize("cells", [1, 2, 3, 4])
@pytest.mark.parametrize("patterns", PATTERNS)
def test_promise_bounds_full_cells_of_any_patterns(cells, patterns):
    """Patterns of unlike periods meet in every way within their least common multiple."""
    check_promise(worst(cells, patterns), lambda most: most, 60)


@settings(max_examples=60)
@given(cells=st.integers(1, 4), patterns=st.sampled_from(PATTERNS), data=st.data())
def test_promise_bounds_any_plan(cells, patterns, data):
    check_promise(worst(cells, patterns), lambda most: data.draw(st.integers(0, most)), 25)


# --- dividing the spare -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sms", "jobs", "expected"),
    [
        (48, ["a"], {"a": 48}),
        (48, ["a", "b"], {"a": 24, "b": 24}),
        (40, ["a", "b"], {"a": 24, "b": 16}),
        (16, ["a", "b", "c"], {"a": 8, "b": 8, "c": 0}),
        (0, ["a"], {"a": 0}),
    ],
)
def test_whole_spare_by_hand(sms, jobs, expected):
    assert WholeSpare().divide(sms, jobs, GB10) == expected


@SETTINGS
@given(
    sms=st.integers(0, 200),
    count=st.integers(1, 9),
    gpu=st.sampled_from(["gb10", "l40s", "h200"]),
)
def test_whole_spare_gives_out_all_it_can(sms, count, gpu):
    profile = gpu_profile(gpu)
    shares = WholeSpare().divide(sms, [f"j{i}" for i in range(count)], profile)
    assert len(shares) == count
    assert all(part == profile.round_down(part) for part in shares.values())
    assert max(shares.values()) - min(shares.values()) <= max(profile.sm_step, profile.min_sms)
    assert sum(shares.values()) <= sms
