"""Reports of the Colosseum data sets COMMAG and ColO-RAN: per UE, and per base station.

Both come from srsLTE, every 250 ms, stamped in milliseconds of Unix time at the end of what they
cover. What was carried stands for what arrived: the logs do not hold arrivals.

* ``commag-ue``: KPIs of one UE per file, with unnamed empty columns between groups. Rates are
  "tx_brate downlink [Mbps]" and "rx_brate uplink [Mbps]". "sum_requested_prbs" may be negative,
  which is a quirk of the tool: counted, and not used. Several files are the UEs of one cell.
* ``commag-bs``: totals of one base station per file, "dl_brate" and "ul_brate" in bit/s.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.ran.importers.common import (
    ONLY_CELL,
    LoadLog,
    RateReport,
    ReadOptions,
    RowLedger,
    Source,
    csv_rows,
    finish,
    loads_of_reports,
)
from testbed.ran.traces import MAX_RNTI, TraceRow

REPORT_INTERVAL_US = 250_000

UE_COLUMNS = ("Timestamp", "RNTI", "tx_brate downlink [Mbps]", "rx_brate uplink [Mbps]")
BS_COLUMNS = ("time", "dl_brate", "ul_brate")

_REQUESTED = "sum_requested_prbs"
_LATEST_MS = 10**13


def read_commag_ue(sources: Sequence[Source], options: ReadOptions) -> LoadLog:
    """Read the metrics of the UEs of one cell, one file each.

    Raises:
        TraceError: another format, or a bad row that is to be refused.
    """
    led = RowLedger(options.bad_rows)
    seen: set[tuple[int, int]] = set()
    negative = 0

    def report(row: TraceRow) -> RateReport:
        nonlocal negative
        time_ms = row.integer("Timestamp", 0, _LATEST_MS)
        rnti = row.integer("RNTI", 0, MAX_RNTI)
        dl_mbps, ul_mbps = (row.decimal(column) for column in UE_COLUMNS[2:])
        if (time_ms, rnti) in seen:
            raise row.error("Timestamp", f"one row per time for RNTI {rnti}")
        seen.add((time_ms, rnti))
        if _REQUESTED in row.columns and row.text(_REQUESTED).startswith("-"):
            negative += 1
        return RateReport(time_ms * 1000, ONLY_CELL, rnti, dl_mbps * 1e6, ul_mbps * 1e6)

    reports = [
        item
        for source in sources
        for item in csv_rows(source, UE_COLUMNS, "UE metrics of COMMAG or ColO-RAN", report, led)
    ]
    if negative:
        led.notes.append(f"{negative} rows with a negative {_REQUESTED}, which is not used")
    loads = loads_of_reports(reports, options.interval_us(REPORT_INTERVAL_US), led)
    return finish(loads, options, led)


def read_commag_bs(sources: Sequence[Source], options: ReadOptions) -> LoadLog:
    """Read the rates of one base station; several files are parts of its log.

    Raises:
        TraceError: another format, or a bad row that is to be refused.
    """
    led = RowLedger(options.bad_rows)
    seen: set[int] = set()

    def report(row: TraceRow) -> RateReport:
        time_ms = row.integer("time", 0, _LATEST_MS)
        dl, ul = row.decimal("dl_brate"), row.decimal("ul_brate")
        if time_ms in seen:
            raise row.error("time", "one row per time")
        seen.add(time_ms)
        return RateReport(time_ms * 1000, ONLY_CELL, None, dl, ul)

    reports = [
        item
        for source in sources
        for item in csv_rows(source, BS_COLUMNS, "base-station rates of COMMAG", report, led)
    ]
    loads = loads_of_reports(reports, options.interval_us(REPORT_INTERVAL_US), led)
    return finish(loads, options, led)
