"""The spool: what was appended comes back, whatever happened to the end of the file."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.codec import encode
from protocols.messages import Decision, TableBatch
from testbed.record.schema import TABLES
from testbed.record.spool import MemorySpool, SpoolWriter, read_spool


def batch(n: int, node: str = "north.agent", table: str = "leases") -> TableBatch:
    return TableBatch(node, table, {name: np.arange(n) + n for name in TABLES[table]})


MESSAGES = [batch(3), Decision("north.agent", 17, "lease", "closed"), batch(1), batch(200)]


def same(left: TableBatch, right: TableBatch) -> bool:
    return (left.node, left.table) == (right.node, right.table) and all(
        np.array_equal(left.columns[name], right.columns[name]) for name in left.columns
    )


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    with SpoolWriter(tmp_path / "spool.bin") as writer:
        for message in MESSAGES:
            writer.append(message)
    return tmp_path / "spool.bin"


def test_what_was_appended_comes_back_in_order(spool: Path) -> None:
    contents = read_spool(spool)
    assert [len(item.columns["sms"]) for item in contents.batches] == [3, 1, 200]
    assert same(contents.batches[0], batch(3))
    assert [item.reason for item in contents.decisions] == ["closed"]
    assert (contents.dropped_bytes, contents.reason) == (0, "")


def test_the_form_on_disk(tmp_path: Path) -> None:
    """u32 number of frames, each u32 length and bytes, little-endian."""
    with SpoolWriter(tmp_path / "s") as writer:
        writer.append(MESSAGES[1])
    (frame,) = encode(MESSAGES[1])
    assert (tmp_path / "s").read_bytes() == struct.pack("<II", 1, len(frame)) + bytes(frame)


def test_a_second_life_appends(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        writer.append(batch(7))
    assert len(read_spool(spool).batches) == 4


@given(st.data())
def test_a_torn_tail_costs_only_the_torn_record(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("torn") / "spool.bin"
    ends = []
    with SpoolWriter(path) as writer:
        for message in MESSAGES:
            writer.append(message)
            ends.append(path.stat().st_size)
    cut = data.draw(st.integers(0, ends[-1]))
    with path.open("r+b") as file:
        file.truncate(cut)
    contents = read_spool(path)
    whole = sum(end <= cut for end in ends)
    assert len(contents.batches) + len(contents.decisions) == whole
    assert contents.dropped_bytes == cut - ([0, *ends][whole])
    assert bool(contents.reason) == bool(contents.dropped_bytes)


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        (b"\x00" * 64, "wrong-frames"),
        (b"\xff" * 64, "not-a-spool"),
        (struct.pack("<II", 1, 5) + b"hello", "not-msgpack"),
        (struct.pack("<I", 1), "torn"),
    ],
)
def test_garbage_behind_good_records(spool: Path, tail: bytes, code: str) -> None:
    with spool.open("ab") as file:
        file.write(tail)
    contents = read_spool(spool)
    assert len(contents.batches) == 3
    assert contents.dropped_bytes == len(tail)
    assert contents.reason.startswith(code)


def test_memory_and_file_give_the_same(tmp_path: Path, spool: Path) -> None:
    memory = MemorySpool()
    for message in MESSAGES:
        memory.append(message)
    contents, from_file = memory.contents(), read_spool(spool)
    assert all(map(same, contents.batches, from_file.batches))
    assert len(contents.decisions) == len(from_file.decisions) == 1
    memory.write_to(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == spool.read_bytes()


def test_memory_keeps_what_was_sent_not_the_senders_buffer() -> None:
    memory, message = MemorySpool(), batch(3)
    memory.append(message)
    message.columns["sms"][:] = 0
    assert memory.contents().batches[0].columns["sms"].tolist() == [3, 4, 5]


def test_closing_twice_is_allowed(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path / "s")
    writer.close()
    writer.close()


def test_the_recorder_and_check_stay_light() -> None:
    """Importing the spool loads none of the report's libraries."""
    heavy = ("polars", "matplotlib", "jinja2", "rich")
    code = (
        "import sys, testbed.record.spool, testbed.record.schema, testbed.gpu.spare; "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
