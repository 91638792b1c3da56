"""Sockets that lose nothing in silence, and their twin in memory, held to the same tests."""

from __future__ import annotations

import select
import time

import pytest
import zmq

from protocols import channel
from protocols.channel import (
    ChannelFull,
    ControlClient,
    ControlServer,
    MemoryNetwork,
    UnknownPeer,
    ZmqInbox,
    ZmqOutbox,
    routing_id,
)
from protocols.codec import decode, encode
from protocols.control import Drain
from protocols.errors import ProtocolError

LIMIT_S = 20.0
MARK = 50


class ZmqWire:
    """Real sockets over ipc, in a directory of the test's."""

    def __init__(self, directory, context):
        self._context = context
        self._endpoint = f"ipc://{directory}/inbox"
        self._open = []

    def inbox(self):
        inbox = ZmqInbox(self._context, self._endpoint)
        assert inbox.endpoint == self._endpoint
        self._open.append(inbox)
        return inbox

    def outbox(self, peer, own_id):
        outbox = ZmqOutbox(self._context, self._endpoint, peer, own_id)
        self._open.append(outbox)
        return outbox

    def close(self):
        for end in self._open:
            end.close()


class MemoryWire:
    """The twin."""

    def __init__(self):
        self._network = MemoryNetwork(channel.HIGH_WATER_MARK)

    def inbox(self):
        return self._network.inbox("mem://inbox")

    def outbox(self, peer, own_id):
        return self._network.outbox("mem://inbox", peer, own_id)

    def close(self):
        pass


@pytest.fixture
def context():
    own = zmq.Context()
    yield own
    own.destroy(linger=0)


@pytest.fixture(params=["zmq", "memory"])
def wire(request, tmp_path, context, monkeypatch):
    """Either kind, with a low mark so that a test can reach it."""
    monkeypatch.setattr(channel, "HIGH_WATER_MARK", MARK)
    made = ZmqWire(tmp_path, context) if request.param == "zmq" else MemoryWire()
    yield made
    made.close()


def receive(end, count, limit=256):
    """At least so many messages, by the descriptor; fails by name when they do not come."""
    got = []
    deadline = time.monotonic() + LIMIT_S
    while True:
        drained = end.drain(limit)
        assert len(drained) <= limit
        got += drained
        if len(got) >= count:
            return got
        if len(drained) == limit:
            continue  # there may be more, and no new edge for it
        assert time.monotonic() < deadline, f"{len(got)} of {count} messages after {LIMIT_S} s"
        assert end.fd >= 0, f"{len(got)} of {count} messages, and none can come any more"
        select.select([end.fd], [], [], 0.05)


def fill(send, payload=b"x" * 4096):
    """Send numbered messages until the channel is full; returns how many went, and the error."""
    for number in range(100_000):
        try:
            send([number.to_bytes(4, "little"), payload])
        except ChannelFull as error:
            return number, error
    raise AssertionError("the channel takes everything")


def await_room(outbox):
    """Until the receiver's credit has come back: ZeroMQ's I/O thread passes it on in its time."""
    if isinstance(outbox, ZmqOutbox):
        assert outbox._socket.poll(LIMIT_S * 1000, zmq.POLLOUT)


def numbers(deliveries):
    return [int.from_bytes(delivery.frames[0], "little") for delivery in deliveries]


# --- inbox and outbox, both kinds ---------------------------------------------------------------


def test_frames_arrive_whole_in_order_with_their_source(wire):
    inbox = wire.inbox()
    outbox = wire.outbox("north.agent", routing_id("run", "north.g1.mac", 1))
    sent = [[b"head", b"", bytes(5000)], [b"next"]]
    for frames in sent:
        outbox.send(frames)
    got = receive(inbox, 2)
    assert [[bytes(frame) for frame in delivery.frames] for delivery in got] == sent
    assert {delivery.source for delivery in got} == {b"run/north.g1.mac#1"}


def test_messages_of_several_peers_are_told_apart(wire):
    inbox = wire.inbox()
    for number in range(3):
        wire.outbox("agent", f"peer{number}".encode()).send([bytes([number])])
    got = {bytes(delivery.source): bytes(delivery.frames[0]) for delivery in receive(inbox, 3)}
    assert got == {b"peer0": b"\0", b"peer1": b"\1", b"peer2": b"\2"}


def test_drain_stops_at_its_limit(wire):
    inbox = wire.inbox()
    outbox = wire.outbox("agent", b"mac")
    for number in range(10):
        outbox.send([bytes([number])])
    got = receive(inbox, 10, limit=4)
    assert [bytes(delivery.frames[0])[0] for delivery in got] == list(range(10))
    assert inbox.drain(4) == []


def test_full_channel_is_an_error_that_names_the_peer_and_loses_nothing(wire):
    inbox = wire.inbox()
    outbox = wire.outbox("north.agent", b"mac")
    sent, error = fill(outbox.send)
    assert sent >= MARK
    assert (error.code, str(error)) == ("peer-full", f"north.agent has not taken {MARK} messages")
    assert numbers(receive(inbox, sent)) == list(range(sent))
    assert inbox.drain(1) == []


def test_channel_takes_messages_again_once_it_was_drained(wire):
    inbox = wire.inbox()
    outbox = wire.outbox("agent", b"mac")
    sent, _ = fill(outbox.send)
    receive(inbox, sent)
    await_room(outbox)
    outbox.send([b"again"])
    (last,) = receive(inbox, 1)
    assert bytes(last.frames[0]) == b"again"


def test_encoded_message_survives_the_way(wire):
    inbox = wire.inbox()
    wire.outbox("agent", b"mac").send(encode(Drain("the end", False), 3, 4))
    (delivery,) = receive(inbox, 1)
    message, envelope = decode(delivery.frames)
    assert (message.reason, envelope.sequence, envelope.sent_us) == ("the end", 3, 4)


def test_sent_buffer_may_be_reused_for_small_messages(wire):
    inbox = wire.inbox()
    buffer = bytearray(b"one")
    wire.outbox("agent", b"mac").send([buffer])
    buffer[:] = b"two"
    (delivery,) = receive(inbox, 1)
    assert bytes(delivery.frames[0]) == b"one"


# --- of one kind only ---------------------------------------------------------------------------


def test_memory_knows_its_endpoints():
    network = MemoryNetwork()
    with pytest.raises(UnknownPeer, match="no connection to agent") as caught:
        network.outbox("mem://none", "agent", b"mac")
    assert caught.value.code == "unknown-peer"
    network.inbox("mem://one")
    with pytest.raises(ProtocolError, match="mem://one is bound already") as taken:
        network.inbox("mem://one")
    assert taken.value.code == "endpoint-taken"


def test_message_before_the_peer_has_bound_is_kept(tmp_path, context):
    """Nodes start in any order: an outbox may be there before its inbox."""
    outbox = ZmqOutbox(context, f"ipc://{tmp_path}/late", "agent", b"mac")
    outbox.send([b"early"])
    inbox = ZmqInbox(context, f"ipc://{tmp_path}/late")
    (delivery,) = receive(inbox, 1)
    assert bytes(delivery.frames[0]) == b"early"
    outbox.close()
    inbox.close()


def test_message_above_the_total_arrives_empty_and_is_refused(tmp_path, context, monkeypatch):
    monkeypatch.setattr(channel, "MAX_TOTAL_BYTES", 1000)
    inbox = ZmqInbox(context, f"ipc://{tmp_path}/inbox")
    outbox = ZmqOutbox(context, f"ipc://{tmp_path}/inbox", "agent", b"mac")
    outbox.send([bytes(600), bytes(600)])
    (delivery,) = receive(inbox, 1)
    assert delivery.frames == []
    with pytest.raises(ProtocolError) as caught:
        decode(delivery.frames)
    assert caught.value.code == "wrong-frames"
    outbox.close()
    inbox.close()


@pytest.fixture
def server(tmp_path, context):
    made = ControlServer(context, f"ipc://{tmp_path}/control")
    yield made
    made.close()


@pytest.fixture
def client(server, context):
    made = ControlClient(context, server.endpoint, b"run/north.agent#1")
    yield made
    made.close()


def test_control_goes_both_ways(server, client):
    client.send([b"hello"])
    (delivery,) = receive(server, 1)
    assert (delivery.source, delivery.frames) == (b"run/north.agent#1", [b"hello"])
    server.send(delivery.source, [b"config", b"more"])
    (answer,) = receive(client, 1)
    assert (answer.source, answer.frames) == (b"", [b"config", b"more"])


def test_control_server_names_a_client_that_is_not_there(server):
    with pytest.raises(UnknownPeer, match="no connection to run/absent#1") as caught:
        server.send(b"run/absent#1", [b"config"])
    assert caught.value.code == "unknown-peer"


def test_control_server_does_not_drop_for_a_client_that_does_not_read(
    tmp_path, context, monkeypatch
):
    """A default ROUTER drops silently here (facts/traps.md): MANDATORY makes it an error."""
    monkeypatch.setattr(channel, "HIGH_WATER_MARK", MARK)
    server = ControlServer(context, f"ipc://{tmp_path}/control")
    client = ControlClient(context, server.endpoint, b"slow")
    client.send([b"hello"])
    receive(server, 1)
    sent, error = fill(lambda frames: server.send(b"slow", frames))
    assert (error.code, "slow" in str(error)) == ("peer-full", True)
    assert numbers(receive(client, sent)) == list(range(sent))
    client.close()
    server.close()


def test_oversized_control_frame_cuts_its_sender_and_nobody_else(server, client, context):
    rude = ControlClient(context, server.endpoint, b"rude")
    rude.send([bytes(channel.MAX_CONTROL_FRAME_BYTES + 1)])
    client.send([b"hello"])
    (delivery,) = receive(server, 1)
    assert delivery.source == b"run/north.agent#1"
    rude.close()


READABLE = {
    zmq.LINGER: channel.LINGER_MS,
    zmq.SNDHWM: channel.HIGH_WATER_MARK,
    zmq.RCVHWM: channel.HIGH_WATER_MARK,
    zmq.RECONNECT_IVL: channel.RECONNECT_MS,
    zmq.RECONNECT_IVL_MAX: channel.RECONNECT_MAX_MS,
    zmq.HANDSHAKE_IVL: channel.HANDSHAKE_MS,
    zmq.HEARTBEAT_IVL: channel.ZMTP_HEARTBEAT_MS,
    zmq.HEARTBEAT_TIMEOUT: channel.ZMTP_TIMEOUT_MS,
    zmq.HEARTBEAT_TTL: channel.ZMTP_TIMEOUT_MS,
}


@pytest.mark.parametrize("kind", ["inbox", "outbox", "server", "client"])
def test_no_option_is_left_to_zeromqs_default(kind, tmp_path, context):
    endpoint = f"ipc://{tmp_path}/socket"
    made = {
        "inbox": lambda: ZmqInbox(context, endpoint),
        "outbox": lambda: ZmqOutbox(context, endpoint, "agent", b"mac"),
        "server": lambda: ControlServer(context, endpoint),
        "client": lambda: ControlClient(context, endpoint, b"mac"),
    }[kind]()
    socket = made._socket
    assert {option: socket.getsockopt(option) for option in READABLE} == READABLE
    control = kind in ("server", "client")
    frame = channel.MAX_CONTROL_FRAME_BYTES if control else channel.MAX_DATA_FRAME_BYTES
    assert socket.getsockopt(zmq.MAXMSGSIZE) == frame
    assert socket.getsockopt(zmq.TYPE) == (
        zmq.ROUTER if kind in ("inbox", "server") else zmq.DEALER
    )
    made.close()
