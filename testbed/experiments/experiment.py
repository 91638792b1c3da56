"""What every ``reproduce`` experiment shares: rows, checks, files, the terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Row = dict[str, Any]


class BadInput(click.ClickException):
    """Bad usage or a bad table: exit status 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Check:
    """One target: ``met`` is None where it could not be measured (``value`` is None too)."""

    name: str
    value: float | None
    target: str
    met: bool | None
    paper: float | str | None = None
    note: str = ""


def check(
    name: str,
    value: float | None,
    sense: Literal[">=", "<=", "=="],
    bound: float,
    *,
    paper: float | str | None = None,
    note: str = "",
) -> Check:
    """A check of ``value`` against ``bound``; no value is no verdict."""
    met: bool | None = None
    if value is not None and math.isfinite(value):
        met = {">=": value >= bound, "<=": value <= bound, "==": value == bound}[sense]
    return Check(name, value, f"{sense} {bound:g}", met, paper, note)


@dataclass(slots=True)
class Experiment:
    """The result of one experiment as it is collected."""

    name: str
    seeds: list[int]
    quick: bool
    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        return {
            "experiment": self.name,
            "quick": self.quick,
            "seeds": self.seeds,
            "rows": self.rows,
            "checks": [asdict(one) for one in self.checks],
            "figures": self.figures,
        }


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return escape(str(value))


def progress(text: str) -> None:
    """One line on the error stream: a long experiment says where it is."""
    click.echo(f"... {text}", err=True)


def print_rows(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of one kind as a table; the columns are the first row's."""
    if not rows:
        return
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for name in rows[0]:
        number = isinstance(rows[0][name], (int, float))
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_shown(row.get(name)) for name in rows[0]))
    console.print(table)


def finish(experiment: Experiment, out: Path, sections: Mapping[str, Sequence[Row]]) -> None:
    """Write ``out/NAME.json`` and print the same as tables."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{experiment.name}.json"
    text = json.dumps(experiment.data(), indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    for title, rows in sections.items():
        print_rows(console, title, rows)
    print_rows(console, "checks", [asdict(one) for one in experiment.checks])
    console.print(f"{path}" + "".join(f", {out / name}" for name in experiment.figures))


@contextmanager
def quiet_solver() -> Iterator[None]:
    """Keep what the HiGHS library prints to the C standard output off the terminal."""
    sys.stdout.flush()
    try:
        saved = os.dup(1)
    except OSError:
        yield
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
        os.close(sink)
