"""JSON metrics of the srsRAN Project gNB.

A stream of documents, one per report (every second by default), each on its own line, spread over
several, or in one array. A report of the scheduler has "timestamp" (seconds of Unix time, or ISO
8601) and "ue_list", either at its top (one document per cell, UEs wrapped in "ue_container") or
within each entry of "cells". Of a UE, "pci", "rnti", "dl_brate" and "ul_brate" (bit/s) are read;
they cover the time up to the timestamp. Documents of other layers are left out and counted.

What was carried stands for what arrived. The cell is named by its PCI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from testbed.errors import TraceError
from testbed.ran.importers.common import (
    LoadLog,
    RateReport,
    ReadOptions,
    RowLedger,
    Source,
    finish,
    loads_of_reports,
)
from testbed.ran.traces import MAX_RNTI

REPORT_INTERVAL_US = 1_000_000

_BETWEEN = re.compile(r"[\s,\[\]]*")
_MAX_PCI = 1007  # TS 38.211 7.4.2.1
_HIGHEST_RATE = 1e12
_LATEST_S = 1e10

Json = object
"""A decoded JSON value: narrowed where it is used."""


def read_srsran(sources: Sequence[Source], options: ReadOptions) -> LoadLog:
    """Read scheduler reports; a UE's entry in a report is a row.

    Raises:
        TraceError: no report at all, or a document or entry that cannot be read and is to be
            refused.
    """
    led = RowLedger(options.bad_rows)
    reports: list[RateReport] = []
    seen: set[tuple[int, str, int | None]] = set()
    others = 0
    for name, lines in sources:
        for line, document in _documents("".join(lines)):
            place = f"{name}, line {line}"
            try:
                if isinstance(document, ValueError | RecursionError):
                    raise _refuse(place, "document", str(document), "valid JSON")
                entries = _ue_entries(place, document)
                time_us = None if entries is None else _time_us(place, document)
            except TraceError as error:
                led.data_rows += 1
                led.bad(error)
                continue
            if entries is None or time_us is None:
                others += 1
                continue
            for where, entry in entries:
                led.data_rows += 1
                try:
                    report = _report(f"{place}, field {where}", time_us, entry)
                    key = (time_us, report.cell, report.rnti)
                    if key in seen:
                        raise _refuse(place, where, f"rnti {report.rnti}", "one entry per report")
                except TraceError as error:
                    led.bad(error)
                    continue
                seen.add(key)
                reports.append(report)
    if others:
        led.notes.append(f"{others} documents without a list of UEs left out")
    loads = loads_of_reports(reports, options.interval_us(REPORT_INTERVAL_US), led)
    return finish(loads, options, led)


def _documents(text: str) -> Iterator[tuple[int, Json]]:
    """Line and value of each document; an error in place of one that cannot be decoded.

    After such a document, reading goes on at the next line that begins with a brace.
    """
    decoder = json.JSONDecoder()
    position, line = 0, 1
    while True:
        gap = _BETWEEN.match(text, position)
        begin = position if gap is None else gap.end()
        line += text.count("\n", position, begin)
        if begin == len(text):
            return
        try:
            value, position = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            yield line, error
            following = text.find("\n{", begin)
            position = len(text) if following < 0 else following
        else:
            yield line, value
        line += text.count("\n", begin, position)


def _ue_entries(place: str, document: Json) -> list[tuple[str, Json]] | None:
    """Every UE's entry with its path in the document; None if it is no scheduler report."""
    if not isinstance(document, dict):
        raise _refuse(place, "document", document, "an object")
    holders: list[tuple[str, Json]]
    if "cells" in document:
        cells = _array(place, "cells", document["cells"])
        holders = [(f"cells[{index}].", cell) for index, cell in enumerate(cells)]
    elif "ue_list" in document:
        holders = [("", document)]
    else:
        return None
    entries: list[tuple[str, Json]] = []
    for path, holder in holders:
        if not isinstance(holder, dict):
            raise _refuse(place, path.rstrip("."), holder, "an object")
        ues = _array(place, f"{path}ue_list", holder.get("ue_list", []))
        entries += [(f"{path}ue_list[{index}]", ue) for index, ue in enumerate(ues)]
    return entries


def _array(place: str, key: str, value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise _refuse(place, key, value, "an array")
    return value


def _time_us(place: str, document: Json) -> int:
    stamp = document.get("timestamp") if isinstance(document, dict) else None
    if isinstance(stamp, str):
        try:
            moment = datetime.fromisoformat(stamp)
        except ValueError:
            moment = None
        if moment is not None:
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            stamp = aware.timestamp()
    # A boolean is an int to Python, not to JSON.
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or not 0 <= stamp < _LATEST_S:
        raise _refuse(place, "timestamp", stamp, "seconds of Unix time, or ISO 8601")
    return round(stamp * 1e6)


def _report(place: str, time_us: int, entry: Json) -> RateReport:
    if isinstance(entry, dict):
        entry = entry.get("ue_container", entry)
    if not isinstance(entry, dict):
        raise TraceError(f"{place}: value {_shown(entry)}, allowed is an object")
    pci, rnti = (
        int(_number(place, entry, key, highest, whole=True))
        for key, highest in (("pci", _MAX_PCI), ("rnti", MAX_RNTI))
    )
    dl, ul = (
        _number(place, entry, key, _HIGHEST_RATE, whole=False) for key in ("dl_brate", "ul_brate")
    )
    return RateReport(time_us, str(pci), rnti, dl, ul)


def _number(place: str, entry: dict[str, Json], key: str, highest: float, *, whole: bool) -> float:
    value = entry.get(key)
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value <= highest:
        kind = "an integer" if whole else "a number"
        raise TraceError(
            f"{place}.{key}: value {_shown(value)}, allowed is {kind} from 0 to {highest:g}"
        )
    return float(value)


def _refuse(place: str, key: str, value: Json, allowed: str) -> TraceError:
    return TraceError(f"{place}, field {key}: value {_shown(value)}, allowed is {allowed}")


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
