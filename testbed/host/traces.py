"""``import-trace``: files in, files out; the parsing is the radio package's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from testbed.errors import TraceError
from testbed.ran.nr_scope import parse_nr_scope
from testbed.ran.traces import busiest_window, dump_trace


def import_file(
    file: Path, kind: str, output: Path, *, clock: Literal["timestamp", "frame"], scs_khz: int
) -> list[str]:
    """Import ``file``; returns the account, one line each. Raises TraceError."""
    assert kind == "nr-scope"
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            result = parse_nr_scope(lines, str(file), clock=clock, scs_khz=scs_khz)
        trace = result.trace
        with output.open("w", encoding="utf-8") as written:
            written.writelines(dump_trace(trace))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"import-trace: {error}") from error
    report = result.report
    start_s = busiest_window(trace, 2_000_000) / 1e6
    return [
        f"{output}: {report.arrivals} arrivals in {report.duration_us / 1e6:.2f} s, "
        f"DL {report.dl_bytes} bytes, UL {report.ul_bytes} bytes",
        f"busiest 2 s begin at {start_s:.3f} s",
        f"{report.data_rows} rows: {report.retransmissions} retransmissions left out, "
        f"{len(report.repeated_header_lines)} repeated headers and "
        f"{len(report.undecodable_lines)} undecodable rows skipped"
        + _first_lines(report.undecodable_lines),
    ]


def _first_lines(lines: tuple[int, ...]) -> str:
    shown = ", ".join(str(line) for line in lines[:5])
    return f" (lines {shown}{', ...' if len(lines) > 5 else ''})" if lines else ""
