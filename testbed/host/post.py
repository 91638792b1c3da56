"""A node's data sockets: what it sends to peers, what it takes from them, what it refuses.

Only peers of the directory are heard, by the routing id of their present life. What a peer's next
life says before this node was told of it is kept until then. Refused messages are counted by code
and logged once each; gaps in a peer's sequence are counted as lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence

import zmq

from protocols.channel import Delivery, ZmqInbox, ZmqOutbox, routing_id
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
EARLY_LIMIT = 1000
"""Messages of peers' next lives that are kept; more are refused."""
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


class _Nowhere:
    """The outbox to a peer that is lost: nobody will ever read what it is sent."""

    def send(self, frames: Sequence[Frame]) -> None:
        """Drop it."""

    def close(self, linger_ms: int = 0) -> None:
        """Nothing to do."""


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
        self._outboxes: dict[str, ZmqOutbox | _Nowhere] = {}
        self._sources: dict[bytes, str] = {}
        self._lives: dict[str, int] = {}
        self._early: list[Delivery] = []
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
                self._outboxes[node] = self._outbox(node, peer.inbox)
            if peer.receives_from:
                self._sources[routing_id(self._run_token, node, peer.life)] = node
                self._lives[node] = peer.life
        asyncio.get_running_loop().add_reader(self._inbox.fd, self.look)
        self.look()

    def lose(self, node: str) -> None:
        """A peer is gone: what it is sent from here on is dropped, and no end of its rows is
        awaited. What it has sent is still heard."""
        if node in self._outboxes:
            self._outboxes[node].close(0)
            self._outboxes[node] = _Nowhere()
        if node in self._lives:
            self._ended.add(node)
            self._end_came.set()

    def replace(self, node: str, life: int, inbox: str) -> None:
        """A lost peer lives again: from here on that life is sent to and heard, and no other.

        What it has said already is delivered at the next ``look``. Raises ProtocolError for a node
        that is no peer.
        """
        if node not in self._outboxes and node not in self._lives:
            raise ProtocolError("unknown-peer", f"{node} is no peer of this node")
        if node in self._outboxes:
            self._outboxes[node].close(0)
            self._outboxes[node] = self._outbox(node, inbox)
        if node in self._lives:
            del self._sources[routing_id(self._run_token, node, self._lives[node])]
            self._sources[routing_id(self._run_token, node, life)] = node
            self._lives[node] = life
            self._ended.discard(node)
            self.meter.restart(node)

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

    def look(self) -> None:
        """Take what has arrived."""
        if self._closed:
            return  # a wake-up that was under way when the sockets were closed
        early, self._early = self._early, []
        arrived = self._inbox.drain(DRAIN_LIMIT)
        for delivery in early + arrived:
            source = self._sources.get(delivery.source)
            if source is None:
                self._not_yet(delivery)
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
        if len(arrived) == DRAIN_LIMIT:
            asyncio.get_running_loop().call_soon(self.look)

    def _not_yet(self, delivery: Delivery) -> None:
        """Keep what a later life of a peer says; refuse anybody else."""
        name, _, life = delivery.source.rpartition(b"#")
        token, _, node = name.decode(errors="replace").partition("/")
        known = self._lives.get(node) if token == self._run_token else None
        later = known is not None and life.isdigit() and int(life) > known
        if later and len(self._early) < EARLY_LIMIT:
            self._early.append(delivery)
        else:
            self.reject("unknown-peer", f"a message of {delivery.source!r}")

    def _outbox(self, node: str, inbox: str) -> ZmqOutbox:
        return ZmqOutbox(self._context, inbox, node, self._own_id)
