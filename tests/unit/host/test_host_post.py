"""A node's data sockets when a peer dies and lives again: real sockets, over ipc."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator

import pytest
import zmq

from protocols import channel
from protocols.channel import ControlClient, ZmqInbox, ZmqOutbox, routing_id
from protocols.codec import decode, encode
from protocols.control import Ready
from protocols.errors import ProtocolError
from protocols.messages import Decision, StepCommit
from testbed.host import post as post_module
from testbed.host.config_document import PeerEntry
from testbed.host.control_desk import ControlDesk
from testbed.host.post import END_OF_ROWS, Post

LIMIT_S = 20.0
TOKEN, OWN, PEER = "token", "coordinator", "north.pretrain.trainer"


class Host:
    """A post, and what it has heard: (peer, step, sequence)."""

    def __init__(self, context: zmq.Context, directory: str) -> None:
        self.directory = directory
        self.heard: list[tuple[str, int, int]] = []
        own_id = routing_id(TOKEN, OWN, 1)
        self.post = Post(context, f"ipc://{directory}/own", TOKEN, own_id, self._on_message)
        self.post.connect({PEER: self.entry(1)})

    def entry(self, life: int) -> PeerEntry:
        inbox = f"ipc://{self.directory}/peer.{life}"
        return PeerEntry(inbox=inbox, site="north", life=life, sends_to=True, receives_from=True)

    def _on_message(self, source, message, _frames, envelope) -> None:
        self.heard.append((source, message.step, envelope.sequence))

    def until(self, condition) -> None:
        """Until something that has arrived makes ``condition`` true."""
        self.post.look()
        while not condition():
            assert select.select([self.post._inbox.fd], [], [], LIMIT_S)[0], "nothing came"
            self.post.look()


class Peer:
    """One life of the peer: its inbox, and its outbox to the host."""

    def __init__(self, context: zmq.Context, directory: str, life: int) -> None:
        self._inbox = ZmqInbox(context, f"ipc://{directory}/peer.{life}")
        own_id = routing_id(TOKEN, PEER, life)
        self._outbox = ZmqOutbox(context, f"ipc://{directory}/own", OWN, own_id)
        self._poller = zmq.Poller()
        self._poller.register(self._inbox.fd, zmq.POLLIN)

    def say(self, step: int, sequence: int) -> None:
        self._outbox.send(encode(StepCommit("pretrain", 1, step), sequence, 0))

    def end_rows(self) -> None:
        self._outbox.send(encode(Decision(PEER, 0, END_OF_ROWS, ""), 0, 0))

    def hear(self) -> list[int]:
        """Steps of the messages that have come: waits for the first."""
        found = []
        while not found:
            found = [decode(delivery.frames)[0].step for delivery in self._inbox.drain(100)]
            assert found or self._poller.poll(LIMIT_S * 1000), "nothing came"
        return found

    def close(self) -> None:
        self._outbox.close()
        self._inbox.close()


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    own = zmq.Context()
    yield own
    own.destroy(linger=0)


@pytest.fixture
async def host(context, tmp_path):
    own = Host(context, str(tmp_path))
    yield own
    asyncio.get_running_loop().remove_reader(own.post._inbox.fd)
    own.post.close()


def commit(step: int) -> list[bytes]:
    return encode(StepCommit("pretrain", 1, step), 0, 0)


async def test_next_life_is_sent_to_and_heard_and_the_old_one_is_not(host, context):
    old = Peer(context, host.directory, 1)
    old.say(1, 0)
    host.post.send(PEER, commit(10))
    assert old.hear() == [10]
    host.until(lambda: host.heard)
    host.post.lose(PEER)
    host.post.send(PEER, commit(11))
    new = Peer(context, host.directory, 2)
    host.post.replace(PEER, 2, host.entry(2).inbox)
    host.post.send(PEER, commit(12))
    assert new.hear() == [12], "what was sent between two lives is dropped"
    old.say(2, 1)
    host.until(lambda: host.post.rejected)
    assert host.post.rejected == {"unknown-peer": 1}
    new.say(3, 0)
    host.until(lambda: len(host.heard) == 2)
    assert host.heard == [(PEER, 1, 0), (PEER, 3, 0)]


async def test_what_waited_for_the_old_life_never_reaches_the_new_one(host, context):
    for step in range(5):
        host.post.send(PEER, commit(step))  # nobody is bound there
    host.post.replace(PEER, 2, host.entry(2).inbox)
    host.post.send(PEER, commit(99))
    assert Peer(context, host.directory, 2).hear() == [99]


async def test_new_life_is_kept_until_the_node_was_told_of_it(host, context):
    new = Peer(context, host.directory, 2)
    new.say(7, 0)
    new.say(8, 1)
    host.until(lambda: len(host.post._early) == 2)
    assert (host.heard, host.post.rejected) == ([], {})
    host.post.replace(PEER, 2, host.entry(2).inbox)
    assert host.heard == [], "only once the node was told, too"
    host.post.look()
    assert host.heard == [(PEER, 7, 0), (PEER, 8, 1)]


async def test_early_messages_are_bounded_and_strangers_refused(host, context, monkeypatch):
    monkeypatch.setattr(post_module, "EARLY_LIMIT", 1)
    new = Peer(context, host.directory, 2)
    new.say(7, 0)
    new.say(8, 1)
    host.until(lambda: host.post.rejected == {"unknown-peer": 1})
    for name in (b"token/nobody#2", b"other/" + PEER.encode() + b"#2", b"\xff", b"#", b"token/"):
        ZmqOutbox(context, f"ipc://{host.directory}/own", OWN, name).send(commit(1))
    host.until(lambda: host.post.rejected == {"unknown-peer": 6})


async def test_sequence_of_a_new_life_begins_anew(host, context):
    meter = host.post.meter
    assert [meter.received(PEER, 1, sequence) for sequence in (0, 1, 2)] == [0, 0, 0]
    host.post.replace(PEER, 2, host.entry(2).inbox)
    assert [meter.received(PEER, 1, sequence) for sequence in (0, 1, 3)] == [0, 0, 1]


async def test_lost_peer_takes_any_number_of_messages(host, monkeypatch):
    host.post.lose(PEER)
    for step in range(channel.HIGH_WATER_MARK + 1):
        host.post.send(PEER, commit(step))
    host.post.lose(PEER)


async def test_recorder_waits_for_the_present_lives_last_row_alone(host, context):
    assert not await host.post.all_rows(0.0)
    host.post.lose(PEER)
    assert await host.post.all_rows(LIMIT_S), "nobody is left to wait for"
    old, new = Peer(context, host.directory, 1), Peer(context, host.directory, 2)
    host.post.replace(PEER, 2, host.entry(2).inbox)
    assert not await host.post.all_rows(0.0), "the new life has not ended"
    old.end_rows()
    host.until(lambda: host.post.rejected == {"unknown-peer": 1})
    assert not await host.post.all_rows(0.0), "an old life's end is not the new one's"
    new.end_rows()
    assert await host.post.all_rows(LIMIT_S)


async def test_only_peers_can_be_replaced(host):
    with pytest.raises(ProtocolError, match="no peer"):
        host.post.replace("south.agent", 2, "ipc:///nowhere")
    host.post.lose("south.agent")


async def test_control_desk_hears_one_life_at_a_time(context, tmp_path):
    heard: list[int] = []
    came = asyncio.Event()

    def on_message(_node, message):
        heard.append(message.life)
        came.set()

    endpoint = f"ipc://{tmp_path}/control"
    desk = ControlDesk(endpoint, TOKEN, on_message)
    desk.open()
    loop = asyncio.get_running_loop()
    lives = [ControlClient(context, endpoint, routing_id(TOKEN, PEER, life)) for life in (1, 2)]
    for client in lives:
        loop.add_reader(client.fd, came.set)
    refused = 0
    try:
        async with asyncio.timeout(LIMIT_S):
            for expected in (1, 2):
                desk.expect(PEER, expected)
                for life, client in enumerate(lives, 1):
                    client.send(encode(Ready(PEER, life, "")))
                while len(heard) < expected or refused < expected:
                    came.clear()
                    answers = [decode(d.frames)[0] for c in lives for d in c.drain(10)]
                    refused += sum(answer.code == "unknown-peer" for answer in answers)
                    if not answers:
                        await came.wait()
    finally:
        for client in lives:
            loop.remove_reader(client.fd)
        desk.close()
    assert heard == [1, 2]
    assert desk.rejected == {"unknown-peer": 2}
