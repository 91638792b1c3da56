"""Turns a node's Record and Decide effects into batches for the recorder."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from nodes.api import Decide, Record
from protocols.messages import Decision, TableBatch
from testbed.record.schema import TABLES

ROWS_PER_BATCH = 400


class RowBuffer:
    """Rows of one node, by table; a batch comes out when a table has ``ROWS_PER_BATCH`` rows."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._rows: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)

    def add(self, record: Record) -> TableBatch | None:
        """Take a row in; returns a batch when one is full."""
        rows = self._rows[record.table]
        rows.append(record.row)
        return self._take(record.table) if len(rows) >= ROWS_PER_BATCH else None

    def flush(self) -> list[TableBatch]:
        """Everything that is left, as batches."""
        return [self._take(table) for table, rows in self._rows.items() if rows]

    def decision(self, now_us: int, decide: Decide) -> Decision:
        """A decision as a message."""
        return Decision(self._node, now_us, decide.subject[:80], decide.reason[:2000])

    def _take(self, table: str) -> TableBatch:
        columns = np.array(self._rows[table], dtype="<i8").T
        self._rows[table] = []
        names = TABLES[table]
        named = {name: np.ascontiguousarray(columns[i]) for i, name in enumerate(names)}
        return TableBatch(self._node, table, named)
