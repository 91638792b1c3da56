"""Tables: what nodes recorded as polars frames, and as Parquet files that differ only in content.

Owns the step from batches to ``tables/*.parquet`` and back. Imports polars, so only ``report`` and
the end of a simulation load it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from protocols.messages import Decision, TableBatch
from testbed.errors import RanloomError
from testbed.record.schema import FLOAT_COLUMNS, TABLES

NODE = "node"
DECISIONS = "decisions"
DECISION_COLUMNS = ("at_us", "subject", "reason", NODE)

# The column that rows are sorted by; then the node, then all others from left to right.
_ORDER = {
    "ran_tasks": "start_us",
    "ran_pieces": "from_us",
    "leases": "start_us",
    "quanta": "start_us",
    "sdus": "delivered_us",
    "blocks": "air_slot",
}


def schema_of(table: str) -> dict[str, pl.DataType]:
    """Column -> type of a table, ``node`` last. Raises KeyError for an unknown table."""
    if table == DECISIONS:
        text: dict[str, pl.DataType] = {name: pl.String() for name in DECISION_COLUMNS}
        return text | {"at_us": pl.Int64()}
    columns: dict[str, pl.DataType] = {
        name: pl.Float64() if name in FLOAT_COLUMNS else pl.Int64() for name in TABLES[table]
    }
    return columns | {NODE: pl.String()}


def ints(frame: pl.DataFrame, column: str) -> npt.NDArray[np.int64]:
    """A column as an int64 array."""
    return frame[column].to_numpy().astype(np.int64, copy=False)


def empty_tables() -> dict[str, pl.DataFrame]:
    """All tables, without rows."""
    return {name: pl.DataFrame(schema=schema_of(name)) for name in (*TABLES, DECISIONS)}


def build_tables(
    batches: Iterable[TableBatch], decisions: Iterable[Decision] = ()
) -> dict[str, pl.DataFrame]:
    """Every table of the schema (empty ones too) from batches in any order.

    Raises RanloomError for a batch whose table or columns are not those of the schema: the node
    that wrote it is wrong.
    """
    parts: dict[str, list[TableBatch]] = {name: [] for name in TABLES}
    for batch in batches:
        _check(batch)
        parts[batch.table].append(batch)
    tables = empty_tables()
    for name, found in parts.items():
        if found:
            tables[name] = _sorted(name, _concatenated(name, found))
    rows = [(item.at_us, item.subject, item.reason, item.node) for item in decisions]
    if rows:
        frame = pl.DataFrame(rows, schema=schema_of(DECISIONS), orient="row")
        tables[DECISIONS] = _sorted(DECISIONS, frame)
    return tables


def write_tables(tables: Mapping[str, pl.DataFrame], directory: Path) -> None:
    """One Parquet file per table; the same content always gives the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, frame in sorted(tables.items()):
        _sorted(name, frame).write_parquet(
            directory / f"{name}.parquet",
            compression="zstd",
            compression_level=3,
            statistics=False,
            row_group_size=1 << 18,
        )


def read_tables(directory: Path) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """(tables, what is missing). A table whose file is absent is empty and listed.

    Raises RanloomError for a file that is no Parquet or has other columns than the schema.
    """
    tables, missing = empty_tables(), []
    for name, empty in tables.items():
        path = directory / f"{name}.parquet"
        if not path.is_file():
            missing.append(f"tables/{name}.parquet")
            continue
        try:
            frame = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise RanloomError(f"{path}: not a readable Parquet file: {error}") from None
        if frame.schema != empty.schema:
            raise RanloomError(
                f"{path}: columns {list(frame.schema)}; this version reads {list(empty.schema)}"
            )
        tables[name] = frame
    return tables, missing


def _check(batch: TableBatch) -> None:
    if batch.table not in TABLES:
        raise RanloomError(
            f"node {batch.node} wrote to table {batch.table!r}; allowed are {', '.join(TABLES)}"
        )
    expected = TABLES[batch.table]
    if set(batch.columns) != set(expected):
        raise RanloomError(
            f"node {batch.node} wrote columns {sorted(batch.columns)} to table {batch.table!r}; "
            f"allowed are {sorted(expected)}"
        )


def _concatenated(name: str, batches: list[TableBatch]) -> pl.DataFrame:
    columns = {
        column: np.concatenate([batch.columns[column] for batch in batches])
        for column in TABLES[name]
    }
    nodes = sorted({batch.node for batch in batches})
    lengths = [len(next(iter(batch.columns.values()))) for batch in batches]
    index = np.repeat([nodes.index(batch.node) for batch in batches], lengths)
    frame = pl.DataFrame(columns).cast({k: v for k, v in schema_of(name).items() if k != NODE})
    return frame.with_columns(pl.Series(NODE, nodes, dtype=pl.String).gather(index))


def _sorted(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    first = _ORDER.get(name, "at_us")
    rest = [column for column in frame.columns if column not in (first, NODE)]
    return frame.sort([first, NODE, *rest])
