"""Placing tasks, compiled, beside the sharer of the site agent, which is the reference here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.gpu.cost import DOWNLINK, UPLINK, phy_demand
from testbed.gpu.timeline import RanTimeline, TaskKey, TaskRequest
from testbed.shaping.packing import (
    NEVER_US,
    gpu_numbers,
    latest_end_us,
    place,
    round_up,
)
from testbed.topology.profiles import gpu_profile

from .loop import new_packing

GB10, GH200 = gpu_profile("gb10"), gpu_profile("gh200")
READY_US = 300


class AtMost:
    """A sizing policy with one answer."""

    def __init__(self, sms: int) -> None:
        self.sms = sms

    def most_sms(self, group: object) -> int:
        return self.sms


tasks = st.lists(
    st.tuples(st.integers(1, 75), st.sampled_from([700, 1000, 2000])), min_size=1, max_size=8
)
earlier = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 1), st.integers(0, 500)), max_size=5
)


def as_array(steps: list[tuple[int, int, int]]) -> np.ndarray:
    return np.array(steps, np.int64).reshape(-1, 3)


@settings(max_examples=80)
@given(
    gpu=st.sampled_from([GB10, GH200]),
    tasks=tasks,
    earlier=earlier,
    direction=st.sampled_from([DOWNLINK, UPLINK]),
    level=st.integers(1, 6),
    other_permille=st.sampled_from([0, 300, 900]),
)
def test_places_exactly_as_the_timeline_does(gpu, tasks, earlier, direction, level, other_permille):
    """Any group beside any earlier reservations, bit for bit: steps and ends."""
    sizing = AtMost(gpu.sms)
    timeline = RanTimeline(gpu, other_permille, sizing)
    timeline.reserve(
        TaskRequest(TaskKey(100 + n, 0, way), ready, 5000, phy_demand(gpu, way, c, 1000 * c))
        for n, (c, way, ready) in enumerate(earlier)
    )
    used = as_array(timeline.ran_steps(READY_US, None, uplink=None))
    decoding = as_array(timeline.ran_steps(READY_US, None, uplink=True))
    blocks = np.array([c for c, _ in tasks])
    work = np.array([c * milli for c, milli in tasks])
    sizing.sms = 8 * level
    expected = timeline.reserve(
        TaskRequest(TaskKey(n, 1, direction), READY_US, 5000, phy_demand(gpu, direction, c, w))
        for n, (c, w) in enumerate(zip(blocks.tolist(), work.tolist(), strict=True))
    )
    packing = new_packing()
    place(
        gpu_numbers(gpu, other_permille),
        8 * level,
        direction == UPLINK,
        READY_US,
        len(tasks),
        blocks,
        work,
        used,
        len(used),
        decoding,
        len(decoding),
        packing,
    )
    for n, reservation in enumerate(expected):
        steps = [tuple(step) for step in packing.steps[n, : packing.n_steps[n]].tolist()]
        assert (tuple(steps), packing.end_us[n]) == (reservation.steps, reservation.end_us)


@pytest.mark.parametrize(
    ("blocks", "sms", "ends_us"),
    [
        ([20], 16, 500),  # 60 + 22 * 20, saturated at 16 SMs
        ([20], 8, 940),  # half of that speed: 60 + 2 * 440
        ([15], 8, 720),  # saturated at 16 SMs as well: 60 + 2 * 330
        # One partition step, so one after the other.
        ([15, 15], 8, 1440),
        # Saturated at 8 SMs each: pairs of 60 + 220, four of them.
        ([10] * 8, 16, 1120),
        ([], 8, 0),
        ([1], 7, NEVER_US),
    ],
)
def test_latest_end_by_hand(blocks, sms, ends_us):
    """gb10: 60 us, then 22 us per code block on 8 SMs per 10 of them, in steps of 8."""
    numbers, packing = gpu_numbers(GB10, 0), new_packing()
    counts = np.array(blocks, np.int64)
    assert ends_us == latest_end_us(numbers, sms, True, len(blocks), counts, 1000 * counts, packing)


def test_downlink_lanes_by_hand():
    """gb10: 30 us and 2 us per code block on 8 SMs; three chains on two lanes: two, then one."""
    numbers, packing = gpu_numbers(GB10, 0), new_packing()
    counts = np.array([100, 60, 20])
    ends_us = latest_end_us(numbers, 16, False, 3, counts, 1000 * counts, packing)
    assert packing.end_us[:3].tolist() == [230, 150, 220]  # the third begins at 150
    assert ends_us == 230


def test_decodes_stay_within_their_own_cap():
    """gb10 decodes on 40 SMs at most, whatever is free: six of 10 blocks are five, then one."""
    numbers, packing = gpu_numbers(GB10, 0), new_packing()
    counts = np.full(6, 10)
    assert latest_end_us(numbers, 48, True, 6, counts, 1000 * counts, packing) == 2 * 280


def test_contention_by_hand():
    """29 blocks take 60 % of the bandwidth; beside 90 % it is half too much: 60 + 638 * 1.5."""
    numbers, packing = gpu_numbers(GB10, 900), new_packing()
    counts = np.array([29])
    assert latest_end_us(numbers, 24, True, 1, counts, 1000 * counts, packing) == 60 + 957


def test_partitions_are_rounded_up_as_far_as_there_are_any():
    """gh200: steps of 8, and 132 SMs: 128 are the largest partition."""
    numbers = gpu_numbers(GH200, 0)
    assert [round_up(numbers, sms) for sms in (1, 8, 9, 128, 129, 500)] == [8, 8, 16, 128, 128, 128]


def test_work_without_any_sms_is_an_error():
    """All SMs taken for ever: the profile has no partition that small."""
    numbers = gpu_numbers(replace(GB10, sms=4), 0)
    counts = np.array([1])
    nothing = as_array([])
    with pytest.raises(ValueError, match="no SMs are left"):
        place(numbers, 8, True, 0, 1, counts, 1000 * counts, nothing, 0, nothing, 0, new_packing())
