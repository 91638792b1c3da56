"""A run directory on disk: what is in it, what is missing, and the report that is made of it.

Works with what there is: a run that died half-way gets a report that names what it lacks.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from testbed.errors import RanloomError
from testbed.record.from_topology import scope_of
from testbed.record.recording import Recording
from testbed.record.spool import SPOOL_NAME, read_spool
from testbed.record.summary import dump_summary, summarise_recording
from testbed.record.tables import build_tables, empty_tables, read_tables, write_tables
from testbed.topology.load import load_topology
from testbed.topology.schema import Topology

TOPOLOGY, MANIFEST, TABLES_DIR = "topology.toml", "manifest.json", "tables"
SUMMARY, REPORT, FIGURES_DIR, TRACE = "summary.json", "report.html", "figures", "trace.json.gz"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What a run directory holds; ``missing``: one line for each thing that is not there."""

    topology: Topology
    manifest: dict[str, Any]
    tables: dict[str, pl.DataFrame]
    missing: tuple[str, ...]


def load_run(run_dir: Path) -> RunFiles:
    """Read a run directory; its Parquet tables are (re)written from the spool, if that is there.

    Raises:
        RanloomError: not a run directory, or a file in it that cannot be read.
    """
    topology_path = run_dir / TOPOLOGY
    if not run_dir.is_dir():
        raise RanloomError(f"{run_dir}: no such directory; give the directory of a run")
    if not topology_path.is_file():
        raise RanloomError(f"{run_dir}: not a run directory (it has no {TOPOLOGY})")
    missing: list[str] = []
    manifest = _manifest(run_dir / MANIFEST, missing)
    tables = _tables(run_dir, missing)
    return RunFiles(_topology(topology_path), manifest, tables, tuple(missing))


def run_report(run_dir: Path) -> dict[str, Any]:
    """Write summary.json, report.html, figures/ and trace.json.gz; returns the summary.

    What is missing is listed under ``run.missing`` and on the report's page.

    Raises:
        RanloomError: not a run directory, a file that cannot be read, or one that cannot be
            written.
    """
    recording, missing = load_recording(run_dir)
    try:
        return write_report(recording, run_dir, missing)
    except OSError as error:
        raise RanloomError(f"{error.filename or run_dir}: cannot write: {error.strerror}") from None


def summarise_run(run_dir: Path) -> dict[str, Any]:
    """The summary alone: no page, no figure, no trace. Raises RanloomError as ``load_run``."""
    recording, missing = load_recording(run_dir)
    return _summary(recording, missing)


def load_recording(run_dir: Path) -> tuple[Recording, tuple[str, ...]]:
    """The run as the figures see it, and what is missing. Raises RanloomError as ``load_run``."""
    files = load_run(run_dir)
    scope = scope_of(files.topology, files.manifest)
    return Recording(scope, files.manifest, files.tables), files.missing


def write_report(
    recording: Recording, run_dir: Path, missing: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The same from a recording."""
    from testbed.record.chrome_trace import chrome_trace
    from testbed.record.figures import Drawing, overview_figure, timeline_figure, timeline_window
    from testbed.record.report import render_html

    summary = _summary(recording, missing)
    tolerance_us = summary["fidelity"]["tolerance_us"]
    drawings: dict[str, Drawing] = {}
    for site in recording.timelines:
        window = timeline_window(recording, site)
        drawings[f"timeline-{site}"] = timeline_figure(recording, site, *window, tolerance_us)
    drawings["overview"] = overview_figure(recording)
    (run_dir / FIGURES_DIR).mkdir(exist_ok=True)
    for name, drawing in drawings.items():
        (run_dir / FIGURES_DIR / f"{name}.svg").write_text(drawing.svg, encoding="utf-8")
        (run_dir / FIGURES_DIR / f"{name}.png").write_bytes(drawing.png)
    (run_dir / TRACE).write_bytes(chrome_trace(recording))
    figures = {name: drawing.svg for name, drawing in drawings.items()}
    decisions = recording.tables["decisions"]
    page = render_html(summary, figures, decisions.rows(named=True))
    (run_dir / REPORT).write_text(page, encoding="utf-8")
    (run_dir / SUMMARY).write_text(dump_summary(summary), encoding="utf-8")
    return summary


def _summary(recording: Recording, missing: tuple[str, ...]) -> dict[str, Any]:
    summary = summarise_recording(recording)
    summary["run"]["missing"] = list(missing)
    return summary


def _topology(path: Path) -> Topology:
    """The run's own topology: its structure only, since what it names may be gone by now."""
    try:
        return Topology.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return load_topology(path, slot_wall_ms_min=None)  # names every mistake


def _manifest(path: Path, missing: list[str]) -> dict[str, Any]:
    if not path.is_file():
        missing.append(f"{MANIFEST}: how the run ended and what the machine permitted is not known")
        return {}
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RanloomError(f"{path}: not JSON: {error}") from None
    if not isinstance(manifest, Mapping):
        raise RanloomError(f"{path}: not a JSON object")
    return dict(manifest)


def _tables(run_dir: Path, missing: list[str]) -> dict[str, pl.DataFrame]:
    """From the spool where there is one: it is the source, and says what was dropped."""
    directory, spool = run_dir / TABLES_DIR, run_dir / SPOOL_NAME
    if spool.is_file():
        return _from_spool(spool, directory, missing)
    if any(directory.glob("*.parquet")):
        tables, absent = read_tables(directory)
        missing += [f"{name}: nothing is known of what it would hold" for name in absent]
        return tables
    missing.append(f"{SPOOL_NAME} and {TABLES_DIR}/: nothing was recorded")
    return empty_tables()


def _from_spool(spool: Path, directory: Path, missing: list[str]) -> dict[str, pl.DataFrame]:
    contents = read_spool(spool)
    if contents.dropped_bytes:
        missing.append(
            f"{SPOOL_NAME}: its last {contents.dropped_bytes} bytes were dropped "
            f"({contents.reason})"
        )
    tables = build_tables(contents.batches, contents.decisions)
    try:
        write_tables(tables, directory)
    except OSError as error:
        raise RanloomError(f"{directory}: cannot write: {error.strerror}") from None
    return tables
