"""Trainers that are killed in virtual time: who goes on, who comes back, and what is not lost.

Time of a restart, by hand, at scale 20: a backoff of 20 ms of wall time is 1000 us, doubled each
time; a start of 100 ms is 5000 us. So a trainer that dies the first time is ready 6000 us later,
and the second time 7000 us.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_topologies import FAULT, head, job, loaded, reasons, rows, simulate, two_sites
from test_sim_determinism import digests, elsewhere

from protocols.codec import decode
from protocols.messages import StateShared, SyncDone
from testbed.errors import NodeFailed
from testbed.host.executor_child import describe_exit
from testbed.host.journal import read_journal
from testbed.host.live_run import run_simulated
from testbed.host.replay import replay_run
from testbed.record.schema import MemberEvent, SampleEvent, StepEvent, TrainerEvent
from testbed.sim import KILLED, Simulator

BOUNDS = """
[links.default]
bandwidth_gbps = 1000.0
latency_us = 500

[host]
trainer_start_wall_ms = {start_ms}

[host.restart.trainer]
max = {most}
backoff_wall_ms = {backoff_ms}
"""
KILL = '\n[[faults]]\nkind = "kill"\nnode = "{node}"\nat_us = {at_us}\n'
NORTH, SOUTH, EAST = (f"{site}.pretrain.trainer" for site in ("north", "south", "east"))
TOKENS = 512
"""Of a sample: four sequences of 128 tokens, as the topologies here have it."""
LOST, JOINED, ADMITTED, HEALED = MemberEvent


def bounds(start_ms: int = 100, backoff_ms: int = 20, most: int = 3) -> str:
    """Fast links, and how a trainer is started again."""
    return BOUNDS.format(start_ms=start_ms, backoff_ms=backoff_ms, most=most)


def pools(*sites: str, measured_us: int = 110_000, **restart: int) -> str:
    """Sites without cells train one model, two samples each: the fastest run that has members."""
    tables = "".join(f'\n[sites.{site}]\ngpu = "gb10"\n' for site in sites)
    return (
        head("pools", measured_us) + tables + job(*sites, batch=2 * len(sites)) + bounds(**restart)
    )


def kills(*faults: tuple[str, int]) -> str:
    """Tables that kill these nodes at these times."""
    return "".join(KILL.format(node=node, at_us=at_us) for node, at_us in faults)


class Watched(Simulator):
    """Keeps what was sent: (source, message)."""

    def __init__(self, *arguments, **options):
        self.sent = []
        super().__init__(*arguments, **options)

    def deliver(self, source, to, message, frames):
        self.sent.append((source, message))
        super().deliver(source, to, message, frames)


def watched(topology):
    """(result, messages) of a run."""
    simulator = Watched(topology, 20.0)
    return simulator.run(), simulator.sent


def steps_of(run, event):
    """step -> time of its row of that event."""
    return {row["step"]: row["at_us"] for row in rows(run, "steps") if row["event"] == event}


def membership(run, member=None):
    """(event, member, step, at_us) in order; of one member where it is given."""
    return [
        (MemberEvent(row["event"]), row["member"], row["step"], row["at_us"])
        for row in rows(run, "membership")
        if member in (None, row["member"])
    ]


def assert_nothing_is_lost(run, sent, batch):
    """Every sample ends committed, once; every step is one sum over exactly its batch."""
    story = defaultdict(str)
    committed = defaultdict(list)
    for row in rows(run, "samples"):
        if row["event"] != SampleEvent.DUPLICATE:
            story[row["sample"]] += "ICKR"[row["event"]]
        if row["event"] == SampleEvent.COMMITTED:
            committed[row["step"]].append(row["sample"])
    wrong = {sample: told for sample, told in story.items() if not re.fullmatch("(IC?R)*ICK", told)}
    assert not wrong
    assert sorted(story) == list(range(len(story)))
    assert {len(samples) for samples in committed.values()} == {batch}
    done = [row for row in rows(run, "steps") if row["event"] == StepEvent.COMMITTED]
    assert [row["step"] for row in done] == list(range(len(done)))
    assert {(row["samples"], row["proxy_tokens"]) for row in done} == {(batch, batch * TOKENS)}
    applied = [row["step"] for row in rows(run, "steps") if row["event"] == StepEvent.APPLIED]
    assert applied == list(range(len(done)))
    assert not steps_of(run, StepEvent.ABANDONED)
    summed = [m.proxy_tokens for _, m in sent if isinstance(m, SyncDone) and m.ok]
    assert set(summed) == {batch * TOKENS}


def assert_came_back(run, member, node):
    """It was lost, and joined, admitted and healed; it computed nothing before, samples after."""
    story = membership(run, member)
    assert [event for event, *_ in story] == [LOST, JOINED, ADMITTED, HEALED]
    (_, _, _, lost_us), (_, _, _, joined_us), (_, _, admitted, _), (_, _, healed, healed_us) = story
    assert admitted <= healed
    issued = [
        row
        for row in rows(run, "samples")
        if row["owner"] == member and row["event"] == SampleEvent.ISSUED
    ]
    assert not [row for row in issued if lost_us < row["at_us"] < healed_us]
    assert {row["step"] for row in issued if row["at_us"] >= healed_us} >= {healed + 1}
    quanta = [row for row in rows(run, "quanta") if row["node"] == node]
    assert not [row for row in quanta if lost_us < row["start_us"] < joined_us]
    assert [row for row in quanta if row["start_us"] > healed_us]
    meanwhile = steps_of(run, StepEvent.COMMITTED).values()
    assert [at_us for at_us in meanwhile if lost_us < at_us < healed_us]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """Two pools, nobody killed: when which phase is."""
    return simulate(loaded(tmp_path_factory.mktemp("quiet"), pools("north", "south")))


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """Two sites with cells, nobody killed."""
    text = two_sites(110_000) + bounds()
    return simulate(loaded(tmp_path_factory.mktemp("busy"), text))


def phase(run, step, name):
    """The middle of a phase of a step that nobody disturbs."""
    assigned, opened, committed = (
        steps_of(run, event)[step]
        for event in (StepEvent.ASSIGNED, StepEvent.BARRIER_OPEN, StepEvent.COMMITTED)
    )
    return (assigned + opened) // 2 if name == "assigned" else (opened + committed) // 2


# --- the host's part: who dies, and when the next life begins -------------------------------------


def test_simulator_words_the_death_as_the_live_host_does():
    assert describe_exit(-9) == KILLED


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        ("coordinator", "coordinator"),
        ("recorder", "recorder"),
        ("north.agent", "site_agent"),
        ("north.g1.mac", "gnb_mac"),
        ("north.g1.phy", "gnb_phy"),
    ],
)
def test_death_of_a_node_that_is_not_restarted_ends_the_run_by_name(tmp_path, node, kind):
    topology = loaded(tmp_path, two_sites(20_000) + kills((node, 7_000)))
    with pytest.raises(
        NodeFailed, match=rf"^{node} \({kind}\) was killed by signal 9 \(SIGKILL\)$"
    ):
        simulate(topology)


def test_without_restarts_the_death_of_a_trainer_ends_the_run(tmp_path):
    topology = loaded(tmp_path, pools("north", "south", most=0) + kills((NORTH, 7_000)))
    with pytest.raises(NodeFailed, match=rf"^{NORTH} \(trainer\) {re.escape(KILLED)}$"):
        simulate(topology)


def test_death_after_the_last_restart_ends_the_run(tmp_path):
    faults = kills((NORTH, 7_000), (NORTH, 40_000))
    topology = loaded(tmp_path, pools("north", "south", most=1) + faults)
    used_up = r"it had been restarted once \(host\.restart\.trainer\.max\)$"
    with pytest.raises(NodeFailed, match=used_up):
        simulate(topology)


def test_next_life_begins_after_backoff_and_start(tmp_path):
    faults = kills((NORTH, 20_000), (NORTH, 40_000))
    run = simulate(loaded(tmp_path, pools("north", "south") + faults))
    kill = {"kind": "kill", "node": NORTH, "seen": True}
    death = {"kind": "death", "node": NORTH, "reason": KILLED, "restarted": True}
    restart = {"kind": "restart", "node": NORTH, "start_wall_ms": 100}
    assert run.faults == [
        kill | {"at_us": 20_000},
        death | {"at_us": 20_000, "life": 1},
        restart | {"at_us": 26_000, "life": 2},
        kill | {"at_us": 40_000},
        death | {"at_us": 40_000, "life": 2},
        restart | {"at_us": 47_000, "life": 3},
    ]
    # Its peers hear of it 20 us later: 400 us of wall time for a message.
    times = [at_us for event, _, _, at_us in membership(run) if event in (LOST, JOINED)]
    assert times == [20_020, 26_020, 40_020, 47_020]
    assert {NORTH, f"{NORTH}.2", f"{NORTH}.3"} <= run.digests.keys()


def test_kill_finds_no_process_in_the_backoff_and_one_that_starts_after_it(tmp_path):
    """In [20 000, 21 000) us there is none; the one started then is killed at 23 000 us."""
    faults = kills((NORTH, 20_000), (NORTH, 20_500), (NORTH, 23_000))
    run = simulate(loaded(tmp_path, pools("north", "south") + faults))
    assert [fault["seen"] for fault in run.faults if fault["kind"] == "kill"] == [True, False, True]
    assert [(f["kind"], f.get("life"), f["at_us"]) for f in run.faults] == [
        ("kill", None, 20_000),
        ("death", 1, 20_000),
        ("kill", None, 20_500),
        ("kill", None, 23_000),
        ("death", 2, 23_000),
        ("restart", 3, 30_000),
    ]
    assert [event for event, *_ in membership(run, 0)][-3:] == [JOINED, ADMITTED, HEALED]


def test_run_that_ends_before_the_birth_ends_all_the_same(tmp_path):
    text = pools("north", "south", measured_us=40_000, start_ms=60_000) + kills((NORTH, 20_000))
    run, sent = watched(loaded(tmp_path, text))
    assert [fault["kind"] for fault in run.faults] == ["kill", "death"]
    assert [event for event, *_ in membership(run)] == [LOST]
    assert_nothing_is_lost(run, sent, 4)


def test_kill_after_the_end_of_the_run_does_not_happen(tmp_path, quiet):
    topology = loaded(tmp_path, pools("north", "south") + kills((NORTH, quiet.end_us + 1)))
    run = simulate(topology)
    assert (run.faults, run.digests) == ([], quiet.digests)


def test_dead_trainer_does_nothing_and_is_sent_nothing(tmp_path):
    run = simulate(loaded(tmp_path, pools("north", "south") + kills((NORTH, 20_000))))
    dead = [row for row in rows(run, "trainer_events") if row["node"] == NORTH]
    assert not [row for row in dead if 20_000 < row["at_us"] < 26_000]
    first = min((row for row in dead if row["at_us"] >= 26_000), key=lambda row: row["at_us"])
    assert first["event"] == TrainerEvent.SHARE_BEGUN


@pytest.mark.parametrize(("at_us", "happens"), [(30_000, True), (24_000, False)])
def test_late_quantum_waits_for_the_life_that_can_hold_it(tmp_path, at_us, happens):
    """One that is due before the birth, at 26 000 us, has nobody to hold it."""
    late = FAULT.format(site="north", at_us=at_us, duration_us=2_000, sms=48)
    topology = loaded(tmp_path, pools("north", "south") + kills((NORTH, 20_000)) + late)
    found = [row["start_us"] for row in rows(simulate(topology), "quanta") if row["kind"] == 9]
    assert bool(found) == happens
    assert not happens or found[0] >= at_us


# --- the job goes on ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["assigned", "syncing"])
@pytest.mark.parametrize(("node", "member"), [(NORTH, 0), (SOUTH, 1)])
def test_trainer_dies_and_comes_back(tmp_path, quiet, name, node, member):
    at_us = phase(quiet, 1, name)
    run, sent = watched(loaded(tmp_path, pools("north", "south") + kills((node, at_us))))
    assert_nothing_is_lost(run, sent, 4)
    assert_came_back(run, member, node)
    assert list(steps_of(run, StepEvent.REGROUPED)) == [1]


@pytest.mark.parametrize("name", ["assigned", "syncing"])
def test_trainer_of_a_busy_site_dies_and_comes_back(tmp_path, busy, name):
    faults = kills((NORTH, phase(busy, 1, name)))
    run, sent = watched(loaded(tmp_path, two_sites(110_000) + bounds() + faults))
    assert_nothing_is_lost(run, sent, 2)
    assert_came_back(run, 0, NORTH)


def test_death_of_a_trainer_changes_nothing_of_the_radio(tmp_path, busy):
    """Air slots before 100 000 us: what comes later may be in the drain of the shorter run."""
    faults = kills((NORTH, phase(busy, 1, "assigned")))
    run = simulate(loaded(tmp_path, two_sites(110_000) + bounds() + faults))
    for table in ("blocks", "ran_tasks"):
        one, other = (
            sorted(tuple(row.values()) for row in rows(r, table) if row["air_slot"] < 200)
            for r in (run, busy)
        )
        assert one == other != []


@pytest.mark.parametrize("node", [NORTH, SOUTH])
def test_newcomer_or_its_giver_dies_while_the_newcomer_heals(tmp_path, node):
    """Three sites, so that somebody else has the state where the giver dies."""
    sites = ("north", "south", "east")
    first = simulate(loaded(tmp_path, pools(*sites) + kills((SOUTH, 12_000))))
    (admitted_us,) = (at for event, _, _, at in membership(first) if event is ADMITTED)
    (healed_us,) = (at for event, _, _, at in membership(first) if event is HEALED)
    assert healed_us - admitted_us > 10_000
    faults = kills((SOUTH, 12_000), (node, (admitted_us + healed_us) // 2))
    run, sent = watched(loaded(tmp_path, pools(*sites, measured_us=200_000) + faults))
    assert_nothing_is_lost(run, sent, 6)
    assert [event for event, *_ in membership(run, 1)][-1] is HEALED
    if node == NORTH:
        assert_came_back(run, 0, NORTH)


def test_newcomer_dies_while_it_heals_and_the_other_goes_on(tmp_path):
    first = simulate(loaded(tmp_path, pools("north", "south") + kills((SOUTH, 12_000))))
    (admitted_us,) = (at for event, _, _, at in membership(first) if event is ADMITTED)
    faults = kills((SOUTH, 12_000), (SOUTH, admitted_us + 5_000))
    run, sent = watched(loaded(tmp_path, pools("north", "south") + faults))
    assert_nothing_is_lost(run, sent, 4)
    story = [event for event, *_ in membership(run, 1)]
    assert story == [LOST, JOINED, ADMITTED, LOST, JOINED, ADMITTED, HEALED]


@pytest.mark.parametrize("sites", [("north", "south"), ("north", "south", "east")])
def test_two_sites_die_apart_in_time(tmp_path, sites):
    one = simulate(loaded(tmp_path, pools(*sites) + kills((NORTH, 12_000))))
    (healed_us,) = (at for event, _, _, at in membership(one) if event is HEALED)
    faults = kills((NORTH, 12_000), (SOUTH, healed_us + 20_000))
    run, sent = watched(loaded(tmp_path, pools(*sites, measured_us=200_000) + faults))
    assert_nothing_is_lost(run, sent, 2 * len(sites))
    assert_came_back(run, 0, NORTH)
    assert_came_back(run, 1, SOUTH)


def test_two_of_three_sites_die_at_once(tmp_path):
    faults = kills((NORTH, 20_000), (EAST, 20_000))
    run, sent = watched(loaded(tmp_path, pools("north", "south", "east") + faults))
    assert_nothing_is_lost(run, sent, 6)
    assert_came_back(run, 0, NORTH)
    assert_came_back(run, 2, EAST)


def test_state_is_given_by_one_who_has_it(tmp_path, quiet):
    at_us = phase(quiet, 1, "assigned")
    _, sent = watched(loaded(tmp_path, pools("north", "south") + kills((NORTH, at_us))))
    shared = [(source, message) for source, message in sent if isinstance(message, StateShared)]
    assert [source for source, _ in shared] == [SOUTH, NORTH]
    assert all(message.ok for _, message in shared)


@pytest.mark.parametrize("sites", [("south",), ("north", "south")])
def test_death_of_all_trainers_ends_the_run_by_name(tmp_path, sites):
    faults = [(f"{site}.pretrain.trainer", 20_000 + 2_000 * i) for i, site in enumerate(sites)]
    topology = loaded(tmp_path, pools(*sites) + kills(*faults))
    lost = rf"job pretrain: {SOUTH} is lost .*{re.escape(KILLED)}.*no other trainer holds"
    with pytest.raises(NodeFailed, match=lost):
        simulate(topology)


@settings(max_examples=25)
@given(
    faults=st.lists(
        st.tuples(st.sampled_from((NORTH, EAST)), st.integers(0, 60_000)), min_size=1, max_size=4
    ),
    start_ms=st.sampled_from((0, 1, 100, 600)),
    backoff_ms=st.sampled_from((0, 20)),
)
def test_whenever_trainers_die_no_sample_is_lost(tmp_path_factory, faults, start_ms, backoff_ms):
    """One of three survives, and so the job does; any moment, any number of lives."""
    sites = ("north", "south", "east")
    text = pools(*sites, measured_us=60_000, start_ms=start_ms, backoff_ms=backoff_ms, most=9)
    topology = loaded(tmp_path_factory.mktemp("any"), text + kills(*sorted(faults)))
    run, sent = watched(topology)
    assert_nothing_is_lost(run, sent, 6)
    assert all(fault["restarted"] for fault in run.faults if fault["kind"] == "death")


# --- the same bytes -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deadly(busy) -> str:
    """Two busy sites; each loses its trainer once."""
    return (
        two_sites(110_000) + bounds() + kills((NORTH, phase(busy, 1, "syncing")), (SOUTH, 90_000))
    )


def test_files_are_the_same_bytes_in_other_processes(deadly, tmp_path):
    first = digests(elsewhere(deadly, tmp_path / "a", "0"))
    second = digests(elsewhere(deadly, tmp_path / "b", "4711"))
    assert f"events/{NORTH}.2.mp" in first
    assert first == second


def test_messages_that_went_through_the_codec_change_nothing(deadly, tmp_path):
    plain = simulate(loaded(tmp_path, deadly))
    coded = simulate(loaded(tmp_path, deadly), through_codec=True)
    assert coded.digests == plain.digests
    assert coded.faults == plain.faults
    assert reasons(coded) == reasons(plain)


def test_journals_of_all_lives_replay_to_the_same_effects(deadly, tmp_path):
    run_simulated(loaded(tmp_path, deadly), 20.0, tmp_path / "run", journals=True)
    results = {result.node: result for result in replay_run(tmp_path / "run")}
    assert {NORTH, f"{NORTH}.2", f"{SOUTH}.2"} <= results.keys()
    for result in results.values():
        assert result.same, result
    first: dict[str, int] = {}
    for entry in read_journal(tmp_path / "run" / "events" / f"{NORTH}.2.mp"):
        if entry[2:3] == ["M"]:
            first.setdefault(entry[3], decode(entry[4])[1].sequence)
    assert first == {"coordinator": 0, "north.agent": 0}, "its peers number their messages anew"
