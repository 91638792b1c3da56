"""The launcher's end of the control socket: nodes' messages in, commands out.

Owns who may speak (the present life of each node of this run) and what was refused; what a message
means is the launcher's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress

import zmq

from protocols.channel import ControlServer, UnknownPeer, routing_id
from protocols.codec import decode, encode
from protocols.control import Refused
from protocols.errors import ProtocolError
from protocols.messages import Message

_DRAIN_LIMIT = 256

OnMessage = Callable[[str, Message], None]


class ControlDesk:
    """Bound from its making on; hears nodes between ``open`` and ``close``.

    ``on_message(node, message)`` may raise ProtocolError, or ValueError for a JSON document that is
    none: the message is then refused, and its sender told.
    """

    def __init__(self, endpoint: str, run_token: str, on_message: OnMessage) -> None:
        self._run_token = run_token
        self._on_message = on_message
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._server = ControlServer(self._context, endpoint)
        self._nodes: dict[bytes, str] = {}
        self._closed = False
        self.rejected: dict[str, int] = {}
        """Refused messages by code."""

    def open(self) -> None:
        """Take what arrives, on the running event loop."""
        asyncio.get_running_loop().add_reader(self._server.fd, self._readable)

    def close(self) -> None:
        """Hear nobody any more; what was sent has the channel's linger."""
        self._closed = True
        asyncio.get_running_loop().remove_reader(self._server.fd)
        self._server.close()
        self._context.term()

    def expect(self, node: str, life: int) -> None:
        """From here on that life of the node is heard, and no other."""
        self._nodes = {source: known for source, known in self._nodes.items() if known != node}
        self._nodes[routing_id(self._run_token, node, life)] = node

    def send(self, node: str, life: int, message: Message) -> None:
        """Send to a life of a node; lost where it is not connected."""
        with suppress(UnknownPeer):  # it has not connected yet, or is gone: its exit tells
            self._server.send(routing_id(self._run_token, node, life), encode(message))
        # The descriptor is edge-triggered: what arrived while sending raises no new edge.
        asyncio.get_running_loop().call_soon(self._readable)

    def _readable(self) -> None:
        if self._closed:
            return  # a look that was under way when the socket was closed
        deliveries = self._server.drain(_DRAIN_LIMIT)
        for delivery in deliveries:
            node = self._nodes.get(delivery.source)
            try:
                message, _ = decode(delivery.frames)
                if node is None:
                    raise ProtocolError("unknown-peer", "this run has no such node")
                self._on_message(node, message)
            except ValueError as error:  # a JSON document that is none
                self._refuse(delivery.source, node, ProtocolError("bad-document", str(error)))
            except ProtocolError as error:
                self._refuse(delivery.source, node, error)
        if len(deliveries) == _DRAIN_LIMIT:
            asyncio.get_running_loop().call_soon(self._readable)

    def _refuse(self, source: bytes, node: str | None, error: ProtocolError) -> None:
        first = error.code not in self.rejected
        self.rejected[error.code] = self.rejected.get(error.code, 0) + 1
        if first:
            who = node or repr(source[:40])
            print(
                f"warning: refused a message on the control socket ({error.code}) "
                f"from {who}: {error}; further ones are counted only",
                file=sys.stderr,
            )
        with suppress(ProtocolError):  # it may be gone already
            self._server.send(source, encode(Refused(error.code, str(error)[:2000])))
