"""Plain CSV of load: ``time_s,cell,dl_bytes,ul_bytes``.

Bytes arrived from ``time_s`` on until the same cell's next row; its last row lasts as long as the
one before it. Columns may stand in any order, and others beside them are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from testbed.errors import TraceError
from testbed.ran.importers.common import (
    IntervalLoad,
    LoadLog,
    ReadOptions,
    RowLedger,
    Source,
    csv_rows,
    finish,
)
from testbed.ran.traces import TraceRow

COLUMNS = ("time_s", "cell", "dl_bytes", "ul_bytes")


def read_plain(sources: Sequence[Source], options: ReadOptions) -> LoadLog:
    """Read a log of bytes; ``interval_s`` fixes the length of every row.

    Raises:
        TraceError: another format, a bad row that is to be refused, or a cell with a single row and
            no ``interval_s``.
    """
    led = RowLedger(options.bad_rows)
    rows: dict[str, dict[int, tuple[float, float]]] = {}

    def note(row: TraceRow) -> None:
        cell = row.text("cell")
        if not cell:
            raise row.error("cell", "a name")
        start_us = round(row.decimal("time_s") * 1e6)
        n_bytes = (row.decimal("dl_bytes"), row.decimal("ul_bytes"))
        of_cell = rows.setdefault(cell, {})
        if start_us in of_cell:
            raise row.error("time_s", f"one row per time for cell {cell}")
        of_cell[start_us] = n_bytes

    for source in sources:
        for _ in csv_rows(source, COLUMNS, "a plain load log", note, led):
            pass
    loads = [
        IntervalLoad(start_us, length_us, cell, None, *rows[cell][start_us])
        for cell in rows
        for start_us, length_us in _intervals(cell, sorted(rows[cell]), options.interval_s)
    ]
    return finish(loads, options, led)


def _intervals(cell: str, starts_us: list[int], interval_s: float | None) -> list[tuple[int, int]]:
    """Start and length of each row of a cell."""
    if interval_s is not None:
        fixed_us = max(1, round(interval_s * 1e6))
        return [(start_us, fixed_us) for start_us in starts_us]
    if len(starts_us) == 1:
        raise TraceError(
            f"cell {cell} has a single row, which does not tell how long it lasts: "
            "interval_s is needed"
        )
    lengths_us = [later - start for start, later in pairwise(starts_us)]
    return list(zip(starts_us, [*lengths_us, lengths_us[-1]], strict=True))
