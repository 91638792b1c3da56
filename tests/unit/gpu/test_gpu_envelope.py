"""What the RAN has promised, where it breaks it, what may be leased, and the split of a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import PolicyError
from testbed.gpu.envelope import (
    MAX_LEASE_WINDOWS,
    MAX_ROWS,
    Emergency,
    Envelope,
    GnbPromise,
    checked_promise,
    split_sms,
)
from testbed.gpu.gate import Window
from testbed.topology.profiles import gpu_profile

GB10 = gpu_profile("gb10")
SLOT_US = 500
SETTINGS = settings(max_examples=150)


def envelope(*promises, known_slot=3):
    """Promises of g1, g2, ..., committed in slot 0."""
    names = [f"g{index}" for index in range(1, len(promises) + 1)]
    made = Envelope(names, GB10, SLOT_US)
    for name, promise in zip(names, promises, strict=True):
        made.promise(name, promise)
    assert made.commit(0, known_slot, []) is None
    return made


def committed(made, slots):
    return [made.most_ahead(slot)[:2][-1] for slot in slots]


# --- a promise by slot --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_slot", "expected"),
    [(3, [16, 16, 24, 24, 24]), (4, [16, 24, 24, 24]), (6, [24, 24]), (8, []), (2, []), (99, [])],
)
def test_row_holds_until_the_next_and_the_last_until_the_promise_ends(first_slot, expected):
    assert GnbPromise(((3, 16), (5, 24)), 8).by_slot(first_slot) == expected


def test_rows_beyond_the_end_of_a_promise_do_not_count():
    promise = GnbPromise(((3, 16), (9, 24)), 6)
    assert (promise.by_slot(3), promise.most_sms(3)) == ([16, 16, 16], 16)
    assert GnbPromise().by_slot(0) == []
    assert GnbPromise().most_sms(0) == 0


def test_largest_promise_is_of_the_slots_ahead():
    promise = GnbPromise(((0, 40), (5, 8), (9, 24)), 12)
    assert [promise.most_sms(slot) for slot in (0, 5, 9, 12)] == [40, 24, 24, 0]


# --- what is committed --------------------------------------------------------------------------


def test_promises_of_all_gnbs_add_up_to_at_most_the_gpu():
    made = envelope(GnbPromise(((0, 16), (5, 32)), 8), GnbPromise(((0, 24),), 7))
    assert committed(made, range(3, 9)) == [40, 40, 48, 48, 0, 0]
    assert made.committed_until(3) == 7


def test_gnb_that_promises_nothing_leaves_nothing_committed():
    made = envelope(GnbPromise(((0, 16),), 8), GnbPromise())
    assert made.committed_until(3) == 3
    assert made.promised_ahead(0) is None


def test_promise_that_begins_behind_the_plans_commits_nothing():
    assert envelope(GnbPromise(((5, 16),), 8), known_slot=3).committed_until(3) == 3


def test_plan_above_the_promise_is_an_emergency_once():
    made = envelope(GnbPromise(((0, 16),), 8))
    ran_sms = [0, 0, 24, 32, 24, 16, 0]  # slots 1 to 7; the plans reach to slot 4
    assert made.commit(1, 4, ran_sms) == Emergency(3, 6, 16, 32)
    assert committed(made, range(3, 8)) == [24, 32, 24, 16, 16]
    assert made.commit(2, 5, ran_sms[1:]) is None


def test_raised_promise_is_an_emergency_and_a_lowered_one_is_not():
    made = envelope(GnbPromise(((0, 24),), 8))
    made.promise("g1", GnbPromise(((0, 8),), 12))
    assert made.commit(1, 4, []) is None
    assert committed(made, range(3, 12)) == [24, *[8] * 8], "slot 3 is known: as it was promised"
    made.promise("g1", GnbPromise(((0, 8), (6, 16)), 12))
    assert made.commit(2, 5, []) == Emergency(6, 12, 8, 16)


def test_promise_that_was_given_stands_when_the_next_ends_earlier():
    made = envelope(GnbPromise(((0, 16),), 8))
    made.promise("g1", GnbPromise())
    assert made.commit(1, 4, []) is None
    assert made.committed_until(4) == 8
    assert not made.idle
    assert made.commit(8, 11, []) is None
    assert made.idle


# --- leases beyond the plans --------------------------------------------------------------------


def test_lease_goes_on_beyond_the_plans_with_what_the_envelope_leaves():
    made = envelope(GnbPromise(((0, 20), (5, 48), (6, 24)), 8))
    known = (Window(100, 1000, 48), Window(1000, 1500, 24))
    assert made.lease(known, 100, 3) == (
        Window(100, 1000, 48),
        Window(1000, 2500, 24),  # 48 - 20, in steps of 8, joined with what is known
        Window(3000, 4000, 24),  # nothing of the slot in which the RAN may take all
    )


def test_lease_without_a_promise_is_what_is_known():
    known = tuple(Window(10 * i, 10 * i + 10, 8 + 8 * (i % 2)) for i in range(70))
    assert envelope(GnbPromise()).lease(known, 0, 3) == known[:MAX_LEASE_WINDOWS]


def test_full_lease_keeps_the_promise_and_gives_up_steps_of_the_plans():
    """32 rows that all differ, and 40 windows of 25 us within slots 0 and 1: 72. The plans' part
    then is the least of each slot: 16 SMs in slot 0, 8 in slot 1."""
    rows = tuple((2 + i, 8 if i % 2 else 16) for i in range(32))
    made = envelope(GnbPromise(rows, 34), known_slot=2)
    steps = [16 + 8 * (i % 2) if i < 20 else 8 + 8 * (i % 2) for i in range(40)]
    known = [Window(25 * i, 25 * i + 25, sms) for i, sms in enumerate(steps)]
    lease = made.lease(known, 0, 2)
    assert lease[:2] == (Window(0, 500, 16), Window(500, 1000, 8))
    assert len(lease) == 34
    assert lease[-1].end_us == 34 * SLOT_US


def test_slot_that_is_not_free_throughout_is_not_leased_where_a_lease_is_full():
    rows = tuple((2 + i, 8 if i % 2 else 16) for i in range(32))
    made = envelope(GnbPromise(rows, 34), known_slot=2)
    known = [Window(25 * i, 25 * i + 25, 16 + 8 * (i % 2)) for i in range(40) if i != 30]
    assert made.lease(known, 0, 2)[:2] == (Window(0, 500, 16), Window(1000, 1500, 32))


promises = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 48), st.integers(0, 30)), min_size=1, max_size=12
)


@given(promises)
@SETTINGS
def test_what_is_committed_never_rises_without_an_emergency(found):
    made = Envelope(["g1"], GB10, SLOT_US)
    for now, (first, sms, until) in enumerate(found):
        before = committed(made, range(now, 60))
        until_before = made.committed_until(now + 3)
        made.promise("g1", GnbPromise(((first, sms),), until))
        broken = made.commit(now, now + 3, [sms // 2] * 5)
        after = committed(made, range(now, 60))
        rises = [
            slot
            for slot, (old, new) in enumerate(zip(before, after, strict=True), start=now)
            if slot < until_before and old and new > old
        ]
        assert bool(rises) <= (broken is not None)
        if broken is not None:
            assert broken.taken_sms > broken.promised_sms
        assert made.committed_until(now + 3) >= until_before


# --- the split ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "promised", "expected"),
    [
        ((16, 24), (16, 24), (24, 32)),  # both fit: all but what the other has promised
        ((8, 0), (0, 12), (32, 48)),  # 48 - 12, in steps of 8
        ((8, 8), (48, 0), (48, 8)),  # never less than the smallest partition
        ((40, 24), (0, 0), (32, 16)),  # 30 and 18: 24 and 16, the last step to who lacks 6
        ((48, 48), (48, 48), (24, 24)),
        ((100, 1), (0, 0), (40, 8)),
        ((30, 30), (0, 0), (24, 24)),
        ((20, 20, 20), (0, 0, 0), (16, 16, 16)),
        ((100, 1, 1), (0, 0, 0), (32, 8, 8)),
    ],
)
def test_split_by_hand(wanted, promised, expected):
    names = [f"g{index}" for index in range(len(wanted))]
    shares = split_sms(
        GB10, dict(zip(names, wanted, strict=True)), dict(zip(names, promised, strict=True))
    )
    assert tuple(shares.values()) == expected


@given(st.lists(st.integers(0, 200), min_size=2, max_size=8))
@SETTINGS
def test_split_of_too_much_fills_the_gpu_in_steps(wanted):
    shares = split_sms(GB10, dict(enumerate(map(int, wanted))), dict.fromkeys(range(8), 0))
    assert all(sms % 8 == 0 and sms >= 8 for sms in shares.values())
    if sum(wanted) > 48:
        assert sum(shares.values()) == max(48, 8 * len(wanted))
        ordered = sorted((sms, shares[gnb]) for gnb, sms in enumerate(wanted))
        assert [share for _, share in ordered] == sorted(shares.values())


# --- what a policy may promise ------------------------------------------------------------------


def test_numbers_of_numpy_become_plain_ones():
    rows = np.array([[3, 16], [5, 24]])
    plain, numbers = checked_promise(object(), 48, rows, (np.int64(9), 0, np.int64(24)))
    assert (plain, numbers) == (((3, 16), (5, 24)), (9, 0, 24))
    assert {type(n) for n in (*plain[0], *plain[1], *numbers)} == {int}


@pytest.mark.parametrize(
    ("rows", "numbers", "told"),
    [
        ([(3, 49)], (9, 0, 8), "allowed are 0 to 48 SMs"),
        ([(3, -1)], (9, 0, 8), "allowed are 0 to 48 SMs"),
        ([(-1, 8)], (9, 0, 8), "no negative number"),
        ([(3, 8)], (9, -1, 8), "no negative number"),
        ([(5, 8), (3, 8)], (9, 0, 8), "slots ascending"),
        ([(3, 8), (3, 16)], (9, 0, 8), "slots ascending"),
        ([(i, 8) for i in range(MAX_ROWS + 1)], (99, 0, 8), "at most 32 rows"),
        ([(3, 8.5)], (9, 0, 8), "integers"),
        ([(3,)], (9, 0, 8), "rows of (slot, SMs)"),
        ([(3, 8)], (None, 0, 8), "integers"),
    ],
)
def test_promise_that_cannot_be_is_refused(rows, numbers, told):
    with pytest.raises(PolicyError) as refused:
        checked_promise(GB10, 48, rows, numbers)
    assert str(refused.value).startswith("policy GpuProfile: promise")
    assert told in str(refused.value)
