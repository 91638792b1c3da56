"""Partition mechanisms: timelines calculated by hand, and what holds for any of them.

GB10 has 48 SMs in steps of 8 and changes a green context in 5 us. MPS takes 300,000 us, MIG
7,000,000 us. W(a, b, n): n SMs in [a, b).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.gpu.cost import UPLINK, phy_demand
from testbed.gpu.gate import Window as W
from testbed.gpu.partition_replay import (
    Promises,
    lent_as_promised,
    lent_with_foresight,
)
from testbed.gpu.partitions import (
    NOTHING,
    Mechanism,
    Outlook,
    Partition,
    PartitionPlan,
    Split,
    Switch,
    confined_gpu,
    mechanism,
)
from testbed.gpu.spare import stack
from testbed.gpu.timeline import RanTimeline, TaskKey, TaskRequest
from testbed.topology.profiles import gpu_profile, list_gpus

GB10 = gpu_profile("gb10")
H200 = gpu_profile("h200")
GREEN = mechanism("green_context", GB10)
MPS = mechanism("mps", GB10)
MIG = mechanism("mig", H200)
MS, S = 1000, 1_000_000


def first_plan(
    of: Mechanism, *windows: W, until_us: int, beyond_sms: int | None = None
) -> PartitionPlan:
    return Partition(of).plan(0, until_us, Outlook(windows, until_us, beyond_sms))


def test_green_contexts_follow_the_spare_but_for_their_microseconds() -> None:
    spare = (W(0, 500, 24), W(500, 1000, 40), W(1000, 1500, 16))
    plan = first_plan(GREEN, *spare, until_us=1500, beyond_sms=16)
    assert plan.windows == (W(0, 505, 24), W(505, 995, 40), W(995, 1500, 16))
    up, down = plan.planned
    assert up == Switch(500, 505, Split(24, 24), Split(40, 40))
    assert down == Switch(995, 1000, Split(40, 40), Split(16, 16))
    # One of the two numbers of SMs lies idle: (40 - 24) x 5 and (40 - 16) x 5.
    assert (GREEN.lost_sm_us(up), GREEN.lost_sm_us(down)) == (80, 120)


def test_mps_grows_once_it_may_and_shrinks_300_ms_ahead() -> None:
    spare = (W(0, 2 * S, 24), W(2 * S, 3 * S, 40), W(3 * S, 4 * S, 8))
    plan = first_plan(MPS, *spare, until_us=4 * S, beyond_sms=8)
    assert plan.windows == (
        W(0, 2300 * MS, 24),
        W(2300 * MS, 2700 * MS, 40),
        W(2700 * MS, 4 * S, 8),
    )


def test_mps_lets_a_window_pass_that_is_no_longer_than_both_switches() -> None:
    spare = (W(0, 2 * S, 24), W(2 * S, 2600 * MS, 40), W(2600 * MS, 4 * S, 8))
    plan = first_plan(MPS, *spare, until_us=4 * S, beyond_sms=8)
    assert plan.windows == (W(0, 2300 * MS, 24), W(2300 * MS, 4 * S, 8))


def test_mps_without_a_promise_stays_at_what_the_worst_case_leaves() -> None:
    partition = Partition(MPS)
    for now_us in range(0, 100 * MS, 20 * MS):
        outlook = Outlook((W(now_us, now_us + 20 * MS, 48),), now_us + 20 * MS, 16)
        plan = partition.plan(now_us, 5 * S, outlook)
        assert plan == PartitionPlan((W(now_us, 5 * S, 16),), (), ())


def test_mig_stops_training_while_instances_are_made() -> None:
    """60 SMs beside a RAN of 64; alone 132. 30 s alone: 16 s x 132 is more than 30 s x 60."""
    spare = (W(0, 10 * S, 68), W(10 * S, 40 * S, 132), W(40 * S, 60 * S, 68))
    plan = first_plan(MIG, *spare, until_us=60 * S)
    assert plan.windows == (W(0, 10 * S, 60), W(17 * S, 33 * S, 132), W(40 * S, 60 * S, 60))
    assert [MIG.lost_sm_us(switch) for switch in plan.planned] == [132 * 7 * S] * 2


def test_mig_stays_where_making_instances_twice_costs_more_than_it_gives() -> None:
    """25 s alone: 11 s x 132 = 1452 SM-s, and staying 25 s x 60 = 1500."""
    spare = (W(0, 10 * S, 68), W(10 * S, 35 * S, 132), W(35 * S, 60 * S, 68))
    plan = first_plan(MIG, *spare, until_us=60 * S)
    assert plan == PartitionPlan((W(0, 60 * S, 60),), (), ())


def test_before_the_end_of_the_run_there_is_no_way_back_to_pay_for() -> None:
    """14 s alone at the end: 7 s x 132 = 924 SM-s, and staying 840; of 12 s: 660, and 720."""
    for alone_s, lent in (
        (14, (W(0, 10 * S, 60), W(17 * S, 24 * S, 132))),
        (12, (W(0, 22 * S, 60),)),
    ):
        end_us = (10 + alone_s) * S
        spare = (W(0, 10 * S, 68), W(10 * S, end_us, 132))
        assert first_plan(MIG, *spare, until_us=end_us).windows == lent


def test_the_first_split_of_mig_is_the_one_that_gives_most() -> None:
    """132 SMs last 8 s, of which 7 go into leaving them: 132 SM-s; 60 for 20 s are 1200."""
    spare = (W(0, 8 * S, 132), W(8 * S, 20 * S, 68))
    assert first_plan(MIG, *spare, until_us=20 * S).windows == (W(0, 20 * S, 60),)


def test_a_static_partition_never_changes() -> None:
    static = mechanism("static", GB10, 16)
    plan = first_plan(static, W(0, 500, 24), W(700, 900, 8), until_us=1000, beyond_sms=0)
    assert plan == PartitionPlan((W(0, 1000, 16),), (), ())


def test_what_lies_ahead_is_thought_over_and_what_has_begun_is_not() -> None:
    partition = Partition(MPS)
    partition.plan(0, 5 * S, Outlook((W(0, 20 * MS, 8),), 20 * MS, 8))
    # 40 SMs until 2 s: up at once, down again from 1.7 s.
    first = partition.plan(100 * MS, 5 * S, Outlook((W(100 * MS, 2 * S, 40),), 2 * S, 8))
    assert first.windows == (
        W(100 * MS, 400 * MS, 8),
        W(400 * MS, 1700 * MS, 40),
        W(1700 * MS, 5 * S, 8),
    )
    assert first.begun == ()
    # Now until 3 s: the way up goes on, the way down is put off.
    later = partition.plan(200 * MS, 5 * S, Outlook((W(200 * MS, 3 * S, 40),), 3 * S, 8))
    assert later.begun == first.planned[:1]
    assert later.windows == (
        W(200 * MS, 400 * MS, 8),
        W(400 * MS, 2700 * MS, 40),
        W(2700 * MS, 5 * S, 8),
    )
    assert partition.plan(300 * MS, 5 * S, Outlook((), 300 * MS, 40)).begun == ()


def test_an_emergency_cuts_what_is_lent_at_once_and_the_partition_when_it_can() -> None:
    partition = Partition(MPS)
    partition.plan(0, 5 * S, Outlook((W(0, 3 * S, 40),), 3 * S, 8))
    # 40 SMs were known to be free until 3 s; at 1 s the RAN wants all but 16 from 1.1 to 1.2 s.
    windows = (W(S, 1100 * MS, 40), W(1100 * MS, 1200 * MS, 16), W(1200 * MS, 3 * S, 40))
    plan = partition.plan(S, 5 * S, Outlook(windows, 3 * S, 8))
    # 1.1 s is nearer than a switch is long, so it shrinks now, to the 16 SMs that last until 3 s;
    # at 1.3 s it may grow again, until 2.7 s.
    assert plan.planned[0] == Switch(S, 1300 * MS, Split(40, 40), Split(16, 16))
    assert plan.windows[0] == W(S, 1600 * MS, 16)
    assert plan.windows[1] == W(1600 * MS, 2700 * MS, 40)


def test_nothing_is_lent_where_the_ran_leaves_nothing() -> None:
    partition = Partition(GREEN)
    partition.plan(0, 1000, Outlook((W(0, 1000, 24),), 1000, 24))
    plan = partition.plan(500, 1000, Outlook((W(502, 1000, 16),), 1000, 16))
    # At 500 us nothing is left, so it goes to nothing until 505, and to 16 SMs until 510.
    assert plan.windows == (W(510, 1000, 16),)


def test_mig_parts_the_gpu_into_instances_that_fit_together() -> None:
    """H200: 1 to 3 slices beside 4 of 64 SMs, 4 beside 3 of 60 (56 in steps of 8), 7 alone.

    A spare window of 64 is what the RAN's 64 of 132 SMs leave, in steps of 8.
    """
    assert MIG.splits == (NOTHING, Split(60, 64), Split(64, 72), Split(132, 128))
    a100 = mechanism("mig", gpu_profile("a100"))
    assert a100.splits == (NOTHING, Split(42, 52), Split(56, 66), Split(98, 108))
    assert (MIG.switch_us, MIG.stops_training) == (7 * S, True)


@pytest.mark.parametrize("name", list_gpus())
def test_any_gpu_has_mig_or_says_that_it_has_not(name: str) -> None:
    gpu = gpu_profile(name)
    if name in ("gb10", "l40s"):
        with pytest.raises(ValueError, match=f"{name} with {gpu.sms} SMs has no MIG"):
            mechanism("mig", gpu)
    else:
        splits = mechanism("mig", gpu).splits
        assert all(a.sms < b.sms and a.spare_sms < b.spare_sms for a, b in pairwise(splits))
        assert splits[-1].sms <= gpu.sms
    with pytest.raises(ValueError, match="no MIG"):
        mechanism("mig", replace(gpu, sms=gpu.sms - 4))


def test_static_needs_its_number() -> None:
    with pytest.raises(ValueError, match="static_training_sms"):
        mechanism("static", GB10)


def test_the_ran_of_a_static_partition_has_a_smaller_gpu() -> None:
    """A decode of 29 code blocks saturates at 24 SMs; on 16 its 638 us of work take half more."""
    confined = confined_gpu(GB10, 32)
    assert confined == replace(GB10, sms=16)
    timeline = RanTimeline(confined)
    demand = phy_demand(GB10, UPLINK, 29, 29_000)
    (placed,) = timeline.reserve([TaskRequest(TaskKey(0, 0, UPLINK), 500, 2000, demand)])
    assert (placed.steps, placed.end_us) == (((500, 16),), 500 + 60 + 957)


# --- replay of one RAN run ------------------------------------------------------------------------

RAN = stack([0, 500, 1000], [500, 1000, 1500], [24, 8, 32])
"""Leaves 24, 40 and 16 of 48 SMs, as in the first test: (0, 505, 24) (505, 995, 40) then 16."""


@pytest.mark.parametrize(
    ("quantum_us", "usable"),
    [(250, [24, 24, 16]), (500, [24, 16, 16]), (1000, [16, 16])],
)
def test_lent_with_foresight_by_hand(quantum_us: int, usable: list[int]) -> None:
    """A quantum of 500 us that starts at 500 us must get along with the 16 SMs after 995 us."""
    lent = lent_with_foresight(RAN, 48, GREEN, 0, 1500, slot_us=500, quanta_us=[quantum_us])
    # The last level lasts to the end of the run.
    assert lent.usable[quantum_us].values.tolist() == usable
    assert (lent.switches, lent.lost_sm_us) == (2, 200)
    assert lent.fraction(quantum_us, 48) == sum(usable) / (48 * len(usable))


def test_a_slow_mechanism_lends_the_least_that_the_ran_ever_leaves() -> None:
    lent = lent_with_foresight(RAN, 48, MPS, 0, 1500, slot_us=500, quanta_us=[500])
    assert (lent.usable[500].values.tolist(), lent.switches) == ([16, 16, 16], 0)


def test_a_run_shorter_than_a_quantum_has_no_fraction() -> None:
    lent = lent_with_foresight(RAN, 48, MPS, 0, 1500, slot_us=500, quanta_us=[2000])
    assert lent.fraction(2000, 48) is None


@pytest.mark.parametrize(
    ("of", "quantum_us", "usable", "switches"),
    [
        # At 0 us: 24 SMs for 1000 us, 8 until 2500; at 500: 24 until 1500, 16 until 3000; then 8.
        (GREEN, 995, [24, 24], 0),
        (GREEN, 1000, [8, 16], 0),
        (GREEN, 3000, [8, 8], 0),
        (MPS, 1000, [8, 8], 0),
        (mechanism("static", GB10, 16), 5000, [16, 16], 0),
    ],
)
def test_lent_as_promised_by_hand(
    of: Mechanism, quantum_us: int, usable: list[int], switches: int
) -> None:
    promises = Promises(
        np.array([0, 500]), (1000, 2500), np.array([[24, 40], [24, 32]]), worst_sms=40
    )
    lent = lent_as_promised(promises, 48, of, quanta_us=[quantum_us])
    steps = lent.usable[quantum_us]
    assert steps.at_us.tolist() == [0, 500]
    assert (steps.values.tolist(), lent.switches) == (usable, switches)


def test_switches_that_promises_bring_about_are_counted_once() -> None:
    """From 8 to 48 SMs when 2 s are promised free at 0.5 s; the way back is never begun."""
    at_us = np.arange(0, 1_500_000, 500_000)
    within = np.array([[40], [0], [0]])
    lent = lent_as_promised(
        Promises(at_us, (2_000_000,), within, worst_sms=40), 48, MPS, quanta_us=[1000]
    )
    assert lent.usable[1000].values.tolist() == [8, 8, 48]
    assert (lent.switches, lent.lost_sm_us) == (1, 40 * 300_000)


# --- what holds for any spare ---------------------------------------------------------------------

few = settings(max_examples=50)
levels = st.lists(
    st.tuples(st.integers(1, 30), st.sampled_from(range(0, 56, 8))), min_size=1, max_size=12
)


def windows_of(pieces: list[tuple[int, int]]) -> tuple[tuple[W, ...], np.ndarray]:
    """As windows without gaps, equal neighbours joined, and as SMs per microsecond."""
    truth = np.repeat([sms for _, sms in pieces], [length for length, _ in pieces])
    edges = [0, *(np.flatnonzero(np.diff(truth)) + 1).tolist(), len(truth)]
    return tuple(W(a, b, int(truth[a])) for a, b in pairwise(edges) if truth[a]), truth


def drawn(windows: tuple[W, ...], length: int) -> np.ndarray:
    sms = np.zeros(length, dtype=int)
    for window in windows:
        sms[window.start_us : window.end_us] = window.sms
    return sms


@few
@given(levels, st.booleans())
def test_a_switch_that_costs_nothing_lends_all_that_is_spare(
    pieces: list[tuple[int, int]], ends: bool
) -> None:
    windows, truth = windows_of(pieces)
    free = replace(GREEN, switch_us=0)
    beyond = None if ends else 0
    assert first_plan(free, *windows, until_us=len(truth), beyond_sms=beyond).windows == windows


@few
@given(levels, st.integers(0, 12), st.booleans(), st.sampled_from([None, 0, 8, 48]))
def test_no_split_and_no_switch_takes_what_the_ran_needs(
    pieces: list[tuple[int, int]], switch_us: int, stops: bool, beyond: int | None
) -> None:
    windows, truth = windows_of(pieces)
    of = replace(GREEN, switch_us=switch_us, stops_training=stops)
    plan = first_plan(of, *windows, until_us=len(truth), beyond_sms=beyond)
    assert (drawn(plan.windows, len(truth)) <= truth).all()
    for earlier, later in pairwise(plan.planned):
        assert earlier.end_us <= later.start_us
        assert earlier.new == later.old
        assert (truth[earlier.end_us : later.start_us] >= earlier.new.spare_sms).all()
    for switch in plan.planned:
        wider = max(switch.old, switch.new)
        assert (truth[switch.start_us : switch.end_us] >= wider.spare_sms).all()


@few
@given(levels, st.integers(0, 12), st.integers(1, 9), st.integers(1, 20))
def test_plans_made_anew_as_more_is_known_never_take_what_the_ran_needs(
    pieces: list[tuple[int, int]], switch_us: int, slot_us: int, notice_us: int
) -> None:
    """Plans slot by slot, nothing but the worst case (0 left) beyond the notice."""
    windows, truth = windows_of(pieces)
    partition = Partition(replace(GREEN, switch_us=switch_us))
    begun: list[Switch] = []
    for now_us in range(0, len(truth), slot_us):
        known_us = min(now_us + notice_us, len(truth))
        known = [
            W(max(w.start_us, now_us), min(w.end_us, known_us), w.sms)
            for w in windows
            if w.end_us > now_us and w.start_us < known_us
        ]
        plan = partition.plan(now_us, len(truth), Outlook(known, known_us, 0))
        begun += plan.begun
        assert (drawn(plan.windows, len(truth)) <= truth).all()
    for earlier, later in pairwise(begun):
        assert earlier.new == later.old
        assert (truth[earlier.end_us : later.start_us] >= earlier.new.spare_sms).all()
    for switch in begun:
        wider = max(switch.old, switch.new)
        assert (truth[switch.start_us : switch.end_us] >= wider.spare_sms).all()
