"""Traffic traces: byte arrivals per RNTI, and their file format.

Reads and writes lines of text; whoever calls opens the files. The trace format is CSV with the
header ``time_us,rnti,direction,bytes``, one arrival per line in order of time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from testbed.errors import TraceError
from testbed.ran.numerology import Direction

TRACE_HEADER = ("time_us", "rnti", "direction", "bytes")
MAX_RNTI = 0xFFFF


@dataclass(frozen=True, slots=True)
class TraceArrival:
    """Bytes that entered a UE's buffer at a time counted from the start of the trace."""

    time_us: int
    rnti: int
    direction: Direction
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in order of time."""

    arrivals: tuple[TraceArrival, ...]

    def __post_init__(self) -> None:
        times = [arrival.time_us for arrival in self.arrivals]
        if any(later < earlier for earlier, later in pairwise(times)):
            raise ValueError("trace arrivals must be in order of time")

    @property
    def duration_us(self) -> int:
        """Time of the last arrival, 0 if there is none."""
        return self.arrivals[-1].time_us if self.arrivals else 0

    def total_bytes(self, direction: Direction) -> int:
        """Sum of the bytes of one direction."""
        return sum(a.n_bytes for a in self.arrivals if a.direction is direction)


def dump_trace(trace: Trace) -> Iterator[str]:
    """Lines of the trace format, each ending in a newline; ``load_trace`` reads them back."""
    yield ",".join(TRACE_HEADER) + "\n"
    for a in trace.arrivals:
        yield f"{a.time_us},{a.rnti},{a.direction.value},{a.n_bytes}\n"


def load_trace(lines: Iterable[str], name: str) -> Trace:
    """Read the trace format.

    Args:
        lines: the file's lines, header first.
        name: what errors call the file.

    Raises:
        TraceError: wrong header, column count or value, or rows out of order of time.
    """
    rows = enumerate(csv.reader(lines), start=1)
    _, header = next(rows, (1, []))
    if tuple(header) != TRACE_HEADER:
        raise TraceError(
            f"{name}, line 1: header is {','.join(header)!r}, allowed is {','.join(TRACE_HEADER)!r}"
        )
    arrivals: list[TraceArrival] = []
    last_us = 0
    for number, fields in rows:
        if not fields:
            continue
        row = TraceRow(name, number, TRACE_HEADER, fields)
        arrival = TraceArrival(
            row.integer("time_us", last_us, None, "an integer not before the previous row's"),
            row.integer("rnti", 0, MAX_RNTI),
            Direction(row.one_of("direction", ("DL", "UL"))),
            row.integer("bytes", 1, None),
        )
        last_us = arrival.time_us
        arrivals.append(arrival)
    return Trace(tuple(arrivals))


def busiest_window(trace: Trace, length_us: int) -> int:
    """Start of the window [start, start + length_us) with the most bytes of both directions.

    Only starts at an arrival are tried, which loses nothing; the earliest wins a tie. Returns 0
    for an empty trace.
    """
    if length_us <= 0:
        raise ValueError(f"length_us = {length_us}: must be positive")
    best_us, best_bytes = 0, -1
    end = held = 0
    for first in trace.arrivals:
        while end < len(trace.arrivals) and (
            trace.arrivals[end].time_us < first.time_us + length_us
        ):
            held += trace.arrivals[end].n_bytes
            end += 1
        if held > best_bytes:
            best_us, best_bytes = first.time_us, held
        held -= first.n_bytes
    return best_us


def map_rntis(trace: Trace, n_ues: int) -> dict[int, int]:
    """UE index for every RNTI of the trace, heaviest RNTI first, dealt round over the UEs.

    Bytes of both directions count, so that an RNTI is the same UE in both; ties go to the lower
    RNTI.
    """
    total: dict[int, int] = {}
    for arrival in trace.arrivals:
        total[arrival.rnti] = total.get(arrival.rnti, 0) + arrival.n_bytes
    heaviest = sorted(total, key=lambda rnti: (-total[rnti], rnti))
    return {rnti: index % n_ues for index, rnti in enumerate(heaviest)}


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One CSV row with its place, for errors that name file, line, column, value and what fits."""

    name: str
    line: int
    columns: tuple[str, ...]
    fields: list[str]

    def __post_init__(self) -> None:
        if len(self.fields) != len(self.columns):
            raise TraceError(
                f"{self.name}, line {self.line}: {len(self.fields)} columns, "
                f"allowed are {len(self.columns)} ({self.columns[0]} ... {self.columns[-1]})"
            )

    def text(self, column: str) -> str:
        """The field as it stands, without surrounding blanks."""
        return self.fields[self.columns.index(column)].strip()

    def integer(
        self, column: str, lowest: int, highest: int | None, allowed: str | None = None
    ) -> int:
        """The field as an integer within [lowest, highest]."""
        if allowed is None:
            upto = "" if highest is None else f" to {highest}"
            allowed = f"an integer from {lowest}{upto}"
        try:
            value = int(self.text(column))
        except ValueError:
            raise self.error(column, allowed) from None
        if value < lowest or (highest is not None and value > highest):
            raise self.error(column, allowed)
        return value

    def decimal(self, column: str) -> float:
        """The field as a finite number, zero or more and below 1e15."""
        allowed = "a number, zero or more"
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.error(column, allowed) from None
        if not 0 <= value < 1e15:
            raise self.error(column, allowed)
        return value

    def one_of(self, column: str, allowed: tuple[str, ...]) -> str:
        """The field, which must be one of these words."""
        value = self.text(column)
        if value not in allowed:
            raise self.error(column, " or ".join(allowed))
        return value

    def error(self, column: str, allowed: str) -> TraceError:
        """The error for a field that does not fit."""
        return TraceError(
            f"{self.name}, line {self.line}, column {column}: "
            f"value {self.text(column)!r}, allowed is {allowed}"
        )
