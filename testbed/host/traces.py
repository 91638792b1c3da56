"""``import-trace`` and load profiles: files in, files out; the parsing is the radio package's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from testbed.errors import TraceError
from testbed.ran.importers.common import LoadLog, ReadOptions
from testbed.ran.importers.formats import read_log
from testbed.ran.importers.profile import LoadProfile, profile_of, profile_of_trace
from testbed.ran.importers.spread import SpreadOptions, spread_loads
from testbed.ran.nr_scope import ImportReport, ImportResult, parse_nr_scope
from testbed.ran.numerology import Direction
from testbed.ran.traces import Trace, busiest_window, dump_trace

NR_SCOPE = "nr-scope"
_PROFILE_INTERVAL_S = 1.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Everything that an import can be told; clock and spacing are for NR-Scope logs."""

    read: ReadOptions = field(default_factory=ReadOptions)
    spread: SpreadOptions = field(default_factory=SpreadOptions)
    clock: Literal["timestamp", "frame"] = "timestamp"
    scs_khz: int = 30


def import_options(
    *, clock: Literal["timestamp", "frame"], scs_khz: int, **options: Any
) -> ImportOptions:
    """The options of ``import-trace``, each by its name.

    Raises:
        TraceError: a value out of range.
    """
    read, spread = (
        {item.name: options[item.name] for item in fields(kind) if item.name in options}
        for kind in (ReadOptions, SpreadOptions)
    )
    return ImportOptions(ReadOptions(**read), SpreadOptions(**spread), clock, scs_khz)


def import_files(
    files: Sequence[Path], kind: str, output: Path, options: ImportOptions
) -> list[str]:
    """Import a log, in one file or several, as a trace; returns the account, one line each.

    Raises:
        TraceError: what cannot be read, or written.
    """
    if kind == NR_SCOPE:
        if options.spread != SpreadOptions():
            raise TraceError(
                "an NR-Scope log has exact arrivals: file_bytes, spread, seed, ues, start_s and "
                "length_s are for logs of intervals"
            )
        result = _read_nr_scope(files, options)
        trace, account = result.trace, _nr_scope_account(result.report)
    else:
        if options.clock != "timestamp":
            raise TraceError(f"clock = {options.clock!r} is for NR-Scope logs alone")
        log = _read(files, kind, options.read)
        trace, account = spread_loads(log, options.spread), _log_account(log)
    try:
        with output.open("w", encoding="utf-8") as written:
            written.writelines(dump_trace(trace))
    except OSError as error:
        raise TraceError(f"cannot write {output}: {error}") from error
    return [*_trace_account(output, trace), *account]


def load_profile(
    path: Path | Sequence[Path], kind: str, options: ReadOptions | None = None
) -> LoadProfile:
    """Load over time of every cell of a log (or of the cells that the options choose).

    Args:
        path: the file, or the files of one log.
        kind: the format's name; an NR-Scope log is summed over intervals of ``interval_s`` (1 s).
        options: how to read it. Milan needs ``peak_mbps``; ``peak_of="each"`` gives every square
            its own peak.

    Raises:
        TraceError: what cannot be read.
    """
    files = [path] if isinstance(path, Path) else path
    options = options or ReadOptions()
    if kind == NR_SCOPE:
        trace = _read_nr_scope(files, ImportOptions(read=options)).trace
        return profile_of_trace(trace, options.interval_s or _PROFILE_INTERVAL_S)
    return profile_of(_read(files, kind, options))


def _read(files: Sequence[Path], kind: str, options: ReadOptions) -> LoadLog:
    try:
        with ExitStack() as stack:
            sources = [
                (str(file), stack.enter_context(file.open(encoding="utf-8-sig", newline="")))
                for file in files
            ]
            return read_log(kind, sources, options)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(files, error) from error


def _read_nr_scope(files: Sequence[Path], options: ImportOptions) -> ImportResult:
    read = options.read
    if len(files) != 1:
        raise TraceError(f"{len(files)} files: an NR-Scope log is one file")
    if read.cells or read.peak_mbps is not None or read.ul_share is not None:
        raise TraceError("an NR-Scope log holds one cell and its bytes: no cell, peak or UL share")
    try:
        with files[0].open(encoding="utf-8", newline="") as lines:
            return parse_nr_scope(
                lines,
                str(files[0]),
                clock=options.clock,
                scs_khz=options.scs_khz,
                bad_rows=read.bad_rows,
            )
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(files, error) from error


def _unreadable(files: Sequence[Path], error: Exception) -> TraceError:
    return TraceError(f"cannot read {', '.join(str(file) for file in files)}: {error}")


def _trace_account(output: Path, trace: Trace) -> list[str]:
    return [
        f"{output}: {len(trace.arrivals)} arrivals in {trace.duration_us / 1e6:.2f} s, "
        f"DL {trace.total_bytes(Direction.DL)} bytes, UL {trace.total_bytes(Direction.UL)} bytes",
        f"busiest 2 s begin at {busiest_window(trace, 2_000_000) / 1e6:.3f} s",
    ]


def _nr_scope_account(report: ImportReport) -> list[str]:
    lines = ", ".join(str(line) for line in report.undecodable_lines[:_SHOWN])
    more = ", ..." if len(report.undecodable_lines) > _SHOWN else ""
    return [
        f"{report.data_rows} rows: {report.retransmissions} retransmissions left out, "
        f"{len(report.repeated_header_lines)} repeated headers and "
        f"{len(report.undecodable_lines)} undecodable rows skipped"
        + (f" (lines {lines}{more})" if lines else ""),
        *_bad_account(report.bad_rows),
    ]


def _log_account(log: LoadLog) -> list[str]:
    cells = f"cells {', '.join(log.chosen)} of {len(log.cells)}" if log.chosen else "one cell"
    return [
        f"{log.data_rows} rows, {cells}, {log.duration_us / 1e6:g} s logged",
        *_bad_account(log.bad_rows),
        *log.notes,
    ]


def _bad_account(bad_rows: tuple[str, ...]) -> list[str]:
    if not bad_rows:
        return []
    more = [f"  and {len(bad_rows) - _SHOWN} more"] if len(bad_rows) > _SHOWN else []
    return [
        f"{len(bad_rows)} bad rows skipped:",
        *(f"  {message}" for message in bad_rows[:_SHOWN]),
        *more,
    ]
