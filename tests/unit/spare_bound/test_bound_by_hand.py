"""Bounds of tiny inputs against optima found by hand (costs: see ``makers``)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from testbed.spare_bound.bound import bound
from testbed.spare_bound.costs import BLOCK_BYTES

from .makers import GB10, SIMPLE, given, load, sdus


def sms(asked, **options):
    """(mean SMs that the fluid programme leaves to the RAN, the granular one)."""
    result = bound(asked, **options)
    assert len(result.windows) == 1
    (found,) = result.windows
    return (
        pytest.approx(asked.gpu.sms * (1 - found.bound_fraction), abs=1e-6),
        pytest.approx(asked.gpu.sms * (1 - found.bound_fraction_granular), abs=1e-6),
    )


def test_a_burst_is_spread_evenly_until_its_deadline():
    """100 blocks in 10 slots, one window over all: 10 blocks x 200 SM-us / 500 us = 4 SMs."""
    fluid, granular = sms(given(load([(0, 0, 9, 100, 0, 9)])))
    assert (fluid, granular) == (4.0, 8.0)


def test_nothing_to_do_leaves_the_whole_gpu():
    result = bound(given())
    assert (result.status, result.windows[0].starts) == ("met", 1)
    assert result.windows[0].bound_fraction == 1.0
    assert result.windows[0].bound_fraction_granular == 1.0


def test_the_cost_of_a_decode_is_convex():
    """30 blocks in 2 slots: 15 each, 10 x 200 + 5 x 600 = 5000 SM-us in 500 us: 10 SMs."""
    assert sms(given(load([(0, 0, 9, 30, 0, 1)])))[0] == 10.0


def test_an_urgent_class_leaves_no_choice():
    """10 urgent blocks are due in slot 0 (4 SMs); 6 lazy ones fit beside them in 3 more slots.

    One class of the same 16 blocks would need 4 per slot, 1.6 SMs.
    """
    rows = [(0, 0, 80, 10, 0, 0), (0, 1, 9, 6, 0, 3)]
    assert sms(given(load(rows)))[0] == 4.0


def test_a_late_arrival_leaves_no_choice():
    """40 blocks that come in slot 2 and are due in slot 3: 20 each, 8000 / 500 = 16 SMs."""
    assert sms(given(load([(0, 0, 9, 40, 2, 3)])))[0] == 16.0


def test_known_slots_delay_the_first_air_slot():
    """As above with an arrival in slot 0 that takes two slots to become known."""
    early = dataclasses.replace(load([(0, 0, 9, 40, 0, 3)]), known_slots=2)
    assert sms(given(early))[0] == 16.0


def test_the_radio_limits_what_a_slot_carries():
    """20 blocks of one UE in 2 slots, of which the first carries 5: 15 in the second, 10 SMs."""
    uplink = load([(0, 0, 9, 10, 0, 1), (0, 0, 9, 10, 0, 1)])
    uplink.capacity_bytes[0, 0] = 5 * BLOCK_BYTES
    assert sms(given(uplink), block_us=500)[0] == 10.0


def test_what_cannot_be_in_time_is_asked_for_as_early_as_it_can_be():
    """20 blocks due in slot 1, but 5 per slot: 10 are late then, and 5 per slot go on: 2 SMs."""
    uplink = load([(0, 0, 9, 10, 0, 1), (0, 0, 9, 10, 0, 1)], capacity_bytes=5 * BLOCK_BYTES)
    result = bound(given(uplink))
    assert (result.status, result.late_blocks) == ("lowered", pytest.approx(10))
    assert sms(given(uplink))[0] == 2.0


def test_what_the_gpu_cannot_decode_in_time_is_late():
    """20 blocks take 500 us at saturation, a 21st does not fit: of 24 due at once 4 are late."""
    result = bound(given(load([(0, 0, 9, 24, 0, 0)])))
    assert result.late_blocks == pytest.approx(4)


def test_windows_take_the_largest_of_their_slots():
    """Bursts decoded in slots 1 and 6, 4 SMs each, q of 2 slots: 4 of 8 windows hold one."""
    rows = [(0, 0, 9, 10, 0, 0), (0, 1, 9, 10, 5, 5)]
    asked = given(load(rows), windows_us=(1000,), from_slot=0, to_slot=8)
    assert sms(asked) == (2.0, 4.0)


@pytest.mark.parametrize(("window_us", "windows"), [(500, 1), (999, 1), (1000, 2), (2500, 5)])
def test_a_window_counts_by_its_whole_slots(window_us, windows):
    """One burst of 4 SMs, 10 windows: as many hold it as a window has whole slots."""
    asked = given(load([(0, 0, 9, 10, 10, 10)]), windows_us=(window_us,), from_slot=5, to_slot=15)
    assert sms(asked)[0] == 4 * windows / 10


def test_no_window_reaches_beyond_the_end():
    """q of 5 slots and an end at 12: the starts 5 to 7 remain, all of which hold slot 11 or not."""
    asked = given(
        load([(0, 0, 9, 10, 10, 10)]), windows_us=(2500,), from_slot=5, to_slot=12, end_slot=12
    )
    (found,) = bound(asked).windows
    assert found.starts == 3
    assert 48 * (1 - found.bound_fraction) == pytest.approx(4 / 3)


def test_a_decode_budget_of_three_slots_spreads_a_decode():
    """30 blocks of one slot: 2000 + 6000 + 10000 SM-us in 1500 us: 12 SMs."""
    asked = given(load([(0, 0, 9, 30, 0, 0)], carries=[0]), ul_decode_budget_us=1500)
    assert sms(asked)[0] == 12.0


def test_a_budget_that_ends_within_a_slot_spreads_a_decode_just_so_far():
    """The same in 1250 us: 14.4 SMs."""
    asked = given(load([(0, 0, 9, 30, 0, 0)], carries=[0]), ul_decode_budget_us=1250)
    assert sms(asked)[0] == 14.4


def test_downlink_must_be_done_ahead_of_the_air():
    """75 blocks x 8 SM-us in the 375 us before the lead of air slot 5: 1.6 SMs in slot 4."""
    asked = given(downlink=load([(0, 0, 9, 75, 5, 5)]), windows_us=(500,), from_slot=4, to_slot=5)
    assert sms(asked)[0] == 1.6


def test_uplink_goes_around_downlink():
    """Decodes 2000 SM-us in slots 1 to 3, downlink 600 in the first 375 us of slot 1: 2600 / 1500.

    The downlink alone would need 1.6 SMs, so that the sum is what counts.
    """
    asked = given(
        load([(0, 0, 9, 10, 0, 0)], carries=[0]),
        load([(0, 1, 9, 75, 2, 2)], carries=[2]),
        ul_decode_budget_us=1500,
    )
    assert sms(asked)[0] == pytest.approx(2600 / 1500)


def test_a_cell_of_many_blocks_costs_more_than_two_of_few():
    """20 blocks of one of two cells: 8000 SM-us, not twice 2000; of both: 10 each, 4000."""
    one = load([(0, 0, 9, 20, 0, 0)], cells=2)
    both = load([(0, 0, 9, 10, 0, 0), (1, 0, 9, 10, 0, 0)], cells=2)
    idle = load(cells=2, carries=())
    assert sms(given(one, idle), block_us=500)[0] == 16.0
    assert sms(given(both, idle), block_us=500)[0] == 8.0


def test_decodes_together_stay_within_their_cap():
    """Three cells, 10 blocks each: 12 SMs in one slot. With a cap of 8, one slot decodes 20."""
    capped = dataclasses.replace(SIMPLE, phy=dataclasses.replace(SIMPLE.phy, ran_sm_cap=8))
    rows = [(cell, 0, 9, 10, 0, 0) for cell in range(3)]
    idle = load(cells=3, carries=())
    assert bound(given(load(rows, cells=3), idle)).late_blocks == 0
    late = bound(given(load(rows, cells=3), idle, gpu=capped))
    assert late.late_blocks == pytest.approx(10)


def test_packets_that_share_no_block_are_whole_code_blocks():
    """A packet of 1 byte takes a code block: 200 SM-us, 0.4 SMs. Two at once share one."""
    tiny = sdus((0, 0, 80, 1, 0, 0))
    tiny = dataclasses.replace(tiny, n_bytes=np.array([1]))
    uplink = dataclasses.replace(load(), sdus=tiny)
    assert sms(given(uplink))[0] == 0.4
    two = sdus((0, 0, 80, 1, 0, 0), (0, 0, 80, 1, 0, 0))
    two = dataclasses.replace(two, n_bytes=np.array([1, 1]))
    shared = dataclasses.replace(load(), sdus=two)
    assert sms(given(shared))[0] == pytest.approx(0.4 * 2 / BLOCK_BYTES)


def test_a_packet_takes_the_least_sms_in_one_of_its_slots():
    """Due in one of 3 slots, q of one slot: 8 SMs in one of 6 windows; the fluid needs 0.4."""
    asked = given(load([(0, 0, 80, 1, 0, 2)]), windows_us=(500,), from_slot=0, to_slot=6)
    assert sms(asked) == (0.4 / 6, 8 / 6)


def test_two_packets_share_the_slot_that_both_allow():
    """Slots 1 to 3 and 3 to 5, q of one slot: one hit in slot 3 does for both."""
    rows = [(0, 0, 80, 1, 0, 2), (0, 1, 80, 1, 2, 4)]
    asked = given(load(rows), windows_us=(500,), from_slot=0, to_slot=8)
    assert sms(asked)[1] == 8 / 8


def test_an_interval_counts_what_must_be_served_within_it():
    """Of 100 blocks that may be served in slots 0 to 9, a window over five needs none.

    Ten more that are due in its last slot may have been served before as well, unless they arrive
    within it.
    """
    early = [(0, 0, 9, 100, 0, 9), (0, 1, 80, 10, 0, 4)]
    assert sms(given(load(early), windows_us=(2000,), from_slot=2, to_slot=3))[0] == 0.0
    within = [(0, 0, 9, 100, 0, 9), (0, 1, 80, 10, 4, 4)]
    assert sms(given(load(within), windows_us=(2000,), from_slot=2, to_slot=3))[0] == 4.0


def test_prices_between_pieces_keep_a_steady_load_steady():
    """10 blocks per slot, each due 20 slots later: 80 of 100 slots' work is due by the end.

    Spread evenly, 8 blocks per slot, 3.2 SMs: never ahead of the arrivals, and 20 slots behind them
    only at the end. A piece of 25 windows over 26 slots, alone, must do the work of 6.
    """
    asked = given(
        load([(0, slot % 3, 9, 10, slot, slot + 20) for slot in range(100)], slots=110),
        load(carries=(), slots=110),
        windows_us=(1000,),
        to_slot=100,
        end_slot=101,
    )
    middle = dataclasses.replace(asked, from_slot=26, to_slot=51)
    whole = bound(asked, block_us=500).windows[0]
    priced = bound(asked, block_us=500, piece_us=12_500).windows[0]
    alone = bound(middle, block_us=500).windows[0]
    assert (whole.pieces, priced.pieces, alone.pieces) == (1, 4, 1)
    assert whole.starts == priced.starts == 99
    assert 48 * (1 - whole.bound_fraction) == pytest.approx(3.2, abs=1e-6)
    assert 3.1 <= 48 * (1 - priced.bound_fraction) <= 3.2 + 1e-6
    assert 48 * (1 - alone.bound_fraction) == pytest.approx(4 * 6 / 26)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"from_slot": 2}, "from_slot = 2: allowed is 0 to 1"),
        ({"end_slot": 40}, "end_slot = 40: allowed is 1 to 39"),
        ({"windows_us": (499,)}, "windows_us = 499: allowed is 500 to"),
        ({"fronthaul_lead_us": 500}, "fronthaul_lead_us = 500: allowed is 0 to 499"),
        ({"downlink": load(cells=2)}, "capacity_bytes of shapes"),
        ({"uplink": load([(1, 0, 9, 1, 0, 0)])}, "uplink.sdus.cell = 1: allowed is 0 to 0"),
        ({"uplink": load([(0, 0, 9, 0, 0, 0)])}, "uplink.sdus.n_bytes = 0: allowed is 1 to"),
        ({"uplink": load([(0, 0, 9, 1, 9, 2)])}, "uplink.sdus row 0: deadline_us = 1999: allowed"),
    ],
)
def test_bad_input_is_named(change, text):
    with pytest.raises(ValueError, match=text):
        given(**change)


def test_a_window_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match="windows_us = 20000: allowed is what fits between"):
        bound(given(windows_us=(20_000,), from_slot=1, to_slot=2, end_slot=30))


def test_the_real_gpu_profile_of_the_facts():
    """GB10, 10 code blocks in one uplink slot: (60 x 8 + 22 x 10 x 8) SM-us in 1500 us."""
    asked = given(load([(0, 0, 9, 10, 0, 0)], carries=[0]), gpu=GB10, ul_decode_budget_us=1500)
    assert sms(asked)[0] == pytest.approx(2240 / 1500)
