"""Late slots beside the host's speed, on rows that a person can work out."""

from __future__ import annotations

import pytest

from testbed.record.measure.fidelity import fidelity
from testbed.record.measure.host_speed import samples, slowest_between
from testbed.record.schema import LatenessSource

from .handmade import SITE, by_hand


def phy(slot: int, slowdown: float, late_us: int = 0, overrun_us: int = 0) -> dict[str, int]:
    return {
        "slot": slot,
        "at_us": 500 * slot,
        "lateness_us": late_us,
        "overrun_us": overrun_us,
        "source": LatenessSource.PHY_TASK,
        "host_slowdown_permille": int(1000 * slowdown),
    }


def timer(slot: int, late_us: int) -> dict[str, int]:
    return {"slot": slot, "at_us": 500 * slot, "lateness_us": late_us}


def test_slots_in_which_the_host_was_slow_are_told_apart():
    rows = [
        phy(1, 9.0, late_us=400),  # warm-up
        phy(2, 1.1),
        phy(3, 1.999),  # just not below half
        phy(4, 8.0, overrun_us=300),
        phy(5, 1.0, late_us=60),  # late at full speed
        timer(9, 90),  # no sample within a slot: at speed
        timer(8, 10),
        timer(7, 20),
        phy(12, 2.0, late_us=51),
        timer(12, 90),  # the same slot as a slow sample
        timer(13, 70),  # a slot after it, and nearer than any other
    ]
    figures = fidelity(by_hand({"lateness": rows}))
    assert figures["host_slow_share"] == pytest.approx(2 / 5)
    assert figures["host_slowdown"] == {"n": 5, "p50": 1.999, "p99": 8.0, "max": 8.0}
    assert figures["slots_on_time"] == round(4 / 9, 6)  # 4, 5, 9, 12 and 13 are late
    assert figures["slots_on_time_at_speed"] == round(4 / 6, 6)  # of 2, 3, 5, 7, 8, 9
    assert figures["lateness_p99_at_speed_us"] == 90
    assert figures["verdict"] == "outside its bounds"
    assert (
        "below half of their best speed in 40.0% of the samples (at worst 1/8)"
        in (figures["reason"])
    )
    assert "in the other slots 66.67% were on time, wake-ups 90 us late" in figures["reason"]


def test_a_host_at_speed_is_not_blamed():
    rows = [phy(slot, 1.2, late_us=300) for slot in range(2, 20)]
    figures = fidelity(by_hand({"lateness": rows}))
    assert figures["host_slow_share"] == 0.0
    assert figures["slots_on_time_at_speed"] == figures["slots_on_time"] == 0.0
    assert "speed" not in figures["reason"]


@pytest.mark.parametrize(("share", "named"), [(0.047, True), (0.0009, False), (None, False)])
def test_a_host_that_gave_its_time_to_others_says_so(share, named):
    rows = [phy(slot, 1.2, late_us=300) for slot in range(2, 20)]
    outcome = {"status": "done", "reason": ""}
    manifest = {"outcome": outcome, "host": {"steal_share": share}}
    figures = fidelity(by_hand({"lateness": rows}, manifest))
    assert figures["host_steal_share"] == share
    text = "The hypervisor gave 4.7% of this host's CPU time to others"
    assert (text in figures["reason"]) is named


def test_a_run_without_real_time_priority_says_what_it_lost():
    rows = [phy(slot, 1.2, late_us=300) for slot in range(2, 20)]
    scheduling = {
        "a": "normal (fifo refused: Operation not permitted)",
        "b": "fifo 40",
        "c": "idle",
    }
    manifest = {"outcome": {"status": "done", "reason": ""}, "scheduling": scheduling}
    reason = fidelity(by_hand({"lateness": rows}, manifest))["reason"]
    assert "Real-time priority was refused to 1 processes" in reason


@pytest.mark.parametrize(("mode", "reason"), [("sim", "virtual time"), ("live", "no PHY task")])
def test_without_a_measurement_there_is_no_figure(mode, reason):
    figures = fidelity(by_hand({"lateness": [timer(4, 0)]}, mode=mode))
    assert figures["host_slow_share"] is None
    assert reason in figures["host_slow_share_reason"]
    assert figures["host_slowdown"]["max"] is None


def test_the_slowest_sample_of_an_interval():
    measured = samples(by_hand({"lateness": [phy(4, 3.0), phy(6, 5.0)]}))
    assert slowest_between(measured, SITE, 1900, 2900) == 3.0
    assert slowest_between(measured, SITE, 2000, 3000) == 5.0
    assert slowest_between(measured, SITE, 2001, 2999) is None
