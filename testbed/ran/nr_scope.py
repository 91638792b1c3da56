"""Importer for NR-Scope logs: one DCI per row becomes byte arrivals.

What a scheduler grants is the closest that a sniffer comes to what arrived, so every transport
block of *new data* counts as an arrival of its bytes when its DCI was seen. (For uplink that is K2
slots before the data fly: by then they were waiting.)

**New data or retransmission.** A retransmission has an untoggled NDI and the size of the block it
repeats (TS 38.321 5.3.2, 5.4.2). A sniffer misses DCIs, so an untoggled NDI alone proves little:
after one missed grant the next new block shows the same bit. A row is therefore a retransmission
if its redundancy version is not 0, or if NDI *and* size equal those of the last block decoded for
that (RNTI, direction, HARQ process) not more than ``HARQ_MEMORY_US`` ago.

**What is left out, and counted.** Headers that the tool repeats, and rows it could not decode (no
PRBs or no size, as with the reserved MCS indices of retransmissions).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from testbed.errors import TraceError
from testbed.ran.importers.common import BadRows, RowLedger
from testbed.ran.numerology import Direction, slot_us
from testbed.ran.traces import Trace, TraceArrival, TraceRow

HARQ_MEMORY_US = 100_000
"""A block is repeated within tens of milliseconds; an equal size after that is a coincidence."""

SFN_PERIOD = 1024
FRAME_US = 10_000

REQUIRED_COLUMNS = (
    "timestamp",
    "system_frame_index",
    "slot_index",
    "rnti",
    "dci_format",
    "frequency_length",
    "transport_block_size",
    "redundancy_version",
    "new_data_indicator",
    "harq_id",
)

# TS 38.212 7.3.1: formats 0_x grant uplink, 1_x assign downlink.
_DIRECTIONS = {
    "0_0": Direction.UL,
    "0_1": Direction.UL,
    "0_2": Direction.UL,
    "1_0": Direction.DL,
    "1_1": Direction.DL,
    "1_2": Direction.DL,
}


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of each row; line numbers count from 1."""

    name: str
    data_rows: int
    arrivals: int
    retransmissions: int
    repeated_header_lines: tuple[int, ...]
    undecodable_lines: tuple[int, ...]
    retransmission_lines: tuple[int, ...]
    bad_rows: tuple[str, ...]
    dl_bytes: int
    ul_bytes: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class ImportResult:
    """A trace that starts at the first row's time, and the account of the import."""

    trace: Trace
    report: ImportReport


def parse_nr_scope(
    lines: Iterable[str],
    name: str,
    *,
    clock: Literal["timestamp", "frame"] = "timestamp",
    scs_khz: int = 30,
    bad_rows: BadRows = "refuse",
) -> ImportResult:
    """Turn an NR-Scope DCI log into a trace.

    Args:
        lines: the log's lines; the first is a header with at least ``REQUIRED_COLUMNS``.
        name: what errors call the log.
        clock: time by the sniffer's ``timestamp`` (seconds), or by system frame and slot number.
            Frame numbers wrap every 10.24 s; the timestamps tell how often. Where they are empty,
            a silence of more than 5.12 s is misread.
        scs_khz: subcarrier spacing of the cell, used with ``clock="frame"``.
        bad_rows: refuse the log at its first field that cannot be read, or skip and count such
            rows. (A row that the sniffer could not decode is not bad.)

    Raises:
        TraceError: not an NR-Scope log, or a field that cannot be read and is to be refused (file,
            line, column, value and what is allowed).
    """
    rows = csv.reader(lines)
    header = tuple(field.strip() for field in next(rows, []))
    missing = [column for column in REQUIRED_COLUMNS if column not in header]
    if missing:
        raise TraceError(
            f"{name}, line 1: not an NR-Scope DCI log: no column {missing[0]!r}; "
            f"needed are {', '.join(REQUIRED_COLUMNS)}"
        )
    time_of = _timestamp_us if clock == "timestamp" else _FrameClock(slot_us(scs_khz)).time_us
    last_block: dict[tuple[int, Direction, int], tuple[int, int, int]] = {}
    arrivals: list[TraceArrival] = []
    headers: list[int] = []
    undecodable: list[int] = []
    repeats: list[int] = []
    first_us: int | None = None
    led = RowLedger(bad_rows)
    for fields in rows:
        if not fields:
            continue
        if fields[0].strip() == header[0]:
            headers.append(rows.line_num)
            continue
        led.data_rows += 1
        try:
            dci = _read_dci(TraceRow(name, rows.line_num, header, fields), time_of)
        except TraceError as error:
            led.bad(error)
            continue
        first_us = dci.time_us if first_us is None else min(first_us, dci.time_us)
        if dci.block is None:
            undecodable.append(rows.line_num)
            continue
        block = dci.block
        process = (dci.rnti, dci.direction, block.harq_id)
        known = last_block.get(process)
        last_block[process] = (block.ndi, block.size_bits, dci.time_us)
        if block.redundancy_version != 0 or (
            known is not None
            and known[:2] == (block.ndi, block.size_bits)
            and dci.time_us - known[2] <= HARQ_MEMORY_US
        ):
            repeats.append(rows.line_num)
            continue
        arrivals.append(TraceArrival(dci.time_us, dci.rnti, dci.direction, block.size_bits // 8))
    # Stable: rows of one instant keep the log's order.
    arrivals.sort(key=lambda arrival: arrival.time_us)
    origin_us = first_us or 0
    trace = Trace(
        tuple(TraceArrival(a.time_us - origin_us, a.rnti, a.direction, a.n_bytes) for a in arrivals)
    )
    report = ImportReport(
        name=name,
        data_rows=led.data_rows,
        arrivals=len(arrivals),
        retransmissions=len(repeats),
        repeated_header_lines=tuple(headers),
        undecodable_lines=tuple(undecodable),
        retransmission_lines=tuple(repeats),
        bad_rows=tuple(led.bad_rows),
        dl_bytes=trace.total_bytes(Direction.DL),
        ul_bytes=trace.total_bytes(Direction.UL),
        duration_us=trace.duration_us,
    )
    return ImportResult(trace, report)


@dataclass(frozen=True, slots=True)
class _Block:
    """The transport block of a DCI."""

    size_bits: int
    redundancy_version: int
    ndi: int
    harq_id: int


@dataclass(frozen=True, slots=True)
class _Dci:
    """What is used of a row; no block where the sniffer could not decode it."""

    time_us: int
    rnti: int
    direction: Direction
    block: _Block | None


def _read_dci(row: TraceRow, time_of: Callable[[TraceRow], int]) -> _Dci:
    # The clock comes last of the fields that every row must have: a bad row must not move it.
    rnti = row.integer("rnti", 0, 0xFFFF)
    direction = _DIRECTIONS[row.one_of("dci_format", tuple(_DIRECTIONS))]
    block = None
    if row.text("frequency_length") and row.text("transport_block_size"):
        n_prb = row.integer("frequency_length", 0, 275)
        size_bits = row.integer("transport_block_size", 0, None)
        if n_prb and size_bits:
            block = _Block(
                size_bits,
                row.integer("redundancy_version", 0, 3),
                row.integer("new_data_indicator", 0, 1),
                row.integer("harq_id", 0, 31),
            )
    return _Dci(time_of(row), rnti, direction, block)


def _timestamp_us(row: TraceRow) -> int:
    allowed = "seconds, zero or more, as a decimal number"
    try:
        seconds = float(row.text("timestamp"))
    except ValueError:
        raise row.error("timestamp", allowed) from None
    if not 0 <= seconds < 1e12:
        raise row.error("timestamp", allowed)
    return round(seconds * 1e6)


class _FrameClock:
    """Unwraps system frame numbers, which count 0..1023, into one running time."""

    def __init__(self, slot_length_us: int) -> None:
        self._slot_length_us = slot_length_us
        self._slots_per_frame = FRAME_US // slot_length_us
        # One period of head room, so that a first row out of order stays positive.
        self._frame = SFN_PERIOD
        self._stamp_us: int | None = None

    def time_us(self, row: TraceRow) -> int:
        sfn = row.integer("system_frame_index", 0, SFN_PERIOD - 1)
        slot = row.integer("slot_index", 0, self._slots_per_frame - 1)
        expected = self._frame
        if row.text("timestamp"):
            stamp_us = _timestamp_us(row)
            if self._stamp_us is not None:
                expected += round((stamp_us - self._stamp_us) / FRAME_US)
            self._stamp_us = stamp_us
        # The frame of that number nearest to the expected one, before or after.
        half = SFN_PERIOD // 2
        self._frame = expected + (sfn - expected + half) % SFN_PERIOD - half
        return self._frame * FRAME_US + slot * self._slot_length_us
