"""Timelines by hand. All cells run DDDSU at 30 kHz: slot 3, 8, ... is S, slot 4, 9, ... is U.

The MAC plans downlink 3 slots ahead and uplink 6; uplink results are used 5 slots after the air
slot, downlink results 8.
"""

import pytest

from testbed.ran.mac import GnbMac
from testbed.ran.numerology import Direction
from testbed.ran.plan import BlockResult, CellPlan, Outcome, SduDelivered
from testbed.ran.schedulers import CellView, ProportionalFair, SlotView
from testbed.ran.traffic import FullBuffer

from .helpers import always, answer, gnb, run, sdus, steady_cell

UL, DL = Direction.UL, Direction.DL


def planned(mac: GnbMac, slot: int) -> list[CellPlan]:
    """Plans of a step that hold blocks."""
    return [plan for plan in mac.step(slot) if plan.blocks]


def first_plan(mac: GnbMac, upto: int = 20) -> tuple[int, CellPlan]:
    """The first plan with a block, and the step that made it."""
    for slot in range(upto):
        for plan in planned(mac, slot):
            return slot, plan
    raise AssertionError("nothing was planned")


def test_each_step_plans_the_slots_ahead_that_carry_the_direction():
    mac = gnb(steady_cell())
    seen = [(n, plan.slot, plan.direction) for n in range(10) for plan in mac.step(n)]
    assert [(n, slot) for n, slot, d in seen if d is DL] == [
        (n, n + 3) for n in range(10) if (n + 3) % 5 != 4
    ]
    assert [(n, slot) for n, slot, d in seen if d is UL] == [(3, 9), (8, 14)]


def test_uplink_in_time():
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, 1000))))
    n, plan = first_plan(mac)
    assert (n, plan.slot, plan.direction) == (3, 9, UL)
    assert plan.blocks[0].transmission == 1
    answer(mac, plan, Outcome.ACK, decoded_us=6123)
    for slot in range(4, 14):
        mac.step(slot)
        assert mac.take_delivered() == []
    mac.step(14)
    assert mac.take_delivered() == [SduDelivered(0, 0, UL, 9, 0, 6123, 1000)]
    assert mac.idle


def test_uplink_without_a_decode_time_ends_with_its_slot():
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, 1000))))
    _, delivered = run(mac, range(15), always(Outcome.ACK))
    assert [d.delivered_us for d in delivered] == [5000]


def test_downlink_retransmission_in_time():
    # Arrives at 501 us: known in slot 2, sent in slot 5 (D). The NACK is used in slot 13, which
    # plans slot 16 (D). Its ACK is used in slot 24; the slot ended at 8500 us.
    mac = gnb(steady_cell(dl_traffic=sdus(DL, (501, 0, 1000))))
    n, plan = first_plan(mac)
    assert (n, plan.slot) == (2, 5)
    answer(mac, plan, Outcome.NACK)
    assert all(not planned(mac, slot) for slot in range(3, 13))
    [again] = planned(mac, 13)
    assert again.slot == 16
    [first], [second] = plan.blocks, again.blocks
    assert second.transmission == 2
    for same in ("harq_id", "n_prb", "mcs_index", "tbs_bytes", "layers", "code_blocks"):
        assert getattr(first, same) == getattr(second, same)
    answer(mac, again, Outcome.ACK)
    for slot in range(14, 25):
        mac.step(slot)
        assert bool(mac.take_delivered()) == (slot == 24)
    counters = mac.cell(0).dl.counters
    assert (counters.nacks, counters.acks, counters.retransmissions) == (1, 1, 1)


def test_a_block_of_an_s_slot_is_repeated_in_an_s_slot():
    # Sent in slot 3 (S, 84 RE per PRB). The NACK is used in slot 11; D slots have 132 RE per PRB,
    # where the same PRBs and MCS would be another size, so it waits for slot 18 (step 15).
    mac = gnb(steady_cell(dl_traffic=sdus(DL, (0, 0, 1000))))
    n, plan = first_plan(mac)
    assert (n, plan.slot) == (0, 3)
    answer(mac, plan, Outcome.NACK)
    found = {slot: planned(mac, slot) for slot in range(1, 16)}
    assert [slot for slot, plans in found.items() if plans] == [15]
    assert found[15][0].slot == 18


def test_a_missing_result_is_late_feedback_and_a_nack():
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, 1000))))
    _, plan = first_plan(mac)
    counters = mac.cell(0).ul.counters
    for slot in range(4, 14):
        mac.step(slot)
        assert counters.late_feedback == 0
    mac.step(14)
    assert (counters.late_feedback, counters.nacks) == (1, 0)
    # What comes now changes nothing but its own count.
    answer(mac, plan, Outcome.ACK)
    assert counters.ignored_feedback == 1
    found = {slot: planned(mac, slot) for slot in range(15, 20)}
    [again] = found[18]
    assert again.slot == 24
    assert again.blocks[0].transmission == 2
    assert mac.take_delivered() == []


def test_a_result_in_the_slot_before_it_is_due_is_in_time():
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, 1000))))
    _, plan = first_plan(mac)
    for slot in range(4, 14):
        mac.step(slot)
    answer(mac, plan, Outcome.ACK)
    mac.step(14)
    assert len(mac.take_delivered()) == 1


def test_early_and_just_in_time_results_give_the_same_plans():
    def plans(answer_after: int) -> list[CellPlan]:
        mac = gnb(steady_cell(n_ues=3, dl_traffic=FullBuffer(), ul_traffic=FullBuffer()))
        waiting: list[tuple[int, CellPlan]] = []
        made = []
        for slot in range(120):
            new = mac.step(slot)
            made += new
            waiting += [(slot + answer_after, plan) for plan in new]
            for due, plan in [entry for entry in waiting if entry[0] == slot]:
                bad = (plan.slot + len(plan.blocks)) % 3 == 0
                answer(mac, plan, Outcome.NACK if bad else Outcome.ACK)
                waiting.remove((due, plan))
        return made

    assert plans(0) == plans(10)


def test_the_first_answer_counts_and_strangers_are_ignored():
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, 1000))))
    _, plan = first_plan(mac)
    answer(mac, plan, Outcome.NACK)
    answer(mac, plan, Outcome.ACK)
    mac.feedback(9, UL, 0, [BlockResult(0, 15, Outcome.ACK)])  # no block in that process
    mac.feedback(77, UL, 0, [BlockResult(0, 0, Outcome.ACK)])  # no such slot yet
    counters = mac.cell(0).ul.counters
    assert counters.ignored_feedback == 3
    for slot in range(4, 15):
        mac.step(slot)
    assert (counters.nacks, counters.acks) == (1, 0)


def test_a_late_block_is_a_nack_of_its_own_count():
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, 1000))))
    run(mac, range(15), always(Outcome.LATE))
    counters = mac.cell(0).ul.counters
    assert (counters.late_blocks, counters.nacks, counters.late_feedback) == (1, 0, 0)


def test_bytes_return_to_rlc_after_the_last_transmission():
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, 1000)), max_transmissions=2))
    plans, _ = run(mac, range(60), lambda plan, block: Outcome.NACK)
    blocks = [(plan.slot, block.transmission) for plan in plans for block in plan.blocks]
    # Sent in 9, NACK used in 14, the next chance is step 18 for slot 24, and so on.
    assert blocks[:4] == [(9, 1), (24, 2), (39, 1), (54, 2)]
    counters = mac.cell(0).ul.counters
    assert counters.given_up_blocks == 2
    assert counters.rlc_retx_bytes == 2000
    assert mac.cell(0).ul.backlog_bytes + counters.in_flight_bytes == 1000
    _, delivered = run(mac, range(60, 100), always(Outcome.ACK))
    assert [(d.arrival_us, d.n_bytes) for d in delivered] == [(0, 1000)]


def test_an_sdu_is_delivered_when_its_last_byte_is():
    # Two UL blocks carry the SDU; the first fails once, so the second's end does not deliver it.
    big = 80_000
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, big))))
    plans, delivered = run(
        mac,
        range(40),
        lambda plan, block: (
            Outcome.NACK if plan.slot == 9 and block.transmission == 1 else Outcome.ACK
        ),
    )
    carrying = [(p.slot, b.transmission) for p in plans if p.direction is UL for b in p.blocks]
    assert carrying[0] == (9, 1)
    retransmitted = next(slot for slot, transmission in carrying if transmission == 2)
    assert retransmitted > carrying[1][0]
    last_slot = max(slot for slot, _ in carrying)
    assert [(d.delivered_us, d.n_bytes) for d in delivered] == [((last_slot + 1) * 500, big)]


def test_retransmissions_take_their_prbs_before_the_policy_sees_the_slot():
    class Spy(ProportionalFair):
        def __init__(self) -> None:
            self.views: list[CellView] = []

        def schedule(self, view: SlotView):
            self.views += [cell for cell in view.cells if cell.retransmissions]
            return super().schedule(view)

    spy = Spy()
    cell = steady_cell(n_ues=2, ul_traffic=sdus(UL, (0, 0, 20_000), (0, 1, 200_000)))
    mac = GnbMac([cell], seed=1, dl_policy=spy, ul_policy=spy)
    plans, _ = run(
        mac,
        range(30),
        lambda plan, block: Outcome.NACK if plan.slot == 9 else Outcome.ACK,
    )
    [failed] = [plan for plan in plans if plan.slot == 9 and plan.direction is UL]
    view = spy.views[0]
    assert view.free_prb == 273 - sum(b.n_prb for b in view.retransmissions)
    assert view.max_grants == 8 - len(view.retransmissions)
    # A UE with a retransmission sends no second block in the slot.
    assert {b.ue for b in view.retransmissions}.isdisjoint(ue.ue for ue in view.ues)
    assert {b.n_prb for b in view.retransmissions} <= {b.n_prb for b in failed.blocks}
    assert all(plan.n_prb <= 273 for plan in plans)


def test_average_rate_follows_its_formula():
    # 1000 bytes are sent once; T = 0.02 * TBS, then 0.98 times that in each further UL slot.
    mac = gnb(steady_cell(ul_traffic=sdus(UL, (0, 0, 1000))))
    _, plan = first_plan(mac)
    tbs = plan.blocks[0].tbs_bytes
    assert tbs >= 1000
    link = mac.cell(0).ul
    assert link.average_rate(0) == pytest.approx(0.02 * tbs)
    for slot in range(4, 14):
        mac.step(slot)
    assert link.average_rate(0) == pytest.approx(0.98**2 * 0.02 * tbs)


def test_the_view_counts_prbs_and_deadline():
    class Spy:
        def __init__(self) -> None:
            self.seen: list[SlotView] = []

        def schedule(self, view: SlotView):
            self.seen.append(view)
            return []

    spy = Spy()
    cell = steady_cell(ul_traffic=sdus(UL, (300, 0, 1000)), mcs_table=1, five_qi=(3,))
    mac = GnbMac([cell], seed=1, dl_policy=ProportionalFair(), ul_policy=spy)
    for slot in range(4):
        mac.step(slot)
    [view] = spy.seen
    [ue] = view.cells[0].ues
    assert (view.slot, view.slot_start_us) == (9, 4500)
    assert (ue.head_of_line_us, ue.deadline_us) == (300, 30_300)  # 5QI 3: 50 ms less 20 ms
    assert ue.mcs_index == 28
    assert ue.bytes_per_prb == pytest.approx(237_776 / 8 / 273)
    # 156 * 6 * 948 / 1024 = 866.5 bits per PRB, so 8000 bits need 10 PRBs (8664 bits), not 9.
    assert ue.drain_prb == 10


def test_uplink_is_seen_when_it_is_reported():
    cell = steady_cell(ul_traffic=sdus(UL, (0, 0, 1000)), ul_report_delay_slots=4)
    mac = gnb(cell)
    n, plan = first_plan(mac)
    assert (n, plan.slot) == (8, 14)
    answer(mac, plan, Outcome.ACK)
    _, delivered = run(mac, range(9, 20), always(Outcome.ACK))
    assert [d.arrival_us for d in delivered] == [0]


def test_no_more_blocks_than_harq_processes():
    cell = steady_cell(dl_traffic=FullBuffer(), harq_processes=2)
    mac = gnb(cell)
    plans, _ = run(mac, range(11), always(None))
    assert sum(len(plan.blocks) for plan in plans) == 2
    assert {block.harq_id for plan in plans for block in plan.blocks} == {0, 1}


def test_drain_ends_the_arrivals():
    mac = gnb(steady_cell(n_ues=2, ul_traffic=FullBuffer(50_000)))
    run(mac, range(50), always(Outcome.ACK))
    assert not mac.idle
    mac.stop_arrivals()
    arrived = mac.cell(0).ul.counters.arrived_bytes
    run(mac, range(50, 150), always(Outcome.ACK))
    assert mac.idle
    assert mac.cell(0).ul.counters.arrived_bytes == arrived


def test_cells_are_scheduled_jointly():
    seen = []

    class Spy(ProportionalFair):
        def schedule(self, view: SlotView):
            seen.append((view.slot, [cell.cell for cell in view.cells]))
            return super().schedule(view)

    cells = [steady_cell(3), steady_cell(1, tdd="DSUUU")]
    mac = GnbMac(cells, seed=1, dl_policy=ProportionalFair(), ul_policy=Spy())
    for slot in range(5):
        mac.step(slot)
    # Air slots 6 to 10: 7, 8, 9 are U in cell 1 and 9 in cell 3.
    assert seen == [(7, [1]), (8, [1]), (9, [3, 1])]


def test_bad_gnbs_and_slots_are_refused():
    policy = ProportionalFair()
    with pytest.raises(ValueError, match="at least one cell"):
        GnbMac([], seed=1, dl_policy=policy, ul_policy=policy)
    with pytest.raises(ValueError, match=r"cell_id used twice: \[0, 0\]"):
        gnb(steady_cell(), steady_cell())
    with pytest.raises(ValueError, match=r"agree in k2_slots, got \[3, 2\]"):
        gnb(steady_cell(), steady_cell(1, k2_slots=2))
    mac = gnb(steady_cell())
    mac.step(0)
    with pytest.raises(ValueError, match=r"step\(2\): the next slot is 1"):
        mac.step(2)
