"""The coordinator, fed by hand: assignment, barrier, commit, and all that must be refused."""

from __future__ import annotations

from collections import Counter

import pytest
from nodes_bench import (
    Bench,
    failures,
    finished,
    job,
    parse,
    reasons,
    receivers,
    rows,
    sent,
    site,
)

from nodes.api import DrainRequested, PeerChanged, SetTimer, Started, TimerFired
from protocols.messages import (
    BarrierOpen,
    BarrierReached,
    LeaseClose,
    MicroBatchDone,
    StepAbandon,
    StepApplied,
    StepAssign,
    StepCommit,
    SyncDone,
)
from testbed.record.schema import SampleEvent, StepEvent

NORTH, SOUTH = "north.pretrain.trainer", "south.pretrain.trainer"
MEMBERS = (NORTH, SOUTH)
JOB = "pretrain"
TWO = site() + '[sites.south]\ngpu = "gb10"\n' + job(sites=("north", "south"), batch=4)
TOKENS = 512


class Run:
    """A coordinator, and trainers that do as they are told when they are asked to."""

    def __init__(self, text: str = TWO) -> None:
        self.bench = Bench(parse(text), "coordinator")
        self.now_us = 0
        self.bench.feed(-1000, Started())
        self.begun = self.bench.feed(0, TimerFired("begin", 0))

    def assigned(self, effects=None) -> dict[str, StepAssign]:
        effects = self.begun if effects is None else effects
        return dict(zip(receivers(effects, StepAssign), sent(effects, StepAssign), strict=True))

    def take(self, member, message):
        self.now_us += 10
        return self.bench.receive(self.now_us, member, message)

    def compute(self, member, assign, loss=2_000_000):
        for sample in assign.samples:
            done = MicroBatchDone(JOB, assign.epoch, assign.step, sample, TOKENS, loss)
            self.take(member, done)
        return self.take(member, BarrierReached(JOB, assign.epoch, assign.step))

    def sync(self, member, assign, ok=True, tokens=4 * TOKENS, reason=""):
        return self.take(member, SyncDone(JOB, assign.epoch, assign.step, ok, tokens, reason))

    def commit(self, assigned):
        """The whole step; returns the effects of the last SyncDone."""
        for member, assign in assigned.items():
            self.compute(member, assign)
        for member, assign in assigned.items():
            effects = self.sync(member, assign)
        return effects

    def apply(self, assigned, digests=("same", "same")):
        for (member, assign), digest in zip(assigned.items(), digests, strict=True):
            effects = self.take(member, StepApplied(JOB, assign.epoch, assign.step, digest))
        return effects

    def samples(self) -> dict[SampleEvent, Counter]:
        seen = {event: Counter() for event in SampleEvent}
        for row in rows(self.bench.effects, "samples"):
            seen[SampleEvent(row["event"])][row["sample"]] += 1
        return seen


@pytest.fixture
def run() -> Run:
    return Run()


def test_step_is_split_equally_and_every_sample_has_one_owner(run):
    assigned = run.assigned()
    assert list(assigned) == list(MEMBERS)
    assert [assign.samples for assign in assigned.values()] == [(0, 1), (2, 3)]
    assert {(assign.epoch, assign.step) for assign in assigned.values()} == {(1, 0)}
    owners = {row["sample"]: row["owner"] for row in rows(run.begun, "samples")}
    assert owners == {0: 0, 1: 0, 2: 1, 3: 1}


def test_barrier_opens_when_the_last_member_has_arrived(run):
    """Ring time: 2 steps of 500 us latency, and 2/2 of 125 239 296 bf16 gradients at 100 Gb/s:
    250 478 592 bytes * 8 / 100 000 bits per us = 20 038.29, rounded up 20 039 us; 21 039 in all."""
    assigned = run.assigned()
    assert sent(run.compute(NORTH, assigned[NORTH]), BarrierOpen) == []
    effects = run.compute(SOUTH, assigned[SOUTH])
    assert receivers(effects, BarrierOpen) == list(MEMBERS)
    for opened in sent(effects, BarrierOpen):
        assert (opened.step, opened.members) == (0, MEMBERS)
        assert (opened.ring_us, opened.ring_latency_us) == (21_039, 1000)


def test_step_is_committed_only_when_all_have_summed(run):
    assigned = run.assigned()
    for member, assign in assigned.items():
        run.compute(member, assign)
    assert sent(run.sync(NORTH, assigned[NORTH]), StepCommit) == []
    effects = run.sync(SOUTH, assigned[SOUTH])
    assert receivers(effects, StepCommit) == list(MEMBERS)
    assert run.samples()[SampleEvent.COMMITTED] == Counter({0: 1, 1: 1, 2: 1, 3: 1})
    (step,) = (row for row in rows(effects, "steps") if row["event"] == StepEvent.COMMITTED)
    assert (step["loss_micronats"], step["proxy_tokens"], step["samples"]) == (2_000_000, 2048, 4)


def test_next_step_is_assigned_in_the_same_breath_with_new_samples(run):
    following = run.assigned(run.commit(run.assigned()))
    assert {assign.step for assign in following.values()} == {1}
    assert [assign.samples for assign in following.values()] == [(4, 5), (6, 7)]


def test_arrival_twice_is_one_arrival(run):
    assigned = run.assigned()
    run.compute(NORTH, assigned[NORTH])
    again = run.take(NORTH, BarrierReached(JOB, 1, 0))
    assert sent(again, BarrierOpen) == []


def test_loss_is_weighted_by_tokens_and_leaves_out_what_is_unknown(run):
    """(1.0 * 100 + 3.0 * 300) / 400 = 2.5 nats."""
    assigned = run.assigned()
    for sample, (tokens, loss) in enumerate([(100, 1_000_000), (300, 3_000_000)]):
        run.take(NORTH, MicroBatchDone(JOB, 1, 0, sample, tokens, loss))
    for sample in (2, 3):
        run.take(SOUTH, MicroBatchDone(JOB, 1, 0, sample, 0, -1))
    for member in MEMBERS:
        run.take(member, BarrierReached(JOB, 1, 0))
    for member, assign in assigned.items():
        effects = run.sync(member, assign, tokens=400)
    (step,) = (row for row in rows(effects, "steps") if row["event"] == StepEvent.COMMITTED)
    assert step["loss_micronats"] == 2_500_000


# --- what must be refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "epoch", "step", "verdict"),
    [
        (SOUTH, 1, 0, "stale"),  # another owner
        (NORTH, 0, 0, "stale"),  # an epoch that is over
        (NORTH, 1, 7, "stale"),  # another step
    ],
)
def test_result_that_is_not_its_owners_is_refused(run, member, epoch, step, verdict):
    effects = run.take(member, MicroBatchDone(JOB, epoch, step, 0, TOKENS, 1))
    expected = f"sample 0: {verdict} result of {member}, step {step}, epoch {epoch}"
    assert reasons(effects) == [expected]
    assert [row["event"] for row in rows(effects, "samples")] == [SampleEvent.DUPLICATE]


def test_duplicate_is_refused_and_changes_no_loss(run):
    assigned = run.assigned()
    run.take(NORTH, MicroBatchDone(JOB, 1, 0, 0, TOKENS, 2_000_000))
    effects = run.take(NORTH, MicroBatchDone(JOB, 1, 0, 0, TOKENS, 9_000_000))
    assert "duplicate result" in reasons(effects)[0]
    run.take(NORTH, MicroBatchDone(JOB, 1, 0, 1, TOKENS, 2_000_000))
    run.take(NORTH, BarrierReached(JOB, 1, 0))
    run.compute(SOUTH, assigned[SOUTH])
    for member, assign in assigned.items():
        effects = run.sync(member, assign)
    (step,) = (row for row in rows(effects, "steps") if row["event"] == StepEvent.COMMITTED)
    assert step["loss_micronats"] == 2_000_000
    assert run.samples()[SampleEvent.COMMITTED][0] == 1


def test_result_of_a_committed_step_is_a_duplicate(run):
    run.commit(run.assigned())
    effects = run.take(NORTH, MicroBatchDone(JOB, 1, 0, 0, TOKENS, 1))
    assert "duplicate result" in reasons(effects)[0]


@pytest.mark.parametrize(("epoch", "step"), [(0, 0), (2, 0), (1, 1)])
def test_stale_barriers_and_sums_do_nothing(run, epoch, step):
    assigned = run.assigned()
    effects = run.take(NORTH, BarrierReached(JOB, epoch, step))
    assert reasons(effects) == [f"barrier {step}: stale arrival of {NORTH}"]
    run.compute(NORTH, assigned[NORTH])
    run.compute(SOUTH, assigned[SOUTH])
    effects = run.take(NORTH, SyncDone(JOB, epoch, step, True, 1, ""))
    assert reasons(effects) == [f"sync {step}: stale result of {NORTH}"]


def test_sum_before_the_barrier_is_stale(run):
    effects = run.sync(NORTH, run.assigned()[NORTH])
    assert reasons(effects) == [f"sync 0: stale result of {NORTH}"]


def test_members_that_summed_unlike_token_counts_fail_the_run(run):
    assigned = run.assigned()
    for member, assign in assigned.items():
        run.compute(member, assign)
    run.sync(NORTH, assigned[NORTH], tokens=2048)
    effects = run.sync(SOUTH, assigned[SOUTH], tokens=1536)
    expected = "job pretrain: members summed different token counts [1536, 2048]"
    assert failures(effects) == [expected]
    assert sent(effects, StepCommit) == []


def test_collective_that_failed_is_repeated_and_at_last_fails_the_run(run):
    """Nobody was lost, so nobody's samples are computed again: only the epoch is new."""
    assigned = run.assigned()
    for member, assign in assigned.items():
        run.compute(member, assign)
    for attempt in (1, 2, 3):
        assert run.sync(NORTH, assigned[NORTH], ok=False, reason="connection reset") == []
        effects = run.sync(SOUTH, assigned[SOUTH])
        if attempt < 3:
            assigned = run.assigned(effects)
            assert {(a.epoch, a.step, a.samples) for a in assigned.values()} == {
                (attempt + 1, 0, ())
            }
            for member, assign in assigned.items():
                run.compute(member, assign)
    assert failures(effects) == [
        "job pretrain: the collective of step 0: connection reset (3 attempts)"
    ]
    assert not run.samples()[SampleEvent.COMMITTED]


def test_members_whose_parameters_differ_fail_the_run(run):
    assigned = run.assigned()
    run.commit(assigned)
    effects = run.apply(assigned, ("aa", "bb"))
    assert failures(effects) == ["job pretrain: parameters differ between members after step 0"]


@pytest.mark.parametrize(("epoch", "step"), [(0, 0), (1, 7)])
def test_stale_report_of_an_applied_step_is_refused(run, epoch, step):
    run.commit(run.assigned())
    effects = run.take(NORTH, StepApplied(JOB, epoch, step, "aa"))
    assert reasons(effects) == [f"applied {step}: stale report of {NORTH}"]


def test_report_twice_leaves_nothing_open(run):
    assigned = run.assigned()
    following = run.assigned(run.commit(assigned))
    run.apply(assigned)
    run.apply(assigned)
    run.bench.feed(500, DrainRequested("the user"))
    run.commit(following)
    assert finished(run.apply(following)) == ["all jobs are closed"]


def test_barrier_without_all_samples_fails_the_run(run):
    run.compute(SOUTH, run.assigned()[SOUTH])
    effects = run.take(NORTH, BarrierReached(JOB, 1, 0))
    assert failures(effects) == [
        "job pretrain: all members arrived at the barrier of step 0, "
        "but samples (0, 1) are not computed"
    ]


def test_applied_step_is_noted_once_all_agree(run):
    assigned = run.assigned()
    run.commit(assigned)
    (step,) = rows(run.apply(assigned), "steps")
    assert (step["step"], step["event"]) == (0, StepEvent.APPLIED)


# --- the end ------------------------------------------------------------------------------------


def test_open_step_is_finished_within_the_drain_and_then_the_leases_close(run):
    assigned = run.assigned()
    ending = run.bench.feed(500, DrainRequested("the user"))
    assert finished(ending) == []
    assert sent(ending, LeaseClose) == []
    effects = run.commit(assigned)
    assert sent(effects, StepAssign) == [], "nothing new is opened"
    effects = run.apply(assigned)
    assert receivers(effects, LeaseClose) == ["north.agent", "south.agent"]
    assert finished(effects) == ["all jobs are closed"]
    assert "samples issued 4, committed 4, returned 0, duplicates refused 0" in str(effects)


def test_what_the_drain_does_not_finish_is_returned(run):
    assigned = run.assigned()
    end_us = parse(TWO).time.total_us
    ending = run.bench.feed(end_us, TimerFired("end", end_us))
    (timer,) = (effect for effect in ending if isinstance(effect, SetTimer))
    assert timer == SetTimer("give up", end_us + 8_000), "5QI 80: 10 ms less the core's 2"
    run.compute(NORTH, assigned[NORTH])
    effects = run.bench.feed(timer.at_us, TimerFired("give up", timer.at_us))
    assert receivers(effects, StepAbandon) == list(MEMBERS)
    assert receivers(effects, LeaseClose) == ["north.agent", "south.agent"]
    assert finished(effects) == ["all jobs are closed"]
    seen = run.samples()
    assert seen[SampleEvent.ISSUED] == seen[SampleEvent.RETURNED]
    assert not seen[SampleEvent.COMMITTED]
    late = run.compute(SOUTH, assigned[SOUTH])
    assert "stale arrival" in reasons(late)[0]
    assert not run.samples()[SampleEvent.COMMITTED]


@pytest.mark.parametrize("asked_before", [False, True])
def test_what_is_open_returns_at_once_where_there_is_no_time(run, asked_before):
    assigned = run.assigned()
    run.compute(NORTH, assigned[NORTH])
    if asked_before:
        run.bench.feed(500, DrainRequested("the user"))
    effects = run.bench.feed(600, DrainRequested("the run failed", at_once=True))
    assert receivers(effects, StepAbandon) == list(MEMBERS)
    assert finished(effects) == ["all jobs are closed"]
    seen = run.samples()
    assert seen[SampleEvent.ISSUED] == seen[SampleEvent.RETURNED]
    assert run.bench.feed(700, DrainRequested("again", at_once=True)) == []


def test_a_run_that_is_ended_before_slot_0_issues_nothing():
    bench = Bench(parse(TWO), "coordinator")
    bench.feed(-1000, Started())
    assert finished(bench.feed(-500, DrainRequested("the user"))) == ["all jobs are closed"]
    assert bench.feed(0, TimerFired("begin", 0)) == []


def test_end_is_idempotent(run):
    run.bench.feed(500, DrainRequested("once"))
    assert run.bench.feed(600, DrainRequested("twice")) == []
    end_us = parse(TWO).time.total_us
    assert run.bench.feed(end_us, TimerFired("end", end_us)) == []


@pytest.mark.parametrize("status", ["missing", "back"])
def test_missing_is_not_lost(run, status):
    assert run.bench.feed(700, PeerChanged(SOUTH, status, "")) == []


def test_run_without_jobs_has_nothing_open_at_once():
    run = Run(site())
    assert finished(run.begun) == ["all jobs are closed"]


def test_two_jobs_are_independent():
    run = Run(TWO + job("other", sites=("south",), batch=3))
    by_member = {}
    for to, assign in zip(
        receivers(run.begun, StepAssign), sent(run.begun, StepAssign), strict=True
    ):
        by_member[to] = (assign.job, assign.samples)
    assert by_member["south.other.trainer"] == ("other", (0, 1, 2))
    assert by_member[NORTH] == (JOB, (0, 1))
