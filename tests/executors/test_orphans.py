"""Executors whose host or launcher is gone, or says what makes no sense: none of them survives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from executor_process import ExecutorProcess, kill, wait_gone

from protocols.work import ExecutorConfig, ExecutorFailed, ExecutorStart
from testbed.executors.config import StoreConfig

pytestmark = pytest.mark.live

GONE_WITHIN_S = 2
LOOPBACK = "0100007F"  # 127.0.0.1, as /proc/net/tcp writes it
PARENT = """
import sys
sys.path.insert(0, {tests!r})
from executor_process import ExecutorProcess
from testbed.executors.config import StoreConfig
with ExecutorProcess("store") as executor:
    executor.configure(StoreConfig())
    executor.start()
    print(executor.process.pid, flush=True)
    sys.stdin.read()
"""


def test_killed_host_takes_its_executor_along():
    script = PARENT.format(tests=str(Path(__file__).parents[1]))
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        kill(parent.pid)
        assert wait_gone(pidfd, GONE_WITHIN_S)
        os.close(pidfd)


def test_killed_launcher_takes_the_executor_along():
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as launcher,
        ExecutorProcess("store", launcher_pid=launcher.pid) as executor,
    ):
        endpoint = executor.configure(StoreConfig())["endpoint"]
        assert listening_addresses(int(endpoint.rpartition(":")[2])) == {LOOPBACK}
        pidfd = os.pidfd_open(executor.process.pid)
        kill(launcher.pid)
        assert wait_gone(pidfd, GONE_WITHIN_S)
        os.close(pidfd)


def test_launcher_that_is_already_gone():
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    with ExecutorProcess("store", launcher_pid=int(gone.stdout)) as executor:
        assert executor.wait() == 1
        assert executor.of(ExecutorFailed)[0].error == "Orphaned"


def test_message_out_of_turn_fails_by_name():
    with ExecutorProcess("phy") as executor:
        executor.send(ExecutorStart(0, 1000))
        assert executor.wait() == 1
        (failed,) = executor.of(ExecutorFailed)
        assert "ExecutorStart before ExecutorConfig" in failed.reason


def test_bad_configuration_fails_by_name():
    with ExecutorProcess("store") as executor:
        executor.send(ExecutorConfig('{"timeout_wall_ms": 0}'))
        assert executor.wait() == 1
        (failed,) = executor.of(ExecutorFailed)
        assert failed.error == "ValidationError"
        assert "timeout_wall_ms" in failed.reason


def listening_addresses(port):
    """Local addresses, as in /proc/net/tcp, that listen on ``port``; IPv6 ones included."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        with open(table) as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                address, _, number = fields[1].partition(":")
                if int(number, 16) == port and fields[3] == "0A":
                    found.add(address)
    return found
