"""The late quantum through a whole run: the miss of the hand calculation, and what it does.

One cell of 100 MHz on a gb10, uplink only, one UE with a full buffer at 40 dB: every uplink slot is
273 PRB of MCS 28, 29 code blocks. Uplink slots are 4, 9, 14, ... (DDDSU, 500 us), so decodes become
ready at multiples of 2500 us and take 60 + 29 * 22 = 698 us on 24 SMs.

The fault holds all 48 SMs from 27 400 us for 2000 us, until 29 400 us. The decode that is ready at
27 500 us begins there instead, and

    end     = 29 400 + 698  = 30 098 us
    delay   = 30 098 - (27 500 + 698) = 1900 us
    miss    = 30 098 - (27 500 + 1500) = 1098 us after its deadline

The MAC uses the result of air slot 54 in slot 59, from 29 500 us: it has not come, so the block
counts as one without feedback and is sent again. A quantum on 40 SMs leaves the decode 8 of 24:

    until 29 400    60 us fixed, then 1840 us at a third of the speed: 613.33 of 638 us of work
    end             29 400 + 24.67, rounded up = 29 425 us, a miss of 425 us

which the MAC hears of in time, as LATE.
"""

from __future__ import annotations

import pytest
from sim_topologies import (
    FAULT,
    FULL,
    NONE,
    cell,
    head,
    job,
    loaded,
    reasons,
    rows,
    simulate,
    two_sites,
)

LATE, NO_FEEDBACK = 2, 3
AT_US, DURATION_US, READY_US, DECODE_US = 27_400, 2_000, 27_500, 698
AIR_SLOT = READY_US // 500 - 1

RADIO = (
    head("late", 50_000)
    + '\n[sites.north]\ngpu = "gb10"\n'
    + cell("north", "g1", FULL, NONE, ues=1, mcs_table=1, sinr_db=40.0, sinr_sd_db=0.0)
)
ALONE = RADIO
SHARED = RADIO + job("north")


def faulty(sms: int) -> str:
    return SHARED + FAULT.format(site="north", at_us=AT_US, duration_us=DURATION_US, sms=sms)


TEXTS = {"alone": ALONE, "shared": SHARED, "faulty": faulty(48), "milder": faulty(40)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same seed and arrivals each time: without the job, with it, with a fault too."""
    return {
        name: simulate(loaded(tmp_path_factory.mktemp(name), text)) for name, text in TEXTS.items()
    }


def decode(run, air_slot=AIR_SLOT):
    (row,) = (row for row in rows(run, "ran_tasks") if row["air_slot"] == air_slot)
    return row


@pytest.mark.parametrize("name", ["alone", "shared"])
def test_without_the_fault_the_decode_takes_the_modelled_time(runs, name):
    row = decode(runs[name])
    assert (row["code_blocks"], row["sms"], row["wanted_sms"]) == (29, 24, 24)
    assert (row["start_us"], row["modelled_end_us"]) == (READY_US, READY_US + DECODE_US)


def test_late_quantum_delays_the_decode_as_calculated(runs):
    row = decode(runs["faulty"])
    assert row["start_us"] == AT_US + DURATION_US == 29_400
    assert row["modelled_end_us"] == 30_098
    assert row["modelled_end_us"] - (READY_US + DECODE_US) == 1900
    assert row["modelled_end_us"] - row["deadline_us"] == 1098
    missed = "north.g1.phy: phy 0/54/1: uplink task 1098 us after its deadline"
    assert missed in reasons(runs["faulty"])


def test_fault_happened_where_and_when_it_was_asked_for(runs):
    faults = [row for row in rows(runs["faulty"], "quanta") if row["kind"] == 9]
    assert [(f["start_us"], f["end_us"], f["sms"]) for f in faults] == [(27_400, 29_400, 48)]


def test_quantum_on_forty_sms_delays_the_decode_as_calculated(runs):
    row = decode(runs["milder"])
    assert (row["start_us"], row["sms"], row["wanted_sms"]) == (READY_US, 8, 24)
    assert row["modelled_end_us"] == 29_425
    assert row["modelled_end_us"] - row["deadline_us"] == 425


@pytest.mark.parametrize(("name", "result"), [("faulty", NO_FEEDBACK), ("milder", LATE)])
def test_missed_block_is_sent_again(runs, name, result):
    blocks = rows(runs[name], "blocks")
    (missed,) = (row for row in blocks if row["result"] in (LATE, NO_FEEDBACK))
    assert (missed["air_slot"], missed["result"]) == (AIR_SLOT, result)
    (again,) = (row for row in blocks if row["transmission"] == 2)
    assert again["tbs_bytes"] == missed["tbs_bytes"]
    assert again["air_slot"] > AIR_SLOT
    assert not [row for row in rows(runs["shared"], "blocks") if row["transmission"] > 1]
    late = max(row["late_feedback"] for row in rows(runs[name], "ran_counters"))
    assert late == (1 if result == NO_FEEDBACK else 0)


def test_with_the_fault_the_figures_of_the_ran_change(runs):
    assert rows(runs["faulty"], "blocks") != rows(runs["alone"], "blocks")
    delivered = {
        name: sum(row["delivered_bytes"] for row in rows(run, "ran_counters")[-2:])
        for name, run in runs.items()
    }
    assert delivered["alone"] == delivered["shared"]
    assert delivered["faulty"] < delivered["alone"]


@pytest.mark.parametrize("table", ["ran_tasks", "blocks", "ran_counters"])
def test_without_the_fault_they_equal_the_run_without_the_job(runs, table):
    assert rows(runs["shared"], "quanta"), "the job must have run for this to mean anything"
    assert rows(runs["shared"], table) == rows(runs["alone"], table) != []


def test_job_changes_nothing_of_the_ran_of_two_busy_sites(tmp_path):
    """RAN first, with file traffic in both directions and decodes of several cells at once."""
    text = two_sites(40_000)
    shared = simulate(loaded(tmp_path, text))
    alone = simulate(loaded(tmp_path, text[: text.index("[jobs.")]))
    assert rows(shared, "quanta")
    for table in ("ran_tasks", "blocks", "sdus", "ran_counters"):
        assert by_node(shared, table) == by_node(alone, table) != {}


def by_node(run, table):
    """Rows of each node in its own order; batches of different nodes may come in another order."""
    found: dict[str, list] = {}
    for row in rows(run, table):
        found.setdefault(row["node"], []).append(row)
    return found


def test_fault_can_be_given_on_the_command_line(tmp_path, runs):
    fault = f'{{kind="late_quantum", site="north", at_us={AT_US}, duration_us=2000, sms=48}}'
    run = simulate(loaded(tmp_path, SHARED, sets=[f"faults=[{fault}]"]))
    assert run.digests == runs["faulty"].digests
