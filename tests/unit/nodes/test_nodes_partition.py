"""The site agent on GPUs whose partition is slow, or fixed: what it lends, and to what end.

One cell of 100 MHz, MCS table 1: its decode has 29 code blocks per uplink layer, hence 24 SMs of a
gb10; its downlink takes 8 more beside it. So the worst case of one layer leaves 16 of 48 SMs.
"""

from __future__ import annotations

import pytest
from nodes_bench import Bench, job, parse, reasons, rows, sent, site

from nodes.api import Started
from protocols.messages import LeaseGrant, PhyAllocation, SlotDemand
from testbed.topology.views import RunView

SLOT_US = 500
UL = 1


def agent(keys: str, *gnbs: str) -> Bench:
    text = site(*gnbs, extra="ul_layers = 1").replace('gpu = "gb10"', keys)
    return Bench(parse(text + job()), "north.agent")


def end_us(text: str = "") -> int:
    run = RunView(parse(text or site() + job()))
    return run.end_us + run.drain_us


def decode(air_slot: int, cell: int = 0) -> tuple[int, ...]:
    return (cell, air_slot, UL, 273, 1, 29, 29_000)


def plan(bench: Bench, slot: int, *tasks: tuple[int, ...], gnb: str = "g1") -> list:
    demand = SlotDemand(gnb, slot, slot + 3, slot + 6, tasks)
    return bench.receive(slot * SLOT_US, f"north.{gnb}.mac", demand)


def lent(effects: list) -> tuple[tuple[int, int, int], ...]:
    return sent(effects, LeaseGrant)[-1].windows


def test_mps_lends_what_the_worst_case_leaves_to_the_end_of_the_run() -> None:
    bench = agent('gpu = "gb10"\npartition = "mps"')
    for slot in range(4):
        effects = plan(bench, slot, *([decode(9)] if slot == 3 else []))
        assert lent(effects) == ((slot * SLOT_US, end_us(), 16),)
    # Recorded is what is certain: until the plans end, 3 slots ahead.
    (added,) = rows(effects, "leases")
    assert (added["start_us"], added["end_us"], added["sms"]) == (2500, 3000, 16)
    assert reasons(effects) == []


def test_mps_switches_once_the_ran_promises_more_for_longer_than_two_switches() -> None:
    """In slot 1 the MAC promises 8 SMs until 1 s: 40 may be lent from 0.3 s later to 0.3 s before.

    Slot 0 had set the partition to what the worst case leaves.
    """
    bench = agent('gpu = "gb10"\npartition = "mps"')
    plan(bench, 0)
    promise = SlotDemand("g1", 1, 4, 7, (), ((1, 8),), 2000, 0, 8)
    effects = bench.receive(500, "north.g1.mac", promise)
    assert lent(effects) == (
        (500, 300_500, 16),
        (300_500, 700_000, 40),
        (700_000, end_us(), 16),
    )
    assert reasons(effects) == []
    effects = plan(bench, 2)
    assert reasons(effects) == [
        "partition: mps: training goes from 16 to 40 SMs in [500, 300500) us"
    ]


def test_mig_lends_the_instance_that_fits_beside_the_worst_case() -> None:
    """H200: 24 and 8 SMs for the RAN; an instance of 60 holds them, beside one of 64."""
    bench = agent('gpu = "h200"\npartition = "mig"')
    assert lent(plan(bench, 0)) == ((0, end_us(), 64),)


def test_a_static_partition_confines_the_ran_and_is_lent_whatever_it_does() -> None:
    """Two decodes of 24 SMs: 24 and 16 of the 40 that decodes may take; of 32 they get 16 each."""
    bench = agent('gpu = "gb10"\npartition = "static"\nstatic_training_sms = 16', "g1", "g2")
    plan(bench, 0, decode(4, 0))
    effects = plan(bench, 0, decode(4, 1), gnb="g2")
    firsts = [message.segments[0] for message in sent(effects, PhyAllocation)]
    assert firsts == [(0, 4, UL, 2500, 16, 300), (1, 4, UL, 2500, 16, 300)]
    assert lent(effects) == ((0, end_us(), 16),)


@pytest.mark.parametrize(
    ("keys", "sms"),
    [('partition = "static"\nstatic_training_sms = 16', 16), ('partition = "mps"', 48)],
)
def test_a_pool_lends_its_partition_throughout(keys: str, sms: int) -> None:
    text = f'name = "bench"\n[sites.north]\ngpu = "gb10"\n{keys}\n' + job()
    bench = Bench(parse(text), "north.agent")
    assert lent(bench.feed(0, Started())) == ((0, end_us(text), sms),)


@pytest.mark.parametrize(
    ("keys", "training_sms"),
    [('gpu = "gb10"', 0), ('gpu = "gb10"\npartition = "static"\nstatic_training_sms = 16', 16)],
)
def test_a_policy_that_shapes_is_told_of_the_whole_gpu_and_what_is_never_its_own(
    keys: str, training_sms: int
) -> None:
    text = site(extra="ul_layers = 1").replace('gpu = "gb10"', keys)
    shaped = '[policies.site]\nmac = "nodes_shaper:Shaper"\n'
    (told,) = Bench(parse(text + job() + shaped), "north.g1.mac").node._policy.bound
    assert (told.gpu.sms, told.training_sms) == (48, training_sms)
