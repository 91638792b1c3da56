"""What the launcher does when a node dies: processes, clock and socket are the test's."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from protocols.control import Config, Failed, Hello, Inject, PeerJoined, PeerStatus, Ready, Start
from protocols.messages import PROTOCOL_VERSION
from testbed.host import launcher as launcher_module
from testbed.host import members as members_module
from testbed.host.launcher import Launcher
from testbed.topology.schema import Topology

NORTH, SOUTH, MAC = "north.pretrain.trainer", "south.pretrain.trainer", "north.g1.mac"
KILLED = "was killed by signal 9 (SIGKILL)"
SECOND_NS = 1_000_000_000
PEERS = ["coordinator", "recorder", "north.agent"]


class FakeChild:
    """A process that dies when it is told to, and not before."""

    def __init__(self, name, command, log, on_exit):
        self.name, self.command, self.log, self.pid = name, command, log, 4711
        self.code: int | None = None
        self.kills = 0
        self._on_exit = on_exit

    def kill(self):
        self.kills += 1

    def exit(self, code=-9):
        self.code = code
        self._on_exit(self.name, code)


class Run:
    """A launcher whose nodes have all started; ``sent``: (node, life, message) since then."""

    def __init__(self, launcher, clock):
        self.launcher, self.clock, self.sent = launcher, clock, []
        self.members = launcher._members
        launcher._control.send = lambda *sent: self.sent.append(sent)
        for node in launcher._plans:
            self.members.spawn(node, launcher._on_exit)
        for node in launcher._plans:
            self.hello(node)
        for node in launcher._plans:
            self.ready(node)

    def hello(self, node):
        life = self.members[node].life
        inbox = f"ipc://{node}.{life}"
        kind = self.members[node].plan.kind
        hello = Hello(kind, node, life, PROTOCOL_VERSION, "token", 1, inbox)
        self.launcher._on_message(node, hello)

    def ready(self, node):
        detail = json.dumps({"executor_pid": 4712})
        self.launcher._on_message(node, Ready(node, self.members[node].life, detail))

    def start(self):
        """START has gone out, and the clock stands at emulated time 0."""
        self.launcher._start()
        self.clock.ns = self.launcher._epoch_ns
        self.sent.clear()

    def watch(self, *nodes):
        """Only these are missed when no heartbeat comes."""
        for node in self.launcher._plans:
            if node not in nodes:
                self.launcher._liveness.forget(node)

    def die(self, node, code=-9):
        self.members[node].child.exit(code)

    def wait_s(self, seconds):
        self.clock.ns += round(seconds * SECOND_NS)
        self.launcher._tick()

    def told(self, kind):
        return [(node, message) for node, _, message in self.sent if isinstance(message, kind)]

    @property
    def failure(self):
        return None if self.launcher._failure is None else str(self.launcher._failure)


def site():
    cells = [{"ues": 1}]
    return {"gpu": "gb10", "gnbs": {"g1": {"cells": cells}}}


@pytest.fixture
def make(tmp_path, monkeypatch):
    made = []

    def run(**trainer):
        topology = Topology.model_validate(
            {
                "name": "deaths",
                "sites": {"north": site(), "south": site()},
                "jobs": {
                    "pretrain": {
                        "kind": "pretraining",
                        "sites": ["north", "south"],
                        "model": "opt-125m",
                    }
                },
                "host": {"restart": {"trainer": trainer}},
                "faults": [
                    {
                        "kind": "late_quantum",
                        "site": "north",
                        "at_us": at_us,
                        "duration_us": 2000,
                        "sms": 48,
                    }
                    for at_us in (100_000, 5_000_000)
                ],
            },
            strict=False,
        )
        clock = SimpleNamespace(ns=1000 * SECOND_NS)
        clock.monotonic_ns = lambda: clock.ns
        clock.monotonic = lambda: clock.ns / SECOND_NS
        monkeypatch.setattr(launcher_module, "time", clock)
        monkeypatch.setattr(members_module, "Child", FakeChild)
        run_dir = SimpleNamespace(
            runtime=tmp_path, path=tmp_path, token="token", note_process=lambda *_: None
        )
        made.append(Launcher(topology, 1.0, run_dir, lambda *_: None))
        return Run(made[-1], clock)

    yield run
    for launcher in made:
        launcher._control._server.close()
        launcher._control._context.term()


async def test_dead_trainer_is_told_respawned_and_joined(make, capsys):
    run = make()
    run.start()
    run.watch()
    run.clock.ns += SECOND_NS // 2
    old = run.members[NORTH].child
    run.die(NORTH)
    assert old.kills == 1, "what is left of its group"
    assert run.failure is None
    lost = run.told(PeerStatus)
    assert sorted(node for node, _ in lost) == sorted(PEERS)
    assert {(m.node, m.status, m.reason) for _, m in lost} == {(NORTH, "lost", KILLED)}
    again = "it is started again in 0.2 s (restart 1 of 3; host.restart.trainer)"
    assert capsys.readouterr().err == f"warning: {NORTH} {KILLED}; {again}\n"
    run.wait_s(0.19)
    assert run.members[NORTH].child is old
    run.wait_s(0.01)
    member = run.members[NORTH]
    assert (member.life, member.ready, member.child is old) == (2, False, False)
    assert member.child.command[7:9] == ["--life", "2"]
    assert run.members.process_ids({NORTH: {"executor_pid": 1}}).get(f"{NORTH}/executor") is None

    run.sent.clear()
    run.hello(NORTH)
    ((node, config),) = run.told(Config)
    peers = json.loads(config.document)["peers"]
    assert (node, sorted(peers)) == (NORTH, sorted(PEERS))
    assert json.loads(config.document)["birth"]["life"] == 2
    run.wait_s(1.0)
    run.ready(NORTH)
    joined = run.told(PeerJoined)
    assert sorted(node for node, _ in joined) == sorted(PEERS)
    assert {(m.node, m.life, m.inbox) for _, m in joined} == {(NORTH, 2, f"ipc://{NORTH}.2")}
    to_newcomer = [(life, message) for node, life, message in run.sent if node == NORTH]
    assert [(life, type(message)) for life, message in to_newcomer] == [
        (2, Config),
        (2, Inject),
        (2, Start),
    ]
    assert to_newcomer[1][1].at_us == 5_000_000, "the other one was in the past"
    assert to_newcomer[2][1].epoch_ns == run.launcher._epoch_ns
    assert capsys.readouterr().err == f"{NORTH} is back (life 2) after 1.2 s\n"
    assert run.launcher.result.faults[0] == {
        "kind": "death",
        "node": NORTH,
        "life": 1,
        "at_us": 500_000,
        "reason": KILLED,
        "restarted": True,
    }
    assert run.launcher.result.faults[-1]["kind"] == "restart"
    assert run.launcher.result.faults[-1]["start_wall_ms"] == 1000


async def test_new_life_is_watched_like_the_first(make):
    run = make(backoff_wall_ms=0)
    run.start()
    run.die(NORTH)
    run.wait_s(0)
    run.hello(NORTH)
    run.ready(NORTH)
    run.watch(NORTH)
    run.wait_s(100)
    assert run.members[NORTH].child.kills == 1, "silent: killed"


async def test_silent_trainer_is_killed_and_dies_by_its_exit(make):
    run = make()
    run.start()
    run.watch(NORTH)
    run.wait_s(100)
    child = run.members[NORTH].child
    assert (child.kills, run.failure, run.told(PeerStatus)) == (1, None, [])
    run.die(NORTH)
    reasons = {message.reason for _, message in run.told(PeerStatus)}
    assert len(reasons) == 1
    assert reasons.pop().startswith("no heartbeat for 100.5 s (host.dead_wall_ms")


async def test_error_that_a_trainer_told_is_the_reason_of_its_exit(make, capsys):
    run = make()
    run.start()
    run.launcher._on_message(NORTH, Failed(NORTH, "NodeFailed", "its executor is gone"))
    assert (run.failure, run.told(PeerStatus)) == (None, [])
    run.die(NORTH, 1)
    reasons = {message.reason for _, message in run.told(PeerStatus)}
    assert reasons == {"NodeFailed: its executor is gone"}
    assert f"warning: {NORTH}: NodeFailed: its executor is gone; it is" in capsys.readouterr().err
    run.launcher._on_message(NORTH, Failed(NORTH, "NodeFailed", "late"))
    assert run.failure is None


async def test_newcomer_that_dies_before_it_is_ready_is_one_more_death(make):
    run = make(backoff_wall_ms=0)
    run.start()
    run.die(NORTH)
    run.wait_s(0)
    run.sent.clear()
    run.die(NORTH, 1)
    assert run.told(PeerStatus) == [], "its peers know it as lost"
    run.wait_s(0)
    assert run.members[NORTH].life == 3
    assert [fault["life"] for fault in run.launcher.result.faults] == [1, 2]


async def test_restarts_that_are_used_up_stand_in_the_cause(make):
    run = make(max=2, backoff_wall_ms=0)
    run.start()
    for _ in range(3):
        assert run.failure is None
        run.die(NORTH)
        run.wait_s(0)
    used_up = "; it had been restarted 2 times (host.restart.trainer.max)"
    assert run.failure == f"{NORTH} (trainer) {KILLED}{used_up}"
    assert [fault["restarted"] for fault in run.launcher.result.faults] == [True, True, False]


async def test_newcomer_that_is_not_ready_in_time_ends_the_run(make):
    run = make(backoff_wall_ms=0)
    run.start()
    run.die(NORTH)
    run.wait_s(0)
    run.watch()
    run.wait_s(run.launcher._host.start_wall_ms / 1000 + 1)
    assert run.failure.startswith(f"{NORTH} (trainer), started again, was not ready after ")
    assert run.failure.endswith("(host.start_wall_ms)")


@pytest.mark.parametrize("started", [True, False])
async def test_other_deaths_end_the_run_by_name(make, started):
    """Of another kind; and of any kind before START."""
    run = make()
    node = MAC if started else NORTH
    if started:
        run.start()
    run.die(node)
    assert run.failure == f"{node} ({run.members[node].plan.kind}) {KILLED}"
    assert bool(run.launcher.result.faults) is started


async def test_nothing_is_started_again_once_the_run_ends(make):
    run = make(backoff_wall_ms=0)
    run.start()
    run.watch()
    run.die(NORTH)
    run.die(SOUTH)
    run.wait_s(0)
    starting = run.members[NORTH].child
    run.die(SOUTH)
    run.launcher._drain("the run was interrupted", at_once=False)
    assert starting.kills == 1, "it has nothing to lose"
    starting.exit()
    run.wait_s(10)
    assert (run.members[NORTH].child, run.members[SOUTH].life) == (starting, 2)
    assert run.failure is None
    run.die("north.agent")
    assert run.failure == f"north.agent (site_agent) {KILLED}"


async def test_kill_of_a_node_between_two_lives_finds_no_process(make):
    run = make(backoff_wall_ms=10_000)
    run.launcher._kills = [(800_000, NORTH)]
    run.start()
    run.die(NORTH)
    run.wait_s(1)
    assert run.launcher.result.faults[-1] == {
        "kind": "kill",
        "node": NORTH,
        "at_us": 800_000,
        "seen": False,
    }
    assert run.members[NORTH].child.kills == 1, "of its group, at its death"
