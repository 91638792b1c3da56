"""The coordinator when trainers die and come back, with trainers that keep books of what they sum.

A model trainer holds what a real one holds, as sets: its parameters are the history of committed
sums, its gradients the samples of the open step. So a sum with a sample too many, twice or missing
shows, and so does a member whose parameters are not those of the others.
"""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodes_bench import Bench, failures, finished, job, parse, reasons, receivers, rows, sent, site

from nodes.api import DrainRequested, PeerChanged, Received, Send, Started, TimerFired
from protocols.messages import (
    BarrierOpen,
    BarrierReached,
    MicroBatchDone,
    StateShare,
    StateShared,
    StepAbandon,
    StepApplied,
    StepAssign,
    StepCommit,
    SyncDone,
)
from testbed.record.schema import MemberEvent, SampleEvent, StepEvent

JOB, TOKENS = "pretrain", 512
SITES = ("north", "south", "west")
NORTH, SOUTH, WEST = (f"{name}.pretrain.trainer" for name in SITES)
BATCH = 6


def topology(sites=SITES):
    others = "".join(f'[sites.{name}]\ngpu = "gb10"\n' for name in sites if name != "north")
    return parse(site() + others + job(sites=sites, batch=BATCH))


class Trainer:
    """One life of a trainer: parameters, open step, and work that is done in order."""

    def __init__(self, parameters=None):
        self.parameters = parameters
        self.step = None
        self.local = []
        self.provisional = None
        self.queue = deque()


class World:
    """Coordinator and trainers; what happens next is the caller's choice."""

    def __init__(self, sites=SITES):
        self.bench = Bench(topology(sites), "coordinator")
        self.members = tuple(f"{name}.pretrain.trainer" for name in sites)
        self.trainers = {member: Trainer(parameters=()) for member in self.members}
        self.inbox = deque()
        self.dead = set()
        self.groups = {}
        self.now_us = 0
        self.over = ""
        self.feed(Started())
        self.feed(TimerFired("begin", 0))

    def feed(self, event):
        self.now_us += 1
        effects = self.bench.feed(self.now_us, event)
        for effect in effects:
            if isinstance(effect, Send) and effect.to in self.trainers:
                self.trainers[effect.to].queue.append(effect.message)
        self.over = self.over or "".join(failures(effects) + finished(effects))
        return effects

    def hear(self):
        """The coordinator takes the oldest message that waits for it."""
        return self.feed_message(*self.inbox.popleft())

    def feed_message(self, source, message):
        return self.feed(Received(source, message))

    def kill(self, member):
        """Its process is gone; the coordinator is not told yet. What it had sent still arrives."""
        del self.trainers[member]
        self.dead.add(member)

    def tell_lost(self, member):
        return self.feed(PeerChanged(member, "lost", "was killed by signal 9 (SIGKILL)"))

    def revive(self, member):
        self.dead.discard(member)
        self.trainers[member] = Trainer()
        return self.feed(PeerChanged(member, "joined", "life 2"))

    # --- what a trainer does with the work at the front of its queue ----------------------------

    def can_work(self, member):
        trainer = self.trainers.get(member)
        return bool(trainer and trainer.queue) and self._ready(member, trainer.queue[0])

    def _ready(self, member, message):
        """A collective, or a share, goes on when all its members are there, or one never will."""
        if not isinstance(message, BarrierOpen | StateShare):
            return True
        kind, key = type(message), (type(message), message.epoch, message.step)
        result = self.groups.get(key)
        if result is not None:
            return True
        there = [self.trainers.get(name) for name in message.members]
        if any(t is None for t in there) or any(
            t.queue and isinstance(t.queue[0], StepAssign) and t.queue[0].epoch > message.epoch
            for t in there
        ):
            self.groups[key] = "failed"
            return True
        at_front = [t for t in there if t.queue and isinstance(t.queue[0], kind)]
        if [t.queue[0].epoch for t in at_front] != [message.epoch] * len(message.members):
            return False
        if kind is BarrierOpen:
            self.groups[key] = tuple(sorted(s for t in there for s in t.local))
        else:
            self.groups[key] = there[0].parameters
        return True

    def work(self, member):
        trainer = self.trainers[member]
        message = trainer.queue.popleft()
        match message:
            case StepAssign(epoch=epoch, step=step, samples=samples):
                assert not samples or trainer.parameters is not None, (
                    "samples for one without state"
                )
                if trainer.step != step:
                    trainer.step, trainer.local = step, []
                trainer.provisional = None
                for sample in samples:
                    trainer.local.append(sample)
                    self._tell(member, MicroBatchDone(JOB, epoch, step, sample, TOKENS, 1))
                self._tell(member, BarrierReached(JOB, epoch, step))
            case BarrierOpen(epoch=epoch, step=step):
                summed = self.groups[BarrierOpen, epoch, step]
                ok = summed != "failed"
                if ok:
                    trainer.provisional = summed
                tokens = TOKENS * len(summed) if ok else 0
                self._tell(member, SyncDone(JOB, epoch, step, ok, tokens, "" if ok else "reset"))
            case StepCommit(epoch=epoch, step=step):
                assert trainer.provisional is not None, "a commit of what was not summed"
                trainer.parameters = (*trainer.parameters, trainer.provisional)
                trainer.provisional, trainer.step, trainer.local = None, None, []
                self._tell(member, StepApplied(JOB, epoch, step, _digest(trainer.parameters)))
            case StateShare(epoch=epoch, step=step, members=members):
                state = self.groups[StateShare, epoch, step]
                ok = state != "failed"
                trainer.provisional = None
                if ok and members[0] != member:
                    trainer.parameters, trainer.step, trainer.local = state, None, []
                digest = _digest(state) if ok else ""
                self._tell(member, StateShared(JOB, epoch, step, ok, digest, "" if ok else "reset"))
            case StepAbandon():
                trainer.provisional, trainer.step, trainer.local = None, None, []

    def _tell(self, member, message):
        self.inbox.append((member, message))

    # --- to the end -----------------------------------------------------------------------------

    def settle(self, until=lambda: False, limit=2000):
        """Let everybody do what it can until nothing moves, or ``until`` holds."""
        for _ in range(limit):
            if until() or self.over:
                return
            able = [member for member in self.members if self.can_work(member)]
            if self.inbox:
                self.hear()
            elif able:
                self.work(able[0])
            else:
                return
        raise AssertionError("it does not settle")

    def committed(self):
        return sum(row["event"] == StepEvent.COMMITTED for row in rows(self.bench.effects, "steps"))

    def finish(self):
        """End the run; returns how often each sample was committed."""
        if not self.over:
            self.feed(DrainRequested("the end"))
            self.settle()
        return self.samples()[SampleEvent.COMMITTED]

    def samples(self):
        seen = {event: Counter() for event in SampleEvent}
        for row in rows(self.bench.effects, "samples"):
            seen[SampleEvent(row["event"])][row["sample"]] += 1
        return seen

    def members_seen(self):
        return [
            (MemberEvent(row["event"]).name, row["member"], row["epoch"], row["step"])
            for row in rows(self.bench.effects, "membership")
        ]


def _digest(parameters):
    return f"{hash(parameters) & 0xFFFFFFFF:x}"


def check(world):
    """Every sample in one committed step, each step of a whole batch, all members alike."""
    committed = world.finish()
    assert world.over == "all jobs are closed"
    steps = world.committed()
    assert sorted(committed) == list(range(steps * BATCH))
    assert set(committed.values()) <= {1}
    histories = {t.parameters for t in world.trainers.values() if t.parameters is not None}
    longest = max(histories, key=len)
    assert len(longest) == steps
    assert all(len(summed) == len(set(summed)) == BATCH for summed in longest)
    assert sorted(sample for summed in longest for sample in summed) == sorted(committed)
    for history in histories:  # one that was not admitted again, or not in time, has an older one
        assert history == longest[: len(history)]


# --- one thing at a time --------------------------------------------------------------------------


def test_samples_of_the_lost_go_to_the_survivors_and_the_step_is_committed():
    world = World()
    effects = world.bench.effects
    assert [assign.samples for assign in sent(effects, StepAssign)] == [(0, 1), (2, 3), (4, 5)]
    world.work(NORTH)
    world.work(SOUTH)
    world.settle(lambda: not world.inbox)
    world.kill(SOUTH)
    effects = world.tell_lost(SOUTH)
    again = dict(zip(receivers(effects, StepAssign), sent(effects, StepAssign), strict=True))
    assert {(to, a.epoch, a.step, a.samples) for to, a in again.items()} == {
        (NORTH, 2, 0, (2,)),
        (WEST, 2, 0, (3,)),
    }
    assert "step 0: goes on in epoch 2" in reasons(effects)[0]
    world.settle(lambda: world.committed() == 2)
    assert world.samples()[SampleEvent.RETURNED] == Counter({2: 1, 3: 1})
    assert world.members_seen() == [("LOST", 1, 1, 0)]
    check(world)


def test_collective_that_a_death_broke_is_repeated_by_the_survivors():
    """The survivors' failed sums arrive before the loss does: nothing is decided until then."""
    world = World()
    world.settle(lambda: sent(world.bench.effects, BarrierOpen))
    world.kill(NORTH)
    world.settle()
    assert not world.over
    assert world.committed() == 0
    world.tell_lost(NORTH)
    opened = sent(world.bench.effects, BarrierOpen)
    world.settle(lambda: world.committed() == 1)
    opened = sent(world.bench.effects, BarrierOpen)[len(opened) :]
    assert {(o.epoch, o.members) for o in opened} == {(2, (SOUTH, WEST))}
    check(world)


def test_ring_of_two_survivors_is_shorter():
    """2 (n-1) messages of 500 us: 2000 us of latency for three members, 1000 us for two."""
    world = World()
    world.settle(lambda: sent(world.bench.effects, BarrierOpen))
    world.kill(NORTH)
    world.tell_lost(NORTH)
    world.settle(lambda: world.committed() == 1)
    latencies = [o.ring_latency_us for o in sent(world.bench.effects, BarrierOpen)]
    assert latencies == [2000, 2000, 2000, 1000, 1000]


def test_newcomer_is_admitted_with_the_next_step_and_works_from_the_one_after():
    """opt-125m: 125 239 296 * 14 bytes at 100 Gb/s take 140 268.01 us, after 500 us of latency."""
    world = World()
    world.kill(NORTH)
    world.tell_lost(NORTH)
    assert sent(world.revive(NORTH), StateShare) == [], "not in the middle of a step"
    world.settle(lambda: sent(world.bench.effects, StateShare))
    share = sent(world.bench.effects, StateShare)[0]
    assert (share.epoch, share.step, share.members) == (3, 1, (SOUTH, NORTH))
    assert share.transfer_us == 140_769
    assigned = [a for a in sent(world.bench.effects, StepAssign) if a.step == 1]
    assert [a.samples for a in assigned] == [(), (6, 7, 8), (9, 10, 11)]
    world.settle(lambda: world.committed() == 2)
    assigned = [a for a in sent(world.bench.effects, StepAssign) if a.step == 2]
    assert [a.samples for a in assigned] == [(12, 13), (14, 15), (16, 17)]
    assert [name for name, *_ in world.members_seen()] == ["LOST", "JOINED", "ADMITTED", "HEALED"]
    check(world)


@pytest.mark.parametrize("dies", ["giver", "taker"])
def test_death_while_the_state_is_shared(dies):
    world = World()
    world.kill(NORTH)
    world.tell_lost(NORTH)
    world.revive(NORTH)
    world.settle(lambda: sent(world.bench.effects, StateShare))
    member = SOUTH if dies == "giver" else NORTH
    world.kill(member)
    shares = len(sent(world.bench.effects, StateShare))
    world.tell_lost(member)
    again = sent(world.bench.effects, StateShare)[shares:]
    assert {share.members for share in again} == ({(WEST, NORTH)} if dies == "giver" else set())
    world.settle(lambda: world.committed() == 3)
    check(world)


def test_state_that_arrives_unlike_fails_the_run():
    world = World()
    world.kill(NORTH)
    world.tell_lost(NORTH)
    world.revive(NORTH)
    world.settle(lambda: sent(world.bench.effects, StateShare))
    world.feed_message(SOUTH, StateShared(JOB, 3, 1, True, "aa", ""))
    effects = world.feed_message(NORTH, StateShared(JOB, 3, 1, True, "bb", ""))
    assert failures(effects) == [
        "job pretrain: parameters differ between members after the state for step 1 was shared"
    ]


def test_share_that_fails_is_repeated_in_a_new_epoch_once_both_have_said_so():
    world = World()
    world.kill(NORTH)
    world.tell_lost(NORTH)
    world.revive(NORTH)
    world.settle(lambda: sent(world.bench.effects, StateShare))
    for epoch in (3, 4, 5):
        failed = StateShared(JOB, epoch, 1, False, "", "connection reset")
        assert world.feed_message(NORTH, failed) == []
        effects = world.feed_message(SOUTH, failed)
        if epoch < 5:
            again = {(s.epoch, s.members) for s in sent(effects, StateShare)}
            assert again == {(epoch + 1, (SOUTH, NORTH))}
    assert failures(effects) == [
        "job pretrain: the state for step 1: connection reset (3 attempts)"
    ]


def test_one_of_two_that_heal_may_need_a_second_share():
    world = World()
    for member in (NORTH, WEST):
        world.kill(member)
        world.tell_lost(member)
        world.revive(member)
    world.settle(lambda: sent(world.bench.effects, StateShare))
    world.feed_message(NORTH, StateShared(JOB, 4, 1, False, "", "connection reset"))
    world.feed_message(SOUTH, StateShared(JOB, 4, 1, True, "aa", ""))
    effects = world.feed_message(WEST, StateShared(JOB, 4, 1, True, "aa", ""))
    assert {(s.epoch, s.members) for s in sent(effects, StateShare)} == {(5, (SOUTH, NORTH))}
    assert [row["member"] for row in rows(effects, "membership")] == [2]


def test_report_of_a_share_of_an_earlier_epoch_is_stale():
    world = World()
    world.kill(NORTH)
    world.tell_lost(NORTH)
    world.revive(NORTH)
    world.settle(lambda: sent(world.bench.effects, StateShare))
    effects = world.feed_message(NORTH, StateShared(JOB, 2, 1, True, "aa", ""))
    assert reasons(effects) == [f"state 1: stale report of {NORTH}"]


def test_death_of_the_last_that_has_the_state_ends_the_run_by_name():
    world = World(("north", "south"))
    world.kill(NORTH)
    world.tell_lost(NORTH)
    world.revive(NORTH)
    world.kill(SOUTH)
    effects = world.tell_lost(SOUTH)
    assert failures(effects) == [
        f"job pretrain: {SOUTH} is lost (was killed by signal 9 (SIGKILL)) "
        "and no other trainer holds its parameters"
    ]
    seen = world.samples()
    assert set(seen[SampleEvent.RETURNED]) == set(seen[SampleEvent.ISSUED])


def test_result_of_the_dead_that_comes_late_is_refused():
    world = World()
    world.kill(NORTH)
    world.tell_lost(NORTH)
    effects = world.feed_message(NORTH, MicroBatchDone(JOB, 1, 0, 0, TOKENS, 1))
    assert reasons(effects) == [f"sample 0: stale result of {NORTH}, step 0, epoch 1"]
    world.settle(lambda: world.committed() == 1)
    check(world)


def test_applied_step_of_which_a_member_died_is_still_checked():
    """The others' reports are enough, and unlike ones still fail the run."""
    world = World()
    world.settle(lambda: world.committed() == 1)
    world.kill(NORTH)
    world.tell_lost(NORTH)
    world.feed_message(SOUTH, StepApplied(JOB, 1, 0, "aa"))
    effects = world.feed_message(WEST, StepApplied(JOB, 1, 0, "bb"))
    assert failures(effects) == ["job pretrain: parameters differ between members after step 0"]


# --- anything, at any time ------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.lists(st.integers(0, 2**16), min_size=20, max_size=160))
def test_any_order_of_work_deaths_and_returns(choices):
    """One survivor at least, deaths told late or early: each sample is committed once, in sums
    that hold just the samples of their step, on members that agree."""
    world = World()
    untold = []
    for choice in choices:
        if world.over:
            break
        kind, pick = choice % 16, choice // 16
        able = [member for member in world.members if world.can_work(member)]
        if kind < 6 and world.inbox:
            world.hear()
        elif kind < 12 and able:
            world.work(able[pick % len(able)])
        elif kind == 12:
            worthy = [m for m, t in world.trainers.items() if t.parameters is not None]
            victims = [m for m in world.trainers if worthy != [m]]
            if victims:
                member = victims[pick % len(victims)]
                world.kill(member)
                untold.append(member)
        elif kind in (13, 14) and untold:
            world.tell_lost(untold.pop(0))
        elif kind == 15:
            gone = [m for m in world.members if m in world.dead and m not in untold]
            if gone:
                world.revive(gone[pick % len(gone)])
    for member in untold:
        world.tell_lost(member)
    if "no other trainer" not in world.over:
        assert not world.over, world.over
        world.settle(lambda: world.committed() >= 2)
        check(world)
