"""The report for people: one page of HTML that loads nothing, and the summary of a terminal.

Verdict and goals first, then figures with unit and scope. Owns rendering only: what is shown comes
from ``summary.json``, its wording from ``report_tables.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from testbed.record.report_tables import (
    BRIEF,
    REAL,
    SIMULATED,
    WENT_LABELS,
    Summary,
    death_lines,
    number,
    share,
    tables,
    verdict,
    violation_rows,
)

if TYPE_CHECKING:
    from rich.console import Console

_TEMPLATE = "report_page.html"
_MOST_DECISIONS = 200
_WENT_COLORS = ("#2a9d8f", "#b3001b", "#8fcabf", "#f4b860", "#8a94a0", "#c3c9d2", "#eceff3")


def render_html(
    summary: Summary, figures: Mapping[str, str], decisions: Iterable[Mapping[str, Any]] = ()
) -> str:
    """The page. ``figures``: name -> SVG text; ``decisions``: rows of the table of that name."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"share": share, "number": number}
    listed = list(decisions)
    return environment.get_template(_TEMPLATE).render(
        summary=summary,
        run=summary["run"],
        verdict=verdict(summary),
        goals=summary["run"]["goals"],
        cards=_cards(summary),
        bars=_bars(summary),
        figures={name: _inline(text) for name, text in figures.items()},
        tables=tables(summary),
        violations=violation_rows(summary),
        left_out=sum(s["violations"]["rows_left_out"] for s in summary["spare"]["sites"].values()),
        deaths=death_lines(summary),
        decisions=listed[-_MOST_DECISIONS:],
        n_decisions=len(listed),
        real=REAL,
        simulated=SIMULATED if summary["run"]["mode"] == "sim" else "",
    )


def print_summary(summary: Summary, console: Console, report: Path | None = None) -> None:
    """The terminal's summary: verdict, goals, figures, and where the page is."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table as RichTable

    first = verdict(summary)
    console.print(f"[bold {'green' if first.good else 'red'}]{escape(first.text)}[/]")
    if first.good:
        console.print(f"  {escape(summary['fidelity']['reason'])}", style="dim")
    console.print(f"[{'default' if first.outcome_good else 'bold red'}]{escape(first.outcome)}[/]")
    for line in summary["run"].get("missing", ()):
        console.print(f"[yellow]missing: {escape(line)}[/]")
    console.print()
    goals = RichTable("", "goal", "value", "target", box=box.SIMPLE, padding=(0, 1))
    for goal in summary["run"]["goals"]:
        mark = {True: "[green]✓[/]", False: "[red]✗[/]", None: "–"}[goal["met"]]
        goals.add_row(mark, goal["name"], _plain(goal["value"]), escape(goal["target"]))
    console.print(goals)
    for table in tables(summary):
        if table.title not in BRIEF:
            continue
        shown = RichTable(table.title, "unit", *table.columns, box=box.SIMPLE_HEAD, padding=(0, 1))
        for column in shown.columns[2:]:
            column.justify = "right"
        for row in table.rows:
            shown.add_row(row.label, f"[dim]{escape(row.unit)}[/]", *row.values)
        console.print(shown)
    for line in death_lines(summary):
        console.print(line, highlight=False, markup=False)
    _print_violations(summary, console)
    if report is not None:
        console.print(f"report: {report}", soft_wrap=True, highlight=False)


def _print_violations(summary: Summary, console: Console) -> None:
    rows = violation_rows(summary)
    for row in rows[:10]:
        task = f"cell {row['cell']} {row['direction'].upper()} slot {row['air_slot']}"
        console.print(
            f"violation at {row['at_us'] / 1e3:.3f} ms: {row['site']} {task}, "
            f"{row['quantum']} of step {row['step']}, {row['overlap_us']} us: {row['explanation']}",
            highlight=False,
            markup=False,
        )
    if len(rows) > 10:
        console.print(f"... and {len(rows) - 10} more violations: see the report")


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, str) else number(value)


def _cards(summary: Summary) -> list[tuple[str, str, str]]:
    """(value, unit, what) of the page's headline figures."""
    spare, learning, ran = summary["spare"], summary["training"], summary["ran"]
    window = spare["headline_window_us"]
    cards = [(share(spare["idle_fraction"]), "%", "of SM-time left idle by the RAN")]
    if window is not None:
        usable = spare["usable_fraction"].get(str(window))
        cards.append((share(usable), "%", f"usable for {window / 1000:g} ms at a time"))
        cards.append((share(spare["utilisation"]), "%", "of idle SM-time put to use"))
    if learning["jobs"]:
        rate = number(learning["tokens_per_s"])
        cards.append((rate, "tokens/s", "declared model, emulated time"))
    if ran["sites"]:
        for way in ("ul", "dl"):
            missed = share(ran["deadline_miss_rate"][way])
            cards.append((missed, "%", f"of {way.upper()} blocks missed the PHY deadline"))
    return cards


def _bars(summary: Summary) -> list[tuple[str, list[tuple[str, float, str]]]]:
    """Per site, where the idle time went: (label, percent, colour), for a stacked bar."""
    spare = summary["spare"]
    bars = []
    for name, figures in {"total": spare, **spare["sites"]}.items():
        parts = [
            (label, round(100 * (figures["where_it_went"][key]["share"] or 0.0), 3), color)
            for (key, label), color in zip(WENT_LABELS.items(), _WENT_COLORS, strict=True)
        ]
        bars.append((name, parts))
    return bars


def _inline(svg: str) -> Markup:
    """An SVG without its XML prologue; it is our own drawing, so it goes in as it is."""
    return Markup(svg[svg.index("<svg") :])
