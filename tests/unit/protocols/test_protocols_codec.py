"""The wire: every message comes back as it went, and whatever else comes is refused by name."""

from __future__ import annotations

from contextlib import suppress

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols_sources import instances, same, values

from protocols import codec
from protocols.codec import MAX_FRAMES, MAX_HEADER_BYTES, Envelope, decode, encode, field_kinds
from protocols.control import Drain, Heartbeat, Hello, Start
from protocols.errors import ProtocolError, RanloomError
from protocols.messages import (
    PROTOCOL_VERSION,
    LeaseGrant,
    PhyAllocation,
    StepCommit,
    SyncDone,
    TableBatch,
    TtiRequest,
)
from protocols.registry import MESSAGES

SETTINGS = settings(max_examples=25)
KINDS = sorted(MESSAGES.values(), key=lambda kind: kind.TAG)
HEAD = [0, PROTOCOL_VERSION, 0, 0]


def header(tag, *fields, version=PROTOCOL_VERSION):
    return msgpack.packb([tag, version, 0, 0, *fields])


def refused(frames) -> tuple[str, str]:
    with pytest.raises(ProtocolError) as caught:
        decode(frames)
    assert isinstance(caught.value, RanloomError)
    return caught.value.code, str(caught.value)


# --- what is allowed ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@SETTINGS
@given(data=st.data())
def test_every_message_comes_back_as_it_went(kind, data):
    message = data.draw(instances(kind))
    sequence, sent_us = data.draw(st.integers(0, 2**53)), data.draw(st.integers(-(2**53), 2**53))
    frames = [bytes(frame) for frame in encode(message, sequence, sent_us)]
    got, envelope = decode(frames)
    assert same(message, got)
    assert envelope == Envelope(sequence, sent_us)
    assert [bytes(frame) for frame in encode(got, sequence, sent_us)] == frames


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_kind_describes_itself_and_refuses_other_things(kind):
    for _, rule in field_kinds(kind):
        assert rule.describe()
        for wrong in (None, object(), {1: 2}, 1.5, "x" * 70_000, 2**70, [[object()]], [None]):
            with pytest.raises(ValueError, match="is not"):
                rule.check(wrong)


def test_tags_are_unique_and_fit_one_byte_of_msgpack():
    assert len({kind.TAG for kind in KINDS}) == len(KINDS)
    assert all(tag == kind.TAG for tag, kind in MESSAGES.items())
    assert all(0 < kind.TAG < 128 for kind in KINDS)


def test_array_that_is_not_contiguous_travels_in_c_order():
    blocks = np.arange(44, dtype="<i4").reshape(11, 4).T
    got, _ = decode(encode(TtiRequest("g1", 9, 1, blocks)))
    assert np.array_equal(got.blocks, blocks)


def test_array_frames_are_not_copied():
    blocks = np.zeros((3, 11), dtype="<i4")
    frames = encode(TtiRequest("g1", 9, 1, blocks))
    blocks[0, 0] = 7
    assert np.frombuffer(frames[1], dtype="<i4")[0] == 7


# --- what is not --------------------------------------------------------------------------------

COMMIT = StepCommit.TAG
ROW = [0, 1, 2]


@pytest.mark.parametrize(
    ("frames", "code", "told"),
    [
        ([], "wrong-frames", "0 frames; 1..40 are allowed"),
        ([b""] * (MAX_FRAMES + 1), "wrong-frames", "41 frames; 1..40 are allowed"),
        ([b""], "not-msgpack", "not a header"),
        ([b"\xc1"], "not-msgpack", "not a header"),
        ([b"garbage"], "not-msgpack", "not a header"),
        ([b"\x93\x01"], "not-msgpack", "not a header"),
        ([b"\x91" * 60_000], "not-msgpack", "not a header"),
        ([msgpack.packb({1: 2})], "not-msgpack", "not a header"),
        ([msgpack.packb([1, b"binary"])], "not-msgpack", "not a header"),
        ([msgpack.packb([1, msgpack.ExtType(4, b"x")])], "not-msgpack", "not a header"),
        ([msgpack.packb([1, msgpack.Timestamp(1)])], "not-msgpack", "not a header"),
        ([b"\xa2\xff\xfe"], "not-msgpack", "not a header"),
        ([msgpack.packb(5)], "bad-header", "the header is a int, not an array"),
        ([msgpack.packb("text")], "bad-header", "the header is a str, not an array"),
        ([msgpack.packb([])], "bad-header", "must begin with four integers"),
        ([msgpack.packb([9, 1, 0])], "bad-header", "must begin with four integers"),
        ([msgpack.packb([9, 1, 0, 0.5])], "bad-header", "must begin with four integers"),
        ([msgpack.packb([True, 1, 0, 0])], "bad-header", "must begin with four integers"),
        (
            [header(COMMIT, "job", 1, 1, version=PROTOCOL_VERSION + 1)],
            "wrong-version",
            f"protocol version {PROTOCOL_VERSION + 1}; this side speaks {PROTOCOL_VERSION}",
        ),
        ([header(0)], "unknown-message", "no message has the tag 0"),
        ([header(-1)], "unknown-message", "no message has the tag -1"),
        ([header(2**63)], "unknown-message", f"no message has the tag {2**63}"),
        ([header(COMMIT, "job", 1)], "wrong-fields", "StepCommit has 3 fields, 2 were sent"),
        ([header(COMMIT, "job", 1, 2, 3)], "wrong-fields", "StepCommit has 3 fields, 4 were sent"),
        (
            [header(COMMIT, "job", 1, -1)],
            "bad-field",
            "StepCommit.step: -1 is not integer 0..4294967295",
        ),
        (
            [header(COMMIT, "job", 1, True)],
            "bad-field",
            "StepCommit.step: True is not integer 0..4294967295",
        ),
        (
            [header(COMMIT, "x" * 65, 1, 1)],
            "bad-field",
            f"StepCommit.job: '{'x' * 36}... is not text, at most 64 characters",
        ),
        ([header(COMMIT, ["job"], 1, 1)], "bad-field", "StepCommit.job: ['job'] is not text"),
        (
            [header(SyncDone.TAG, "job", 1, 1, 1, 0, "")],
            "bad-field",
            "SyncDone.ok: 1 is not boolean",
        ),
        (
            [header(LeaseGrant.TAG, "job", 1, 0, [ROW, [1, 2]])],
            "bad-field",
            "LeaseGrant.windows: row [1, 2] is not list of at most 64 rows of 3 integers",
        ),
        (
            [header(LeaseGrant.TAG, "job", 1, 0, [ROW] * 65)],
            "bad-field",
            "is not list of at most 64 rows",
        ),
        (
            [header(LeaseGrant.TAG, "job", 1, 0, [[0, 1, 2.0]])],
            "bad-field",
            "LeaseGrant.windows: 2.0 in a row is not",
        ),
        ([header(COMMIT, "job", 1, 1), b""], "wrong-frames", "StepCommit needs 1 frames, 2 were"),
        (
            [header(TtiRequest.TAG, "g1", 9, 1, None)],
            "bad-field",
            "TtiRequest.blocks: its frame is missing",
        ),
        (
            [header(TtiRequest.TAG, "g1", 9, 1, 5), b""],
            "bad-field",
            "TtiRequest.blocks: its frame is missing",
        ),
        (
            [header(TtiRequest.TAG, "g1", 9, 1, None), bytes(45)],
            "bad-field",
            "TtiRequest.blocks: a frame of 45 bytes is not frame: <i4 array (n, 11)",
        ),
        (
            [header(TtiRequest.TAG, "g1", 9, 1, None), bytes(44 * 24_000)],
            "bad-field",
            "a frame of 1056000 bytes is not",
        ),
        (
            [header(TableBatch.TAG, "n", "t", ["a:<i8", "b:<i8"]), bytes(8)],
            "bad-field",
            "TableBatch.columns: the frame of column 'b:<i8' is missing or not whole",
        ),
        (
            [header(TableBatch.TAG, "n", "t", ["a:<i8", "b:<i8"]), bytes(8), bytes(16)],
            "bad-field",
            "TableBatch.columns: columns of different lengths [1, 2]",
        ),
        (
            [header(TableBatch.TAG, "n", "t", ["a:<i8", "a:<f8"]), bytes(8), bytes(8)],
            "bad-field",
            "TableBatch.columns: a column is named twice",
        ),
        (
            [header(TableBatch.TAG, "n", "t", ["a:|O"]), bytes(8)],
            "bad-field",
            "column 'a:|O' is not one of the types ['<f8', '<i8']",
        ),
        ([header(TableBatch.TAG, "n", "t", [])], "bad-field", "TableBatch.columns: {} is not"),
        (
            [header(TableBatch.TAG, "n", "t", 7)],
            "bad-field",
            "TableBatch.columns: column names are not a list of text",
        ),
        (
            [header(TableBatch.TAG, "n", "t", ["a:<i8"]), bytes(7)],
            "bad-field",
            "the frame of column 'a:<i8' is missing or not whole",
        ),
    ],
)
def test_what_is_not_a_message_is_refused_by_code_and_text(frames, code, told):
    got, text = refused(frames)
    assert got == code, text
    assert told in text


def test_header_above_64_kib_is_refused_before_it_is_looked_into():
    code, text = refused([b"\xc1" * (MAX_HEADER_BYTES + 1)])
    assert (code, text) == ("too-large", "a header of 65537 bytes; at most 65536")


def test_message_above_the_total_is_refused(monkeypatch):
    monkeypatch.setattr(codec, "MAX_TOTAL_BYTES", 1000)
    assert refused([header(COMMIT, "job", 1, 1), bytes(1000)])[0] == "too-large"


def test_sender_is_told_when_its_header_would_be_too_large():
    segments = tuple((1, 2, 1, 2**40, 48, 300) for _ in range(4096))
    with pytest.raises(ProtocolError, match=r"PhyAllocation of .* bytes; at most 65536") as caught:
        encode(PhyAllocation(1, segments))
    assert caught.value.code == "too-large"


def test_many_empty_arrays_cost_no_more_than_their_refusal():
    """facts/traps.md: a megabyte of empty arrays is 65 times its size in memory; here: 16 384."""
    assert refused([b"\xdc\xff\xff" + b"\x90" * 65_000])[0] == "not-msgpack"


@settings(max_examples=400)
@given(st.lists(st.binary(max_size=120), max_size=4))
def test_any_bytes_are_decoded_or_refused(frames):
    with suppress(ProtocolError):
        decode(frames)


NESTED = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(
    tag=st.sampled_from(sorted(MESSAGES)),
    fields=st.lists(NESTED, max_size=12),
    frames=st.lists(st.binary(max_size=100), max_size=3),
    fit=st.booleans(),
)
def test_any_fields_under_a_good_envelope_are_decoded_or_refused(tag, fields, frames, fit):
    count = len(field_kinds(MESSAGES[tag]))
    if fit:
        fields = (fields + [None] * count)[:count]
    try:
        message, _ = decode([header(tag, *fields), *frames])
    except ProtocolError:
        return
    assert type(message) is MESSAGES[tag]


@pytest.mark.parametrize("kind", [Hello, Heartbeat, Start, TtiRequest, TableBatch])
@settings(max_examples=60)
@given(data=st.data())
def test_flipped_byte_is_decoded_to_allowed_values_or_refused(kind, data):
    frames = [bytearray(frame) for frame in encode(data.draw(instances(kind)))]
    frame = data.draw(st.sampled_from([frame for frame in frames if frame]))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        message, _ = decode([bytes(frame) for frame in frames])
    except ProtocolError:
        return
    for name, rule in field_kinds(type(message)):
        rule.check(getattr(message, name))


@SETTINGS
@given(data=st.data(), cut=st.integers(0, 60))
def test_truncated_header_is_refused(data, cut):
    frame = bytes(encode(data.draw(instances(Hello)))[0])
    assert refused([frame[: max(0, len(frame) - 1 - cut)]])[0] == "not-msgpack"


def test_strategies_cover_every_kind_of_field():
    for kind in KINDS:
        for _, rule in field_kinds(kind):
            assert values(rule) is not None


def test_refusal_does_not_poison_the_decoder():
    refused([b"\xc1"])
    message, _ = decode(encode(Drain("done", False)))
    assert message.reason == "done"
