"""The Telecom Italia grid of Milan: activity per square of the city and 10 minutes.

Tab-separated, no header, eight columns: square, start of the interval in milliseconds of Unix time,
country code, SMS in, SMS out, calls in, calls out, internet. A blank is zero. Rows of one square
and interval differ in country code, and add up. (Barlacchi et al., "A multi-source dataset of urban
life in the city of Milan and the Province of Trentino", Scientific Data 2, 2015.)

Only internet activity counts; calls and messages are not looked at. It has no unit: ``peak_mbps``
gives the busiest interval a rate, and ``ul_share`` splits it, for the log does not tell the
directions apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.errors import TraceError
from testbed.ran.importers.common import (
    IntervalLoad,
    LoadLog,
    PeakOf,
    ReadOptions,
    RowLedger,
    Source,
    finish,
)
from testbed.ran.traces import TraceRow

COLUMNS = (
    "square",
    "time_ms",
    "country_code",
    "sms_in",
    "sms_out",
    "call_in",
    "call_out",
    "internet",
)
INTERVAL_MS = 600_000
INTERVAL_US = INTERVAL_MS * 1000

DEFAULT_UL_SHARE = 0.1
"""Assumed, not measured: about what public networks carry upwards."""

_LATEST_MS = 10**13


def read_milan(sources: Sequence[Source], options: ReadOptions) -> LoadLog:
    """Read days of the grid.

    Raises:
        TraceError: no ``peak_mbps``, no activity in the chosen squares, or a bad row that is to be
            refused.
    """
    if options.peak_mbps is None:
        raise TraceError(
            "peak_mbps is missing: activity has no unit, so its busiest interval needs a rate"
        )
    led = RowLedger(options.bad_rows)
    wanted = set(options.cells)
    activity: dict[tuple[int, str], float] = {}
    squares: set[str] = set()
    first_ms: int | None = None
    for name, lines in sources:
        for number, line in enumerate(lines, start=1):
            text = line.rstrip("\r\n")
            if not text:
                continue
            led.data_rows += 1
            try:
                square, time_ms, value = _row(name, number, text)
            except TraceError as error:
                led.bad(error)
                continue
            squares.add(square)
            first_ms = time_ms if first_ms is None else min(first_ms, time_ms)
            if not wanted or square in wanted:
                key = (time_ms, square)
                activity[key] = activity.get(key, 0.0) + value
    bytes_per_unit = _bytes_per_unit(activity, options.peak_mbps, options.peak_of)
    ul_share = DEFAULT_UL_SHARE if options.ul_share is None else options.ul_share
    led.notes.append(
        f"busiest interval set to {options.peak_mbps:g} Mb/s, {ul_share:.0%} of it uplink "
        f"({'assumed' if options.ul_share is None else 'as asked'})"
    )
    loads = (
        IntervalLoad(
            time_ms * 1000,
            INTERVAL_US,
            square,
            None,
            value * bytes_per_unit[square] * (1 - ul_share),
            value * bytes_per_unit[square] * ul_share,
        )
        for (time_ms, square), value in activity.items()
    )
    origin_us = None if first_ms is None else first_ms * 1000
    return finish(loads, options, led, cells=squares, origin_us=origin_us)


def _row(name: str, number: int, text: str) -> tuple[str, int, float]:
    """Square, start and internet activity of a row."""
    row = TraceRow(name, number, COLUMNS, text.split("\t"))
    square = row.integer("square", 1, 10**6)
    time_ms = row.integer("time_ms", 0, _LATEST_MS)
    if time_ms % INTERVAL_MS:
        raise row.error("time_ms", f"a multiple of {INTERVAL_MS}, 10 minutes")
    return str(square), time_ms, row.decimal("internet") if row.text("internet") else 0.0


def _bytes_per_unit(
    activity: dict[tuple[int, str], float], peak_mbps: float, peak_of: PeakOf
) -> dict[str, float]:
    """Bytes that one unit of activity stands for, per square."""
    together: dict[int, float] = {}
    largest: dict[str, float] = {}
    for (time_ms, square), value in activity.items():
        together[time_ms] = together.get(time_ms, 0.0) + value
        largest[square] = max(largest.get(square, 0.0), value)
    if activity and not any(largest.values()):
        raise TraceError("no internet activity in the chosen squares: nothing to scale to a rate")
    peak_bytes = peak_mbps * 1e6 / 8 * INTERVAL_US / 1e6
    if peak_of == "each":
        return {square: peak_bytes / peak if peak else 0.0 for square, peak in largest.items()}
    peaks = together.values() if peak_of == "sum" else largest.values()
    return {square: peak_bytes / max(peaks) for square in largest}
