"""The tables that a run writes: their columns, units and who writes them.

All columns are int64 unless named in ``FLOAT_COLUMNS``. Every table gets a further text column
``node``: the node that wrote the row. Times are emulated integer microseconds; ``direction`` is 0
for downlink and 1 for uplink.
"""

from __future__ import annotations

from enum import IntEnum

PROMISE_WINDOWS_US = (1000, 2500, 5000, 10_000, 20_000)

TABLES: dict[str, tuple[str, ...]] = {
    # site agent: one row per PHY task that ended; planned_* and wanted_sms (at its begin) are of
    # the reservation as it was first made, sms what the task had when it began.
    "ran_tasks": (
        "cell",
        "air_slot",
        "direction",
        "n_prb",
        "code_blocks",
        "planned_start_us",
        "planned_end_us",
        "start_us",
        "modelled_end_us",
        "end_us",
        "deadline_us",
        "sms",
        "wanted_sms",
    ),
    # site agent: the SMs of each such task over time, as reserved (planned 1) and as run (0).
    "ran_pieces": ("cell", "air_slot", "direction", "planned", "from_us", "to_us", "sms"),
    # site agent, per slot: the largest SM count of the committed envelope within q of the slot.
    "promises": ("slot", "at_us", *(f"within_{q}_us" for q in PROMISE_WINDOWS_US)),
    # site agent: where, in [at_us, until_us), plans or new promises of the RAN went above what had
    # been promised; the SMs are of the slot with the largest excess, slot is when it became known.
    "ran_emergencies": ("slot", "at_us", "until_us", "promised_sms", "taken_sms"),
    # site agent: what each grant added to the lease within the plans; the rows of a job tile time.
    "leases": ("epoch", "granted_us", "start_us", "end_us", "sms"),
    # trainer: one row per quantum that ended (kind: testbed.gpu.quanta.QuantumKind).
    "quanta": (
        "step",
        "kind",
        "block",
        "start_us",
        "modelled_end_us",
        "end_us",
        "real_us",
        "sms",
        "lease_epoch",
    ),
    # trainer: what it did when (event: TrainerEvent).
    "trainer_events": ("epoch", "step", "event", "at_us"),
    # gNB MAC: one row per SDU delivered.
    "sdus": ("cell", "ue", "direction", "five_qi", "arrival_us", "delivered_us", "bytes"),
    # gNB MAC: one row per transport block whose feedback was applied (result: 0 NACK, 1 ACK,
    # 2 LATE, 3 no feedback in time).
    "blocks": (
        "cell",
        "air_slot",
        "direction",
        "ue",
        "transmission",
        "result",
        "tbs_bytes",
        "n_prb",
        "mcs_index",
    ),
    # gNB MAC: running totals, written at the end of the warm-up and at the end of the run.
    "ran_counters": (
        "cell",
        "direction",
        "at_us",
        "arrived_bytes",
        "delivered_bytes",
        "buffered_bytes",
        "in_flight_bytes",
        "rlc_retx_bytes",
        "late_feedback",
    ),
    # gNB MAC: UEs that still had bytes waiting for a grant at the end of the drain.
    "ue_backlogs": ("cell", "ue", "direction", "five_qi", "at_us", "buffered_bytes"),
    # gNB MAC and PHY: how late each slot's wake-up was (source: LatenessSource), by how much real
    # work ran over its hold (0 where it did not), and how slow the host's core ran (1000: at its
    # best speed; 0: not measured).
    "lateness": (
        "slot",
        "at_us",
        "lateness_us",
        "overrun_us",
        "source",
        "host_slowdown_permille",
    ),
    # coordinator: event: StepEvent.
    "steps": (
        "job",
        "epoch",
        "step",
        "event",
        "at_us",
        "loss_micronats",
        "proxy_tokens",
        "samples",
    ),
    # coordinator: who takes part in a job's steps (event: MemberEvent; member: index of the trainer
    # in the job's list of sites); epoch and step are those from which on it holds.
    "membership": ("job", "epoch", "step", "member", "event", "at_us"),
    # coordinator: event: SampleEvent; owner: index of the trainer in the job's list of sites.
    "samples": ("job", "epoch", "step", "sample", "owner", "event", "at_us"),
}

FLOAT_COLUMNS: frozenset[str] = frozenset()

HOST_AT_SPEED_PERMILLE, HOST_SLOW_PERMILLE = 1000, 2000
"""``host_slowdown_permille`` of a core at its best speed, and from where on it counts as slow:
below half of that."""


class TrainerEvent(IntEnum):
    """What a trainer went through in a step; the first six follow each other."""

    ASSIGNED = 0
    COMPUTED = 1
    SYNC_BEGUN = 2
    SYNC_ENDED = 3
    COMMITTED = 4
    APPLIED = 5
    ABANDONED = 6
    SHARE_BEGUN = 7
    SHARED = 8


class StepEvent(IntEnum):
    """What became of a step at the coordinator."""

    ASSIGNED = 0
    BARRIER_OPEN = 1
    COMMITTED = 2
    APPLIED = 3
    ABANDONED = 4
    REGROUPED = 5
    """It goes on in another membership epoch: a member was lost, or its sum has failed."""


class MemberEvent(IntEnum):
    """What became of a member of a job."""

    LOST = 0
    JOINED = 1
    """Its process is there again."""
    ADMITTED = 2
    """It takes part in the step's sum."""
    HEALED = 3
    """It has the state; from the next step on it computes samples."""


class SampleEvent(IntEnum):
    """What became of a sample at the coordinator."""

    ISSUED = 0
    COMPUTED = 1
    COMMITTED = 2
    RETURNED = 3
    DUPLICATE = 4


class LatenessSource(IntEnum):
    """Whose wake-up a row of ``lateness`` measures."""

    SLOT_TIMER = 0
    PHY_TASK = 1
