"""Tables: complete, sorted, byte-identical for equal content, and refused where they are wrong."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from protocols.messages import TableBatch
from testbed.errors import RanloomError
from testbed.record.schema import TABLES
from testbed.record.tables import build_tables, empty_tables, read_tables, schema_of, write_tables

from .fabricate import Fabricated


def test_every_table_exists_even_without_rows() -> None:
    tables = build_tables([])
    assert set(tables) == {*TABLES, "decisions"}
    for name, frame in tables.items():
        assert list(frame.columns)[-1] == "node"
        assert dict(frame.schema) == schema_of(name)


def test_a_round_trip_keeps_everything(live: Fabricated, tmp_path: Path) -> None:
    tables = build_tables(live.batches, live.decisions)
    write_tables(tables, tmp_path)
    again, missing = read_tables(tmp_path)
    assert missing == []
    assert all(tables[name].equals(again[name]) for name in tables)
    rows = sum(len(batch.columns["slot"]) for batch in live.batches if batch.table == "lateness")
    assert len(tables["lateness"]) == rows > 0


def test_the_order_of_arrival_leaves_no_trace(live: Fabricated, tmp_path: Path) -> None:
    shuffled = live.batches[:]
    random.Random(7).shuffle(shuffled)
    for name, batches in (("a", live.batches), ("b", shuffled)):
        write_tables(build_tables(batches, live.decisions), tmp_path / name)
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_rows_carry_the_node_that_wrote_them(live: Fabricated) -> None:
    tables = build_tables(live.batches)
    assert tables["quanta"]["node"].unique().sort().to_list() == [
        "north.pretrain.trainer",
        "south.pretrain.trainer",
    ]


@pytest.mark.parametrize(
    ("table", "columns", "text"),
    [
        ("sausages", {"at_us": np.zeros(1, dtype=np.int64)}, "allowed are ran_tasks"),
        ("leases", {"epoch": np.zeros(1, dtype=np.int64)}, "allowed are \\['end_us'"),
    ],
)
def test_an_unknown_table_or_column_is_named(table: str, columns: dict, text: str) -> None:
    with pytest.raises(RanloomError, match=f"north.agent wrote .*{text}"):
        build_tables([TableBatch("north.agent", table, columns)])


def test_what_is_missing_is_listed(tmp_path: Path) -> None:
    write_tables({"leases": empty_tables()["leases"]}, tmp_path)
    tables, missing = read_tables(tmp_path)
    assert "tables/quanta.parquet" in missing
    assert "tables/leases.parquet" not in missing
    assert len(tables["quanta"]) == 0


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "quanta.parquet").write_text("not parquet")
    with pytest.raises(RanloomError, match=r"quanta\.parquet: not a readable Parquet"):
        read_tables(tmp_path)


def test_a_table_of_another_version_is_named(tmp_path: Path) -> None:
    write_tables({"quanta": empty_tables()["leases"]}, tmp_path)
    with pytest.raises(RanloomError, match=r"quanta\.parquet: columns .*; this version reads"):
        read_tables(tmp_path)
