"""Members that die and come back, as their hosts see them. Expected digests are those of one
process that adds the same samples up (sums of two addends are exact whatever their order)."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from executor_process import ExecutorProcess

from protocols.work import (
    AbandonStep,
    Applied,
    ApplyStep,
    ComputeStep,
    ExecutorConfig,
    QuantumBegun,
    RunSync,
    ShareEnded,
    ShareState,
    StepComputed,
    SyncEnded,
)
from testbed.executors.config import ProxyConfig, Schedule, StoreConfig, TrainerConfig
from testbed.executors.proxy import build_module, digest
from testbed.executors.store import StoreExecutor
from testbed.executors.text import TrainingText, load_text
from testbed.executors.training_state import TrainingState
from testbed.gpu.gate import Lease, Window
from testbed.gpu.quanta import QuantumKind

pytestmark = pytest.mark.live

FAR_US = 10**12
SHORT_S = 10.0
"""Well below the 20 s after which a member that says nothing is given up."""
TRAINER = TrainerConfig(
    seed=11,
    job="pretrain",
    declared_layers=2,
    levels=(40,),
    cost_us=((2000,), (2000,), (30_000,), (1000,)),
    micro_batch=2,
    sequence=32,
    proxy=ProxyConfig(layers=2, hidden=32, heads=2),
    text_bytes=50_000,
    schedule=Schedule(warmup_steps=5),
)
UNLIKE = TRAINER.model_copy(
    update={"proxy": ProxyConfig(layers=2, hidden=48, heads=2), "sync_timeout_wall_ms": 2000}
)
ROUND_THE_CLOCK = Lease(1, (Window(0, FAR_US, 40),))


def no_backward(now_us):
    """A lease in which forward quanta have room, and backward ones never."""
    starts = range(now_us, now_us + 64 * 25_000, 25_000)
    return Lease(2, tuple(Window(start_us, start_us + 20_000, 40) for start_us in starts))


class Bench:
    """A store, and trainers that are started here and killed at the end."""

    def __init__(self, stack, *configs):
        self.store = StoreExecutor(StoreConfig())
        self.endpoint = self.store.facts()["endpoint"]
        self.members = [stack.enter_context(ExecutorProcess("trainer")) for _ in configs]
        for member, config in zip(self.members, configs, strict=True):
            member.send(ExecutorConfig(config.model_dump_json()))
        for member in self.members:
            member.facts = member.ready()
        for member in self.members:
            member.start()
            member.grant(ROUND_THE_CLOCK)

    def share(self, epoch, step, *members, transfer_us=0):
        for rank, member in enumerate(members):
            world = len(members)
            member.send(ShareState(epoch, step, rank, world, transfer_us, self.endpoint))

    def sync(self, epoch, step, *members):
        for rank, member in enumerate(members):
            member.send(RunSync(epoch, step, rank, len(members), 0, 0, self.endpoint))

    def step(self, epoch, step, work):
        """One whole step; ``work``: (member, samples) of each. The digests."""
        members = [member for member, _ in work]
        compute(epoch, step, work)
        self.sync(epoch, step, *members)
        return applied(epoch, step, members)


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def compute(epoch, step, work):
    for member, samples in work:
        member.send(ComputeStep(epoch, step, samples))
    for member, _ in work:
        done = member.expect(StepComputed)
        assert (done.epoch, done.step) == (epoch, step)


def applied(epoch, step, members):
    for member in members:
        ended = member.expect(SyncEnded)
        assert (ended.epoch, ended.ok) == (epoch, True), ended
        member.send(ApplyStep(epoch, step))
    return [member.expect(Applied).digest for member in members]


def failed(member, kind, epoch):
    ended = member.expect(kind, SHORT_S)
    assert (ended.epoch, ended.ok) == (epoch, False), ended
    return ended.reason


def shared(*members):
    """The digest that all have after a share that worked."""
    ended = [member.expect(ShareEnded, SHORT_S) for member in members]
    assert all(report.ok for report in ended), ended
    assert len({report.digest for report in ended}) == 1
    return ended[0].digest


def one_process(steps):
    """Digests before the first and after each of ``steps``: the samples of each member, in the
    order in which it adds them up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    text = TrainingText(TRAINER.seed, load_text("stdlib", TRAINER.text_bytes), 2, 32)
    state = TrainingState(TRAINER, build_module(TRAINER), torch.device("cpu"))
    digests = [digest(state.module)]
    for members in steps:
        total = torch.zeros_like(state.summed)
        for samples in members:
            state.drop()
            for sample in samples:
                inputs, targets = (torch.from_numpy(array) for array in text.sample(sample))
                state.loss(state.forward(sample, inputs), targets).backward()
                state.tokens += targets.numel()
            total += state.stage()
        state.summed.copy_(total)
        state.apply()
        state.keep()
        digests.append(digest(state.module))
    torch.set_num_threads(threads)
    return digests


def test_newcomer_is_as_if_it_had_been_a_member_all_along(stack):
    bench = Bench(stack, TRAINER, TRAINER, TRAINER)
    first, second, third = bench.members
    expected = one_process([((0, 1), (2,)), ((3,), (4, 5)), ((6, 9), (7,)), ((10,), (12,))])
    assert [member.facts["parameters_digest"] for member in bench.members] == 3 * expected[:1]
    assert bench.step(1, 0, [(first, (0, 1)), (second, (2,))]) == 2 * [expected[1]]
    assert bench.step(1, 1, [(first, (3,)), (second, (4, 5))]) == 2 * [expected[2]]
    # The newcomer has begun something of its own; that is dropped.
    compute(1, 0, [(third, (99,))])
    asked_us = third.now_us()
    bench.share(2, 2, first, third, transfer_us=300_000)
    assert shared(first, third) == expected[2]
    assert third.now_us() >= asked_us + 300_000
    compute(2, 2, [(first, (6,)), (second, (7,)), (third, ())])
    # Shared again in the middle of the step: with the giver's sum there, and while it waits at a
    # gate in the middle of one sample more.
    bench.share(3, 2, first, third)
    assert shared(first, third) == expected[2]
    first.grant(no_backward(first.now_us()))
    first.send(ComputeStep(4, 2, (9,)))
    while first.expect(QuantumBegun).kind != QuantumKind.HEAD:
        pass
    bench.share(4, 2, first, third)
    assert shared(first, third) == expected[2]
    first.grant(ROUND_THE_CLOCK)
    assert first.expect(StepComputed).epoch == 4
    compute(4, 2, [(second, ()), (third, ())])
    bench.sync(4, 2, first, second, third)
    # Summed, and its optimiser has run, but not committed: the state is the one before.
    assert all(member.expect(SyncEnded).ok for member in bench.members)
    bench.share(5, 2, first, third)
    assert shared(first, third) == expected[2]
    for member in bench.members:
        member.send(ComputeStep(5, 2, ()))
    bench.sync(5, 2, first, second, third)
    assert applied(5, 2, bench.members) == 3 * [expected[3]]
    # From now on it counts as any other, the learning rate still warming up.
    assert bench.step(5, 3, [(first, (10,)), (second, ()), (third, (12,))]) == 3 * [expected[4]]
    work = [(first, (13,)), (second, (14,)), (third, (15,))]
    assert len(set(bench.step(5, 4, work))) == 1
    assert [member.stop() for member in bench.members] == [0, 0, 0]


def test_killed_members_samples_are_summed_by_the_others(stack):
    bench = Bench(stack, TRAINER, TRAINER, TRAINER)
    first, second, third = bench.members
    # What the dead had computed, the survivors compute after their own.
    steps = [((0,), (1,)), ((3, 5), (4, 6)), ((7, 8),), ((9,),)]
    expected = one_process(steps)
    assert bench.step(1, 0, [(first, (0,)), (second, (1,)), (third, ())]) == 3 * [expected[1]]
    compute(1, 1, [(first, (3,)), (second, (4,)), (third, (5, 6))])
    third.send(RunSync(1, 1, 2, 3, 0, 0, bench.endpoint))
    third.process.kill()  # in its RunSync, or just before
    third.process.wait(SHORT_S)
    survivors = [first, second]
    for rank, member in enumerate(survivors):
        member.send(RunSync(1, 1, rank, 3, 0, 0, bench.endpoint))
    for member in survivors:
        assert "allreduce" in failed(member, SyncEnded, 1)
    work = [(first, (5,)), (second, (6,))]
    assert bench.step(2, 1, work) == 2 * [expected[2]]
    # Killed while the optimisers follow the ring, which the survivor then leaves at once.
    compute(2, 2, [(first, (7,)), (second, (8,))])
    first.send(RunSync(2, 2, 0, 2, FAR_US, 0, bench.endpoint))
    second.send(RunSync(2, 2, 1, 2, 0, 0, bench.endpoint))
    assert second.expect(SyncEnded).ok
    second.process.kill()
    second.process.wait(SHORT_S)
    first.send(ComputeStep(3, 2, (8,)))
    assert "superseded: step 2 goes on in epoch 3" in failed(first, SyncEnded, 2)
    assert first.expect(StepComputed).epoch == 3
    bench.sync(3, 2, first)
    assert applied(3, 2, [first]) == [expected[3]]
    # Died before it came: the wait for it ends with the newer epoch, not after the default's 20 s.
    compute(4, 3, [(first, (9,))])
    first.send(RunSync(4, 3, 0, 2, 0, 0, bench.endpoint))
    first.send(ComputeStep(5, 3, ()))
    assert "superseded: step 3 goes on in epoch 5" in failed(first, SyncEnded, 4)
    assert first.expect(StepComputed).epoch == 5
    first.send(ShareState(5, 3, 0, 2, 0, bench.endpoint))
    first.send(ComputeStep(6, 3, ()))
    assert "superseded: step 3 goes on in epoch 6" in failed(first, ShareEnded, 5)
    assert first.expect(StepComputed).epoch == 6
    bench.sync(6, 3, first)
    assert applied(6, 3, [first]) == [expected[4]]
    assert first.stop() == 0


def test_share_that_does_not_work_leaves_the_giver_alone(stack):
    bench = Bench(stack, TRAINER, UNLIKE, TRAINER)
    giver, unlike, taker = bench.members
    expected = one_process([((0,),), ((1, 2),)])
    assert bench.step(1, 0, [(giver, (0,))]) == [expected[1]]
    compute(1, 1, [(giver, (1,))])
    bench.share(2, 1, giver, unlike)
    for member in (giver, unlike):
        assert "the members' modules differ" in failed(member, ShareEnded, 2)
    bench.share(3, 1, giver, unlike, taker)
    for member in bench.members:
        assert "the members' modules differ" in failed(member, ShareEnded, 3)
    # Nobody comes.
    unlike.send(ShareState(4, 1, 0, 2, 0, bench.endpoint))
    assert "ranks 1 of 2 did not come" in failed(unlike, ShareEnded, 4)
    # Abandoned, and superseded, while the taker holds the state back.
    bench.share(5, 1, giver, taker, transfer_us=FAR_US)
    assert shared(giver) == expected[1]
    taker.send(AbandonStep(5, 1))
    bench.share(6, 1, giver, taker, transfer_us=FAR_US)
    assert shared(giver) == expected[1]
    bench.share(7, 1, giver, taker)
    assert "superseded: step 1 goes on in epoch 7" in failed(taker, ShareEnded, 6)
    assert shared(giver, taker) == expected[1]
    assert [ended.epoch for ended in taker.of(ShareEnded)] == [3, 6, 7]
    # The giver's open step is still there.
    assert bench.step(7, 1, [(giver, (2,)), (taker, ())]) == 2 * [expected[2]]
    bench.share(8, 2, giver, taker, transfer_us=FAR_US)
    assert shared(giver) == expected[2]
    assert taker.stop() == 0
    assert giver.stop() == 0
