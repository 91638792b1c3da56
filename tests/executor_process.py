"""A host's side of one executor: spawn, talk with a deadline on every wait, leave nothing."""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

from protocols.codec import decode, encode
from protocols.work import (
    ExecutorConfig,
    ExecutorFailed,
    ExecutorReady,
    ExecutorStart,
    ExecutorStop,
    LeaseChanged,
)
from testbed.executors.clock import EmulatedClock
from testbed.gpu.lease_word import LEASE_BYTES, write_lease

START_LIMIT_S = 60.0
REPLY_LIMIT_S = 20.0
EXIT_LIMIT_S = 10.0


class ExecutorProcess:
    """``with ExecutorProcess("phy") as executor: ...``; killed at the end if still alive."""

    def __init__(self, kind, launcher_pid=None):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
        descriptors = [theirs.fileno()]
        command = [sys.executable, "-P", "-m", "testbed.executors", kind]
        command += ["--socket-fd", str(theirs.fileno())]
        command += ["--launcher-pid", str(launcher_pid or os.getpid())]
        self._lease = None
        self._version = 0
        if kind == "trainer":
            lease_fd = os.memfd_create("lease")
            os.ftruncate(lease_fd, LEASE_BYTES)
            self._lease = mmap.mmap(lease_fd, LEASE_BYTES)
            descriptors.append(lease_fd)
            command += ["--lease-fd", str(lease_fd)]
        self.process = subprocess.Popen(command, pass_fds=descriptors, stderr=self._log)
        theirs.close()
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        self.clock = None
        self.seen = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(EXIT_LIMIT_S)
        self._log.close()
        if self._lease is not None:
            self._lease.close()

    def configure(self, config):
        """ExecutorConfig; the facts of ExecutorReady."""
        self.send(ExecutorConfig(config.model_dump_json()))
        return self.ready()

    def ready(self):
        """The facts of ExecutorReady."""
        return json.loads(self.expect(ExecutorReady, START_LIMIT_S).detail)

    def start(self, wall_ns_per_us=1000):
        self.clock = EmulatedClock(time.monotonic_ns(), wall_ns_per_us)
        self.send(ExecutorStart(self.clock.epoch_ns, wall_ns_per_us))

    def now_us(self):
        return self.clock.now_us()

    def send(self, message):
        self._socket.send(encode(message)[0])

    def grant(self, lease):
        self._version += 1
        write_lease(self._lease, lease, self._version)
        self.send(LeaseChanged())

    def receive(self, limit_s=REPLY_LIMIT_S):
        self._socket.settimeout(limit_s)
        packet = self._socket.recv(1 << 18)
        assert packet, f"the executor is gone:\n{self.log()}"
        message = decode([packet])[0]
        self.seen.append(message)
        return message

    def expect(self, kind, limit_s=REPLY_LIMIT_S):
        """The next message of that kind; others on the way are in ``seen``."""
        while True:
            message = self.receive(limit_s)
            if isinstance(message, kind):
                return message
            assert not isinstance(message, ExecutorFailed), f"{message}\n{self.log()}"

    def of(self, kind):
        return [message for message in self.seen if isinstance(message, kind)]

    def stop(self):
        """ExecutorStop; the exit status. What was still reported is in ``seen``."""
        self.send(ExecutorStop())
        return self.wait()

    def hang_up(self):
        """Close the socket; the exit status."""
        self._socket.close()
        return self.process.wait(EXIT_LIMIT_S)

    def wait(self):
        self._socket.settimeout(EXIT_LIMIT_S)
        while packet := self._socket.recv(1 << 18):
            self.seen.append(decode([packet])[0])
        return self.process.wait(EXIT_LIMIT_S)

    def log(self):
        self._log.seek(0)
        return self._log.read()


def wait_gone(pidfd, limit_s):
    """Whether the process of ``pidfd`` ends within ``limit_s``."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000 * limit_s))


def kill(pid):
    os.kill(pid, signal.SIGKILL)
