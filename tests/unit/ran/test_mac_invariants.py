"""What must hold whatever arrives and whatever the PHY answers."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.ran.config import CellConfig
from testbed.ran.mac import GnbMac
from testbed.ran.numerology import Direction, TddPattern
from testbed.ran.plan import Outcome
from testbed.ran.rlc import RlcBuffer, acknowledge, segment_bytes
from testbed.ran.schedulers import ProportionalFair, RoundRobin
from testbed.ran.traffic import Ftp3, FullBuffer

from .helpers import run

UL, DL = Direction.UL, Direction.DL

cells = st.builds(
    CellConfig,
    cell_id=st.just(0),
    n_ues=st.integers(1, 5),
    bandwidth_mhz=st.sampled_from([5, 20]),
    tdd=st.sampled_from(["DDDSU", "DU", "DDDSUUDDDD", "SU"]).map(TddPattern.parse),
    sinr_mean_db=st.floats(0, 25),
    harq_processes=st.integers(1, 4),
    max_transmissions=st.integers(1, 3),
    max_ues_per_slot=st.integers(1, 4),
    ul_feedback_slots=st.integers(1, 8),
    dl_feedback_slots=st.integers(1, 8),
    lookahead_slots=st.integers(0, 4),
    k2_slots=st.integers(0, 4),
    dl_traffic=st.builds(Ftp3, st.floats(0, 300), st.integers(1, 2000)),
    ul_traffic=st.builds(Ftp3, st.floats(0, 300), st.integers(1, 2000)),
)
PATIENCE_SLOTS = 100
"""Several times the longest of a TDD period, and of a block from its plan to its feedback."""
answers = st.lists(
    st.sampled_from([Outcome.ACK, Outcome.ACK, Outcome.NACK, Outcome.LATE, None]),
    min_size=1,
    max_size=40,
)


def acknowledged(cell):
    return cell.dl.counters.acknowledged_bytes + cell.ul.counters.acknowledged_bytes


@settings(max_examples=60)
@given(
    config=cells, pattern=answers, policy=st.sampled_from([RoundRobin, ProportionalFair]), seed=...
)
def test_bytes_are_conserved_and_limits_kept(config: CellConfig, pattern, policy, seed: bool):
    scheduler = policy()
    mac = GnbMac([config], seed=int(seed), dl_policy=scheduler, ul_policy=scheduler)
    cell = mac.cell(0)
    given_answers = 0

    def judge(plan, block):
        nonlocal given_answers
        given_answers += 1
        return pattern[given_answers % len(pattern)]

    def check():
        for link in (cell.dl, cell.ul):
            c = link.counters
            assert c.arrived_bytes == link.backlog_bytes + c.in_flight_bytes + c.acknowledged_bytes
            assert all(
                0 <= link.busy_processes(ue) <= config.harq_processes for ue in range(config.n_ues)
            )

    plans, delivered = [], []
    for slot in range(120):
        made, done = run(mac, [slot], judge)
        plans += made
        delivered += done
        check()
    for plan in plans:
        assert config.tdd.carries(plan.slot, plan.direction)
        assert plan.n_prb <= config.n_prb
        assert len(plan.blocks) <= config.max_ues_per_slot
        assert len({block.ue for block in plan.blocks}) == len(plan.blocks)
        assert all(1 <= b.transmission <= config.max_transmissions for b in plan.blocks)

    # Once the channel is good and nothing arrives, every byte gets through.
    mac.stop_arrivals()
    slot = 120
    while not mac.idle:
        before = acknowledged(cell)
        slots = range(slot, slot + PATIENCE_SLOTS)
        delivered += run(mac, slots, lambda plan, block: Outcome.ACK)[1]
        assert mac.idle or acknowledged(cell) > before, f"nothing got through in {slots}"
        slot += PATIENCE_SLOTS
    check()
    sums = Counter()
    for sdu in delivered:
        assert sdu.delivered_us > sdu.arrival_us
        sums[sdu.direction] += sdu.n_bytes
    for link in (cell.dl, cell.ul):
        assert link.counters.arrived_bytes == sums[link.direction]


@given(st.lists(st.integers(1, 50), min_size=1), st.lists(st.integers(1, 60)), st.data())
def test_the_buffer_loses_and_invents_no_byte(sdus, takes, data):
    buffer = RlcBuffer()
    for index, n_bytes in enumerate(sdus):
        buffer.push(n_bytes, index)
    taken = [buffer.take(n_bytes) for n_bytes in takes]
    out = sum(segment_bytes(segments) for segments in taken)
    assert out + buffer.backlog_bytes == sum(sdus)
    for segments in data.draw(st.permutations(taken)):
        buffer.put_back(segments)
    assert buffer.backlog_bytes == sum(sdus)
    whole = buffer.take(sum(sdus))
    done = acknowledge(whole, 7)
    assert sorted(sdu.arrival_us for sdu in done) == list(range(len(sdus)))
    assert all(sdu.last_byte_us == 7 for sdu in done)


def test_put_back_restores_the_order():
    buffer = RlcBuffer()
    for index in range(3):
        buffer.push(10, index)
    first = buffer.take(15)
    assert buffer.head_arrival_us == 1
    buffer.put_back(first)
    assert buffer.head_arrival_us == 0
    assert [(sdu.arrival_us, n) for sdu, n in buffer.take(30)] == [(0, 10), (1, 5), (1, 5), (2, 10)]


def test_arrivals_do_not_depend_on_the_policy_or_the_answers():
    config = CellConfig(0, dl_traffic=Ftp3(50, 10_000), ul_traffic=Ftp3(50, 10_000))
    arrived = set()
    for policy in (RoundRobin(), ProportionalFair()):
        for outcome in (Outcome.ACK, None):
            mac = GnbMac([config], seed=1, dl_policy=policy, ul_policy=policy)
            run(mac, range(300), lambda plan, block, outcome=outcome: outcome)
            cell = mac.cell(0)
            arrived.add((cell.dl.counters.arrived_bytes, cell.ul.counters.arrived_bytes))
    assert len(arrived) == 1


def test_proportional_fair_gives_equal_air_time_in_a_steady_channel():
    # Without fading R/T is equal over all UEs only where T is in proportion to R: each gets the
    # same share of the slots, whatever its MCS (here one has nearly twice the rate).
    config = CellConfig(0, n_ues=2, sinr_mean_db=10, sinr_sd_db=8, fading_sd_db=0)
    config = replace(config, ul_traffic=FullBuffer())
    policy = ProportionalFair()
    mac = GnbMac([config], seed=5, dl_policy=policy, ul_policy=policy)
    plans, _ = run(mac, range(5000), lambda plan, block: Outcome.ACK)
    blocks = [block for plan in plans for block in plan.blocks]
    rates = [next(b.tbs_bytes for b in blocks if b.ue == ue) for ue in range(2)]
    assert max(rates) > 1.5 * min(rates)
    assert sum(b.ue == 0 for b in blocks) / len(blocks) == pytest.approx(0.5, abs=0.05)
