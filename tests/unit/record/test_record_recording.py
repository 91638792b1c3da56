"""What became of quanta, and what trainers were about: rows by hand, fates by hand."""

from __future__ import annotations

import pytest

from testbed.gpu.quanta import QuantumKind
from testbed.gpu.spare import TrainerState
from testbed.record.fates import ABANDONED, COMMITTED, FAULT, OPEN, RETURNED
from testbed.record.recording import Recording
from testbed.record.schema import SampleEvent, StepEvent, TrainerEvent

from .handmade import by_hand, quantum, task

COMMIT = {"step": 0, "event": StepEvent.COMMITTED, "at_us": 5000}


def fates(recording: Recording) -> list[str]:
    return recording.timelines["one"].quanta.sort("start_us")["fate"].to_list()


def test_quanta_of_a_committed_step_are_committed_and_an_open_step_is_not() -> None:
    rows = {"quanta": [quantum(0, 10), quantum(20, 30, step=1)], "steps": [COMMIT]}
    assert fates(by_hand(rows)) == [COMMITTED, OPEN]


def test_what_ran_before_a_trainer_abandoned_the_step_is_wasted_the_repeat_is_not() -> None:
    gone = {"epoch": 1, "event": TrainerEvent.ABANDONED, "at_us": 15}
    rows = {
        "quanta": [quantum(0, 10), quantum(10, 20), quantum(20, 30)],
        "trainer_events": [gone],
        "steps": [COMMIT],
    }
    assert fates(by_hand(rows)) == [ABANDONED, ABANDONED, COMMITTED]


def test_a_step_that_the_coordinator_gave_up_is_abandoned() -> None:
    given_up = {"step": 0, "event": StepEvent.ABANDONED, "at_us": 100}
    assert fates(by_hand({"quanta": [quantum(0, 10)], "steps": [given_up]})) == [ABANDONED]


@pytest.mark.parametrize("owner_of_return", [0, -1])
def test_computed_samples_that_are_returned_waste_their_work(owner_of_return: int) -> None:
    returned = {"sample": 3, "event": SampleEvent.RETURNED, "owner": owner_of_return, "at_us": 15}
    rows = {
        "quanta": [quantum(0, 10), quantum(20, 30)],
        "steps": [COMMIT],
        "samples": [
            {"sample": 3, "event": SampleEvent.COMPUTED, "at_us": 10},
            returned,
            {"sample": 4, "event": SampleEvent.RETURNED, "at_us": 40},  # never computed
        ],
    }
    assert fates(by_hand(rows)) == [RETURNED, COMMITTED]


def test_an_injected_quantum_is_a_fault_whatever_its_step() -> None:
    rows = {"quanta": [quantum(0, 10, kind=QuantumKind.FAULT)], "steps": [COMMIT]}
    assert fates(by_hand(rows)) == [FAULT]


def test_what_a_trainer_is_about() -> None:
    """The next step is assigned with the commit, before the optimiser has run."""
    events = [
        (0, TrainerEvent.ASSIGNED, 10, TrainerState.WORK),
        (0, TrainerEvent.COMPUTED, 20, TrainerState.WAITING),
        (0, TrainerEvent.SYNC_BEGUN, 30, TrainerState.WAITING),
        (0, TrainerEvent.SYNC_ENDED, 40, TrainerState.WAITING),
        (0, TrainerEvent.COMMITTED, 50, TrainerState.WORK),
        (1, TrainerEvent.ASSIGNED, 50, TrainerState.WORK),
        (0, TrainerEvent.APPLIED, 60, TrainerState.WORK),
        (1, TrainerEvent.COMPUTED, 70, TrainerState.WAITING),
        (1, TrainerEvent.COMMITTED, 80, TrainerState.WORK),
        (1, TrainerEvent.APPLIED, 90, TrainerState.WAITING),  # a next one comes
        (2, TrainerEvent.ASSIGNED, 95, TrainerState.WORK),
        (2, TrainerEvent.ABANDONED, 99, TrainerState.IDLE),
    ]
    rows = [{"step": step, "event": event, "at_us": at} for step, event, at, _ in events]
    state = by_hand({"trainer_events": rows}).timelines["one"].state
    assert state.at([9]).tolist() == [TrainerState.IDLE]
    assert state.at([at for _, _, at, _ in events]).tolist() == [s for *_, s in events]


def test_a_trainer_is_idle_after_its_last_step() -> None:
    kinds = (TrainerEvent.ASSIGNED, TrainerEvent.COMMITTED, TrainerEvent.APPLIED)
    rows = [{"event": kind, "at_us": 10 * i} for i, kind in enumerate(kinds)]
    state = by_hand({"trainer_events": rows}).timelines["one"].state
    assert state.at([20]).tolist() == [TrainerState.IDLE]


def test_the_ran_wants_its_sms_from_its_plan_on() -> None:
    """Planned for 50 to 150 on 24 SMs, run from 100 to 200 on 8, beside one of 16 SMs."""
    late = task(100, 200, planned_start_us=50, planned_end_us=150, sms=8, wanted_sms=24)
    timeline = by_hand({"ran_tasks": [late, task(100, 200)]}).timelines["one"]
    assert timeline.ran.at([60, 120, 170]).tolist() == [0, 24, 24]
    assert timeline.wanted.at([60, 120, 170]).tolist() == [24, 40, 24]


def test_a_run_that_died_is_measured_as_far_as_its_tables_reach() -> None:
    rows = {"promises": [{"slot": 9, "at_us": 4500}]}
    died = {"outcome": {"status": "failed", "reason": "killed"}}
    recording = by_hand(rows, died)
    assert (recording.from_us, recording.to_us, recording.complete) == (1000, 4500, False)
    assert by_hand({}, {}).measured_us == 0
    assert by_hand({}).measured_us == 10_000
