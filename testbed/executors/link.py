"""The executor's end of its host's socket, and the only place where an executor waits.

A wait is a poll() on the socket and on one timerfd: never a spin, never without an end. While
nothing is due, it wakes every ``IDLE_POLL_MS``; that the host is gone shows as EOF here and, should
this thread be computing, on the lifeline of ``process``.
"""

from __future__ import annotations

import select
import socket
from typing import Protocol

from protocols.codec import decode, encode
from protocols.errors import ProtocolError, RanloomError
from protocols.messages import Message
from protocols.work import ExecutorStop
from testbed.executors.clock import EmulatedClock
from testbed.executors.timer import DeadlineTimer

IDLE_POLL_MS = 1000
SEND_LIMIT_S = 60.0
"""A host that takes no report for so long is broken (a suspended one is not, so be generous)."""
_LARGEST_PACKET = 256 * 1024


class HostGone(RanloomError):
    """The host closed its end of the socket; nobody is left to report to."""


class Port(Protocol):
    """What the state machines of an executor need of the outside; tests fake it."""

    def now_us(self) -> int:
        """Emulated time."""

    def send(self, message: Message) -> None:
        """Report to the host. Raises HostGone."""

    def receive(self, until_us: int | None) -> Message | None:
        """The next message, or None once ``until_us`` has come (None: wait for a message).

        EOF reads as ExecutorStop. A message that is there is returned even after ``until_us``.
        """

    def hold_until(self, at_us: int) -> None:
        """Return at ``at_us``; messages stay where they are."""


class HostLink:
    """A Port over an AF_UNIX SOCK_SEQPACKET socket, one message per packet."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(SEND_LIMIT_S)
        self._socket = sock
        self._timer = DeadlineTimer()
        self._clock: EmulatedClock | None = None
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(self._timer, select.POLLIN)
        self._hold = select.poll()
        self._hold.register(self._timer, select.POLLIN)

    def start(self, clock: EmulatedClock) -> None:
        """Emulated time exists from here on."""
        self._clock = clock

    def now_us(self) -> int:
        return self._started().now_us()

    def send(self, message: Message) -> None:
        try:
            self._socket.send(encode(message)[0])
        except (BrokenPipeError, ConnectionResetError):
            raise HostGone("the host closed the executor's socket") from None
        except TimeoutError:
            raise HostGone(f"the host took no report for {SEND_LIMIT_S:.0f} s") from None

    def receive(self, until_us: int | None) -> Message | None:
        idle_ms = IDLE_POLL_MS
        if until_us is None:
            self._timer.disarm()
        elif until_us <= self.now_us():
            idle_ms = 0
        else:
            self._timer.arm(self._started().wall_ns(until_us))
        while True:
            ready = dict(self._poll.poll(idle_ms))
            if self._socket.fileno() in ready:
                return self._read()
            if idle_ms == 0 or (ready and self._timer.acknowledge()):
                return None

    def hold_until(self, at_us: int) -> None:
        if at_us <= self.now_us():
            return
        self._timer.arm(self._started().wall_ns(at_us))
        while not self._timer.acknowledge():
            self._hold.poll(IDLE_POLL_MS)

    def close(self) -> None:
        """Close socket and timer."""
        self._timer.close()
        self._socket.close()

    def _read(self) -> Message:
        try:
            packet, _, flags, _ = self._socket.recvmsg(_LARGEST_PACKET)
        except ConnectionResetError:
            return ExecutorStop()
        if flags & socket.MSG_TRUNC:
            raise ProtocolError("too-large", f"a packet of more than {_LARGEST_PACKET} bytes")
        return decode([packet])[0] if packet else ExecutorStop()

    def _started(self) -> EmulatedClock:
        if self._clock is None:
            raise ProtocolError("not-started", "emulated time was asked for before ExecutorStart")
        return self._clock
