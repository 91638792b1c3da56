"""An experiment that is ended leaves none of its worker processes, whatever they were doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from harness import LEFTOVER_LIMIT_S, ROOT

pytestmark = pytest.mark.live

START_LIMIT_S = 60.0
RESULT_LIMIT_S = 240.0
"""Long enough for workers that have to compile first."""


def group_of(leader: int) -> list[int]:
    """Pids of a process group that still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def wait_until(condition: Callable[[], object], what: str, limit_s: float) -> None:
    """Wait for a condition; fails by name when time is over."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"after {limit_s:g} s: {what}"
        time.sleep(0.02)


@contextmanager
def experiment(name: str, out: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``reproduce NAME --quick`` in a process group of its own, and where it says how far it is."""
    told = out / "told.txt"
    with told.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "run.py"), "reproduce", name, "--quick", "--out", str(out)],
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process, told
    finally:
        for pid in group_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def workers_of(process: subprocess.Popen[bytes]) -> int:
    """How many worker processes it has, at work or about to be."""
    commands = [child.cmdline() for child in psutil.Process(process.pid).children()]
    return sum("multiprocessing.spawn" in " ".join(command) for command in commands)


@pytest.mark.parametrize(
    ("name", "at_work", "number", "status"),
    [
        ("usable", True, signal.SIGTERM, 143),
        ("usable", True, signal.SIGKILL, -signal.SIGKILL),
        ("usable", False, signal.SIGINT, 130),
        ("partition", False, signal.SIGTERM, 143),
    ],
)
def test_workers_go_with_their_experiment(
    name: str, at_work: bool, number: signal.Signals, status: int, tmp_path: Path
) -> None:
    """Ended when a first result is there (``at_work``), or as soon as there are two workers."""
    with experiment(name, tmp_path) as (process, told):
        wait_until(lambda: workers_of(process) == 2, f"two workers of {name}", START_LIMIT_S)
        if at_work:
            wait_until(lambda: b"\n" in told.read_bytes(), "a first result", RESULT_LIMIT_S)
        assert process.poll() is None, told.read_text()
        process.send_signal(number)
        wait_until(lambda: not group_of(process.pid), "the end of all", LEFTOVER_LIMIT_S)
        assert process.wait() == status
    assert "Traceback" not in told.read_text()
