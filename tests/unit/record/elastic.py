"""A run of two sites by hand, in which member 1 of the job is lost in step 3, is there again in
step 4, and has the state in step 5. Two samples a step, 100 tokens each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testbed.gpu.quanta import QuantumKind
from testbed.record.recording import Recording
from testbed.record.schema import MemberEvent, SampleEvent, StepEvent, TrainerEvent

from .handmade import SCOPE, SITE, by_hand, quantum

ONE, TWO = "one.job.trainer", "two.job.trainer"
OTHER = replace(SITE, name="two", cells=(), nodes=("two.agent", TWO))
JOB = replace(SCOPE.jobs[0], sites=("one", "two"))
OUTCOME = {"outcome": {"status": "done", "reason": ""}}
DIED = {
    "kind": "death", "node": TWO, "life": 1, "at_us": 3250,
    "reason": "was killed by signal 9 (SIGKILL)", "restarted": True,
}  # fmt: skip
READY = {"kind": "restart", "node": TWO, "life": 2, "at_us": 4480, "start_wall_ms": 6100}
NOTED = [{"kind": "kill", "node": TWO, "at_us": 3240, "seen": True}, DIED, READY]


def elastic(noted: list[dict[str, Any]] | None = None, **changes: Any) -> Recording:
    """The run; ``noted``: the manifest's list of faults."""
    manifest = OUTCOME | {"faults": NOTED if noted is None else noted}
    scope = {"sites": (SITE, OTHER), "jobs": (JOB,), "trainers": {ONE: 0, TWO: 0}}
    return by_hand(_rows(), manifest, **scope | changes)


def _rows():
    return {
        "steps": _steps(),
        "membership": _membership(),
        "samples": _samples(),
        ("quanta", ONE): _quanta_of_one(),
        ("quanta", TWO): _quanta_of_two(),
        ("trainer_events", ONE): _events_of_one(),
        ("trainer_events", TWO): _events_of_two(),
    }


def _steps():
    def row(step: int, epoch: int, event: StepEvent, at_us: int) -> dict[str, int]:
        return {"step": step, "epoch": epoch, "event": event, "at_us": at_us, "samples": 2}

    e = StepEvent
    return [
        row(2, 1, e.ASSIGNED, 0), row(2, 1, e.COMMITTED, 2000),
        row(3, 1, e.ASSIGNED, 2000), row(3, 1, e.BARRIER_OPEN, 3000),
        row(3, 2, e.REGROUPED, 3300), row(3, 2, e.BARRIER_OPEN, 3850),
        row(3, 2, e.COMMITTED, 4000),
        row(4, 2, e.ASSIGNED, 4000), row(4, 2, e.COMMITTED, 6000),
        row(5, 3, e.ASSIGNED, 6000), row(5, 3, e.COMMITTED, 8000),
        row(6, 3, e.ASSIGNED, 8000), row(6, 3, e.COMMITTED, 10_000),
        row(7, 3, e.ASSIGNED, 10_000), row(7, 3, e.ABANDONED, 11_500),
    ]  # fmt: skip


def _membership():
    e = MemberEvent
    rows = [(1, 3, e.LOST, 3300), (2, 4, e.JOINED, 4500)]
    rows += [(3, 5, e.ADMITTED, 6000), (3, 5, e.HEALED, 6700)]
    return [
        {"epoch": epoch, "step": step, "member": 1, "event": event, "at_us": at_us}
        for epoch, step, event, at_us in rows
    ]


def _samples():
    """Sample 7 is computed by member 1, returned, and computed by member 0; a late result of
    member 1 is refused."""
    rows: list[dict[str, int]] = []

    def add(step: int, epoch: int, sample: int, owner: int, event: SampleEvent, at_us: int) -> None:
        row = {"step": step, "epoch": epoch, "sample": sample, "owner": owner}
        rows.append(row | {"event": event, "at_us": at_us})

    e = SampleEvent
    owners = {2: (0, 1), 3: (0, 1), 4: (0, 0), 5: (0, 0), 6: (0, 1), 7: (0, 1)}
    for step, of_step in owners.items():
        for i, owner in enumerate(of_step):
            epoch = 1 if step < 4 else 2 if step == 4 else 3
            add(step, epoch, 2 * step + i, owner, e.ISSUED, 2000 * (step - 2))
            if step < 7:
                add(step, epoch, 2 * step + i, owner, e.COMPUTED, 2000 * (step - 2) + 800 + i)
                add(step, max(epoch, step - 1), 2 * step + i, -1, e.COMMITTED, 2000 * (step - 1))
            else:
                add(step, epoch, 2 * step + i, -1, e.RETURNED, 11_500)
    add(3, 1, 7, -1, e.RETURNED, 3300)
    add(3, 2, 7, 0, e.ISSUED, 3300)
    add(3, 1, 7, 1, e.DUPLICATE, 3310)
    add(3, 2, 7, 0, e.COMPUTED, 3800)
    return rows


def _quanta_of_one():
    optimiser = {"step": 3, "kind": QuantumKind.OPTIMISER}
    return [
        quantum(2100, 2900, step=3),
        quantum(3100, 3200, **optimiser),
        quantum(3320, 3340, **optimiser),  # before it was told, at 3350
        quantum(3400, 3800, step=3),
        quantum(3960, 3980, **optimiser),
    ]


def _quanta_of_two():
    return [
        quantum(2010, 2040, step=2, kind=QuantumKind.OPTIMISER),
        quantum(2100, 2800, step=3),
        quantum(3100, 3200, step=3, kind=QuantumKind.OPTIMISER),
        quantum(7500, 7600, step=5, kind=QuantumKind.OPTIMISER),
        quantum(8100, 8700, step=6),
    ]


def _events(*rows: tuple[int, int, TrainerEvent, int]):
    return [
        {"epoch": epoch, "step": step, "event": event, "at_us": at_us}
        for epoch, step, event, at_us in rows
    ]


def _events_of_one():
    e = TrainerEvent
    return _events(
        (1, 3, e.ASSIGNED, 2050), (1, 3, e.COMPUTED, 2900), (1, 3, e.SYNC_BEGUN, 3050),
        (1, 3, e.SYNC_ENDED, 3310),
        (2, 3, e.ASSIGNED, 3350), (2, 3, e.COMPUTED, 3800), (2, 3, e.SYNC_BEGUN, 3900),
        (2, 3, e.SYNC_ENDED, 3950), (2, 3, e.COMMITTED, 4050), (2, 3, e.APPLIED, 4060),
    )  # fmt: skip


def _events_of_two():
    """What it went through after 3050 had not been sent when it died."""
    e = TrainerEvent
    return _events(
        (1, 3, e.ASSIGNED, 2050), (1, 3, e.COMPUTED, 2800), (1, 3, e.SYNC_BEGUN, 3050),
        (3, 5, e.SHARE_BEGUN, 6040), (3, 5, e.ASSIGNED, 6050), (3, 5, e.SHARED, 6690),
        (3, 5, e.COMPUTED, 6720), (3, 5, e.SYNC_BEGUN, 6800), (3, 5, e.SYNC_ENDED, 7400),
        (3, 5, e.COMMITTED, 8050), (3, 6, e.ASSIGNED, 8060), (3, 5, e.APPLIED, 8070),
        (3, 6, e.COMPUTED, 8700),
    )  # fmt: skip
