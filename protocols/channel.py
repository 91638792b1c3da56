"""ZeroMQ sockets as the testbed uses them, and their in-memory twin.

Owns every socket option and the peers' names; knows nothing of what the frames mean. Each process
binds one inbox (ROUTER, receive only) and connects one outbox (DEALER, send only) per peer, so no
send can be dropped in silence; the launcher's control socket is the one ROUTER that also sends,
with ROUTER_MANDATORY. All calls return at once: wait for ``fd`` to become readable, then drain.

ZeroMQ's descriptor is edge-triggered: after it became readable, drain until nothing is left (the
result says so), and after a send on a control socket drain once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import zmq

from protocols.codec import MAX_TOTAL_BYTES, Frame
from protocols.errors import ProtocolError

HIGH_WATER_MARK = 20_000
"""Messages per peer; a full outbox is an error that names the peer, never a silent loss."""
MAX_CONTROL_FRAME_BYTES = 1 << 20
"""Frames beyond this cut the connection (libzmq); between 64 KiB and this they are refused by
name."""
MAX_DATA_FRAME_BYTES = 4 << 20
LINGER_MS = 500
_READABLE = int(zmq.POLLIN)
RECONNECT_MS, RECONNECT_MAX_MS = 20, 1000
HANDSHAKE_MS = 5000
ZMTP_HEARTBEAT_MS, ZMTP_TIMEOUT_MS = 2000, 20_000
"""ZMTP heartbeats only tell a vanished host; whether an application lives, Heartbeat tells."""


class ChannelFull(ProtocolError):
    """A peer does not take its messages any more."""

    def __init__(self, peer: str) -> None:
        super().__init__("peer-full", f"{peer} has not taken {HIGH_WATER_MARK} messages")


class UnknownPeer(ProtocolError):
    """A message for a peer that is not connected."""

    def __init__(self, peer: str) -> None:
        super().__init__("unknown-peer", f"no connection to {peer}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """Frames of one message, and the routing id that its sender chose."""

    source: bytes
    frames: list[Frame]


class Inbox(Protocol):
    """Where a process receives. ``fd`` becomes readable when there may be something to drain."""

    @property
    def fd(self) -> int: ...

    def drain(self, limit: int) -> list[Delivery]:
        """At most ``limit`` messages; fewer than that mean that nothing is left."""
        ...

    def close(self) -> None: ...


class Outbox(Protocol):
    """Where a process sends to one peer. Raises ChannelFull instead of waiting."""

    def send(self, frames: Sequence[Frame]) -> None: ...

    def close(self) -> None: ...


def routing_id(run_token: str, node: str, life: int) -> bytes:
    """The name under which a life of a node connects: fresh for each life."""
    return f"{run_token}/{node}#{life}".encode()


def _options(socket: zmq.Socket[bytes], max_frame_bytes: int) -> None:
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, ZMTP_HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, ZMTP_TIMEOUT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, ZMTP_TIMEOUT_MS)


class _Receiving:
    """Draining, shared by all sockets that receive."""

    def __init__(self, socket: zmq.Socket[bytes], *, routed: bool) -> None:
        self._socket = socket
        self._routed = routed

    @property
    def fd(self) -> int:
        """Edge-triggered descriptor; see the module docstring."""
        return int(self._socket.getsockopt(zmq.FD))

    def drain(self, limit: int) -> list[Delivery]:
        """At most ``limit`` messages; fewer than that mean that nothing is left."""
        deliveries: list[Delivery] = []
        socket = self._socket
        # Asking first costs a third of the exception that says "nothing is left".
        while len(deliveries) < limit and int(socket.getsockopt(zmq.EVENTS)) & _READABLE:
            frames: list[Frame] = list(socket.recv_multipart(zmq.NOBLOCK))
            source = bytes(frames.pop(0)) if self._routed else b""
            if sum(map(len, frames)) <= MAX_TOTAL_BYTES:
                deliveries.append(Delivery(source, frames))
            else:
                deliveries.append(Delivery(source, []))  # decode() refuses it, by name
        return deliveries

    def close(self) -> None:
        """Close the socket; unsent messages have LINGER_MS."""
        self._socket.close(LINGER_MS)


class ZmqInbox(_Receiving):
    """A bound ROUTER that only receives."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        socket = context.socket(zmq.ROUTER)
        _options(socket, MAX_DATA_FRAME_BYTES)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.bind(endpoint)
        super().__init__(socket, routed=True)
        self.endpoint = str(socket.getsockopt_string(zmq.LAST_ENDPOINT))


class ZmqOutbox:
    """A DEALER connected to one peer's inbox."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, peer: str, own_id: bytes
    ) -> None:
        self._peer = peer
        self._socket = context.socket(zmq.DEALER)
        _options(self._socket, MAX_DATA_FRAME_BYTES)
        self._socket.setsockopt(zmq.ROUTING_ID, own_id)
        self._socket.connect(endpoint)

    def send(self, frames: Sequence[Frame]) -> None:
        """Queue a message. Raises ChannelFull."""
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=len(frames) == 1)
        except zmq.Again:
            raise ChannelFull(self._peer) from None

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Close the socket; unsent messages have ``linger_ms``."""
        self._socket.close(linger_ms)


class ControlClient(_Receiving):
    """A node's end of the control socket: a DEALER that sends and receives."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, own_id: bytes
    ) -> None:
        socket = context.socket(zmq.DEALER)
        _options(socket, MAX_CONTROL_FRAME_BYTES)
        socket.setsockopt(zmq.ROUTING_ID, own_id)
        socket.connect(endpoint)
        super().__init__(socket, routed=False)

    def send(self, frames: Sequence[Frame]) -> None:
        """Queue a message. Raises ChannelFull."""
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            raise ChannelFull("the launcher") from None


class ControlServer(_Receiving):
    """The launcher's control socket: the one ROUTER that sends."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        socket = context.socket(zmq.ROUTER)
        _options(socket, MAX_CONTROL_FRAME_BYTES)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
        socket.bind(endpoint)
        super().__init__(socket, routed=True)
        self.endpoint = str(socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def send(self, target: bytes, frames: Sequence[Frame]) -> None:
        """Send to one client. Raises UnknownPeer or ChannelFull."""
        try:
            self._socket.send_multipart([target, *frames], zmq.NOBLOCK)
        except zmq.Again:
            raise ChannelFull(target.decode(errors="replace")) from None
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                raise UnknownPeer(target.decode(errors="replace")) from None
            raise


class MemoryNetwork:
    """The in-memory twin: inboxes by endpoint, the same limits, no sockets and no waiting."""

    def __init__(self, high_water_mark: int = HIGH_WATER_MARK) -> None:
        self.high_water_mark = high_water_mark
        self._inboxes: dict[str, MemoryInbox] = {}

    def inbox(self, endpoint: str) -> MemoryInbox:
        """Bind an inbox. Raises ProtocolError where the endpoint is taken."""
        if endpoint in self._inboxes:
            raise ProtocolError("endpoint-taken", f"{endpoint} is bound already")
        self._inboxes[endpoint] = MemoryInbox(self.high_water_mark)
        return self._inboxes[endpoint]

    def outbox(self, endpoint: str, peer: str, own_id: bytes) -> MemoryOutbox:
        """Connect to an inbox. Raises UnknownPeer."""
        inbox = self._inboxes.get(endpoint)
        if inbox is None:
            raise UnknownPeer(peer)
        return MemoryOutbox(inbox, peer, own_id)


class MemoryInbox:
    """Messages in the order in which they were sent."""

    def __init__(self, high_water_mark: int) -> None:
        self._high_water_mark = high_water_mark
        self._queue: deque[Delivery] = deque()

    @property
    def fd(self) -> int:
        """There is no descriptor to wait for."""
        return -1

    def put(self, delivery: Delivery, peer: str) -> None:
        """Queue a message. Raises ChannelFull."""
        if len(self._queue) >= self._high_water_mark:
            raise ChannelFull(peer)
        self._queue.append(delivery)

    def drain(self, limit: int) -> list[Delivery]:
        """At most ``limit`` messages; fewer than that mean that nothing is left."""
        return [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]

    def close(self) -> None:
        """Forget what is queued."""
        self._queue.clear()


class MemoryOutbox:
    """Sends into one in-memory inbox; frames are copied, as a wire would."""

    def __init__(self, inbox: MemoryInbox, peer: str, own_id: bytes) -> None:
        self._inbox = inbox
        self._peer = peer
        self._own_id = own_id

    def send(self, frames: Sequence[Frame]) -> None:
        """Queue a message. Raises ChannelFull."""
        copied: list[Frame] = [bytes(frame) for frame in frames]
        self._inbox.put(Delivery(self._own_id, copied), self._peer)

    def close(self) -> None:
        """Nothing to do."""
