"""Runs `run.py up` as a user would, owns all that comes of it, and checks that nothing is left.

Used by the live and fault tests and by the soak. Every wait has a bound and names what it awaits.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
_PROGRESS = re.compile(r"^ *[\d.]+ of [\d.]+ s emulated", re.MULTILINE)
LEFTOVER_LIMIT_S = 2.0

SMALL = """
name = "small"
seed = 7
[time]
scale = 20
warmup_us = 20_000
measured_us = {measured_us}
{sites}
[jobs.pretrain]
kind = "pretraining"
sites = [{site_names}]
model = "opt-125m"
tokens = 512
global_batch = {batch}
quantum_us = 1000
[jobs.pretrain.proxy]
layers = 2
hidden = 64
heads = 4
micro_batch = 2
sequence = 64
"""
SITE = """
[sites.{name}]
gpu = "gb10"
[[sites.{name}.gnbs.g1.cells]]
ues = 4
ul_traffic = {{ kind = "ftp3", load = 0.2, file_bytes = 100_000 }}
dl_traffic = {{ kind = "ftp3", load = 0.2, file_bytes = 100_000 }}
"""


def small_topology(
    path: Path, sites: tuple[str, ...] = ("north",), measured_us: int = 200_000, extra: str = ""
) -> Path:
    """Write a topology of small sites with one job on all of them."""
    text = SMALL.format(
        measured_us=measured_us,
        sites="".join(SITE.format(name=name) for name in sites),
        site_names=", ".join(f'"{name}"' for name in sites),
        batch=2 * len(sites),
    )
    path.write_text(text + extra, encoding="utf-8")
    return path


@dataclass
class LiveRun:
    """One `run.py up` in a process of its own."""

    process: subprocess.Popen[str]
    run_dir: Path
    output: Path

    def text(self) -> str:
        """Everything that it has printed so far."""
        return self.output.read_text(encoding="utf-8")

    def ledger(self) -> list[dict[str, object]]:
        """What stands in the ledger by now."""
        try:
            lines = (self.run_dir / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def processes(self) -> list[tuple[str, int]]:
        """Name and pid of every process in the ledger, all lives; executors as NODE/executor."""
        found = []
        for entry in self.ledger():
            if "pid" in entry:
                suffix = "/executor" if entry["what"] == "executor" else ""
                name = f"{entry.get('node', entry['what'])}{suffix}"
                found.append((name, int(str(entry["pid"]))))
        return found

    def pids(self) -> dict[str, int]:
        """Pid by name, of the latest life."""
        return dict(self.processes())

    def runtime(self) -> Path:
        """The runtime directory with the run's sockets."""
        return Path(str(next(e["runtime"] for e in self.ledger() if e["what"] == "launcher")))

    def wait_running(self, limit_s: float = 90.0) -> None:
        """Wait until emulated time runs: the first progress line is there."""
        self.wait_until(lambda: _PROGRESS.search(self.text()), "a line of progress", limit_s)

    def wait_until(self, condition: Callable[[], object], what: str, limit_s: float) -> None:
        """Wait for a condition; fails with the output when the process ends or time is over."""
        deadline = time.monotonic() + limit_s
        while not condition():
            ended = self.process.poll() is not None
            if condition():
                return
            if ended or time.monotonic() > deadline:
                state = f"exited with {self.process.returncode}" if ended else "is running"
                raise AssertionError(f"awaited {what}; the run {state}:\n{self.text()}")
            time.sleep(0.02)

    def finish(self, limit_s: float = 120.0) -> int:
        """Wait for the exit; returns the status."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {limit_s} s:\n{self.text()}") from None

    def leftovers(self, limit_s: float = LEFTOVER_LIMIT_S) -> list[str]:
        """What is still there ``limit_s`` after the run's end: processes and runtime files."""
        processes = self.processes()
        runtime = self.runtime()
        deadline = time.monotonic() + limit_s
        while True:
            left = [f"{name} (pid {pid})" for name, pid in processes if _alive(pid)]
            left += [str(runtime)] if runtime.exists() else []
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def live_run(
    topology: Path, run_dir: Path, *options: str, state: Path | None = None
) -> Iterator[LiveRun]:
    """Start a run; whatever happens, nothing of it survives the block."""
    output = run_dir.with_name(run_dir.name + ".out")
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process compiles everything anew
    if state is not None:
        environment["XDG_STATE_HOME"] = str(state)
    command = [sys.executable, str(ROOT / "run.py"), "up", str(topology), "--run-dir", str(run_dir)]
    with output.open("w") as sink:
        process = subprocess.Popen(
            [*command, *options],
            stdout=sink,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=run_dir.parent,
            start_new_session=True,
        )
    run = LiveRun(process, run_dir, output)
    try:
        yield run
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for _, pid in run.processes():
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)


def run_cli(*arguments: str, limit_s: float = 90.0) -> subprocess.CompletedProcess[str]:
    """One verb of run.py, as a user types it."""
    return subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


@contextmanager
def decoys() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are named like a run's but are none of it; they must be left alone."""
    script = "import signal; signal.pause()"
    started = [
        subprocess.Popen([sys.executable, "-c", script, *arguments])
        for arguments in (
            ["-m", "nodes", "trainer"],
            ["testbed.executors", "phy"],
            ["run.py", "up"],
        )
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def shared_memory() -> set[str]:
    """Names in /dev/shm, to compare before and after."""
    return set(os.listdir("/dev/shm"))
