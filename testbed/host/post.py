"""A node's data sockets: what it sends to peers, what it takes from them, what it refuses.

Only peers of the directory are heard, by the routing id of their present life. Refused messages are
counted by code and logged once each; gaps in a peer's sequence are counted as lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence

import zmq

from protocols.channel import ZmqInbox, ZmqOutbox, routing_id
from protocols.codec import Envelope, Frame, decode, encode
from protocols.errors import ProtocolError
from protocols.messages import Decision, Message
from testbed.executors.process import fifo_permitted
from testbed.host.config_document import PeerEntry
from testbed.host.latency import LatencyMeter
from testbed.host.setup import SCHEDULING
from testbed.topology.node_config import RECORDER

log = logging.getLogger("ranloom.node")

DRAIN_LIMIT = 256
END_OF_ROWS = "end of rows"
"""Subject of the last message of a node to the recorder."""

OnMessage = Callable[[str, Message, Sequence[Frame], Envelope], None]


def zmq_context(kind: str) -> zmq.Context[zmq.Socket[bytes]]:
    """A context whose I/O thread has the node's own scheduling class: all messages pass it."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    wanted = SCHEDULING[kind]
    if wanted.policy == "fifo" and fifo_permitted():
        context.set(zmq.THREAD_SCHED_POLICY, os.SCHED_FIFO)
        context.set(zmq.THREAD_PRIORITY, wanted.priority)
    return context


class Post:
    """Inbox, outboxes and counters of one node."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        inbox: str,
        run_token: str,
        own_id: bytes,
        on_message: OnMessage,
    ) -> None:
        self._context = context
        self._run_token = run_token
        self._own_id = own_id
        self._on_message = on_message
        self._inbox = ZmqInbox(context, inbox)
        self._outboxes: dict[str, ZmqOutbox] = {}
        self._sources: dict[bytes, str] = {}
        self._ended: set[str] = set()
        self._end_came = asyncio.Event()
        self._rows_sent = 0
        self._closed = False
        self.meter = LatencyMeter()
        self.rejected: dict[str, int] = {}
        self.sent = 0

    @property
    def endpoint(self) -> str:
        """Where the inbox is bound."""
        return self._inbox.endpoint

    def connect(self, peers: dict[str, PeerEntry]) -> None:
        """An outbox per peer that this node sends to; from here on known peers are heard."""
        for node, peer in peers.items():
            if peer.sends_to:
                self._outboxes[node] = ZmqOutbox(self._context, peer.inbox, node, self._own_id)
            if peer.receives_from:
                self._sources[routing_id(self._run_token, node, peer.life)] = node
        asyncio.get_running_loop().add_reader(self._inbox.fd, self._readable)
        self._readable()

    def send(self, to: str, frames: Sequence[Frame]) -> None:
        """Send an encoded message. Raises ChannelFull."""
        self.sent += 1
        self._outboxes[to].send(frames)

    def send_rows(self, message: Message, now_us: int) -> None:
        """Send a batch or a decision to the recorder. Raises ChannelFull."""
        if RECORDER in self._outboxes:
            self._outboxes[RECORDER].send(encode(message, self._rows_sent, now_us))
            self._rows_sent += 1

    def reject(self, code: str, text: str) -> None:
        """Count a refused message; log the first of its code."""
        first = code not in self.rejected
        self.rejected[code] = self.rejected.get(code, 0) + 1
        if first:
            log.warning("refused (%s): %s; further ones are counted only", code, text)

    async def all_rows(self, limit_s: float) -> bool:
        """Recorder: whether every node has sent its last row within ``limit_s``."""
        try:
            async with asyncio.timeout(limit_s):
                while len(self._ended) < len(self._sources):
                    self._end_came.clear()
                    await self._end_came.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Close all sockets; what was sent has the channel's linger."""
        self._closed = True
        for outbox in self._outboxes.values():
            outbox.close()
        self._inbox.close()

    def _readable(self) -> None:
        if self._closed:
            return  # a wake-up that was under way when the sockets were closed
        deliveries = self._inbox.drain(DRAIN_LIMIT)
        for delivery in deliveries:
            source = self._sources.get(delivery.source)
            if source is None:
                self.reject("unknown-peer", f"a message of {delivery.source!r}")
                continue
            try:
                message, envelope = decode(delivery.frames)
            except ProtocolError as error:
                self.reject(error.code, f"from {source}: {error}")
                continue
            if isinstance(message, Decision) and message.subject == END_OF_ROWS:
                self._ended.add(source)
                self._end_came.set()
            else:
                self._on_message(source, message, delivery.frames, envelope)
        if len(deliveries) == DRAIN_LIMIT:
            asyncio.get_running_loop().call_soon(self._readable)
