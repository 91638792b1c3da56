"""The trainer as a table: what comes in, and what goes where for it."""

from __future__ import annotations

import pytest
from nodes_bench import Bench, job, parse, reasons, rows, site

from nodes.api import GrantLease, Injected, Received, Record, Reported, Send, Started, Work
from protocols.messages import (
    BarrierOpen,
    BarrierReached,
    LeaseGrant,
    MicroBatchDone,
    QuantumStarted,
    StateShare,
    StateShared,
    StepAbandon,
    StepApplied,
    StepAssign,
    StepCommit,
    SyncDone,
)
from protocols.work import (
    AbandonStep,
    Applied,
    ApplyStep,
    ComputeStep,
    InjectQuantum,
    QuantumBegun,
    QuantumEnded,
    RunSync,
    SampleComputed,
    ShareEnded,
    ShareState,
    StepComputed,
    SyncEnded,
)
from testbed.gpu.gate import Lease, Window
from testbed.record.schema import TrainerEvent

NODE, JOB, AGENT, COORDINATOR = "north.pretrain.trainer", "pretrain", "north.agent", "coordinator"
STORE = "127.0.0.1:4711/1"


@pytest.fixture
def trainer() -> Bench:
    return Bench(parse(site() + job()), NODE, store=STORE)


FROM_PEERS = [
    (StepAssign(JOB, 1, 5, (3, 4)), ComputeStep(1, 5, (3, 4)), TrainerEvent.ASSIGNED),
    (
        BarrierOpen(JOB, 1, 5, ("a", NODE), 900, 100),
        RunSync(1, 5, 1, 2, 900, 100, STORE),
        TrainerEvent.SYNC_BEGUN,
    ),
    (
        StateShare(JOB, 1, 5, ("a", NODE, "b"), 900),
        ShareState(1, 5, 1, 3, 900, STORE),
        TrainerEvent.SHARE_BEGUN,
    ),
    (StepCommit(JOB, 1, 5), ApplyStep(1, 5), TrainerEvent.COMMITTED),
    (StepAbandon(JOB, 1, 5, "lost"), AbandonStep(1, 5), TrainerEvent.ABANDONED),
]

FROM_EXECUTOR = [
    (
        QuantumBegun(5, 2, 7, 100, 300, 24, 9),
        AGENT,
        QuantumStarted(JOB, 9, 2, 7, 100, 300, 24),
        None,
    ),
    (
        SampleComputed(1, 5, 3, 512, 2_000_000),
        COORDINATOR,
        MicroBatchDone(JOB, 1, 5, 3, 512, 2_000_000),
        None,
    ),
    (StepComputed(1, 5), COORDINATOR, BarrierReached(JOB, 1, 5), TrainerEvent.COMPUTED),
    (
        SyncEnded(1, 5, False, 0, 10, "broken"),
        COORDINATOR,
        SyncDone(JOB, 1, 5, False, 0, "broken"),
        TrainerEvent.SYNC_ENDED,
    ),
    (
        ShareEnded(1, 5, False, "", 10, "broken"),
        COORDINATOR,
        StateShared(JOB, 1, 5, False, "", "broken"),
        TrainerEvent.SHARED,
    ),
    (Applied(1, 5, "ab12"), COORDINATOR, StepApplied(JOB, 1, 5, "ab12"), TrainerEvent.APPLIED),
]


def fields(message):
    return type(message), [getattr(message, name) for name in message.__dataclass_fields__]


@pytest.mark.parametrize(("message", "packet", "event"), FROM_PEERS)
def test_message_becomes_work_and_a_note(trainer, message, packet, event):
    effects = trainer.feed(777, Received(COORDINATOR, message))
    (given,) = (effect.message for effect in effects if isinstance(effect, Work))
    assert fields(given) == fields(packet)
    assert rows(effects, "trainer_events") == [
        {"epoch": 1, "step": 5, "event": event, "at_us": 777}
    ]


@pytest.mark.parametrize(("report", "to", "message", "event"), FROM_EXECUTOR)
def test_report_becomes_a_message_and_a_note(trainer, report, to, message, event):
    effects = trainer.feed(777, Reported(report))
    (send,) = (effect for effect in effects if isinstance(effect, Send))
    assert send.to == to
    assert fields(send.message) == fields(message)
    noted = [row["event"] for row in rows(effects, "trainer_events")]
    assert noted == ([] if event is None else [event])


def test_abandoned_step_carries_its_reason(trainer):
    effects = trainer.feed(1, Received(COORDINATOR, StepAbandon(JOB, 1, 5, "south is lost")))
    assert reasons(effects) == ["step 5: abandoned: south is lost"]


def test_lease_replaces_the_executors(trainer):
    grant = LeaseGrant(JOB, 4, 300, ((0, 100, 48), (100, 150, 24)))
    lease = Lease(4, (Window(0, 100, 48), Window(100, 150, 24)), 300)
    assert trainer.feed(5, Received(AGENT, grant)) == [GrantLease(lease)]


def test_finished_quantum_is_a_row(trainer):
    ended = QuantumEnded(5, 2, 7, 100, 310, 300, 120, 24, 9)
    (record,) = trainer.feed(310, Reported(ended))
    assert isinstance(record, Record)
    assert rows([record], "quanta") == [
        {
            "step": 5,
            "kind": 2,
            "block": 7,
            "start_us": 100,
            "modelled_end_us": 300,
            "end_us": 310,
            "real_us": 120,
            "sms": 24,
            "lease_epoch": 9,
        }
    ]


def test_fault_is_work_that_ignores_the_lease(trainer):
    effects = trainer.feed(0, Injected("late_quantum", 4900, (2000, 48)))
    (packet,) = (effect.message for effect in effects if isinstance(effect, Work))
    assert fields(packet) == fields(InjectQuantum(4900, 2000, 48))
    assert reasons(effects) == ["fault late_quantum: 2000 us, 48 SMs at 4900 us"]


def test_what_does_not_concern_it_is_let_be(trainer):
    assert trainer.feed(0, Started()) == []
    assert trainer.feed(0, Injected("unknown", 1, ())) == []
    assert trainer.feed(0, Received(AGENT, BarrierReached(JOB, 1, 1))) == []
