"""Each section of the summary on rows whose figures a person can work out."""

from __future__ import annotations

import pytest

from testbed.record.measure.fidelity import fidelity
from testbed.record.measure.numbers import jain, percentile, put
from testbed.record.measure.ran import ran
from testbed.record.measure.spare import spare_section
from testbed.record.measure.training import training
from testbed.record.schema import LatenessSource, SampleEvent, StepEvent, TrainerEvent

from .handmade import by_hand, quantum, task

# --- numbers ------------------------------------------------------------------------------------


def test_percentile_is_the_nearest_rank() -> None:
    values = list(range(1, 101))
    assert [percentile(values, p) for p in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([7], 99) == 7
    assert percentile([], 50) is None


def test_jain_of_equal_and_of_one_user() -> None:
    assert jain([5, 5, 5, 5]) == 1.0
    assert jain([5, 0, 0, 0]) == 0.25
    assert jain([0, 0]) is None


def test_a_null_has_a_reason() -> None:
    figures: dict = {}
    put(figures, "x", None, "why")
    put(figures, "y", 1 / 3, "unused")
    assert figures == {"x": None, "x_reason": "why", "y": 0.333333}


# --- fidelity -----------------------------------------------------------------------------------


def wake(slot: int, late_us: int, overrun_us: int = 0, source: int = 0) -> dict[str, int]:
    row = {"slot": slot, "at_us": 500 * slot, "lateness_us": late_us, "source": source}
    return row | {"overrun_us": overrun_us}


def test_a_slot_is_as_good_as_its_worst_wake_up() -> None:
    rows = [
        wake(0, 400),  # warm-up
        wake(2, 50),
        wake(2, 51, source=LatenessSource.PHY_TASK),  # above 10 % of 500 us
        wake(3, 0, overrun_us=1),
        wake(4, 10),
        wake(5, 10),
        wake(22, 400),  # after the measured time
    ]
    figures = fidelity(by_hand({"lateness": rows}))
    assert figures["slots_on_time"] == 0.5
    assert figures["slots_on_time_worst_node"] == "one.g1.mac"
    assert figures["lateness_us"] == {"p50": 10, "p99": 51, "max": 51, "n": 5}
    assert (figures["overruns"], figures["tolerance_us"]) == (1, 51)
    assert figures["verdict"] == "outside its bounds"
    assert "one.g1.mac kept 50.00% of its slots on time, at least 99.50%" in figures["reason"]
    assert "51 us late (p99), at most 50 us" in figures["reason"]


def test_a_run_in_time_and_one_in_virtual_time() -> None:
    good = fidelity(by_hand({"lateness": [wake(s, 5) for s in range(22)]}))
    assert good["verdict"] == "within bounds"
    virtual = fidelity(by_hand({}, mode="sim"))
    assert (virtual["verdict"], virtual["slots_on_time"]) == ("within bounds", None)
    assert virtual["slots_on_time_reason"]


def test_without_rows_a_live_run_is_not_trusted() -> None:
    assert fidelity(by_hand({}))["verdict"] == "unknown"


def test_late_feedback_of_the_warm_up_is_left_out() -> None:
    counters = [{"at_us": 1000, "late_feedback": 3}, {"at_us": 12_000, "late_feedback": 8}]
    assert fidelity(by_hand({"ran_counters": counters}))["late_feedback"] == 5


# --- ran ----------------------------------------------------------------------------------------


def block(air_slot: int, **more: int) -> dict[str, int]:
    row = {"air_slot": air_slot, "direction": 1, "transmission": 1, "result": 1}
    return row | {"tbs_bytes": 1000} | more


def test_deadline_misses_are_counted_per_block_by_the_modelled_end() -> None:
    tasks = [
        task(2500, 3000, air_slot=4, deadline_us=2999),  # missed by 1 us
        task(5000, 9000, modelled_end_us=5500, air_slot=9, deadline_us=5500),  # late in wall time
    ]
    blocks = [block(4), block(4, ue=1), block(9), block(1), block(14)]
    figures = ran(by_hand({"ran_tasks": tasks, "blocks": blocks}))
    # slot 1 is warm-up; slot 14 has no task, so it counts as scheduled and as not known
    assert figures["scheduled_blocks"] == {"dl": 0, "ul": 4}
    assert figures["deadline_miss_rate"]["ul"] == 0.5
    assert figures["deadline_miss_rate"]["dl"] is None
    assert figures["deadline_miss_rate"]["dl_reason"] == "no block was scheduled"
    assert figures["ul"]["blocks_without_task"] == 1


def test_bler_is_of_first_transmissions_that_were_decoded() -> None:
    blocks = [block(4, result=0), block(4, ue=1), block(5, ue=2), block(5, ue=3)]
    blocks += [block(6, result=0, transmission=2), block(6, result=2, ue=1), block(6, result=3)]
    figures = ran(by_hand({"blocks": blocks}))
    assert figures["bler"]["ul"] == 0.25
    assert figures["ul"]["retransmissions"] == 1
    assert figures["ul"]["results"] == {"ack": 3, "nack": 2, "late": 1, "no_feedback": 1}


def test_delay_throughput_and_late_bytes() -> None:
    def sdu(ue: int, arrival_us: int, delay_us: int, size: int) -> dict[str, int]:
        row = {"ue": ue, "direction": 1, "five_qi": 80, "bytes": size}
        return row | {"arrival_us": arrival_us, "delivered_us": arrival_us + delay_us}

    rows = [
        sdu(0, 900, 200, 10_000),  # arrived in the warm-up: throughput only
        sdu(1, 2000, 1000, 100),
        sdu(2, 3000, 8000, 200),  # at the budget; delivered in the drain
        sdu(3, 4000, 8001, 700),  # beyond it
    ]
    figures = ran(by_hand({"sdus": rows}))
    delay = figures["delay_us"]["80"]
    assert delay["ran_delay_budget_us"] == 8000  # 10 ms less 2 ms (testbed.ran.qos)
    assert (delay["n"], delay["p50"], delay["p99"]) == (3, 8000, 8001)
    assert figures["late_byte_share"] == 0.7
    assert figures["throughput_mbps"]["ul"] == pytest.approx(10_100 * 8 / 10_000)
    # Jain over the 3 UEs that had data, by bytes: (100, 200, 700)
    assert figures["jain"]["ul"] == round(1000**2 / (3 * (100**2 + 200**2 + 700**2)), 6)
    assert figures["jain"]["dl"] is None
    own = ran(by_hand({"sdus": rows}, ran_delay_budget_us={80: 500}))
    assert own["late_byte_share"] == 1.0


def test_bytes_that_never_left_are_late_and_their_ue_counts_as_starved() -> None:
    """8 ms of budget after the end at 11 ms: at 19 ms all that waits is late, at 18.999 it may not
    be. Per class, and in Jain's index over (300, 0)."""

    def left(five_qi: int, at_us: int, size: int) -> dict[str, int]:
        row = {"ue": 1, "direction": 1, "five_qi": five_qi, "at_us": at_us}
        return row | {"buffered_bytes": size}

    served = {"direction": 1, "five_qi": 80, "bytes": 300, "arrival_us": 2000, "delivered_us": 3000}
    figures = ran(by_hand({"sdus": [served], "ue_backlogs": [left(80, 19_000, 100)]}))
    assert figures["late_byte_share"] == 0.25
    assert figures["delay_us"]["80"]["late_byte_share"] == 0.25
    assert figures["delay_us"]["80"]["ul"]["late_byte_share"] == 0.25
    assert figures["delay_us"]["80"]["dl"]["late_byte_share"] is None
    assert figures["delay_us"]["80"]["n"] == 1
    assert figures["jain"]["ul"] == 0.5
    for waiting in (left(80, 18_999, 100), left(9, 19_000, 100)):  # 5QI 9: 298 ms
        figures = ran(by_hand({"sdus": [served], "ue_backlogs": [waiting]}))
        assert (figures["late_byte_share"], figures["jain"]["ul"]) == (0.0, 1.0)


def test_settled_bytes_had_their_whole_budget_before_the_end() -> None:
    """11 ms less the 8 ms of 5QI 80: arrivals before 3 ms, after the warm-up of 1 ms."""

    def sdu(arrival_us: int, size: int, direction: int = 1) -> dict[str, int]:
        row = {"direction": direction, "five_qi": 80, "bytes": size, "arrival_us": arrival_us}
        return row | {"delivered_us": 15_000}

    rows = [sdu(999, 1), sdu(1000, 10), sdu(2999, 100), sdu(3000, 1000), sdu(2000, 7, 0)]
    figures = ran(by_hand({"sdus": rows}))
    assert figures["settled_until_us"] == 3000
    assert figures["settled_bytes"] == {"dl": 7, "ul": 110}
    assert figures["throughput_ratio"] is None
    assert "compare" in figures["throughput_ratio_reason"]
    short = ran(by_hand({"sdus": rows}, ran_delay_budget_us={80: 10_000}))
    assert short["settled_bytes"]["ul"] is None
    assert "longest delay budget" in short["settled_bytes"]["ul_reason"]


def test_emergencies_are_counted_from_the_warm_up_on() -> None:
    def broken(at_us: int, promised: int, taken: int) -> dict[str, int]:
        return {"at_us": at_us, "promised_sms": promised, "taken_sms": taken}

    rows = [broken(500, 8, 48), broken(1000, 16, 24), broken(9000, 8, 32), broken(11_000, 8, 48)]
    figures = ran(by_hand({"ran_emergencies": rows}))
    assert figures["emergencies"] == {"count": 2, "most_sms": 24, "per_s": 200.0}
    assert figures["sites"]["one"]["emergencies"] == figures["emergencies"]
    assert ran(by_hand({}))["emergencies"] == {"count": 0, "most_sms": 0, "per_s": 0.0}


def test_bytes_are_conserved() -> None:
    totals = {"arrived_bytes": 1000, "delivered_bytes": 900, "buffered_bytes": 60}
    rows = [{"at_us": 1000, "arrived_bytes": 7}, {"at_us": 9000, "in_flight_bytes": 30} | totals]
    figures = ran(by_hand({"ran_counters": rows}))["bytes"]
    assert (figures["unaccounted"], figures["delivered_share"]) == (10, 0.9)


def test_a_pool_without_cells_has_no_radio() -> None:
    from dataclasses import replace

    from .handmade import SITE

    figures = ran(by_hand({}, sites=(replace(SITE, cells=()),)))
    assert figures == {"sites": {}, "sites_reason": "no site has a cell"}


# --- spare --------------------------------------------------------------------------------------


def test_spare_by_hand() -> None:
    """48 SMs, 10 ms from 1000 us; one decode of 16 SMs x 1 ms, one committed quantum of 1 ms."""
    rows = {
        "ran_tasks": [task(3000, 4000)],
        "leases": [{"start_us": 5000, "end_us": 7000, "sms": 48}],
        "quanta": [quantum(5000, 6000), quantum(500, 1500, step=1, sms=8)],
        "trainer_events": [{"event": TrainerEvent.ASSIGNED, "at_us": 0}],
        "steps": [{"event": StepEvent.COMMITTED, "at_us": 6500}],
        "promises": [
            {"slot": slot, "at_us": 500 * slot, "within_1000_us": 16 if slot < 10 else 0}
            for slot in range(30)
        ],
    }
    figures = spare_section(by_hand(rows), 0, {"one": 7000.0})
    idle = 480_000 - 16_000
    assert figures["idle_fraction"] == round(idle / 480_000, 6)
    assert figures["utilisation"] == round(48_000 / idle, 6)
    assert figures["wasted"]["step_open"]["sm_us"] == 8 * 500
    went = {key: row["sm_us"] for key, row in figures["where_it_went"].items()}
    assert went["leased_gap"] == 48_000
    assert sum(went.values()) == idle
    # slots 2..20 have a 1 ms window inside; those of 5, 6, 7 see the decode
    assert figures["usable_fraction"]["1000"] == round(1 - 3 * 16 / (19 * 48), 6)
    assert figures["promised_fraction"]["1000"] == round(1 - 8 * 16 / (19 * 48), 6)
    assert figures["used_of_usable"] == pytest.approx(48 / (480 - 480 * 3 / 57), abs=1e-6)
    assert figures["envelope_changes_per_s"] == 100.0  # one in 10 ms
    assert figures["usable_fraction"]["20000"] is None
    assert "window" in figures["usable_fraction"]["20000_reason"]
    # speed(48) = 1 in 9 of 10 ms; speed(32) = 0.55 + 0.45 / 3 = 0.7 in one (GPU of fabricate.py)
    assert figures["efficiency"] == pytest.approx(7000 / (50_000 * 0.97), abs=1e-6)


# --- training -----------------------------------------------------------------------------------


def step(number: int, event: StepEvent, at_us: int, loss: int = -1) -> dict[str, int]:
    row = {"step": number, "event": event, "at_us": at_us, "loss_micronats": loss}
    return row | {"samples": 8, "proxy_tokens": 4000}


def test_tokens_of_a_step_across_the_ends_count_in_part() -> None:
    rows = [
        step(0, StepEvent.ASSIGNED, 0),
        step(0, StepEvent.COMMITTED, 4000, 5_000_000),  # 3 of 4 ms are measured
        step(1, StepEvent.ASSIGNED, 4000),
        step(1, StepEvent.COMMITTED, 9000, 4_000_000),
        step(2, StepEvent.ASSIGNED, 9000),
        step(2, StepEvent.COMMITTED, 13_000, 3_000_000),  # 2 of 4 ms
        step(3, StepEvent.ASSIGNED, 13_000),
    ]
    manifest = {
        "outcome": {"status": "done", "reason": ""},
        "training": {"job": {"unigram_entropy_nats": 3.5}},
    }
    figures = training(by_hand({"steps": rows}, manifest))
    assert figures["tokens_per_s"] == pytest.approx(8 * 100 * (0.75 + 1 + 0.5) / 0.01)
    assert figures["proxy_tokens_per_s"] == pytest.approx(4000 * 2.25 / 0.01)
    assert (figures["steps_committed"], figures["steps_committed_in_run"]) == (2, 3)
    assert figures["loss"] == {"first": 5.0, "last": 3.0, "mean_last_3": 4.0, "steps": 3}
    assert figures["unigram_entropy_nats"] == 3.5


def test_virtual_time_has_no_loss_and_says_why() -> None:
    figures = training(by_hand({"steps": [step(0, StepEvent.COMMITTED, 4000)]}, mode="sim"))
    assert figures["loss"] is None
    assert figures["loss_reason"] == "virtual time trains nothing"


def test_the_ledger_of_samples() -> None:
    def sample(number: int, *events: SampleEvent) -> list[dict[str, int]]:
        return [{"sample": number, "event": event, "at_us": i} for i, event in enumerate(events)]

    e = SampleEvent
    rows = sample(1, e.ISSUED, e.COMPUTED, e.COMMITTED)
    rows += sample(2, e.ISSUED, e.RETURNED, e.ISSUED, e.COMPUTED, e.DUPLICATE, e.COMMITTED)
    rows += sample(3, e.ISSUED, e.RETURNED)
    rows += sample(4, e.ISSUED, e.COMPUTED)
    rows += sample(5, e.ISSUED, e.COMMITTED, e.COMMITTED)
    assert training(by_hand({"samples": rows}))["samples"] == {
        "issued": 5,
        "committed": 3,
        "returned": 1,
        "duplicated": 1,
        "duplicates_refused": 1,
        "lost": 1,
    }


def test_time_at_the_barrier_and_in_the_collective() -> None:
    events = [(TrainerEvent.COMPUTED, 500), (TrainerEvent.SYNC_BEGUN, 2000)]
    events += [(TrainerEvent.SYNC_ENDED, 5000)]
    rows = [{"event": event, "at_us": at} for event, at in events]
    figures = training(by_hand({"trainer_events": rows}))
    assert (figures["barrier_time_share"], figures["sync_time_share"]) == (0.1, 0.3)


def test_no_job_no_training() -> None:
    figures = training(by_hand({}, jobs=(), trainers={}))
    assert figures == {"jobs": {}, "jobs_reason": "the topology has no job"}
