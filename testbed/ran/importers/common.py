"""What all importers of load logs share: options, the account of rows, intervals of load.

Owns the rules that hold for every format: what a bad row does, how the time between two reports
becomes an interval, where a log's time begins, which cells are kept. Knows no format.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from testbed.errors import TraceError
from testbed.ran.traces import TraceRow

T = TypeVar("T")

Source = tuple[str, Iterable[str]]
"""What errors call a file, and its lines."""

BadRows = Literal["refuse", "skip"]
PeakOf = Literal["sum", "largest", "each"]

ONLY_CELL = "0"
"""The name of the cell in formats that log one cell and do not name it."""

GAP_FACTOR = 1.5
"""Reports further apart than this many intervals have a gap between them, not a long interval."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a log is read.

    Attributes:
        cells: the cells that are kept; empty keeps all.
        bad_rows: ``refuse`` the log at its first bad row, or ``skip`` and count them.
        interval_s: seconds that a report covers; None: what the format's tool does by default.
        peak_mbps: Milan: the rate, both directions together, of the busiest interval.
        ul_share: Milan: the uplink's part of that rate, 0 to 1.
        peak_of: Milan: whose busiest interval that is: of all cells kept, taken together (``sum``),
            of the busiest of them, the others in proportion (``largest``), or ``each`` its own.
    """

    cells: tuple[str, ...] = ()
    bad_rows: BadRows = "refuse"
    interval_s: float | None = None
    peak_mbps: float | None = None
    ul_share: float | None = None
    peak_of: PeakOf = "sum"

    def __post_init__(self) -> None:
        """Raises TraceError: a value out of range."""
        for key, value, highest in (
            ("interval_s", self.interval_s, 86_400),
            ("peak_mbps", self.peak_mbps, 1_000_000),
        ):
            if value is not None and not 0 < value <= highest:
                raise TraceError(f"{key} = {value!r}: allowed is above 0, at most {highest}")
        if self.ul_share is not None and not 0 <= self.ul_share <= 1:
            raise TraceError(f"ul_share = {self.ul_share!r}: allowed is 0 to 1")

    def interval_us(self, default_us: int) -> int:
        """The length of a report's interval, microseconds."""
        return default_us if self.interval_s is None else max(1, round(self.interval_s * 1e6))


@dataclass(frozen=True, slots=True)
class IntervalLoad:
    """Bytes that a cell, or one of its UEs, was asked to carry in [start, start + length).

    ``rnti`` is None where the log knows the cell's total alone. Bytes may be fractions here.
    """

    start_us: int
    length_us: int
    cell: str
    rnti: int | None
    dl_bytes: float
    ul_bytes: float


@dataclass(frozen=True, slots=True)
class RateReport:
    """Mean rates of a UE, or of a cell, over the time that ends at ``time_us``."""

    time_us: int
    cell: str
    rnti: int | None
    dl_bits_per_s: float
    ul_bits_per_s: float


@dataclass(frozen=True, slots=True)
class LoadLog:
    """A log as read, with the account of its rows.

    Attributes:
        loads: in order of start, cell and RNTI. Time 0 is the start of the log's first interval, of
            whichever cell, so that cells imported one by one from the same log stay aligned.
        cells: all cells of the log, also those left out.
        chosen: the cells asked for; empty where none was named and all are kept.
        data_rows: rows other than headers, bad ones included.
        bad_rows: one message for each row that was skipped.
        notes: what else the reader should know.
    """

    loads: tuple[IntervalLoad, ...]
    cells: tuple[str, ...]
    chosen: tuple[str, ...]
    data_rows: int
    bad_rows: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def duration_us(self) -> int:
        """End of the last interval."""
        return max((load.start_us + load.length_us for load in self.loads), default=0)


@dataclass(slots=True)
class RowLedger:
    """Counts rows while a log is read, and decides what a bad one does."""

    policy: BadRows
    data_rows: int = 0
    bad_rows: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def bad(self, error: TraceError) -> None:
        """A bad row: noted, or raised if the log is to be refused."""
        if self.policy == "refuse":
            raise TraceError(f"{error} (bad rows can be skipped instead)") from None
        self.bad_rows.append(str(error))


def csv_rows(
    source: Source,
    required: Sequence[str],
    what: str,
    convert: Callable[[TraceRow], T],
    led: RowLedger,
) -> Iterator[T]:
    """Rows of a CSV log with a header, converted; empty lines and repeated headers are left out.

    Args:
        source: the file.
        required: columns that the header must have, in whatever order.
        what: the kind of log, for the error if it is another.
        convert: turns a row into a value; raises TraceError for a bad one.
        led: counts the rows.

    Raises:
        TraceError: no such header, unreadable text, or a bad row that is to be refused.
    """
    name, lines = source
    rows = csv.reader(lines)
    try:
        header = tuple(text.strip() for text in next(rows, []))
        missing = [column for column in required if column not in header]
        if missing:
            raise TraceError(
                f"{name}, line 1: not {what}: no column {missing[0]!r}; "
                f"needed are {', '.join(required)}"
            )
        for fields in rows:
            if not fields or [text.strip() for text in fields] == list(header):
                continue
            led.data_rows += 1
            try:
                value = convert(TraceRow(name, rows.line_num, header, fields))
            except TraceError as error:
                led.bad(error)
            else:
                yield value
    except csv.Error as error:
        raise TraceError(f"{name}, line {rows.line_num}: not readable as CSV: {error}") from None


def loads_of_reports(
    reports: Iterable[RateReport], interval_us: int, led: RowLedger
) -> list[IntervalLoad]:
    """Bytes of each report's interval: rate times the time since the report before it.

    The first report of a UE, and one that follows a gap of more than ``GAP_FACTOR`` intervals,
    cover ``interval_us``; nothing is assumed to have arrived within the rest of a gap.
    """
    last_us: dict[tuple[str, int | None], int] = {}
    loads: list[IntervalLoad] = []
    gaps = 0
    for report in sorted(reports, key=lambda report: report.time_us):
        stream = (report.cell, report.rnti)
        length_us = interval_us
        if stream in last_us:
            since_us = report.time_us - last_us[stream]
            if since_us <= GAP_FACTOR * interval_us:
                length_us = since_us
            else:
                gaps += 1
        last_us[stream] = report.time_us
        seconds = length_us / 1e6
        loads.append(
            IntervalLoad(
                report.time_us - length_us,
                length_us,
                report.cell,
                report.rnti,
                report.dl_bits_per_s * seconds / 8,
                report.ul_bits_per_s * seconds / 8,
            )
        )
    if gaps:
        led.notes.append(
            f"{gaps} gaps between reports, longer than {GAP_FACTOR} x {interval_us / 1e6:g} s: "
            "no load is assumed within them"
        )
    return loads


def finish(
    loads: Iterable[IntervalLoad],
    options: ReadOptions,
    led: RowLedger,
    *,
    cells: Iterable[str] | None = None,
    origin_us: int | None = None,
) -> LoadLog:
    """The log: time from its first interval on, the chosen cells alone, in order.

    Args:
        loads: with absolute times.
        options: names the cells.
        led: the account.
        cells: all cells of the log, where ``loads`` holds but the chosen ones.
        origin_us: the log's first interval, likewise.

    Raises:
        TraceError: no usable row, or a cell that the log does not have.
    """
    kept = list(loads)
    all_cells = sort_cells({load.cell for load in kept} if cells is None else cells)
    if not all_cells:
        raise TraceError(
            f"no usable row among {led.data_rows}" + "".join(f"; {bad}" for bad in led.bad_rows[:1])
        )
    for cell in options.cells:
        if cell not in all_cells:
            raise TraceError(
                f"cell {cell!r} is not in the log; allowed are {list_cells(all_cells)}"
            )
    if origin_us is None:
        origin_us = min(load.start_us for load in kept)
    chosen = [load for load in kept if not options.cells or load.cell in options.cells]
    chosen.sort(key=lambda load: (load.start_us, load.cell, -1 if load.rnti is None else load.rnti))
    return LoadLog(
        tuple(
            IntervalLoad(
                load.start_us - origin_us,
                load.length_us,
                load.cell,
                load.rnti,
                load.dl_bytes,
                load.ul_bytes,
            )
            for load in chosen
        ),
        all_cells,
        tuple(dict.fromkeys(options.cells)),
        led.data_rows,
        tuple(led.bad_rows),
        tuple(led.notes),
    )


def sort_cells(cells: Iterable[str]) -> tuple[str, ...]:
    """Numbers first, by value; then the other names."""

    def key(cell: str) -> tuple[bool, int, str]:
        is_number = cell.isdecimal() and len(cell) < 20
        return (not is_number, int(cell) if is_number else 0, cell)

    return tuple(sorted(set(cells), key=key))


def list_cells(cells: Sequence[str]) -> str:
    """The cells for an error text; the first twenty if there are many."""
    more = f", ... ({len(cells)} in all)" if len(cells) > 20 else ""
    return ", ".join(cells[:20]) + more
