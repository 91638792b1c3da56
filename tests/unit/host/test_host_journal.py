"""Journals: what went in comes out, a killed process costs its last entry, a changed node shows."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import msgpack
import numpy as np
import pytest

from nodes.api import (
    CancelTimer,
    Decide,
    DrainRequested,
    Fail,
    Finished,
    GrantLease,
    Injected,
    PeerChanged,
    Progress,
    Received,
    Record,
    Reported,
    Send,
    SetTimer,
    Started,
    Store,
    TimerFired,
    Work,
)
from protocols.codec import decode, encode
from protocols.messages import Decision, StepCommit, TableBatch
from protocols.work import ApplyStep
from testbed.errors import RanloomError
from testbed.gpu.gate import Lease, Window
from testbed.host import journal
from testbed.host.journal import EffectHash, Journal, Stepper, read_journal, replay

BIRTH = {"node": "north.agent", "life": 1}
INPUTS = [
    (-500, Started(), None),
    (0, TimerFired("slot", 0), None),
    (12, Received("coordinator", StepCommit("job", 1, 2)), StepCommit("job", 1, 2)),
    (13, Reported(ApplyStep(1, 2)), ApplyStep(1, 2)),
    (20, PeerChanged("south.agent", "missing", "no heartbeat"), None),
    (25, Injected("late_quantum", 900, (2000, 48)), None),
    (30, DrainRequested("the end", at_once=True), None),
]


class Echo:
    """Says of each event what it was; ``wrong_from``: says something else from that step on."""

    def __init__(self, wrong_from: int = 10**9) -> None:
        self.seen = []
        self._wrong_from = wrong_from

    def step(self, now_us, event):
        self.seen.append((now_us, repr(event)))
        text = repr(event) if len(self.seen) < self._wrong_from else "otherwise"
        return [Decide("saw", text), SetTimer("next", now_us + 1)]


def written(path, inputs=INPUTS, *, full=False):
    """A journal of these inputs, as a host writes it; returns the node."""
    node = Echo()
    stepper = Stepper(node, Journal(path.open("wb"), BIRTH, full=full))
    for now_us, event, message in inputs:
        stepper.feed(now_us, event, encode(message) if message is not None else ())
    stepper.close()
    return node


def many(count):
    return [(slot * 500, TimerFired("slot", slot * 500), None) for slot in range(count)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "north.agent.mp"


@pytest.mark.parametrize("full", [False, True])
def test_every_kind_of_input_comes_back_as_it_was(path, full):
    node = written(path, full=full)
    again = Echo()
    result = replay(path, lambda birth: again if birth == BIRTH else None)
    assert result.same
    assert (result.node, result.steps, result.hashes) == ("north.agent", len(INPUTS), 1)
    # Messages compare by identity; their class names and all other fields are in the text.
    assert [text.split(" object at ")[0] for _, text in again.seen] == [
        text.split(" object at ")[0] for _, text in node.seen
    ]
    assert [now_us for now_us, _ in again.seen] == [now_us for now_us, *_ in INPUTS]


def test_changed_node_is_found_with_the_step_before_which_it_differs(path, monkeypatch):
    """Hashes after 10, 20, 30 and 35 steps; the node differs from its 15th step on."""
    monkeypatch.setattr(journal, "HASH_EVERY", 10)
    written(path, many(35))
    assert replay(path, lambda birth: Echo()).hashes == 4
    result = replay(path, lambda birth: Echo(wrong_from=15))
    assert not result.same
    assert (result.differs_before_step, result.hashes) == (20, 2)


def test_killed_node_can_be_compared_up_to_its_last_flush(path):
    """20 steps and a flush; then 5 more that were never written."""
    file = path.open("wb")
    stepper = Stepper(Echo(), Journal(file, BIRTH))
    for now_us, event, _ in many(20):
        stepper.feed(now_us, event)
    stepper.flush()
    stepper.flush()
    for now_us, event, _ in many(5):
        stepper.feed(now_us, event)
    file.close()
    result = replay(path, lambda birth: Echo())
    assert result.same
    assert (result.steps, result.hashes) == (20, 1), "a flush without steps adds none"
    assert not replay(path, lambda birth: Echo(wrong_from=15)).same


def test_messages_to_a_peers_next_life_are_numbered_from_zero():
    class Sender:
        def step(self, now_us, event):
            return [Send("north", StepCommit("job", 1, 2)), Send("south", StepCommit("job", 1, 2))]

    stepper = Stepper(Sender(), None)

    def sequences():
        return [decode(frames)[1].sequence for _, frames in stepper.feed(0, Started())]

    assert [sequences(), sequences()] == [[0, 0], [1, 1]]
    stepper.restart_sequence("north")
    stepper.restart_sequence("nobody")
    assert sequences() == [0, 2]


def test_missing_input_is_found(path):
    written(path, many(20))
    entries = list(read_journal(path))
    del entries[7]
    rewrite(path, entries)
    assert not replay(path, lambda birth: Echo()).same


def rewrite(path, entries):
    with path.open("wb") as file:
        kept = Journal(file, {})
        kept._buffer.clear()
        for entry in entries:
            kept._append(entry)
        kept.close()


def test_torn_journal_replays_up_to_its_last_whole_entry(path, monkeypatch):
    """However many bytes reached the disk, what is whole is read and nothing else is."""
    monkeypatch.setattr(journal, "HASH_EVERY", 10)
    written(path, many(25))
    whole = path.read_bytes()
    entries = list(read_journal(path))
    ends, at = [], 0
    while at < len(whole):
        at += 4 + struct.unpack_from("<I", whole, at)[0]
        ends.append(at)
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert list(read_journal(path)) == entries[: sum(end <= cut for end in ends)]
    path.write_bytes(whole[: ends[15] + 3])
    result = replay(path, lambda birth: Echo())
    assert result.same
    assert (result.steps, result.hashes) == (14, 1)


def test_journal_without_a_hash_proves_nothing(path):
    """A node that was killed within its first thousand steps."""
    with path.open("wb") as file:
        kept = Journal(file, BIRTH)
        stepper = Stepper(Echo(), kept)
        for now_us, event, _ in many(5):
            stepper.feed(now_us, event)
        kept.flush()
        result = replay(path, lambda birth: Echo())
    assert (result.steps, result.hashes, result.differs_before_step) == (5, 0, None)
    assert not result.same


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a journal at all",
        struct.pack("<I", 3) + b"\x93\x01\x02",  # no birth
        struct.pack("<I", 1) + b"\x05",  # not an array
        struct.pack("<I", 1) + b"\xc1",  # not msgpack
        struct.pack("<I", 2) + b"\x91\xd9",  # msgpack cut short
    ],
)
def test_file_that_is_no_journal_is_a_named_error(path, content):
    path.write_bytes(content)
    with pytest.raises(RanloomError, match=r"north\.agent\.mp"):
        replay(path, lambda birth: Echo())


def test_entry_of_an_unknown_kind_is_a_named_error(path):
    rewrite(path, [["C", BIRTH], [0, 0, "X"]])
    with pytest.raises(RanloomError, match="unknown kind 'X'"):
        replay(path, lambda birth: Echo())


def test_inputs_are_on_disk_after_a_flush(path):
    kept = Journal(path.open("wb"), BIRTH)
    kept.input(0, 5, TimerFired("slot", 0), ())
    assert path.read_bytes() == b""
    kept.flush()
    assert list(read_journal(path)) == [["C", BIRTH], [0, 5, "T", "slot", 0]]


def test_messages_are_numbered_per_receiver():
    class Talks:
        def step(self, now_us, event):
            return [Send(to, StepCommit("job", 1, 1)) for to in ("a", "b", "a")]

    stepper = Stepper(Talks(), None)
    seen = []
    for now_us in (5, 6):
        for effect, frames in stepper.feed(now_us, Started()):
            envelope = decode(frames)[1]
            seen.append((effect.to, envelope.sequence, envelope.sent_us))
    assert seen == [("a", 0, 5), ("b", 0, 5), ("a", 1, 5), ("a", 2, 6), ("b", 1, 6), ("a", 3, 6)]


# --- the hash -----------------------------------------------------------------------------------

LEASE = Lease(1, (Window(0, 100, 24),), 300)
EFFECTS = [
    Send("a", StepCommit("job", 1, 2)),
    Send("b", StepCommit("job", 1, 2)),
    Send("a", StepCommit("job", 1, 3)),
    SetTimer("slot", 5),
    SetTimer("slot", 6),
    SetTimer("give up", 5),
    CancelTimer("slot"),
    Work(ApplyStep(1, 2)),
    Work(ApplyStep(1, 3)),
    GrantLease(LEASE),
    GrantLease(replace(LEASE, epoch=2)),
    GrantLease(replace(LEASE, bandwidth_permille=0)),
    GrantLease(replace(LEASE, windows=(Window(0, 101, 24),))),
    Record("blocks", (1, 2)),
    Record("blocks", (1, 3)),
    Record("sdus", (1, 2)),
    Decide("a", "b"),
    Decide("a", "c"),
    Store("a", Decision("n", 1, "s", "r")),
    Progress("half"),
    Finished("half"),
    Fail("half"),
]


def digest(*effects):
    rolling = EffectHash()
    rolling.update(effects)
    return rolling.digest()


def test_every_field_of_every_effect_counts():
    assert len({digest(effect) for effect in EFFECTS}) == len(EFFECTS)


def table(values, dtype="<i8"):
    """A batch of one column, as an effect."""
    return Store("a", TableBatch("n", "blocks", {"cell": np.array(values, dtype=dtype)}))


def test_every_part_of_an_array_counts():
    """Type, shape, content and name of a column are all in the digest."""
    square = Store("a", TableBatch("n", "blocks", {"cell": np.zeros((2, 2), "<i8")}))
    other_name = Store("a", TableBatch("n", "blocks", {"ue": np.zeros(4, "<i8")}))
    batches = [table([0] * 4), table([0, 0, 0, 1]), table([0] * 4, "<f8"), square, other_name]
    assert len({digest(batch) for batch in batches}) == len(batches)
    assert digest(table(range(4))) == digest(table(range(4)))


def test_digest_does_not_depend_on_when_it_was_asked_for():
    """Steps are hashed in lots; asking in between changes nothing."""
    asked_often, asked_once = EffectHash(), EffectHash()
    for at_us in range(500):
        asked_often.update([SetTimer("slot", at_us)])
        asked_often.digest()
        asked_once.update([SetTimer("slot", at_us)])
    assert asked_often.digest() == asked_once.digest()


def test_steps_without_effects_count():
    with_it, without = EffectHash(), EffectHash()
    with_it.update([])
    assert with_it.digest() != without.digest()


def test_digest_is_the_one_of_the_documented_bytes():
    """Built by hand: a msgpack array per step, of arrays of class name and fields."""
    rolling = EffectHash()
    rolling.update([SetTimer("slot", 5), Send("b", StepCommit("job", 1, 2))])
    rolling.update([Progress("half")])
    first = [["SetTimer", ["slot", 5]], ["Send", ["b", ["StepCommit", ["job", 1, 2]]]]]
    packed = msgpack.packb(first) + msgpack.packb([["Progress", "half"]])
    assert rolling.digest() == hashlib.blake2b(packed, digest_size=16).hexdigest()


def test_what_no_message_may_hold_is_refused():
    with pytest.raises(TypeError, match="set in an effect"):
        digest(Record("blocks", ({1},)))  # type: ignore[arg-type]


def test_stepper_that_encodes_nothing_hashes_the_same():
    class Talks:
        def step(self, now_us, event):
            return [Send("a", StepCommit("job", 1, now_us)), Work(ApplyStep(1, 2)), Progress("x")]

    encoding, passing = Stepper(Talks(), None), Stepper(Talks(), None, encodes=False)
    for now_us in range(3):
        with_frames = list(encoding.feed(now_us, Started()))
        without = list(passing.feed(now_us, Started()))
        assert len(with_frames) == len(without) == 3
        assert [frames is None for _, frames in with_frames] == [False, False, True]
        assert [frames for _, frames in without] == [None] * 3
        assert encoding.digest() == passing.digest()


def test_full_journal_needs_frames(path):
    with path.open("wb") as file, pytest.raises(ValueError, match="as frames"):
        Stepper(Echo(), Journal(file, BIRTH, full=True), encodes=False)


def test_order_counts_and_the_same_effects_give_the_same_digest():
    assert digest(*EFFECTS) == digest(*EFFECTS)
    assert digest(*EFFECTS) != digest(*reversed(EFFECTS))
    assert digest(*EFFECTS[:-1]) != digest(*EFFECTS)
