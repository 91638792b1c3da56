"""From a MAC's promise to the leases of a site, and back: emergencies, and shares of a GPU."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from nodes_bench import Bench, job, parse, reasons, receivers, rows, sent, site

from nodes.api import TimerFired
from protocols.messages import (
    EnvelopeShare,
    LeaseGrant,
    PhyAllocation,
    QuantumStarted,
    SlotDemand,
)
from testbed.errors import PolicyError
from testbed.shaping.contract import GpuAwareScheduler, Promise
from testbed.topology.node_config import plan_nodes

SLOT_US, SMS, PHASE_US = 500, 48, 200
UL = 1
TRAINER = "north.pretrain.trainer"
SHAPED = '[policies.site]\nmac = "nodes_shaper:Shaper"\n'
STRETCHED = '[policies.site]\nphy = "deadline"\n'


def agent(*gnbs, more=""):
    return Bench(parse(site(*gnbs) + job() + more), "north.agent")


def decode(air_slot, code_blocks=29, cell=0):
    return (cell, air_slot, UL, 273, 1, code_blocks, 1000 * code_blocks)


def plan(bench, slot, *tasks, gnb="g1", promise=((0, 16),), until=None, wanted=16):
    """A MAC's word in ``slot``: downlink known 3 slots ahead, uplink 6; promised 40 slots ahead."""
    until = slot + 40 if until is None else until
    message = SlotDemand(gnb, slot, slot + 3, slot + 6, tasks, promise, until, 0, wanted)
    return bench.receive(slot * SLOT_US, f"north.{gnb}.mac", message)


def lease(effects):
    return sent(effects, LeaseGrant, TRAINER)[-1]


# --- the agent ----------------------------------------------------------------------------------


def test_lease_lasts_as_long_as_the_promise():
    """Plans of slot 0 reach to 1500 us: all SMs. Beyond, 48 less 16 to slot 10, less 24 to 20."""
    bench = agent()
    effects = plan(bench, 0, promise=((0, 16), (10, 24)), until=20)
    assert lease(effects).windows == ((0, 1500, 48), (1500, 5000, 32), (5000, 10_000, 24))


def test_promise_of_sms_between_steps_is_leased_in_steps():
    effects = plan(agent(), 0, promise=((0, 20),), until=10)
    assert lease(effects).windows == ((0, 1500, 48), (1500, 5000, 24))


def test_only_what_is_known_is_recorded_as_leased():
    """What lies beyond may still grow: the rows of ``leases`` tile time, each written once."""
    bench = agent()
    first, second = plan(bench, 0), plan(bench, 1)
    (row,) = rows(first, "leases")
    assert (row["start_us"], row["end_us"], row["sms"]) == (0, 1500, 48)
    (row,) = rows(second, "leases")
    assert (row["start_us"], row["end_us"], row["sms"]) == (1500, 2000, 48)


def test_promises_row_is_the_promise_and_then_the_worst_case():
    """Known and empty to 1500 us; 16 SMs to slot 10, 24 to slot 20; full cells take 32 (as in
    test_nodes_site_agent)."""
    bench = agent()
    effects = plan(bench, 0, promise=((0, 16), (10, 24)), until=20)
    (row,) = rows(effects, "promises")
    within = [row[f"within_{us}_us"] for us in (1000, 2500, 5000, 10_000, 20_000)]
    assert within == [0, 16, 16, 24, 32]


def test_promises_of_two_gnbs_add_up():
    bench = agent("g1", "g2")
    assert plan(bench, 0, promise=((0, 8),), until=20) == []
    effects = plan(bench, 0, gnb="g2", promise=((0, 16),), until=12)
    assert lease(effects).windows == ((0, 1500, 48), (1500, 6000, 24))


def test_gnb_that_promises_nothing_keeps_leases_to_the_plans():
    bench = agent("g1", "g2")
    plan(bench, 0, promise=((0, 8),))
    effects = plan(bench, 0, gnb="g2", promise=(), until=0)
    assert lease(effects).windows == ((0, 1500, 48),)
    (row,) = rows(effects, "promises")
    assert row["within_20000_us"] == 48, "two full cells: 40 SMs of decoding and 8 of downlink"


def test_plan_within_the_promise_takes_nothing_from_a_lease():
    """A decode of 20 blocks on 16 SMs in slot 10, as promised."""
    bench = agent()
    for slot in range(3):
        before = lease(plan(bench, slot)).windows
    effects = plan(bench, 3, decode(9, 20))
    assert rows(effects, "ran_emergencies") == []
    assert shrunk(before, lease(effects).windows, 1500) == []
    assert lease(effects).windows == ((1500, 3000, 48), (3000, 21_500, 32))


def test_emergency_the_plan_stands_and_the_lease_is_granted_anew_at_once():
    """29 blocks take 24 SMs in [5000, 5698) us; 16 were promised for slots 10 and 11."""
    bench = agent()
    for slot in range(3):
        before = plan(bench, slot)
    effects = plan(bench, 3, decode(9))
    (row,) = rows(effects, "ran_emergencies")
    assert row == {
        "slot": 3,
        "at_us": 5000,
        "until_us": 6000,
        "promised_sms": 16,
        "taken_sms": 24,
    }
    (allocation,) = sent(effects, PhyAllocation)
    assert allocation.segments == ((0, 9, UL, 5000, 24, 300),)
    assert lease(effects).windows == (
        *((1500, 3000, 48), (3000, 5000, 32)),
        *((5000, 6000, 24), (6000, 21_500, 32)),
    )
    assert lease(effects).epoch == lease(before).epoch + 1
    told = "emergency in [5000, 6000) us: the RAN takes 24 SMs, 16 were promised"
    assert f"envelope 3: {told}" in reasons(effects)
    assert rows(plan(bench, 4), "ran_emergencies") == [], "counted once"


def test_promise_that_is_raised_is_an_emergency_too():
    bench = agent()
    plan(bench, 0)
    effects = plan(bench, 1, promise=((0, 16), (20, 40)))
    (row,) = rows(effects, "ran_emergencies")
    assert (row["at_us"], row["until_us"]) == (20 * SLOT_US, 40 * SLOT_US)
    assert (row["promised_sms"], row["taken_sms"]) == (16, 40)
    assert lease(effects).windows[-1] == (20 * SLOT_US, 41 * SLOT_US, 8)


def test_quantum_that_began_before_an_emergency_delays_the_decode():
    """32 SMs are held until 6900 us; the decode of 24 has 16 of them from 5000 us: 60 us, then
    (6900 - 5060) at 2 / 3 are enough for its 638 us: it ends at 5060 + 957 = 6017."""
    bench = agent()
    for slot in range(3):
        plan(bench, slot)
    bench.receive(1550, TRAINER, QuantumStarted("pretrain", 3, 1, 0, 1540, 6900, 32))
    effects = plan(bench, 3, decode(9))
    (allocation,) = sent(effects, PhyAllocation)
    assert allocation.segments == ((0, 9, UL, 5000, 16, 300),)
    (kept,) = bench.node._timeline.reservations()
    assert kept.end_us == 6017
    (row,) = rows(effects, "ran_emergencies")
    assert (row["promised_sms"], row["taken_sms"]) == (16, 24), "what the plan asks for counts"
    assert at(lease(effects).windows, 5000) == 24, "no new quantum may start on its SMs"


def shrunk(before, after, from_us):
    """Times at which ``after`` grants less than ``before``."""
    edges = sorted({from_us, *(edge for window in (*before, *after) for edge in window[:2])})
    return [us for us in edges if us >= from_us and at(after, us) < at(before, us)]


def at(windows, us):
    return next((sms for start, end, sms in windows if start <= us < end), 0)


@settings(max_examples=40, phases=[Phase.generate])
@given(
    stretched=st.booleans(),
    load=st.lists(
        st.tuples(st.integers(0, 29), st.integers(0, 29), st.sampled_from([8, 16, 24, 40])),
        min_size=10,
        max_size=20,
    ),
)
def test_lease_never_shrinks_but_in_an_emergency(stretched, load):
    """Two gNBs, any plans, any promises, honest quanta: what was leased for a time stays leased,
    unless a row of ``ran_emergencies`` says when and why not."""
    bench = agent("g1", "g2", more=STRETCHED if stretched else "")
    before, quantum_end_us = (), 0
    for slot, (one, two, promised) in enumerate(load):
        now_us = slot * SLOT_US
        tasks = [
            [decode(slot + 6, blocks, cell)] if blocks else []
            for cell, blocks in enumerate((one, two))
        ]
        until = slot + 9 + promised // 4
        plan(bench, slot, *tasks[0], promise=((0, 8), (slot + 9, promised)), until=until)
        effects = plan(bench, slot, *tasks[1], gnb="g2", promise=((0, 16),))
        after = lease(effects).windows
        emergencies = [(row["at_us"], row["until_us"]) for row in rows(effects, "ran_emergencies")]
        for us in shrunk(before, after, now_us):
            assert any(start <= us < end for start, end in emergencies), us
        before = after
        if now_us >= quantum_end_us and at(after, now_us + 10) and not emergencies:
            sms = at(after, now_us + 10)
            quantum_end_us = next(
                end
                for end in range(now_us + 3000, now_us, -10)
                if held(after, now_us + 10, end, sms)
            )
            quantum = QuantumStarted("pretrain", 1, 1, 0, now_us + 10, quantum_end_us, sms)
            assert bench.receive(now_us + 20, TRAINER, quantum) == [], "it is within its lease"


def held(windows, start_us, end_us, sms):
    inside = [us for window in windows for us in window[:2] if start_us <= us < end_us]
    return all(at(windows, us) >= sms for us in (start_us, *inside))


# --- shares of one GPU --------------------------------------------------------------------------


def shares(effects):
    return {m.gnb: (m.sms, m.from_slot) for m in sent(effects, EnvelopeShare)}


def test_agent_is_connected_to_the_macs_that_it_tells_their_share():
    for gnbs, macs in ((("g1",), []), (("g1", "g2"), ["north.g1.mac", "north.g2.mac"])):
        plans = {plan.node: plan for plan in plan_nodes(parse(site(*gnbs)))}
        peers = plans["north.agent"].peers
        assert [peer for peer in peers if peer.endswith(".mac")] == macs


def test_gnb_alone_is_never_told_a_share():
    assert shares(plan(agent(), 0, wanted=100)) == {}


def test_gnbs_that_fit_may_use_what_the_other_has_not_promised():
    bench = agent("g1", "g2")
    plan(bench, 4, promise=((0, 16), (20, 24)), wanted=24)
    effects = plan(bench, 4, gnb="g2", promise=((0, 8),), wanted=16)
    assert shares(effects) == {"g1": (40, 5), "g2": (24, 5)}
    assert receivers(effects, EnvelopeShare) == ["north.g1.mac", "north.g2.mac"]


def test_gnbs_that_do_not_fit_share_in_proportion_and_are_told_of_changes_only():
    bench = agent("g1", "g2")
    plan(bench, 0, wanted=40)
    assert shares(plan(bench, 0, gnb="g2", wanted=24)) == {"g1": (32, 1), "g2": (16, 1)}
    plan(bench, 1, wanted=41)
    assert shares(plan(bench, 1, gnb="g2", wanted=24)) == {}
    plan(bench, 2, wanted=40)
    assert shares(plan(bench, 2, gnb="g2", wanted=80)) == {"g1": (16, 3), "g2": (32, 3)}


def test_no_share_where_one_gnb_promises_nothing():
    bench = agent("g1", "g2")
    plan(bench, 0, wanted=40)
    assert shares(plan(bench, 0, gnb="g2", promise=(), until=0, wanted=24)) == {}


# --- the MAC ------------------------------------------------------------------------------------


@pytest.fixture
def mac() -> Bench:
    return Bench(parse(site() + job() + SHAPED), "north.g1.mac")


def slot_of(mac, slot):
    at_us = slot * SLOT_US + PHASE_US
    return mac.feed(at_us, TimerFired("slot", at_us))


def test_policy_is_told_of_the_gpu_once_at_birth(mac):
    policy = mac.node._policy
    assert isinstance(policy, GpuAwareScheduler)
    (bound,) = policy.bound
    assert (bound.gpu.name, bound.gpu.sms) == ("gb10", 48)
    assert (bound.ul_decode_budget_us, bound.fronthaul_lead_us) == (1500, 125)
    assert bound.training_bandwidth_permille == 300
    assert [cell.cell_id for cell in bound.cells] == [0]
    assert policy.asked == []


def test_promise_of_each_slot_goes_with_its_demand(mac):
    policy = mac.node._policy
    for slot in range(3):
        policy.next = Promise([[slot, 8 * slot]], slot + 9, slot, 70_000)
        (demand,) = sent(slot_of(mac, slot), SlotDemand)
        assert demand.promise == ((slot, 8 * slot),)
        assert (demand.promised_until_slot, demand.breaches) == (slot + 9, slot)
        assert demand.wanted_sms == 65_535, "as much as a message can say"


def test_share_counts_from_its_slot_on(mac):
    slot_of(mac, 0)
    told = mac.receive(300, "north.agent", EnvelopeShare("g1", 24, 2))
    assert reasons(told) == ["share: 24 SMs from slot 2 on"]
    for slot in range(1, 4):
        slot_of(mac, slot)
    assert mac.node._policy.limits == [(2, 24)], "two slots were planned without it"


def test_share_that_comes_too_late_counts_from_the_next_slot_on(mac):
    for slot in range(4):
        slot_of(mac, slot)
    mac.receive(1900, "north.agent", EnvelopeShare("g1", 24, 2))
    slot_of(mac, 4)
    assert mac.node._policy.limits == [(4, 24)]


def test_share_of_another_gnb_is_refused(mac):
    told = mac.receive(300, "north.agent", EnvelopeShare("g2", 24, 0))
    slot_of(mac, 0)
    assert reasons(told) == ["share g2: a share for a gNB that is not this one"]
    assert mac.node._policy.limits == []


def test_promise_that_cannot_be_fails_with_the_policys_name(mac):
    mac.node._policy.next = Promise(((0, 49),), 12, 0, 16)
    with pytest.raises(PolicyError, match=r"policy Shaper: promise .* allowed are 0 to 48 SMs"):
        slot_of(mac, 0)


def test_policy_without_a_gpu_promises_nothing():
    plain = Bench(parse(site() + job()), "north.g1.mac")
    (demand,) = sent(slot_of(plain, 0), SlotDemand)
    assert (demand.promise, demand.promised_until_slot) == ((), 0)
    assert (demand.breaches, demand.wanted_sms) == (0, 0)
    plain.receive(300, "north.agent", EnvelopeShare("g1", 24, 0))
    slot_of(plain, 1)


# --- PHY sizing ---------------------------------------------------------------------------------


def test_agent_places_decodes_by_the_sites_sizing_policy():
    """22 blocks within 1500 us: 16 SMs, 60 + 484 * 1.5 us (test_gpu_sizing)."""
    bench = agent(more=STRETCHED)
    effects = plan(bench, 3, decode(9, 22), promise=(), until=0)
    (allocation,) = sent(effects, PhyAllocation)
    assert allocation.segments == ((0, 9, UL, 5000, 16, 300),)
    (kept,) = bench.node._timeline.reservations()
    assert kept.end_us == 5786


@pytest.mark.parametrize(("promising", "sms"), [(True, 24), (False, 32)])
def test_gnbs_that_promise_are_sized_each_on_its_own(promising, sms):
    """Within 1500 us, g1's decode of 21 blocks needs 8 SMs (60 + 462 * 3 = 1446 us), and g2's three
    of 20 need 16: two on 8 each (60 + 440 * 2 = 940), then the third on 16 (940 + 500 = 1440).
    As one group of four they miss it on 24: at 940 the free step goes to the 21 blocks, which
    have least of what saturates them, and the last decode ends at 1537; they would take 32."""
    bench = agent("g1", "g2", more=STRETCHED)
    tasks = [decode(9, 21, 0)], [decode(9, 20, cell) for cell in (1, 2, 3)]
    for slot in range(4):
        for gnb, promised, planned in zip(("g1", "g2"), (8, 16), tasks, strict=True):
            rows_of = ((0, promised),) if promising else ()
            until = None if promising else 0
            now = planned if slot == 3 else []
            effects = plan(bench, slot, *now, gnb=gnb, promise=rows_of, until=until)
    assert rows(effects, "ran_emergencies") == []
    ends = {kept.request.key.cell: kept.end_us for kept in bench.node._timeline.reservations()}
    if promising:
        assert ends == {0: 6446, 1: 5940, 2: 5940, 3: 6440}
    assert bench.node._timeline.ran_sms_within(5000, 7000) == sms
