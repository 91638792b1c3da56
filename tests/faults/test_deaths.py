"""What a user sees when something dies, and that nothing of the run survives it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import polars as pl
import psutil
import pytest
from harness import LiveRun, live_run, run_cli, small_topology

from protocols.codec import decode
from protocols.work import SampleComputed
from testbed.host.journal import read_journal

pytestmark = pytest.mark.live

KILL_AT_US = 100_000
TRAINER = "north.pretrain.trainer"
KILLED = "was killed by signal 9 (SIGKILL)"


def test_a_dead_trainer_that_may_not_be_restarted_ends_its_run_beside_one_that_goes_on(
    tmp_path: Path,
) -> None:
    """Two runs side by side: SIGKILL of one run's trainer is that run's matter alone."""
    dying = small_topology(tmp_path / "dying.toml", measured_us=2_000_000)
    lasting = small_topology(tmp_path / "lasting.toml", measured_us=100_000)
    never = ("--set", "host.restart.trainer.max=0")
    with live_run(dying, tmp_path / "a", *never) as a, live_run(lasting, tmp_path / "b") as b:
        a.wait_running()
        os.kill(a.pids()[TRAINER], signal.SIGKILL)
        assert a.finish(30) == 1
        assert a.leftovers() == []
        assert f"{TRAINER} (trainer) {KILLED} (about" in failure_of(a)
        last = a.text().rstrip().splitlines()
        assert last[-1].strip() == f"next: python run.py report {tmp_path / 'a'}"
        assert b.finish() == 0, b.text()
        assert b.leftovers() == []
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["outcome"]["status"] == "failed"
    (death,) = manifest["faults"]
    assert (death["kind"], death["node"], death["restarted"]) == ("death", TRAINER, False)


def test_training_goes_on_without_a_dead_trainer_and_with_its_next_life(tmp_path: Path) -> None:
    """SIGKILL in the midst of a step; the second life takes the state, and computes samples.

    The run is ended once that has been seen, however long a new life takes to start here.
    """
    fault = f'[[faults]]\nkind = "kill"\nnode = "{TRAINER}"\nat_us = {KILL_AT_US}\n'
    fast = "[links.default]\nbandwidth_gbps = 1000\n"
    sites = ("north", "south")
    topology = small_topology(tmp_path / "t.toml", sites, measured_us=4_000_000, extra=fast + fault)
    run_dir = tmp_path / "run"
    with live_run(topology, run_dir) as run:
        newcomer = run_dir / "events" / f"{TRAINER}.2.mp"
        run.wait_until(lambda: has_computed(newcomer), "a sample of the trainer's next life", 90)
        run.process.send_signal(signal.SIGINT)
        assert run.finish(60) == 130, run.text()
        assert run.leftovers() == []
        pids = [entry["pid"] for entry in run.ledger() if entry.get("node") == TRAINER]
        assert len(set(pids)) == 4, "two lives of a node and of its executor"
        assert not any(psutil.pid_exists(pid) for pid in pids)
        again = "it is started again in 0.2 s (restart 1 of 3; host.restart.trainer)"
        assert f"warning: {TRAINER} {KILLED}; {again}" in run.text()
        assert f"{TRAINER} is back (life 2) after " in run.text()
    manifest = json.loads((run_dir / "manifest.json").read_text())
    outcome = {"status": "interrupted", "reason": "interrupted by the user"}
    assert outcome.items() <= manifest["outcome"].items()
    kill, death, restart = manifest["faults"]
    assert (kill["kind"], kill["seen"]) == ("kill", True)
    facts = {"kind": "death", "node": TRAINER, "life": 1, "reason": KILLED, "restarted": True}
    assert facts.items() <= death.items()
    assert {"kind": "restart", "node": TRAINER, "life": 2}.items() <= restart.items()
    assert KILL_AT_US <= death["at_us"] < restart["at_us"]
    assert restart["start_wall_ms"] > 0
    assert manifest["messages"]["rejected"] == {}
    job = json.loads((run_dir / "summary.json").read_text())["training"]["jobs"]["pretrain"]
    counts = job["samples"]
    assert (counts["lost"], counts["duplicated"], counts["returned"]) == (0, 0, 0)
    assert counts["issued"] == counts["committed"] > 0
    members = pl.read_parquet(run_dir / "tables" / "membership.parquet")
    assert members["event"].to_list() == [0, 1, 2, 3], "lost, joined, admitted, healed"
    assert set(members["member"]) == {0}
    healed_us = members["at_us"][-1]
    samples = pl.read_parquet(run_dir / "tables" / "samples.parquet")
    by_newcomer = (pl.col("owner") == 0) & (pl.col("event") == 1) & (pl.col("at_us") > healed_us)
    assert not samples.filter(by_newcomer).is_empty()
    replayed = run_cli("replay", str(run_dir), TRAINER, f"{TRAINER}.2", "coordinator")
    assert (replayed.returncode, replayed.stdout.count("same effects")) == (0, 3), replayed.stdout


def has_computed(journal: Path) -> bool:
    """Whether a trainer's journal, as far as it is written, has a sample that was computed."""
    if not journal.exists():
        return False
    reports = [entry[3] for entry in read_journal(journal) if entry[2:3] == ["R"]]
    return any(isinstance(decode(frames)[0], SampleComputed) for frames in reports)


def test_a_dead_executor_is_named_with_its_node(tmp_path: Path) -> None:
    topology = small_topology(tmp_path / "t.toml", measured_us=2_000_000)
    with live_run(topology, tmp_path / "run") as run:
        run.wait_running()
        os.kill(run.pids()["north.g1.phy/executor"], signal.SIGKILL)
        assert run.finish(30) == 1
        assert run.leftovers() == []
        assert "north.g1.phy (gnb_phy): NodeFailed: its phy executor (pid" in run.text()
    assert samples_lost(tmp_path / "run") == 0


def test_a_dead_launcher_takes_everything_with_it(tmp_path: Path) -> None:
    topology = small_topology(tmp_path / "t.toml", measured_us=2_000_000)
    with live_run(topology, tmp_path / "run", state=tmp_path / "state") as run:
        run.wait_running()
        spool = tmp_path / "run" / "spool.bin"
        run.wait_until(lambda: spool.stat().st_size > 0, "the first rows", 30)
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait(5)
        assert run.leftovers() == []
    ended = run_cli("down", str(tmp_path / "run"))
    assert (ended.returncode, "nothing is left of this run" in ended.stdout) == (0, True)
    report = run_cli("report", str(tmp_path / "run"))
    assert report.returncode == 0, report.stderr


def test_control_c_twice_leaves_a_valid_run(tmp_path: Path) -> None:
    """Once: see the run with a dead trainer. A second one gives the coordinator some tenths of a
    second, and no more: samples may be lost."""
    topology = small_topology(tmp_path / "t.toml", measured_us=2_000_000)
    with live_run(topology, tmp_path / "run") as run:
        run.wait_running()
        run.process.send_signal(signal.SIGINT)
        run.wait_until(lambda: "again to stop at once" in run.text(), "the first's answer", 30)
        run.process.send_signal(signal.SIGINT)
        assert run.finish(60) == 130
        assert run.leftovers() == []
    outcome = json.loads((tmp_path / "run" / "manifest.json").read_text())["outcome"]
    assert outcome["status"] == "interrupted"
    assert outcome["reason"].removesuffix(", twice") == "interrupted by the user"


def failure_of(run: LiveRun) -> str:
    """The line that names the cause."""
    lines = run.text().splitlines()
    return next(line for line in lines if line.startswith("error: the run failed"))


def samples_lost(run_dir: Path) -> int:
    """Samples of which the tables do not say what became of them."""
    summary = json.loads((run_dir / "summary.json").read_text())
    lost: int = summary["training"]["jobs"]["pretrain"]["samples"]["lost"]
    return lost
