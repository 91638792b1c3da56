"""Reading job tables (CSV). Every mistake is collected and named by row, column and value.

Row 1 is the header, as in a spreadsheet.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.coexec.generate import MODEL_SIZES, ModelSize
from testbed.coexec.jobs import JobProfile
from testbed.coexec.replay import TraceJob
from testbed.errors import TraceError

SIZES: Mapping[str, ModelSize] = {size.name: size for size in MODEL_SIZES}
MOST_MISTAKES = 50


@dataclass(frozen=True, slots=True)
class Column:
    """One numeric column: its range, and the value where the column is absent (None: required)."""

    name: str
    low: float
    strict: bool = False
    whole: bool = False
    default: float | None = None

    @property
    def allowed(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {'>' if self.strict else '>='} {self.low:g}"

    def parse(self, text: str) -> float | None:
        """The value, or None if it is not allowed."""
        try:
            value = float(text)
        except ValueError:
            return None
        if not math.isfinite(value) or (self.whole and value != int(value)):
            return None
        if value < self.low or (self.strict and value == self.low):
            return None
        return value


REQUIRED = (Column("t_rollout_s", 0, strict=True), Column("t_train_s", 0, strict=True))
OPTIONAL = (
    Column("rollout_nodes", 1, whole=True, default=1),
    Column("train_nodes", 1, whole=True, default=1),
    Column("expected_t_rollout_s", 0, strict=True),
    Column("expected_t_train_s", 0, strict=True),
)
SLO = Column("slo", 1)
BY_MODEL: Mapping[str, Callable[[ModelSize], float]] = {
    "host_rollout_gb": lambda size: size.host_rollout_gb,
    "host_train_gb": lambda size: size.host_train_gb,
    "swap_rollout_s": lambda size: size.swap_rollout_s,
    "swap_train_s": lambda size: size.swap_train_s,
    "sync_s": lambda size: size.sync_s,
}
TRACE = (Column("arrival_h", 0), Column("solo_duration_h", 0, strict=True))
GPU_COLUMNS = ("rollout_gpu", "train_gpu")
KNOWN_COLUMNS = {
    "job",
    "model",
    "params_b",
    *(column.name for column in (*REQUIRED, *OPTIONAL, SLO, *TRACE)),
    *BY_MODEL,
    *GPU_COLUMNS,
}


@dataclass(frozen=True, slots=True)
class JobTable:
    """Rows of one file; ``gpus``: the GPU type of each pool, where the table names it."""

    jobs: tuple[TraceJob, ...]
    gpus: tuple[str | None, str | None]
    ignored: tuple[str, ...]


class _Reader:
    """Collects the mistakes of one file."""

    def __init__(self, path: Path, header: list[str]) -> None:
        self.path, self.header = path, header
        self.mistakes: list[str] = []
        self.seen: dict[str, int] = {}

    def complain(self, row: int, column: str, value: str, allowed: str) -> None:
        shown = repr(value) if value else "nothing"
        self.mistakes.append(
            f"{self.path}: row {row}, column {column}: {shown}; allowed: {allowed}"
        )

    def number(self, row: int, cells: Mapping[str, str], column: Column) -> float:
        """The cell's value; a stand-in (and a mistake) where it is not allowed."""
        text = cells.get(column.name, "")
        if column.name not in cells and column.default is not None:
            return column.default
        value = column.parse(text)
        if value is None:
            self.complain(row, column.name, text, column.allowed)
            return 1.0
        return value

    def optional(self, row: int, cells: Mapping[str, str], column: Column) -> float | None:
        return self.number(row, cells, column) if cells.get(column.name) else None

    def model(self, row: int, cells: Mapping[str, str]) -> str:
        text = cells.get("model") or cells.get("params_b", "")
        name = text if cells.get("model") else f"{text}B"
        complete = all(cells.get(column) for column in BY_MODEL)
        if not text or (name not in SIZES and not complete):
            column = "model" if "model" in cells else "params_b"
            known = ", ".join(SIZES if column == "model" else (n.removesuffix("B") for n in SIZES))
            needed = ", ".join(BY_MODEL)
            self.complain(row, column, text, f"{known}; or another with {needed} given")
        return name

    def row(self, row: int, cells: Mapping[str, str], slo: float | None) -> JobProfile | None:
        """One profile, or None if this row has a mistake."""
        before = len(self.mistakes)
        job = cells.get("job", "")
        if not job:
            self.complain(row, "job", "", "a name")
        elif job in self.seen:
            self.complain(row, "job", job, f"a name used once (row {self.seen[job]} has it)")
        self.seen.setdefault(job, row)
        model = self.model(row, cells)
        size = SIZES.get(model)
        values = {c.name: self.number(row, cells, c) for c in (*REQUIRED, *OPTIONAL[:2])}
        for name, of in BY_MODEL.items():
            given = self.optional(row, cells, Column(name, 0))
            values[name] = given if given is not None else (of(size) if size else 0.0)
        expected = {c.name: self.optional(row, cells, c) for c in OPTIONAL[2:]}
        target = slo if slo is not None else self.number(row, cells, SLO)
        if len(self.mistakes) > before:
            return None
        return JobProfile(
            job=job,
            model=model,
            rollout_nodes=int(values["rollout_nodes"]),
            train_nodes=int(values["train_nodes"]),
            t_rollout_s=values["t_rollout_s"],
            t_train_s=values["t_train_s"],
            slo=target,
            host_rollout_gb=values["host_rollout_gb"],
            host_train_gb=values["host_train_gb"],
            swap_rollout_s=values["swap_rollout_s"],
            swap_train_s=values["swap_train_s"],
            sync_s=values["sync_s"],
            **expected,
        )


def _rows(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.reader(file))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: not a CSV table in UTF-8 ({error})") from error


def _missing(header: list[str], *, trace: bool, slo: float | None) -> list[str]:
    wanted = ["job", *(column.name for column in REQUIRED)]
    if slo is None:
        wanted.append("slo")
    if trace:
        wanted += [column.name for column in TRACE]
    missing = [name for name in wanted if name not in header]
    if "model" not in header and "params_b" not in header:
        missing.append("model (or params_b)")
    return missing


def read_jobs(
    path: Path,
    *,
    trace: bool = False,
    slo: float | None = None,
    most_rollout_gb: float | None = None,
    most_train_gb: float | None = None,
    gpu_names: Collection[str] = (),
) -> JobTable:
    """Read a job table; ``trace`` needs arrivals and durations, ``slo`` stands for the column.

    ``most_*_gb``: host memory of a node; a job must stay below it. ``gpu_names``: known GPUs.

    Raises:
        TraceError: all mistakes of the file, one per line.
    """
    rows = _rows(path)
    if not rows or not any(cell.strip() for cell in rows[0]):
        raise TraceError(f"{path}: empty; row 1 must name the columns, for example job, model, ...")
    header = [cell.strip() for cell in rows[0]]
    reader = _Reader(path, header)
    for name in sorted({name for name in header if header.count(name) > 1}):
        reader.mistakes.append(f"{path}: row 1, column {name}: named twice; allowed: once")
    for name in _missing(header, trace=trace, slo=slo):
        reader.mistakes.append(f"{path}: row 1: column {name} is missing")
    body = [(i, cells) for i, cells in enumerate(rows[1:], start=2) if any(map(str.strip, cells))]
    if not body:
        reader.mistakes.append(f"{path}: no rows below the header; allowed: at least one job")
    if reader.mistakes:
        raise TraceError("\n".join(reader.mistakes))
    jobs: list[TraceJob] = []
    gpus: list[str | None] = [None, None]
    for row, texts in body:
        if len(texts) != len(header):
            reader.mistakes.append(
                f"{path}: row {row}: {len(texts)} cells; allowed: {len(header)}, one per column"
            )
            continue
        cells = {name: text.strip() for name, text in zip(header, texts, strict=True)}
        profile = reader.row(row, cells, slo)
        hours = [0.0, 1.0]
        for i, column in enumerate(TRACE):
            if trace or cells.get(column.name):
                hours[i] = reader.number(row, cells, column)
        for i, name in enumerate(GPU_COLUMNS):
            if name not in cells:
                continue
            if cells[name] not in gpu_names:
                reader.complain(row, name, cells[name], f"one of {', '.join(sorted(gpu_names))}")
            elif gpus[i] not in (None, cells[name]):
                reader.complain(row, name, cells[name], f"{gpus[i]}, as in the rows above")
            else:
                gpus[i] = cells[name]
        if profile is None:
            continue
        for name, gb, most in (
            ("host_rollout_gb", profile.host_rollout_gb, most_rollout_gb),
            ("host_train_gb", profile.host_train_gb, most_train_gb),
        ):
            if most is not None and gb >= most:
                reader.complain(row, name, f"{gb:g}", f"below {most:g} GB, the node's host memory")
        jobs.append(TraceJob(profile, hours[0], hours[1]))
    if reader.mistakes:
        shown = reader.mistakes[:MOST_MISTAKES]
        if len(reader.mistakes) > MOST_MISTAKES:
            shown.append(f"... and {len(reader.mistakes) - MOST_MISTAKES} more mistakes")
        raise TraceError("\n".join(shown))
    ignored = tuple(name for name in header if name not in KNOWN_COLUMNS)
    return JobTable(tuple(jobs), (gpus[0], gpus[1]), ignored)
