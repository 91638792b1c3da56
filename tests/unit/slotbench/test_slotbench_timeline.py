"""The compiled timeline against calculations by hand, and against ``RanTimeline``'s own steps."""

from __future__ import annotations

import numpy as np

from testbed.gpu.cost import PhyDemand
from testbed.gpu.timeline import RanTimeline, Reservation, TaskKey, TaskRequest
from testbed.rng import generator
from testbed.shaping.arrays import Ints
from testbed.slotbench.gpu_time import add, most_within, reserved, tidy
from testbed.slotbench.state import BenchState, new_state
from testbed.topology.profiles import gpu_profile

ALL, DECODES = 1, 2


def timeline_of(pieces: list[tuple[int, int, int, int]]) -> tuple[BenchState, Ints]:
    """(from_us, to_us, SMs, direction) of each piece."""
    state, rows = new_state(2, 1, np.full(2, 16)), np.zeros((256, 3), np.int64)
    for piece in pieces:
        add(state, rows, *piece)
    return state, rows


def steps(state: BenchState, rows: Ints, column: int, from_us: int) -> list[tuple[int, ...]]:
    found = np.zeros_like(rows)
    n = reserved(state, rows, column, from_us, found)
    return [tuple(row) for row in found[:n].tolist()]


def test_steps_by_hand():
    """8 SMs of downlink on [100, 300), 16 of a decode on [200, 500), 8 more on [500, 600)."""
    state, rows = timeline_of([(100, 300, 8, 0), (200, 500, 16, 1), (500, 600, 8, 1)])
    assert steps(state, rows, ALL, 0) == [
        (0, 100, 0),
        (100, 200, 8),
        (200, 300, 24),
        (300, 500, 16),
        (500, 600, 8),
    ]
    assert steps(state, rows, DECODES, 250) == [(250, 500, 16), (500, 600, 8)]
    assert steps(state, rows, ALL, 600) == []
    assert most_within(state, rows, 300, 600) == 16
    assert most_within(state, rows, 299, 300) == 24
    assert most_within(state, rows, 600, 900) == 0


def test_neighbours_that_do_not_differ_are_one_step():
    """A decode ends where another of as many SMs begins: the scheduler sees no change there."""
    state, rows = timeline_of([(0, 100, 8, 1), (100, 200, 8, 1), (150, 180, 8, 0)])
    assert steps(state, rows, DECODES, 0) == [(0, 200, 8)]


def test_what_is_over_is_dropped():
    state, rows = timeline_of([(0, 100, 8, 1), (100, 200, 8, 1), (300, 400, 24, 1)])
    tidy(state, rows, 150)
    assert state.n_breakpoints == 4  # 8 SMs, none from 200 on, 24 from 300 on, none from 400 on
    assert steps(state, rows, ALL, 150) == [(150, 200, 8), (200, 300, 0), (300, 400, 24)]


def test_any_pieces_give_the_steps_of_the_node_s_timeline():
    """Random pieces; the expected steps are ``RanTimeline.ran_steps``'s."""
    for case in range(50):
        draw = generator(1, "test.timeline", case)
        nodes, pieces = both_of(draw.integers(0, 40, (12, 2)), draw.integers(1, 4, 12))
        state, rows = timeline_of(pieces)
        for from_us in (0, 7, 25):
            tidy(state, rows, from_us)
            assert steps(state, rows, ALL, from_us) == nodes.ran_steps(from_us, None)
            decodes = nodes.ran_steps(from_us, None, uplink=True)
            assert steps(state, rows, DECODES, from_us) == decodes
            assert most_within(state, rows, from_us, 30) == nodes.ran_sms_within(from_us, 30)


def both_of(spans: Ints, sms: Ints) -> tuple[RanTimeline, list[tuple[int, int, int, int]]]:
    """One reservation per piece; (start, length) in microseconds, SMs in partition steps."""
    nodes, pieces = RanTimeline(gpu_profile("gb10")), []
    for number, ((from_us, length_us), steps_of_8) in enumerate(zip(spans, sms, strict=True)):
        direction, to_us = number % 2, int(from_us + length_us + 1)
        piece = (int(from_us), to_us, 8 * int(steps_of_8), direction)
        key = TaskKey(number, 0, direction)
        request = TaskRequest(key, piece[0], to_us, PhyDemand(piece[2], 0.0, 1.0, 0))
        nodes._reservations.append(Reservation(request, ((piece[0], piece[2]),), to_us))
        pieces.append(piece)
    return nodes, pieces
