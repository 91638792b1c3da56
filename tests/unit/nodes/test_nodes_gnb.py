"""A gNB's MAC and PHY, fed by hand: which plan goes where, when, and what a result does."""

from __future__ import annotations

import numpy as np
import pytest
from nodes_bench import Bench, finished, job, parse, reasons, rows, sent, site, work

from nodes.api import CancelTimer, DrainRequested, SetTimer, Started, TimerFired
from protocols.messages import CrcIndication, PhyAllocation, PhyDone, SlotDemand, TtiRequest
from protocols.work import PhyTask, PhyTaskDone

SLOT_US, LOOKAHEAD, K2 = 500, 3, 3
PHASE_US = 200
"""Where in its slot a MAC plans: 400 permille of 500 us, by default."""
DL, UL = 0, 1
NACK, ACK, LATE, NO_FEEDBACK = 0, 1, 2, 3


@pytest.fixture
def mac() -> Bench:
    return Bench(parse(site() + job()), "north.g1.mac")


@pytest.fixture
def phy() -> Bench:
    return Bench(parse(site() + job()), "north.g1.phy")


def slots(mac, count, first=0):
    """The MAC's effects of each slot, its timer fired on time."""
    return [
        mac.feed(at_us := slot * SLOT_US + PHASE_US, TimerFired("slot", at_us))
        for slot in range(first, first + count)
    ]


def request(air_slot=9, code_blocks=29, ue=0, mcs=28, transmission=1):
    row = [0, ue, 0, transmission, 273, 1, mcs, 29_000, code_blocks, 5554, 4000]
    return TtiRequest("g1", air_slot, UL, np.array([row], dtype="<i4"))


def allocation(*segments, air_slot=9):
    return PhyAllocation(air_slot, tuple((0, air_slot, UL, *segment) for segment in segments))


# --- MAC ----------------------------------------------------------------------------------------


def test_mac_plans_one_slot_per_timer_and_sets_the_next(mac):
    assert mac.feed(-1000, Started()) == [SetTimer("slot", PHASE_US)]
    for slot, effects in enumerate(slots(mac, 12)):
        assert effects[0] == SetTimer("slot", (slot + 1) * SLOT_US + PHASE_US)
        (demand,) = sent(effects, SlotDemand, "north.agent")
        assert (demand.gnb, demand.slot) == ("g1", slot)
        known = (slot + LOOKAHEAD, slot + LOOKAHEAD + K2)
        assert (demand.dl_known_slot, demand.ul_known_slot) == known


def test_uplink_is_planned_lookahead_and_k2_ahead(mac):
    """DDDSU: uplink in slots 4, 9, 14, ..., each planned 3 + 3 slots before."""
    planned = {
        slot: [message.air_slot for message in sent(effects, TtiRequest, "north.g1.phy")]
        for slot, effects in enumerate(slots(mac, 12))
    }
    assert {slot: plans for slot, plans in planned.items() if plans} == {3: [9], 8: [14]}


def test_demand_and_request_tell_the_same(mac):
    effects = slots(mac, 4)[3]
    ((cell, air_slot, direction, n_prb, layers, code_blocks, work_milli),) = sent(
        effects, SlotDemand
    )[0].tasks
    (tti,) = sent(effects, TtiRequest)
    assert (cell, air_slot, direction) == (0, tti.air_slot, tti.direction) == (0, 9, UL)
    assert tti.blocks[:, 4].sum() == n_prb == 273
    assert set(tti.blocks[:, 5].tolist()) == {layers} == {1}
    assert tti.blocks[:, 8].sum() == code_blocks == 29
    assert work_milli == 1000 * code_blocks, "gb10: ten iterations for every block"


def test_late_timer_is_recorded_and_shifts_nothing(mac):
    slots(mac, 2)
    effects = mac.feed(1330, TimerFired("slot", 1200))
    assert effects[0] == SetTimer("slot", 1700)
    (row,) = rows(effects, "lateness")
    assert (row["slot"], row["at_us"], row["lateness_us"], row["source"]) == (2, 1200, 130, 0)


@pytest.mark.parametrize("result", [NACK, ACK, LATE])
def test_result_of_a_block_is_recorded_with_the_block(mac, result):
    slots(mac, 4)
    crc = CrcIndication(0, 9, UL, 5698, ((0, 0, result),))
    (row,) = rows(mac.receive(5700, "north.g1.phy", crc), "blocks")
    assert (row["air_slot"], row["direction"], row["result"], row["n_prb"]) == (9, UL, result, 273)


@pytest.mark.parametrize("result", [NACK, LATE])
def test_failed_block_is_sent_again(mac, result):
    """The result of slot 9 is used in slot 9 + 5; the next uplink slot to plan then is 24."""
    slots(mac, 4)
    mac.receive(5700, "north.g1.phy", CrcIndication(0, 9, UL, 5698, ((0, 0, result),)))
    later = [tti for effects in slots(mac, 16, first=4) for tti in sent(effects, TtiRequest)]
    by_slot = {tti.air_slot: tti.blocks[0].tolist() for tti in later}
    assert [by_slot[air][3] for air in (14, 19, 24)] == [1, 1, 2], "transmission"


def test_missing_result_counts_as_late_feedback_and_as_a_failure(mac):
    effects = [effect for slot in slots(mac, 20) for effect in slot]
    lost = [row for row in rows(effects, "blocks") if row["air_slot"] == 9]
    assert [row["result"] for row in lost] == [NO_FEEDBACK]
    again = [tti for tti in sent(effects, TtiRequest) if tti.blocks[0, 3] == 2]
    assert [tti.air_slot for tti in again] == [24]


def test_feedback_that_comes_too_late_is_ignored(mac):
    """Slot 14 has used 'no result' for slot 9; an ACK afterwards must not free the process."""
    slots(mac, 15)
    late = mac.receive(7100, "north.g1.phy", CrcIndication(0, 9, UL, 7050, ((0, 0, ACK),)))
    assert rows(late, "blocks") == []
    later = [tti for effects in slots(mac, 5, first=15) for tti in sent(effects, TtiRequest)]
    assert [tti.blocks[0, 3] for tti in later if tti.air_slot == 24] == [2]


def test_results_for_a_foreign_cell_are_refused(mac):
    effects = mac.receive(100, "north.g1.phy", CrcIndication(7, 9, UL, 90, ((0, 0, ACK),)))
    assert reasons(effects) == ["crc 7: results for a cell that is not of this gNB"]


def test_drain_ends_when_all_is_delivered_but_slots_go_on(mac):
    slots(mac, 4)
    mac.feed(1900, DrainRequested("the user"))
    done = []
    for slot in range(4, 60):
        effects = slots(mac, 1, first=slot)[0]
        done += finished(effects)
        for tti in sent(effects, TtiRequest):
            results = tuple((row[1], row[2], ACK) for row in tti.blocks.tolist())
            mac.receive(slot * SLOT_US, "phy", CrcIndication(0, tti.air_slot, UL, 1, results))
        assert sent(effects, SlotDemand), "training may still ask what the RAN leaves"
    assert len(done) == 1


# --- PHY ----------------------------------------------------------------------------------------


def test_blocks_then_allocation(phy):
    effects = phy.receive(1500, "north.g1.mac", request())
    assert effects == [SetTimer("phy 0/9/1", 5000)], "the decode may begin when its slot has ended"
    effects = phy.receive(1520, "north.agent", allocation((5000, 24, 300)))
    assert CancelTimer("phy 0/9/1") in effects
    (task,) = work(effects, PhyTask)
    assert (task.start_us, task.end_us, task.direction) == (5000, 5698, UL)


def test_allocation_before_blocks(phy):
    assert phy.receive(1500, "north.agent", allocation((5000, 24, 300))) == []
    (task,) = work(phy.receive(1520, "north.g1.mac", request()), PhyTask)
    assert (task.start_us, task.end_us) == (5000, 5698)


def test_without_allocation_the_ran_takes_what_it_wants(phy):
    """29 code blocks want 24 SMs: 60 + 638 us from 5000 on."""
    phy.receive(1500, "north.g1.mac", request())
    effects = phy.feed(5003, TimerFired("phy 0/9/1", 5000))
    (task,) = work(effects, PhyTask)
    assert (task.start_us, task.end_us) == (5000, 5698)
    assert reasons(effects) == ["phy 0/9/1: no allocation by the task's start; took what it wants"]
    assert phy.feed(5004, TimerFired("phy 0/9/1", 5000)) == [], "only once"


def test_later_allocation_replaces_the_first_under_the_same_task_number(phy):
    phy.receive(1500, "north.g1.mac", request())
    (first,) = work(phy.receive(1520, "north.agent", allocation((5000, 24, 300))), PhyTask)
    (second,) = work(phy.receive(4930, "north.agent", allocation((5200, 8, 300))), PhyTask)
    assert second.task == first.task
    assert (second.start_us, second.end_us) == (5200, 5200 + 60 + 3 * 638)
    phy.report(7174, PhyTaskDone(second.task, 5200, 5200, 7174, 1000))
    effects = phy.report(7180, PhyTaskDone(second.task, 5000, 5698, 5698, 1000))
    assert reasons(effects) == [
        f"task {second.task}: reported twice: replaced too late to be stopped"
    ]
    assert sent(effects, CrcIndication) == []


def test_allocation_after_the_task_began_is_noted_and_not_used(phy):
    phy.receive(1500, "north.g1.mac", request())
    phy.receive(1520, "north.agent", allocation((5000, 24, 300)))
    effects = phy.receive(5001, "north.agent", allocation((6900, 24, 300)))
    assert work(effects, PhyTask) == []
    assert reasons(effects) == ["phy 0/9/1: allocation changed after the task began"]


@pytest.mark.parametrize(
    ("start_us", "results", "late_by"),
    [
        (5000, ((0, 0, ACK),), None),
        (5802, ((0, 0, ACK),), None),  # ends at 5802 + 698 = 6500, the deadline itself
        (5803, ((0, 0, LATE),), 1),
        (6900, ((0, 0, LATE),), 1098),
    ],
)
def test_block_is_late_when_its_task_ends_after_the_deadline(phy, start_us, results, late_by):
    phy.receive(1500, "north.g1.mac", request())
    (task,) = work(phy.receive(1520, "agent", allocation((start_us, 24, 300))), PhyTask)
    effects = phy.report(task.end_us, PhyTaskDone(task.task, start_us, start_us, task.end_us, 1000))
    (crc,) = sent(effects, CrcIndication, "north.g1.mac")
    assert (crc.cell, crc.air_slot, crc.end_us) == (0, 9, start_us + 698)
    assert crc.results == results
    (done,) = sent(effects, PhyDone, "north.agent")
    assert (done.start_us, done.modelled_end_us, done.sms) == (start_us, start_us + 698, 24)
    late = [f"phy 0/9/1: uplink task {late_by} us after its deadline"] if late_by else []
    assert reasons(effects) == late


def test_block_beyond_its_channel_is_a_nack(phy):
    """MCS 28 at -10 dB: 10 log10(2^5.55 - 1) + 2.5 = 19.1 dB would be needed for every second."""
    row = [0, 0, 0, 1, 273, 1, 28, 29_000, 29, 5554, -1000]
    phy.receive(1500, "north.g1.mac", TtiRequest("g1", 9, UL, np.array([row], dtype="<i4")))
    (task,) = work(phy.receive(1520, "agent", allocation((5000, 24, 300))), PhyTask)
    effects = phy.report(5698, PhyTaskDone(task.task, 5000, 5000, 5698, 1000))
    assert sent(effects, CrcIndication)[0].results == ((0, 0, NACK),)
