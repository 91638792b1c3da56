"""A node's executor as a child process: its socket, its lease memory, its end.

Owns the spawn and the descriptors; the packets' meaning is protocols.work's. Everything is
non-blocking on the event loop; the executor's death shows on a pidfd at once.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from protocols.codec import Frame, decode, encode
from protocols.messages import Message
from protocols.work import ExecutorConfig, ExecutorStop, LeaseChanged
from testbed.errors import NodeFailed
from testbed.gpu.gate import Lease
from testbed.gpu.lease_word import LEASE_BYTES, write_lease

_PACKET_BYTES = 256 * 1024
_SOCKET_BUFFER_BYTES = 4 << 20

OnMessage = Callable[[Message, list[Frame]], None]
OnExit = Callable[[str], None]


class ExecutorChild:
    """One executor process. ``on_message`` and ``on_exit`` are called on the event loop."""

    def __init__(
        self, kind: str, document: str, launcher_pid: int, inherited: Sequence[int] = ()
    ) -> None:
        """``inherited``: further descriptors that the process gets, under the same numbers."""
        self._inherited = tuple(inherited)
        self._kind = kind
        self._document = document
        self._launcher_pid = launcher_pid
        self._own, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for sock in (self._own, self._theirs):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        self._own.setblocking(False)
        self._lease_fd = os.memfd_create("ranloom-lease", os.MFD_CLOEXEC)
        os.ftruncate(self._lease_fd, LEASE_BYTES)
        self._lease = mmap.mmap(self._lease_fd, LEASE_BYTES)
        self._lease_version = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._stopping = False
        self._gone = asyncio.Event()

    @property
    def pid(self) -> int:
        """Process id; 0 before the start."""
        return self._process.pid if self._process else 0

    def start(self, on_message: OnMessage, on_exit: OnExit) -> None:
        """Spawn it, in the host's process group, and send its configuration."""
        loop = asyncio.get_running_loop()
        command = [sys.executable, "-P", "-m", "testbed.executors", self._kind]
        command += ["--socket-fd", str(self._theirs.fileno())]
        command += ["--launcher-pid", str(self._launcher_pid)]
        fds = [self._theirs.fileno(), *self._inherited]
        if self._kind == "trainer":
            command += ["--lease-fd", str(self._lease_fd)]
            fds.append(self._lease_fd)
        self._process = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL)
        self._theirs.close()
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.add_reader(self._own.fileno(), self._readable, on_message)
        loop.add_reader(self._pidfd, self._exited, on_exit)
        self.send(ExecutorConfig(self._document))

    def send(self, message: Message) -> None:
        """Send a packet. Raises NodeFailed where the executor does not take it."""
        self.send_frames(encode(message))

    def send_frames(self, frames: list[Frame]) -> None:
        """Send an encoded packet. Raises NodeFailed where the executor does not take it."""
        try:
            self._own.send(frames[0])
        except BlockingIOError:
            raise NodeFailed(f"the {self._kind} executor has stopped taking work") from None
        except (BrokenPipeError, ConnectionResetError):
            if not self._stopping:
                raise NodeFailed(f"the {self._kind} executor has closed its socket") from None

    def grant(self, lease: Lease) -> None:
        """Replace the lease and wake the executor."""
        self._lease_version += 1
        write_lease(self._lease, lease, self._lease_version)
        self.send(LeaseChanged())

    async def stop(self, limit_s: float) -> None:
        """Ask it to exit; SIGKILL after ``limit_s``. Idempotent."""
        process = self._process
        if process is None or self._stopping:
            return
        self._stopping = True
        self.send(ExecutorStop())
        try:
            async with asyncio.timeout(limit_s):
                await self._gone.wait()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
        process.wait()
        self._forget()

    def _forget(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pidfd >= 0:
            loop.remove_reader(self._own.fileno())
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
            self._own.close()

    def _readable(self, on_message: OnMessage) -> None:
        while True:
            try:
                packet = self._own.recv(_PACKET_BYTES)
            except BlockingIOError:
                return
            except ConnectionResetError:
                packet = b""
            if not packet:
                asyncio.get_running_loop().remove_reader(self._own.fileno())
                return
            on_message(decode([packet])[0], [packet])

    def _exited(self, on_exit: OnExit) -> None:
        assert self._process is not None
        code = self._process.poll()
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._gone.set()
        if not self._stopping:
            on_exit(f"its {self._kind} executor (pid {self.pid}) {describe_exit(code)}")


def describe_exit(code: int | None) -> str:
    """An exit status in words: ``exited with status 1``, ``was killed by signal 9 (SIGKILL)``."""
    if code is None:
        return "is running"
    if code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"exited with status {code}"
