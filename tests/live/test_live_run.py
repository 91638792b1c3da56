"""A whole run as a user starts it: separate processes, real training, and what is left behind."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import polars as pl
import pytest
import zmq
from harness import LiveRun, decoys, live_run, run_cli, shared_memory, small_topology

from protocols.codec import decode, encode
from protocols.control import Drained, Refused
from protocols.messages import PROTOCOL_VERSION
from protocols.work import SampleComputed
from testbed.host.journal import read_journal
from testbed.record.schema import MemberEvent, SampleEvent

pytestmark = pytest.mark.live

TRAINER = "north.pretrain.trainer"
KILLED = "was killed by signal 9 (SIGKILL)"
KILL_AT_US = 100_000


def _talk(endpoint: str, frames: list[list[bytes]]) -> list[object]:
    """Send raw frames to the control socket as a stranger; the answers, in order."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    answers: list[object] = []
    try:
        for parts in frames:
            socket.send_multipart(parts)
            assert socket.poll(5000), f"no answer to {parts[0][:20]!r}"
            answers.append(decode(socket.recv_multipart())[0])
    finally:
        socket.close()
        context.term()
    return answers


@dataclass
class Seen:
    """What was seen of the run while it went on, and after."""

    run: LiveRun
    answers: list[object]
    mode: int
    status: int
    leftovers: list[str]
    shared_memory: set[str]
    decoys_alive: bool

    def document(self, name: str) -> dict[str, Any]:
        """``summary`` or ``manifest``."""
        document: dict[str, Any] = json.loads((self.run.run_dir / f"{name}.json").read_text())
        return document

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.run.run_dir / "tables" / f"{name}.parquet")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Two sites train one model. A stranger talks nonsense to the launcher; a trainer is killed;
    once its next life has computed a sample, however long that takes here, Ctrl-C ends the run.

    It is started where a module of the working directory would be taken for one of Python's own.
    """
    place = tmp_path_factory.mktemp("live")
    (place / "queue.py").write_text("raise SystemExit('imported from the working directory')")
    fault = f'[[faults]]\nkind = "kill"\nnode = "{TRAINER}"\nat_us = {KILL_AT_US}\n'
    fast = "[links.default]\nbandwidth_gbps = 1000\n"
    sites = ("north", "south")
    topology = small_topology(place / "t.toml", sites, measured_us=4_000_000, extra=fast + fault)
    before = shared_memory()
    with decoys() as others, live_run(topology, place / "run") as run:
        run.wait_running()
        endpoint = f"ipc://{run.runtime()}/control"
        mode = run.runtime().stat().st_mode & 0o777
        answers = _talk(endpoint, NONSENSE)
        newcomer = run.run_dir / "events" / f"{TRAINER}.2.mp"
        run.wait_until(lambda: _has_computed(newcomer), "a sample of the trainer's next life", 90)
        run.process.send_signal(signal.SIGINT)
        status = run.finish(60)
        leftovers = run.leftovers()
        alive = all(process.poll() is None for process in others)
    return Seen(run, answers, mode, status, leftovers, shared_memory() - before, alive)


NONSENSE = [
    [b"\xff\x00garbage"],
    [b"x" * 100_000],
    [msgpack.packb([5, 99, 0, 0, 1, 2, "x"])],
    [msgpack.packb([5, PROTOCOL_VERSION, 0, 0, 1])],
    [msgpack.packb([5, PROTOCOL_VERSION, 0, 0, "1", 2, "x"])],
    [*encode(Drained("north.g1.mac", "a lie"))],
]
CODES = ["not-msgpack", "too-large", "wrong-version", "wrong-fields", "bad-field", "unknown-peer"]


def test_nonsense_is_refused_by_name_and_the_run_goes_on(seen: Seen) -> None:
    assert seen.mode == 0o700
    assert [answer.code for answer in seen.answers if isinstance(answer, Refused)] == CODES
    text = seen.run.text()
    assert text.count("refused a message on the control socket (wrong-version)") == 1
    assert seen.document("manifest")["messages"]["rejected"] == dict.fromkeys(CODES, 1)


def test_control_c_leaves_a_valid_run_and_nothing_else(seen: Seen) -> None:
    assert seen.status == 130, seen.run.text()
    assert seen.leftovers == []
    assert seen.shared_memory == set()
    assert seen.decoys_alive
    manifest = seen.document("manifest")
    assert manifest["outcome"]["status"] == "interrupted"
    assert manifest["outcome"]["reason"] == "interrupted by the user"
    assert 0 < manifest["memory"]["pss_bytes"] < 2e9
    pids = [entry["pid"] for entry in seen.run.ledger() if entry.get("node") == TRAINER]
    assert len(set(pids)) == 4, "two lives of a node and of its executor"


def test_a_dead_trainer_is_started_again(seen: Seen) -> None:
    again = "it is started again in 0.2 s (restart 1 of 3; host.restart.trainer)"
    assert f"warning: {TRAINER} {KILLED}; {again}" in seen.run.text()
    assert f"{TRAINER} is back (life 2) after " in seen.run.text()
    kill, death, restart = seen.document("manifest")["faults"]
    assert (kill["kind"], kill["seen"]) == ("kill", True)
    facts = {"kind": "death", "node": TRAINER, "life": 1, "reason": KILLED, "restarted": True}
    assert facts.items() <= death.items()
    assert {"kind": "restart", "node": TRAINER, "life": 2}.items() <= restart.items()
    assert KILL_AT_US <= death["at_us"] < restart["at_us"]
    assert restart["start_wall_ms"] > 0


def test_training_goes_on_and_every_sample_is_committed_once(seen: Seen) -> None:
    job = seen.document("summary")["training"]["jobs"]["pretrain"]
    counts = job["samples"]
    assert (counts["lost"], counts["duplicated"], counts["returned"]) == (0, 0, 0)
    assert counts["issued"] == counts["committed"] >= 4
    members = seen.table("membership")
    assert members["event"].to_list() == [
        MemberEvent.LOST,
        MemberEvent.JOINED,
        MemberEvent.ADMITTED,
        MemberEvent.HEALED,
    ]
    assert set(members["member"]) == {0}
    healed_us = members["at_us"][-1]
    computed = seen.table("samples").filter(pl.col("event") == SampleEvent.COMPUTED)
    by_newcomer = (pl.col("owner") == 0) & (pl.col("at_us") > healed_us)
    assert not computed.filter(by_newcomer).is_empty()


def test_every_journal_replays_to_the_same_effects(seen: Seen) -> None:
    """Ten nodes, one of which had two lives."""
    replayed = run_cli("replay", str(seen.run.run_dir))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert replayed.stdout.count("same effects") == 11


def _has_computed(journal: Path) -> bool:
    """Whether a trainer's journal, as far as it is written, has a sample that was computed."""
    if not journal.exists():
        return False
    reports = [entry[3] for entry in read_journal(journal) if entry[2:3] == ["R"]]
    return any(isinstance(decode(frames)[0], SampleComputed) for frames in reports)
