"""Violations: which overlaps count, and what each is put down to."""

from __future__ import annotations

import pytest

from testbed.gpu.quanta import QuantumKind
from testbed.record.measure.spare import spare_section

from .handmade import by_hand, quantum, task


def lease(start_us: int, end_us: int, sms: int = 48) -> dict[str, int]:
    return {"start_us": start_us, "end_us": end_us, "sms": sms}


@pytest.mark.parametrize(
    ("cause", "tasks", "quanta", "leases", "overlap_us"),
    [
        (
            "injected_fault",
            [task(3000, 4000)],
            [quantum(3500, 5500, kind=QuantumKind.FAULT)],
            [],
            500,
        ),
        (
            "quantum_overran",
            [task(3000, 4000)],
            [quantum(2000, 3200, modelled_end_us=3000, real_us=1190)],
            [lease(2000, 3000)],
            200,
        ),
        (
            "outside_lease",
            [task(3000, 4000)],
            [quantum(2000, 3200)],
            [lease(2000, 3000)],
            200,
        ),
        (
            "ran_past_its_plan",
            [task(3000, 4200, planned_end_us=4000)],
            [quantum(4000, 5000)],
            [lease(4000, 6000)],
            200,
        ),
        (
            "ran_before_its_plan",
            [task(2900, 4000, planned_start_us=3000)],
            [quantum(2000, 3000)],
            [lease(2000, 3000)],
            100,
        ),
        (
            "lease_over_plan",
            [task(3000, 4000)],
            [quantum(3000, 3300)],
            [lease(3000, 4000)],
            300,
        ),
    ],
)
def test_each_violation_is_explained(
    cause: str, tasks: list, quanta: list, leases: list, overlap_us: int
) -> None:
    recording = by_hand({"ran_tasks": tasks, "quanta": quanta, "leases": leases})
    figures = spare_section(recording, overlap_us - 1, {})["sites"]["one"]
    (row,) = figures["violations"]["rows"]
    assert (row["cause"], row["overlap_us"], row["overlap_sms"]) == (cause, overlap_us, 16)
    assert (row["site"], row["cell"], row["direction"]) == ("one", 0, "ul")
    assert row["explanation"]
    assert figures["violations"]["duty"] == overlap_us / 10_000
    jitter = spare_section(recording, overlap_us, {})["sites"]["one"]
    assert (jitter["violations"]["count"], jitter["violation_jitter"]["count"]) == (0, 1)


@pytest.mark.parametrize(
    ("slot", "at_us", "cause"),
    [
        (4, 3000, "ran_emergency"),  # known by 2500, the quantum began at 2000
        (3, 3000, "outside_lease"),  # known by 2000: it should not have begun
        (4, 4000, "outside_lease"),  # of another time
    ],
)
def test_quantum_that_an_emergency_overtook_is_told_from_one_outside_its_lease(
    slot: int, at_us: int, cause: str
) -> None:
    emergency = {"slot": slot, "at_us": at_us, "until_us": at_us + 1000}
    rows = {
        "ran_tasks": [task(3000, 4000)],
        "quanta": [quantum(2000, 3400)],
        "ran_emergencies": [emergency],
    }
    figures = spare_section(by_hand(rows), 50, {})["sites"]["one"]["violations"]
    assert figures["by_cause"] == {cause: 1}


def test_a_task_that_waited_for_a_quantum_shows_as_a_violation() -> None:
    """The decode was planned for 3000, found no SM free, and began at 3400."""
    held = task(3400, 4400, planned_start_us=3000, planned_end_us=4000)
    recording = by_hand({"ran_tasks": [held], "quanta": [quantum(2000, 3400)]})
    (row,) = spare_section(recording, 50, {})["sites"]["one"]["violations"]["rows"]
    assert (row["at_us"], row["overlap_us"]) == (3000, 400)


def test_the_task_that_should_be_over_is_named_and_not_the_one_within_its_plan():
    """32 SMs as planned, a quantum on the other 16 within its lease, and 8 SMs of a task that ran
    on past its plan: the lease was right."""
    rows = {
        "ran_tasks": [
            task(2500, 3300, planned_end_us=3000, cell=1, sms=8, wanted_sms=8),
            task(3000, 5000, cell=0, sms=32, wanted_sms=32),
        ],
        "quanta": [quantum(3000, 4000, sms=16)],
        "leases": [{"start_us": 3000, "end_us": 5000, "sms": 16}],
    }
    (row,) = spare_section(by_hand(rows), 10, {})["sites"]["one"]["violations"]["rows"]
    assert (row["cause"], row["cell"], row["overlap_us"]) == ("ran_past_its_plan", 1, 300)
    assert row["explanation"].startswith("the RAN task ended 300 us after its plan")


def test_a_violation_says_how_slow_the_host_was():
    rows = {
        "ran_tasks": [task(5000, 5600, air_slot=9, deadline_us=6000)],
        "quanta": [quantum(4000, 5500) | {"modelled_end_us": 4500, "real_us": 1500}],
        "lateness": [
            {"slot": slot, "at_us": 500 * slot, "host_slowdown_permille": slowdown}
            for slot, slowdown in ((9, 7000), (10, 1000), (12, 30_000))
        ],
    }
    (site,) = spare_section(by_hand(rows), 10, {})["sites"].values()
    (row,) = site["violations"]["rows"]
    assert row["host_slowdown"] == 7.0
    assert row["explanation"].endswith("the host's cores ran at 1/7 of their best speed")
