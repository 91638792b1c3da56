"""What a user sees when something dies, and that nothing of the run survives it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from harness import LiveRun, live_run, run_cli, small_topology

pytestmark = pytest.mark.live

TRAINER = "north.pretrain.trainer"
RADIO_ALONE = ("--set", "jobs={}")
KILLED = "was killed by signal 9 (SIGKILL)"


def test_a_dead_trainer_that_may_not_be_restarted_ends_its_run_beside_one_that_goes_on(
    tmp_path: Path,
) -> None:
    """Two runs side by side: SIGKILL of one run's trainer is that run's matter alone."""
    dying = small_topology(tmp_path / "dying.toml", measured_us=2_000_000)
    lasting = small_topology(tmp_path / "lasting.toml", measured_us=100_000)
    never = ("--set", "host.restart.trainer.max=0")
    with (
        live_run(dying, tmp_path / "a", *never) as a,
        live_run(lasting, tmp_path / "b", *RADIO_ALONE) as b,
    ):
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


def test_a_dead_executor_is_named_with_its_node(tmp_path: Path) -> None:
    topology = small_topology(tmp_path / "t.toml", measured_us=2_000_000)
    with live_run(topology, tmp_path / "run", *RADIO_ALONE) as run:
        run.wait_running()
        os.kill(run.pids()["north.g1.phy/executor"], signal.SIGKILL)
        assert run.finish(30) == 1
        assert run.leftovers() == []
        assert "north.g1.phy (gnb_phy): NodeFailed: its phy executor (pid" in run.text()


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
    """Once, with training: see tests/live. The soak has both, and counts the samples."""
    topology = small_topology(tmp_path / "t.toml", measured_us=2_000_000)
    with live_run(topology, tmp_path / "run", *RADIO_ALONE) as run:
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
