"""The trainer's executor in virtual time when members die and come back. Times are sums of COSTS
by hand: a sample of one layer takes 100 + 150 + 200 us, an optimiser quantum 30."""

from __future__ import annotations

import heapq

import pytest

from protocols.work import (
    AbandonStep,
    ApplyStep,
    ComputeStep,
    RunSync,
    SampleComputed,
    ShareEnded,
    ShareState,
    StepComputed,
    SyncEnded,
)
from testbed.gpu.gate import Lease, Window
from testbed.gpu.quanta import QuantumCosts
from testbed.sim_trainer import SyncBook, TrainerModel, VirtualTrainer

COSTS = QuantumCosts((40,), ((100,), (150,), (200,), (30,)))
MODEL = TrainerModel(COSTS, 1, 64, 0, 0, 0)
SAMPLE_US = 450
ROUND_THE_CLOCK = Lease(1, (Window(0, 10**9, 40),))
QUANTA = ("QuantumBegun", "QuantumEnded")


class Bench:
    """Members of one job on one clock."""

    def __init__(self, *names):
        self.book = SyncBook()
        self.now = 0
        self.wakes = []
        self.reports = {}
        self.members = {}
        for name in names:
            self.bear(name)

    def bear(self, name):
        """A first or further life."""
        self.reports[name] = []
        member = VirtualTrainer(
            name,
            "job",
            MODEL,
            self.book,
            lambda message: self.reports[name].append((self.now, message)),
            lambda at_us: heapq.heappush(self.wakes, (at_us, name, id(member))),
        )
        self.members[name] = member
        member.set_lease(self.now, ROUND_THE_CLOCK)

    def kill(self, name):
        del self.members[name]
        self.book.forget(name)

    def take(self, name, *messages):
        for message in messages:
            self.members[name].take(self.now, message)

    def run_until(self, at_us):
        while self.wakes and self.wakes[0][0] <= at_us:
            self.now, name, identity = heapq.heappop(self.wakes)
            member = self.members.get(name)
            if member is not None and id(member) == identity:
                member.advance(self.now)
        self.now = at_us

    def of(self, name, *kinds):
        return [message for _, message in self.reports[name] if isinstance(message, kinds)]

    def synced(self, name):
        return [(ended.epoch, ended.ok, ended.proxy_tokens) for ended in self.of(name, SyncEnded)]


def sync(epoch, step, rank=0, world=1, ring_us=0):
    return RunSync(epoch, step, rank, world, ring_us, 0, "")


def test_sum_after_a_death_counts_what_the_living_have_in_whatever_epoch():
    bench = Bench("a", "b")
    bench.take("a", ComputeStep(1, 4, (0, 1)))
    bench.take("b", ComputeStep(1, 4, (2,)))
    bench.run_until(2 * SAMPLE_US)
    bench.kill("b")
    bench.take("a", ComputeStep(2, 4, (2,)), sync(2, 4))
    bench.run_until(10_000)
    assert bench.synced("a") == [(2, True, 3 * 64)]
    assert [(s.epoch, s.sample) for s in bench.of("a", SampleComputed)] == [(1, 0), (1, 1), (2, 2)]


def test_all_members_of_one_collective_sum_the_same_though_one_dies_meanwhile():
    bench = Bench("a", "b", "c")
    for sample, name in enumerate("abc"):
        bench.take(name, ComputeStep(1, 0, (sample,)))
    bench.run_until(1000)
    bench.take("a", sync(1, 0, 0, 3))
    bench.kill("c")
    bench.run_until(2000)
    bench.take("b", sync(1, 0, 1, 3))
    bench.run_until(3000)
    assert bench.synced("a") == bench.synced("b") == [(1, True, 3 * 64)]
    for rank, name in enumerate("ab"):
        bench.take(name, ComputeStep(2, 0, ()), sync(2, 0, rank, 2))
    bench.run_until(4000)
    assert bench.synced("a")[1:] == bench.synced("b")[1:] == [(2, True, 2 * 64)]


@pytest.mark.parametrize(
    ("ring_us", "at_us", "ends_us"),
    [
        (5000, 1000, 1000),  # waits for the ring: given up at once
        (0, 460, 480),  # its optimiser runs: that is not interrupted
    ],
)
def test_collective_of_an_older_epoch_is_given_up(ring_us, at_us, ends_us):
    bench = Bench("a", "b")
    bench.take("a", ComputeStep(1, 0, (0,)), sync(1, 0, 0, 2, ring_us))
    bench.run_until(at_us)
    bench.take("a", ComputeStep(2, 0, ()), sync(2, 0, 0, 1))
    bench.run_until(20_000)
    (given_up, ended), again = [
        (message, now_us) for now_us, message in bench.reports["a"] if type(message) is SyncEnded
    ]
    assert (given_up.epoch, given_up.ok, ended) == (1, False, ends_us)
    assert given_up.reason == "superseded: step 0 goes on in epoch 2"
    assert (again[0].epoch, again[0].ok, again[0].proxy_tokens) == (2, True, 64)


def test_collective_that_is_still_queued_is_given_up_in_its_turn():
    bench = Bench("a")
    bench.take("a", ComputeStep(1, 0, (0,)), sync(1, 0, 0, 2), ComputeStep(2, 0, (1,)))
    bench.run_until(20_000)
    kinds = [type(m).__name__ for _, m in bench.reports["a"] if type(m).__name__ not in QUANTA]
    assert kinds == [
        "SampleComputed",
        "StepComputed",
        "SyncEnded",
        "SampleComputed",
        "StepComputed",
    ]
    assert bench.synced("a") == [(1, False, 0)]


def test_same_or_other_step_supersedes_nothing():
    bench = Bench("a")
    bench.take("a", ComputeStep(1, 0, (0,)), sync(1, 0), ApplyStep(1, 0), ComputeStep(2, 1, ()))
    bench.run_until(20_000)
    assert bench.synced("a") == [(1, True, 64)]
    assert [done.epoch for done in bench.of("a", StepComputed)] == [1, 2]


def test_state_is_given_in_turn_and_held_back_by_the_taker():
    bench = Bench("a", "b")
    bench.take("a", ComputeStep(1, 0, (0,)), ShareState(2, 0, 0, 2, 700, ""))
    bench.take("b", ShareState(2, 0, 1, 2, 700, ""), ComputeStep(2, 0, ()))
    bench.run_until(20_000)
    ends = {
        name: [(at_us, m.ok) for at_us, m in bench.reports[name] if type(m) is ShareEnded]
        for name in "ab"
    }
    assert ends == {"a": [(SAMPLE_US, True)], "b": [(700, True)]}
    assert bench.reports["b"][-1][0] == 700
    assert bench.of("b", StepComputed)


def test_newcomer_brings_nothing_of_an_earlier_life_into_the_sum():
    bench = Bench("a", "b")
    for sample, name in enumerate("ab"):
        bench.take(name, ComputeStep(1, 0, (sample,)))
    bench.run_until(1000)
    bench.kill("b")
    bench.bear("b")
    bench.take("a", ComputeStep(2, 0, (1,)), sync(2, 0), ApplyStep(2, 0))
    bench.run_until(3000)
    bench.take("a", ComputeStep(3, 1, (2,)))
    bench.take("b", ShareState(3, 1, 1, 2, 100, ""), ComputeStep(3, 1, ()))
    bench.run_until(5000)
    for rank, name in enumerate("ab"):
        bench.take(name, sync(3, 1, rank, 2))
    bench.run_until(9000)
    assert bench.synced("a") == [(2, True, 2 * 64), (3, True, 64)]
    assert bench.synced("b") == [(3, True, 64)]


def test_share_of_an_older_epoch_is_given_up_for_the_newer_one():
    bench = Bench("b")
    bench.take("b", ShareState(2, 0, 1, 2, 10_000, ""), ComputeStep(2, 0, ()))
    bench.run_until(500)
    bench.take("b", ShareState(3, 0, 1, 2, 1000, ""), ComputeStep(3, 0, ()))
    bench.run_until(20_000)
    found = [(now_us, m.epoch, m.ok) for now_us, m in bench.reports["b"] if type(m) is ShareEnded]
    assert found == [(500, 2, False), (1500, 3, True)]


def test_abandoned_step_leaves_nothing_of_any_epoch():
    bench = Bench("a")
    bench.take("a", ComputeStep(1, 0, (0,)))
    bench.run_until(500)
    bench.take("a", ComputeStep(2, 0, (1,)), sync(2, 0), AbandonStep(2, 0), ComputeStep(3, 0, (2,)))
    bench.take("a", sync(3, 0))
    bench.run_until(20_000)
    assert [s.sample for s in bench.of("a", SampleComputed)] == [0, 2]
    assert bench.synced("a") == [(3, True, 64)]
