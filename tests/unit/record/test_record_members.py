"""A trainer that is lost and comes back (``elastic.py``): every figure by hand from its rows."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from testbed.gpu.spare import TrainerState
from testbed.record.chrome_trace import trace_events
from testbed.record.fates import ABANDONED, COMMITTED, LOST, REPEATED, RETURNED
from testbed.record.figures import overview_figure, timeline_figure
from testbed.record.membership import healings
from testbed.record.recording import Recording
from testbed.record.report import print_summary, render_html
from testbed.record.report_tables import death_lines, tables
from testbed.record.schema import MemberEvent, SampleEvent, StepEvent, TrainerEvent
from testbed.record.summary import summarise_recording

from .elastic import DIED, NOTED, READY, TWO, elastic
from .handmade import by_hand, quantum


@pytest.fixture(scope="module")
def run() -> Recording:
    return elastic()


@pytest.fixture(scope="module")
def summary(run: Recording) -> dict[str, Any]:
    return summarise_recording(run)


def fates(recording: Recording, site: str) -> list[str]:
    return recording.timelines[site].quanta.sort("start_us")["fate"].to_list()


# --- fates --------------------------------------------------------------------------------------


def test_the_work_of_a_lost_trainer_on_the_open_step_is_wasted(run: Recording) -> None:
    """Its optimiser in step 2, which was committed before, and its next life are not."""
    assert fates(run, "two") == [COMMITTED, LOST, LOST, COMMITTED, COMMITTED]


def test_a_survivor_repeats_its_optimiser_and_keeps_its_gradients(run: Recording) -> None:
    assert fates(run, "one") == [COMMITTED, REPEATED, REPEATED, COMMITTED, COMMITTED]


def test_a_step_that_nobody_is_left_for_is_lost_with_its_trainer() -> None:
    """Its samples return and the step is abandoned, both because it is lost; a quantum after that
    is of a next life."""
    rows = {
        "quanta": [quantum(0, 10), quantum(20, 30)],
        "membership": [{"event": MemberEvent.LOST, "at_us": 15}],
        "steps": [{"event": StepEvent.ABANDONED, "at_us": 40}],
        "samples": [
            {"event": SampleEvent.COMPUTED, "at_us": 10},
            {"event": SampleEvent.RETURNED, "owner": -1, "at_us": 40},
        ],
    }
    assert fates(by_hand(rows), "one") == [LOST, ABANDONED]


@pytest.mark.parametrize(("committed_us", "fate"), [(14, COMMITTED), (16, LOST)])
def test_only_the_step_that_was_open_is_lost(committed_us: int, fate: str) -> None:
    rows = {
        "quanta": [quantum(0, 10)],
        "membership": [{"event": MemberEvent.LOST, "at_us": 15}],
        "steps": [{"event": StepEvent.COMMITTED, "at_us": committed_us}],
    }
    assert fates(by_hand(rows), "one") == [fate]


def test_members_that_the_run_has_not_are_left_out() -> None:
    rows = [{"member": 1, "event": MemberEvent.LOST}, {"job": 7, "event": MemberEvent.LOST}]
    assert by_hand({"membership": rows}).member_changes == ()


def test_a_sample_that_was_rerouted_wastes_nothing_of_its_new_owner() -> None:
    """Sample 0 is computed in epoch 1, returned, and computed by the same site in epoch 2."""
    key = {"sample": 0, "epoch": 1}
    rows = {
        "quanta": [quantum(0, 10), quantum(20, 30)],
        "steps": [{"event": StepEvent.COMMITTED, "epoch": 2, "at_us": 50}],
        "samples": [
            key | {"event": SampleEvent.COMPUTED, "at_us": 10},
            key | {"event": SampleEvent.RETURNED, "owner": -1, "at_us": 15},
            key | {"epoch": 2, "event": SampleEvent.COMPUTED, "at_us": 30},
        ],
    }
    assert fates(by_hand(rows), "one") == [RETURNED, COMMITTED]


# --- what trainers were about -------------------------------------------------------------------


def test_a_lost_trainer_is_idle_until_it_has_the_state(run: Recording) -> None:
    state = run.timelines["two"].state
    s = TrainerState
    times = {
        2100: s.WORK, 2900: s.WAITING, 3299: s.WAITING, 3300: s.IDLE, 4600: s.IDLE, 6100: s.IDLE,
        6695: s.IDLE, 6710: s.WORK, 6750: s.WAITING, 8055: s.WORK, 8100: s.WORK, 8750: s.WAITING,
    }  # fmt: skip
    assert state.at(list(times)).tolist() == list(times.values())


def test_what_a_trainer_says_of_an_earlier_epoch_ends_no_later_one() -> None:
    e, s = TrainerEvent, TrainerState
    rows = [(1, e.ASSIGNED, 10, s.WORK), (2, e.ASSIGNED, 20, s.WORK), (1, e.COMPUTED, 30, s.WORK)]
    rows += [(2, e.COMPUTED, 40, s.WAITING), (2, e.COMMITTED, 50, s.WORK)]
    events = [{"epoch": epoch, "event": event, "at_us": at} for epoch, event, at, _ in rows]
    state = by_hand({"trainer_events": events}).timelines["one"].state
    assert state.at([at for _, _, at, _ in rows]).tolist() == [state for *_, state in rows]


# --- figures ------------------------------------------------------------------------------------


def test_members_and_the_time_to_heal(summary: dict[str, Any]) -> None:
    """6700 - 4500 us from the row of its joining to that of its healing."""
    healed = {"p50": 2200, "max": 2200}
    expected = {"lost": 1, "joined": 1, "healed": 1, "heal_us": healed}
    training = summary["training"]
    assert training["members"] == training["jobs"]["job"]["members"] == expected
    assert training["steps_regrouped"] == training["jobs"]["job"]["steps_regrouped"] == 1


def test_nobody_lost_and_nobody_healed_have_a_reason() -> None:
    figures = summarise_recording(by_hand({}))["training"]
    assert (figures["members"], figures["steps_regrouped"]) == (None, 0)
    assert figures["members_reason"] == "no trainer was lost"
    lost = by_hand({"membership": [{"event": MemberEvent.LOST, "at_us": 15}]})
    members = summarise_recording(lost)["training"]["members"]
    assert (members["lost"], members["healed"], members["heal_us"]) == (1, 0, None)
    assert members["heal_us_reason"]


def test_a_member_that_is_lost_while_it_heals_begins_again() -> None:
    e = MemberEvent
    events = [e.LOST, e.JOINED, e.ADMITTED, e.LOST, e.JOINED, e.ADMITTED, e.HEALED]
    rows = [{"event": event, "at_us": 10 * i} for i, event in enumerate(events)]
    changes = by_hand({"membership": rows}).member_changes
    assert [(joined.at_us, healed.at_us) for joined, healed in healings(changes)] == [(40, 60)]


def test_a_rerouted_sample_is_issued_once_and_committed_once(summary: dict[str, Any]) -> None:
    """Samples 4 to 15; those of steps 2 to 6 are committed, 14 and 15 returned at the end."""
    assert summary["training"]["samples"] == {
        "issued": 12,
        "committed": 10,
        "returned": 2,
        "duplicated": 0,
        "duplicates_refused": 1,
        "lost": 0,
    }


def test_tokens_belong_to_who_computed_them_last(summary: dict[str, Any]) -> None:
    """Step 2 is measured from 1000 us on, its half. One: samples 4 (half), 6 to 12; two: 5 (half)
    and 13. 100 tokens each, in 10 ms."""
    job = summary["training"]["jobs"]["job"]
    assert job["tokens_per_s_by_site"] == {"one": 75_000.0, "two": 15_000.0}
    assert job["tokens_per_s"] == 90_000.0
    assert job["steps_committed"] == 5


def test_a_step_spans_its_epochs() -> None:
    """From 3000 us on, half of step 3 (2000 to 4000) is measured, and steps 4 to 6: 7 samples."""
    late = summarise_recording(elastic(warmup_us=3000))["training"]
    assert late["tokens_per_s"] == pytest.approx(7 * 100 / 0.01)


def test_waits_are_per_epoch(summary: dict[str, Any]) -> None:
    """Barrier: 150 and 100 of one, 250 and 80 of two; collective: 260, 50 and 600. Of the sum that
    the lost one was in nothing is known. Two trainers, 10 ms."""
    training = summary["training"]
    assert training["barrier_time_share"] == pytest.approx(580 / 20_000)
    assert training["sync_time_share"] == pytest.approx(910 / 20_000)


def test_what_was_wasted(summary: dict[str, Any]) -> None:
    """48 SMs each: 700 and 100 us of the lost one, 100 and 20 us of the sum that was repeated."""
    sites = summary["spare"]["sites"]
    assert sites["two"]["wasted"]["trainer_lost"]["sm_us"] == 800 * 48
    assert sites["one"]["wasted"]["sum_repeated"]["sm_us"] == 120 * 48
    assert summary["spare"]["where_it_went"]["wasted"]["sm_us"] == 920 * 48
    (table,) = [table for table in tables(summary) if table.title == "Work thrown away"]
    rows = {row.label: row.values for row in table.rows}
    assert rows == {"sum repeated": ("5.76", "5.76", "0"), "trainer lost": ("38.4", "0", "38.4")}
    assert "done again" in table.scope


# --- faults -------------------------------------------------------------------------------------


def test_deaths_are_told_apart_from_what_was_injected(summary: dict[str, Any]) -> None:
    faults = summary["faults"]
    assert faults["injected"] == NOTED[:1]
    (death,) = faults["deaths"]
    again = {"ready_at_us": 4480, "start_wall_ms": 6100, "healed_at_us": 6700}
    assert death == {key: value for key, value in DIED.items() if key != "kind"} | again
    assert faults["rows_lost"] is True
    assert [(row["at_us"], row["what"]) for row in faults["seen"]] == [
        (3300, "step 3 goes on in epoch 2"),
        (3300, f"{TWO} lost in step 3"),
        (3310, "late result of sample 7 refused"),
        (4500, f"{TWO} back in step 4"),
        (6000, f"{TWO} admitted with step 5"),
        (6700, f"{TWO} healed in step 5"),
        (11_500, "step 7 abandoned"),
    ]


AT = f"{TWO} (life 1) was killed by signal 9 (SIGKILL) at 3.2 ms"
BACK = "life 2 was ready 6.1 s (wall) after its start"
AGAIN = DIED | {"life": 2, "at_us": 5000}


@pytest.mark.parametrize(
    ("noted", "lines"),
    [
        (NOTED, [f"{AT}; {BACK} and had the state at 6.7 ms"]),
        ([DIED], [f"{AT}; life 2 was not ready when the run ended"]),
        ([DIED | {"restarted": False}], [f"{AT}; it was not started again"]),
        (
            [DIED, READY | {"at_us": 6800}],
            [f"{AT}; {BACK}; it had not taken the state when the run ended"],
        ),
        (
            [DIED, READY, AGAIN | {"restarted": False, "reason": "no heartbeat"}],
            [
                f"{AT}; {BACK}; it had not taken the state when it died",
                f"{TWO} (life 2) died at 5.0 ms (no heartbeat); it was not started again",
            ],
        ),
        (
            [DIED, AGAIN, READY | {"life": 3}],
            [
                f"{AT}; life 2 was not ready when it died",
                f"{AT.replace('life 1', 'life 2').replace('3.2', '5.0')}; "
                f"{BACK.replace('life 2', 'life 3')} and had the state at 6.7 ms",
            ],
        ),
    ],
)
def test_each_death_is_one_line(noted: list[dict[str, Any]], lines: list[str]) -> None:
    *told, last = death_lines(summarise_recording(elastic(noted)))
    assert told == lines
    assert last.startswith("Rows that a killed trainer had not sent yet (at most one second")


def test_virtual_time_loses_no_row_and_assumes_the_start() -> None:
    (line,) = death_lines(summarise_recording(elastic(mode="sim")))
    assert "6.1 s (wall, assumed) after its start" in line


def test_a_loss_without_a_manifest_is_told_too() -> None:
    assert len(death_lines(summarise_recording(elastic([])))) == 1
    assert death_lines(summarise_recording(by_hand({}))) == []


# --- pages, pictures, trace ---------------------------------------------------------------------


def test_page_and_terminal_tell_of_it(summary: dict[str, Any]) -> None:
    page, out = render_html(summary, {}), io.StringIO()
    print_summary(summary, Console(file=out, width=200, force_terminal=False))
    for text in (page, out.getvalue()):
        assert f"{AT}; {BACK} and had the state at 6.7 ms" in text
        assert "Rows that a killed trainer had not sent yet" in text
        for label in ("lost", "joined", "healed"):
            assert f"members {label}" in text
        assert "from joined to healed, longest" in text
        assert "steps that went on in another epoch" in text


def test_a_run_without_losses_does_not_speak_of_members(recording: Recording) -> None:
    summary = summarise_recording(recording)
    labels = [row.label for table in tables(summary) for row in table.rows]
    assert not [label for label in labels if "members" in label or "epoch" in label]
    assert "killed trainer" not in render_html(summary, {})


def test_the_timeline_marks_what_lies_in_its_window(run: Recording) -> None:
    whole = timeline_figure(run, "two", 3000, 7000).svg
    for text in ("lost in step 3", "back in step 4", "admitted with step 5", "healed in step 5"):
        assert text in whole
    part = timeline_figure(run, "two", 3301, 4500).svg
    assert "lost in step" not in part
    assert "back in step" not in part
    overview = overview_figure(run).svg
    assert overview.count("lost in step 3") == overview.count("healed in step 5") == 1


def test_the_trace_has_instants_and_one_span_per_step(run: Recording) -> None:
    events = trace_events(run, 0, 11_000)
    found = {event["name"]: event["ts"] for event in events if event["ph"] == "i"}
    assert found == {
        "job step 3 regrouped": 3300,
        f"{TWO} lost in step 3": 3300,
        f"{TWO} back in step 4": 4500,
        f"{TWO} admitted with step 5": 6000,
        f"{TWO} healed in step 5": 6700,
    }
    spans = [(e["ph"], e["ts"]) for e in events if e["name"] == "job step 3" and e["ph"] in "be"]
    assert spans == [("b", 2000), ("e", 4000)]
    assert not [e for e in trace_events(run, 3301, 4000) if e["ph"] == "i"]


def test_the_survivor_works_on_while_the_other_is_away(run: Recording) -> None:
    """It waits from 2900 us, and works again from where it is told, at 3350, to 3800."""
    state = run.timelines["one"].state
    assert state.at([3320, 3350, 3799, 3800]).tolist() == [
        TrainerState.WAITING, TrainerState.WORK, TrainerState.WORK, TrainerState.WAITING,
    ]  # fmt: skip
