"""The site agent, fed by hand: what it leases, and what it takes back."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from nodes_bench import Bench, job, parse, reasons, rows, sent, site

from nodes.api import PeerChanged, Started
from protocols.messages import (
    LeaseClose,
    LeaseGrant,
    PhyAllocation,
    PhyDone,
    QuantumStarted,
    SlotDemand,
)

SLOT_US, SMS = 500, 48
DL, UL = 0, 1
TRAINER = "north.pretrain.trainer"


def agent(*gnbs, jobs=("pretrain",)):
    text = site(*gnbs) + "".join(job(name) for name in jobs)
    return Bench(parse(text), "north.agent")


def demand(slot, *tasks, gnb="g1"):
    """What a MAC says in ``slot``: downlink known 3 slots ahead, uplink 6."""
    return SlotDemand(gnb, slot, slot + 3, slot + 6, tasks)


def decode(air_slot, code_blocks=29, cell=0):
    return (cell, air_slot, UL, 273, 1, code_blocks, 1000 * code_blocks)


def downlink(air_slot, code_blocks=20, cell=0):
    return (cell, air_slot, DL, 273, 2, code_blocks, 1000 * code_blocks)


def plan(bench, slot, *tasks, gnb="g1"):
    return bench.receive(slot * SLOT_US, f"north.{gnb}.mac", demand(slot, *tasks, gnb=gnb))


def lease(effects, trainer=TRAINER):
    return sent(effects, LeaseGrant, trainer)[-1]


def allocated(effects, phy="north.g1.phy"):
    return [row for message in sent(effects, PhyAllocation, phy) for row in message.segments]


def test_lease_is_what_the_ran_leaves_until_the_plans_end():
    """Slot 3 plans the decode of slot 9: 24 SMs in [5000, 5698).

    Known until: downlink of slot 7 could begin in slot 6, at 3000 us; uplink of slot 10 at 5500 us.
    The earlier one bounds the lease.
    """
    bench = agent()
    effects = plan(bench, 3, decode(9))
    assert allocated(effects) == [(0, 9, UL, 5000, 24, 300)]
    assert lease(effects).windows == ((1500, 3000, SMS),)


def test_lease_shrinks_where_a_decode_is_reserved():
    bench = agent()
    for slot in range(3, 8):
        effects = plan(bench, slot, *([decode(9)] if slot == 3 else []))
    assert lease(effects).windows == ((3500, 5000, SMS),)
    effects = plan(bench, 8)
    assert lease(effects).windows == ((4000, 5000, SMS), (5000, 5500, SMS - 24))


def test_every_grant_has_a_new_epoch_and_records_what_it_added():
    bench = agent()
    first, second = plan(bench, 0), plan(bench, 1)
    assert lease(second).epoch == lease(first).epoch + 1
    (added,) = rows(second, "leases")
    assert (added["granted_us"], added["start_us"], added["end_us"]) == (500, 1500, 2000)


def test_two_gnbs_wait_for_each_other():
    bench = agent("g1", "g2")
    assert plan(bench, 0, decode(6, cell=0)) == []
    effects = plan(bench, 0, decode(6, cell=1), gnb="g2")
    assert allocated(effects, "north.g1.phy") == [(0, 6, UL, 3500, 24, 300)]
    first, *_ = allocated(effects, "north.g2.phy")
    assert first == (1, 6, UL, 3500, 16, 300), "two decodes share the profile's cap of 40 SMs"
    assert plan(bench, 1) == []
    assert lease(plan(bench, 1, gnb="g2")).windows


def test_gnb_that_is_a_slot_ahead_does_not_open_the_lease_for_the_other():
    bench = agent("g1", "g2")
    plan(bench, 0)
    plan(bench, 0, gnb="g2")
    assert plan(bench, 1) == []
    assert plan(bench, 2) == []
    effects = plan(bench, 1, gnb="g2")
    assert lease(effects).windows == ((500, 2000, SMS),), "bounded by what g2 has planned"


def test_jobs_share_the_spare_and_a_closed_job_gets_none():
    bench = agent(jobs=("pretrain", "other"))
    effects = plan(bench, 0)
    assert lease(effects).windows == lease(effects, "north.other.trainer").windows
    assert lease(effects).windows == ((0, 1500, 24),)
    closed = bench.receive(10, "coordinator", LeaseClose("other", "it is done"))
    assert reasons(closed) == ["lease other: closed: it is done"]
    effects = plan(bench, 1)
    assert sent(effects, LeaseGrant, "north.other.trainer") == []
    assert lease(effects).windows == ((500, 2000, SMS),)


def test_site_without_a_gnb_leases_its_gpu_for_the_whole_run():
    text = 'name = "pool"\n[sites.north]\ngpu = "gb10"\n' + job()
    topology = parse(text)
    effects = Bench(topology, "north.agent").feed(-1000, Started())
    ((start_us, end_us, sms),) = lease(effects).windows
    assert (start_us, sms) == (0, SMS)
    assert end_us >= topology.time.total_us


def test_dead_trainer_is_leased_nothing_until_it_lives_again():
    bench = agent(jobs=("pretrain", "other"))
    shared = lease(plan(bench, 0))
    assert shared.windows[0][2] == SMS // 2
    assert bench.feed(100, PeerChanged(TRAINER, "lost", "")) == []
    effects = plan(bench, 1)
    assert sent(effects, LeaseGrant, TRAINER) == []
    assert lease(effects, "north.other.trainer").windows[0][2] == SMS
    assert bench.feed(600, PeerChanged(TRAINER, "joined", "life 2")) == []
    again = lease(plan(bench, 2))
    assert (again.epoch, again.windows[0][2]) == (shared.epoch + 1, SMS // 2)


@pytest.mark.parametrize("status", ["missing", "back"])
def test_missing_trainer_keeps_its_lease(status):
    bench = agent()
    bench.feed(100, PeerChanged(TRAINER, status, ""))
    assert lease(plan(bench, 0)).windows[0][2] == SMS


def test_quantum_of_a_dead_trainer_holds_nothing():
    """Its SMs go back to the radio: the decode of slot 9 begins with all that it was planned."""
    for dies, first_sms in ((False, 16), (True, 24)):
        bench = agent()
        plan(bench, 2)
        started = QuantumStarted("pretrain", 1, 0, 0, 1000, 6000, 32)
        bench.receive(1010, TRAINER, started)
        if dies:
            bench.feed(1200, PeerChanged(TRAINER, "lost", ""))
        effects = plan(bench, 3, decode(9))
        assert allocated(effects)[0] == (0, 9, UL, 5000, first_sms, 300)


def test_pool_leases_again_at_once_to_a_trainer_that_lives_again():
    text = 'name = "pool"\n[sites.north]\ngpu = "gb10"\n' + job()
    bench = Bench(parse(text), "north.agent")
    first = lease(bench.feed(-1000, Started()))
    assert sent(bench.feed(100, PeerChanged(TRAINER, "lost", "")), LeaseGrant) == []
    again = lease(bench.feed(600, PeerChanged(TRAINER, "joined", "life 2")))
    ((start_us, end_us, sms),) = again.windows
    assert (start_us, end_us, sms) == (600, first.windows[0][1], SMS)


def test_other_peers_do_not_change_the_leases():
    bench = agent()
    assert bench.feed(100, PeerChanged("north.g1.phy", "lost", "")) == []


def test_site_with_gnbs_leases_nothing_before_the_first_plan():
    assert agent().feed(-1000, Started()) == []


def test_held_quantum_delays_the_allocation_and_the_lease_is_granted_anew():
    """As in test_nodes_late_quantum: 48 SMs until 6900 us move the decode to [6900, 7598)."""
    bench = agent()
    for slot in range(3, 9):
        plan(bench, slot, *([decode(9)] if slot == 3 else []))
    started = QuantumStarted("pretrain", 1, 9, 0, 4900, 6900, SMS)
    effects = bench.receive(4920, TRAINER, started)
    assert allocated(effects) == [(0, 9, UL, 5000, 0, 300), (0, 9, UL, 6900, 24, 300)]
    assert lease(effects).windows == ((4920, 5500, SMS),), "the decode has left [5000, 5500)"
    later = plan(bench, 12)
    assert lease(later).windows == ((6000, 6900, SMS), (6900, 7500, SMS - 24))


def test_quantum_within_its_lease_changes_nothing():
    bench = agent()
    plan(bench, 3, decode(9))
    assert bench.receive(1600, TRAINER, QuantumStarted("pretrain", 1, 0, 0, 1580, 2900, SMS)) == []


def test_task_that_runs_already_keeps_its_sms():
    """A quantum that starts over a running decode cannot take its SMs: they are counted as a
    violation by the report, from the measured intervals."""
    bench = agent()
    plan(bench, 3, decode(9))
    started = QuantumStarted("pretrain", 1, 9, 0, 5100, 7100, SMS)
    assert allocated(bench.receive(5120, TRAINER, started)) == []


def test_finished_task_is_recorded_with_its_first_plan():
    bench = agent()
    plan(bench, 3, decode(9))
    bench.receive(4920, TRAINER, QuantumStarted("pretrain", 1, 9, 0, 4900, 6900, SMS))
    done = PhyDone(0, 9, UL, 6900, 7598, 7601, 24)
    (row,) = rows(bench.receive(7610, "north.g1.phy", done), "ran_tasks")
    assert (row["planned_start_us"], row["planned_end_us"]) == (5000, 5698)
    assert (row["start_us"], row["modelled_end_us"], row["end_us"]) == (6900, 7598, 7601)
    assert (row["deadline_us"], row["sms"], row["n_prb"]) == (6500, 24, 273)
    again = bench.receive(7620, "north.g1.phy", done)
    assert reasons(again) == ["phy 0/9: done, but was never planned"]


def test_promise_beyond_the_plans_is_the_worst_case():
    """One full cell: the decode's 24 SMs; downlink of 8 SMs beside it in the same slots.

    The plans of slot 0 end at 1500 us, so the first column (1000 us) is known to be empty.
    """
    bench = agent()
    (row,) = rows(plan(bench, 0), "promises")
    assert row["within_1000_us"] == 0
    assert row["within_5000_us"] == row["within_20000_us"] == 32


@settings(max_examples=60, phases=[Phase.generate])
@given(
    data=st.data(),
    load=st.lists(
        st.tuples(st.booleans(), st.integers(1, 40), st.integers(0, 60)), min_size=12, max_size=24
    ),
)
def test_no_lease_ever_overlaps_a_known_reservation(data, load):
    """Random plans of two cells, random honest and late quanta: at each grant, the lease's SMs and
    those of every allocation made so far fit the GPU."""
    bench = agent("g1", "g2")
    known: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    ends: dict[tuple[int, int, int], int] = {}
    for slot, (uplink, one, two) in enumerate(load):
        tasks = {"g1": [], "g2": []}
        for cell, (gnb, blocks) in enumerate((("g1", one), ("g2", two))):
            if blocks:
                task = (
                    decode(slot + 6, blocks, cell) if uplink else downlink(slot + 3, blocks, cell)
                )
                tasks[gnb].append(task)
        effects = [e for gnb in tasks for e in plan(bench, slot, *tasks[gnb], gnb=gnb)]
        check_grants(bench, effects, known, ends)
        if data.draw(st.booleans()):
            start_us = slot * SLOT_US + data.draw(st.integers(0, 400))
            sms = data.draw(st.sampled_from([8, 24, 40, 48]))
            end_us = start_us + data.draw(st.integers(1, 3000))
            quantum = QuantumStarted("pretrain", 1, 9, 0, start_us, end_us, sms)
            check_grants(bench, bench.receive(start_us + 20, TRAINER, quantum), known, ends)


def check_grants(bench, effects, known, ends):
    for allocation in sent(effects, PhyAllocation):
        fresh: dict = {}
        for cell, air_slot, direction, from_us, sms, _ in allocation.segments:
            fresh.setdefault((cell, air_slot, direction), []).append((from_us, sms))
        known.update(fresh)
    for reservation in bench.node._timeline.reservations():
        key = reservation.request.key
        ends[key.cell, key.air_slot, key.direction] = reservation.end_us
    for grant in sent(effects, LeaseGrant):
        for start_us, end_us, sms in grant.windows:
            assert sms % 8 == 0
            for at_us in {start_us, *(t for steps in known.values() for t, _ in steps)}:
                if start_us <= at_us < end_us:
                    held = sum(held_at(steps, ends[key], at_us) for key, steps in known.items())
                    assert held + sms <= SMS, (at_us, held, sms)


def held_at(steps, end_us, at_us):
    if at_us >= end_us:
        return 0
    return next((sms for from_us, sms in reversed(steps) if from_us <= at_us), 0)


@pytest.mark.parametrize("sms", [8, 24, 32, 40, 48])
@pytest.mark.parametrize("cells", [1, 2, 3])
def test_delayed_decodes_never_have_more_sms_than_there_are(cells, sms):
    """Decodes of slot 9, one per gNB, beside a quantum that holds ``sms`` until 6900 us: what one
    of them gives up must not be what another one counts on."""
    gnbs = [f"g{index}" for index in range(cells)]
    bench = agent(*gnbs)
    for cell, gnb in enumerate(gnbs):
        plan(bench, 3, decode(9, cell=cell), gnb=gnb)
    bench.receive(4920, TRAINER, QuantumStarted("pretrain", 1, 9, 0, 4900, 6900, sms))
    for from_us, _, ran_sms in bench.node._timeline.ran_steps(5000, 12_000):
        held = sms if from_us < 6900 else 0
        assert ran_sms + held <= SMS, from_us
