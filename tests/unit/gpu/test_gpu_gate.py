"""The gate's one decision, and the lease in shared memory that it is made on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.gpu.gate import Lease, Never, Start, WaitUntil, Window, next_start
from testbed.gpu.lease_word import LEASE_BYTES, MAX_WINDOWS, read_lease, write_lease

SETTINGS = settings(max_examples=300)
COST = {8: 90, 24: 40, 48: 25}
SHORT = Lease(1, (Window(100, 130, 48),))
STEPS = Lease(1, (Window(100, 150, 24), Window(150, 200, 48)))
GAP = Lease(1, (Window(100, 120, 48), Window(130, 200, 24)))


@pytest.mark.parametrize(
    ("lease", "now_us", "cost", "expected"),
    [
        # 48 SMs from 100 to 130 hold 25 us until 105; no other count fits 30 us.
        (SHORT, 100, COST, Start(48, 125)),
        (SHORT, 105, COST, Start(48, 130)),
        (SHORT, 106, COST, Never("no window is long and wide enough for one quantum")),
        (SHORT, 130, COST, Never("the lease has ended")),
        (Lease(1, ()), 0, COST, Never("no lease")),
        # Before the lease: wait for its beginning.
        (SHORT, 0, COST, WaitUntil(100, 48)),
        # 24 SMs now end at 140; 48 SMs at 150 would end at 175.
        (STEPS, 100, COST, Start(24, 140)),
        # At 136, 24 SMs end at 176 (the wider window holds 24 too); waiting for 48 ends at 175.
        (STEPS, 136, COST, WaitUntil(150, 48)),
        # At 135 both end at 175: the earlier start wins.
        (STEPS, 135, COST, Start(24, 175)),
        # A quantum spans windows that touch, at the count that both hold.
        (STEPS, 149, {24: 40}, Start(24, 189)),
        # 110 + 25 runs into the gap; 24 SMs from 130 end at 170.
        (GAP, 110, COST, WaitUntil(130, 24)),
        # SMs that make the quantum no faster are left alone.
        (SHORT, 100, {8: 25, 24: 25, 48: 25}, Start(8, 125)),
        # No cost known: nothing can start.
        (SHORT, 100, {}, Never("no window is long and wide enough for one quantum")),
        # A window narrower than the smallest partition.
        (
            Lease(1, (Window(0, 500, 4),)),
            0,
            COST,
            Never("no window is long and wide enough for one quantum"),
        ),
    ],
)
def test_next_start_by_hand(lease, now_us, cost, expected):
    assert next_start(lease, now_us, cost) == expected


@st.composite
def leases(draw):
    """A few windows, ascending, some of them touching."""
    windows, at_us = [], draw(st.integers(0, 10))
    for _ in range(draw(st.integers(0, 5))):
        at_us += draw(st.sampled_from([0, 0, 1, 7]))
        end_us = at_us + draw(st.integers(1, 12))
        windows.append(Window(at_us, end_us, draw(st.sampled_from([8, 16, 24]))))
        at_us = end_us
    return Lease(1, tuple(windows))


COSTS = st.dictionaries(st.sampled_from([8, 16, 24]), st.integers(1, 20), max_size=3)


def granted(lease, at_us):
    return next((w.sms for w in lease.windows if w.start_us <= at_us < w.end_us), 0)


def holds(lease, start_us, end_us, sms):
    return all(granted(lease, at_us) >= sms for at_us in range(start_us, end_us))


def earliest_end(lease, now_us, cost):
    """By trying every microsecond and every SM count."""
    ends = [
        start_us + duration_us
        for start_us in range(now_us, lease.end_us + 1)
        for sms, duration_us in cost.items()
        if holds(lease, start_us, start_us + duration_us, sms)
    ]
    return min(ends, default=None)


@SETTINGS
@given(lease=leases(), now_us=st.integers(0, 60), cost=COSTS)
def test_start_is_wholly_inside_the_lease_and_ends_earliest(lease, now_us, cost):
    decision = next_start(lease, now_us, cost)
    best = earliest_end(lease, now_us, cost)
    match decision:
        case Start(sms, until_us):
            assert until_us == now_us + cost[sms] == best
            assert holds(lease, now_us, until_us, sms)
        case WaitUntil(at_us, sms):
            assert at_us > now_us
            assert at_us + cost[sms] == best
            assert holds(lease, at_us, at_us + cost[sms], sms)
            assert next_start(lease, at_us, cost) == Start(sms, best)
        case Never():
            assert best is None


@SETTINGS
@given(lease=leases(), now_us=st.integers(0, 60), cost=COSTS, extra=st.integers(1, 20))
def test_longer_reckoning_never_ends_earlier(lease, now_us, cost, extra):
    longer = {sms: duration_us + extra for sms, duration_us in cost.items()}
    before, after = earliest_end(lease, now_us, cost), earliest_end(lease, now_us, longer)
    assert after is None or (before is not None and before < after)


# --- the lease word -----------------------------------------------------------------------------

WIDE = st.integers(-(2**53), 2**53)
WORD_LEASES = st.builds(
    Lease,
    st.integers(0, 2**32 - 1),
    st.lists(st.builds(Window, WIDE, WIDE, st.integers(0, 1024)), max_size=4).map(tuple),
    st.integers(0, 1000),
)


def word(lease, version):
    memory = bytearray(LEASE_BYTES)
    write_lease(memory, lease, version)
    return memory


def test_memory_that_was_never_written_holds_no_lease():
    assert read_lease(bytearray(LEASE_BYTES)) is None


@SETTINGS
@given(WORD_LEASES, st.integers(1, 2**62))
def test_lease_is_read_as_it_was_written(lease, version):
    assert read_lease(word(lease, version)) == (version, lease)


def test_largest_lease_fits_and_later_windows_are_left_out():
    windows = tuple(Window(10 * i, 10 * i + 5, 8) for i in range(MAX_WINDOWS + 3))
    got = read_lease(word(Lease(1, windows), 1))
    assert got == (1, Lease(1, windows[:MAX_WINDOWS]))


@settings(max_examples=60)
@given(WORD_LEASES, WORD_LEASES)
def test_torn_read_is_refused_or_whole(old, new):
    """The writer was caught after any number of 8-byte words: the reader sees the old lease, the
    new one, or nothing; never a mixture."""
    before, after = word(old, 1), word(new, 2)
    for cut in range(0, LEASE_BYTES + 1, 8):
        seen = read_lease(after[:cut] + before[cut:])
        assert seen in (None, (1, old), (2, new)), cut


def test_every_flipped_bit_of_a_lease_is_noticed():
    whole = word(Lease(3, (Window(100, 200, 24),), 300), 1)
    size = 8 * (4 + 3 + 1)
    for at in range(size):
        for bit in range(8):
            broken = bytearray(whole)
            broken[at] ^= 1 << bit
            assert read_lease(broken) is None, (at, bit)
