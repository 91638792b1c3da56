"""Two or more runs side by side: one table, ratios with the first run as 1.0.

A ratio means something only between runs that differ in what is compared and in nothing else, so
runs whose seeds, traffic or arrived bytes differ are refused, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import RanloomError
from testbed.record.run_dir import SUMMARY, summarise_run
from testbed.record.summary import SCHEMA_VERSION

if TYPE_CHECKING:
    from rich.console import Console

BASELINE_FLOOR = 0.05
"""Below this baseline a gain of spare compute is not given: any ratio would look large."""

_FIGURES = (
    ("fidelity.slots_on_time", "share"),
    ("ran.deadline_miss_rate.dl", "share"),
    ("ran.deadline_miss_rate.ul", "share"),
    ("ran.bler.dl", "share"),
    ("ran.bler.ul", "share"),
    ("ran.throughput_mbps.dl", "Mb/s"),
    ("ran.throughput_mbps.ul", "Mb/s"),
    ("ran.settled_bytes.dl", "bytes"),
    ("ran.settled_bytes.ul", "bytes"),
    ("ran.late_byte_share", "share"),
    ("ran.emergencies.count", "count"),
    ("ran.jain.dl", "0..1"),
    ("ran.jain.ul", "0..1"),
    ("spare.idle_fraction", "share"),
    ("spare.utilisation", "share"),
    ("spare.used_of_usable", "share"),
    ("spare.efficiency", "ratio"),
    ("spare.envelope_changes_per_s", "per s"),
    ("spare.violations.count", "count"),
    ("training.tokens_per_s", "tokens/s"),
    ("training.proxy_tokens_per_s", "tokens/s"),
    ("training.steps_committed", "count"),
    ("training.loss.mean_last_3", "nats/byte"),
    ("training.sync_time_share", "share"),
)
_FLOORED = ("spare.usable_fraction.", "spare.promised_fraction.")


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One figure: a value per run (None where it does not apply), and its ratio to the first.

    ``differences``: value less the first run's; ``note`` says why a ratio is missing.
    """

    figure: str
    unit: str
    values: tuple[float | None, ...]
    ratios: tuple[float | None, ...]
    differences: tuple[float | None, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs in the order given. ``doubts``: what to know before trusting a ratio."""

    runs: tuple[str, ...]
    rows: tuple[ComparedRow, ...]
    doubts: tuple[str, ...]


def compare(run_dirs: Sequence[Path]) -> Comparison:
    """Compare finished runs; summaries that are not there yet are computed.

    Raises:
        RanloomError: fewer than two runs, a directory that is no run, or runs that must not be
            compared (each reason on its own line).
    """
    if len(run_dirs) < 2:
        raise RanloomError("compare needs at least two run directories")
    return compare_summaries(
        tuple(str(path) for path in run_dirs), [_summary(path) for path in run_dirs]
    )


def compare_summaries(names: tuple[str, ...], summaries: Sequence[Mapping[str, Any]]) -> Comparison:
    """The same from summaries. Raises RanloomError where arrivals differ."""
    reasons = [
        reason
        for name, summary in zip(names[1:], summaries[1:], strict=True)
        for reason in _differences(names[0], summaries[0], name, summary)
    ]
    if reasons:
        raise RanloomError("runs that cannot be compared:\n  " + "\n  ".join(reasons))
    rows = [_row(figure, unit, summaries) for figure, unit in _all_figures(summaries)]
    shown = [row for row in rows if any(value is not None for value in row.values)]
    if summaries[0]["ran"]["sites"]:
        shown.append(_throughput_ratio(summaries))
    return Comparison(names, tuple(shown), tuple(_doubts(names, summaries)))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The table on a terminal."""
    from rich import box
    from rich.table import Table

    for number, name in enumerate(comparison.runs, start=1):
        console.print(f"run {number}: {name}", highlight=False, markup=False, soft_wrap=True)
    for doubt in comparison.doubts:
        console.print(f"note: {doubt}", style="yellow", highlight=False, markup=False)
    table = Table("figure", "unit", box=box.SIMPLE_HEAD, padding=(0, 1))
    for number, _ in enumerate(comparison.runs, start=1):
        table.add_column(f"run {number}", justify="right")
        if number > 1:
            table.add_column("ratio", justify="right")
    for row in comparison.rows:
        cells = []
        for number, (value, ratio) in enumerate(zip(row.values, row.ratios, strict=True)):
            cells.append("–" if value is None else f"{value:,.4g}")
            if number:
                cells.append("–" if ratio is None else f"{ratio:.3f}")
        table.add_row(row.figure, row.unit, *cells)
    console.print(table)


def _summary(run_dir: Path) -> Mapping[str, Any]:
    path = run_dir / SUMMARY
    if not path.is_file():
        return summarise_run(run_dir)
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RanloomError(f"{path}: not JSON: {error}") from None
    version = summary.get("schema_version") if isinstance(summary, dict) else None
    if version != SCHEMA_VERSION:
        raise RanloomError(
            f"{path}: schema_version {version}; this version reads {SCHEMA_VERSION} "
            "(make the report again)"
        )
    found: Mapping[str, Any] = summary
    return found


def _differences(
    first_name: str, first: Mapping[str, Any], name: str, other: Mapping[str, Any]
) -> list[str]:
    """Why two runs did not see the same arrivals; empty where they did."""
    one, two = first["run"]["arrivals"], other["run"]["arrivals"]
    pair = f"{name} against {first_name}"
    if one["seed"] != two["seed"]:
        return [f"{pair}: seed {two['seed']} is not {one['seed']}"]
    reasons = []
    for cell in sorted({*one["traffic"], *two["traffic"]}):
        if one["traffic"].get(cell) != two["traffic"].get(cell):
            reasons.append(f"{pair}: the traffic of {cell} differs")
    if reasons:
        return reasons
    for key in ("warmup_us", "measured_us"):
        if first["run"][key] != other["run"][key]:
            reasons.append(f"{pair}: {key} {other['run'][key]} is not {first['run'][key]}")
    if reasons:
        return reasons
    arrived, too = one["arrived_bytes"], two["arrived_bytes"]
    for link in sorted({*arrived, *too}):
        if arrived.get(link) != too.get(link):
            reasons.append(
                f"{pair}: {link} had {too.get(link)} bytes arrive, not {arrived.get(link)}"
                + _why(one["traffic"], link)
            )
    return reasons


def _why(traffic: Mapping[str, Any], link: str) -> str:
    cell, way = link.rsplit(" ", 1)
    kind = ((traffic.get(cell) or {}).get(way) or {}).get("kind")
    return " (a full buffer is refilled as it is served)" if kind == "full_buffer" else ""


def _all_figures(summaries: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    figures = list(_FIGURES)
    for name in ("usable_fraction", "promised_fraction"):
        windows = {key for s in summaries for key in s["spare"].get(name, {}) if key.isdigit()}
        figures += [(f"spare.{name}.{w}", "share") for w in sorted(windows, key=int)]
    five_qis = sorted({q for s in summaries for q in s["ran"].get("delay_us", {})}, key=int)
    figures += [
        (f"ran.delay_us.{five_qi}.{key}", unit)
        for five_qi in five_qis
        for key, unit in (("p50", "us"), ("p95", "us"), ("p99", "us"), ("late_byte_share", "share"))
    ]
    return figures


def _throughput_ratio(summaries: Sequence[Mapping[str, Any]]) -> ComparedRow:
    """Bytes delivered of those that had their whole delay budget, both directions, to the first
    run's."""
    ways = [[_value(s, f"ran.settled_bytes.{way}") for way in ("dl", "ul")] for s in summaries]
    settled = [sum(v for v in parts if v is not None) for parts in ways]
    known = all(any(v is not None for v in parts) for parts in ways) and settled[0] > 0
    same = len({_value(s, "ran.settled_until_us") for s in summaries}) == 1
    if not known or not same:
        why = "the runs settle at different times" if known else "nothing was settled"
        nothing = (None,) * len(summaries)
        return ComparedRow("ran.throughput_ratio", "ratio", nothing, nothing, nothing, why)
    ratios = tuple(round(value / settled[0], 6) for value in settled)
    differences = tuple(round(ratio - 1.0, 6) for ratio in ratios)
    return ComparedRow("ran.throughput_ratio", "ratio", ratios, ratios, differences)


def _row(figure: str, unit: str, summaries: Sequence[Mapping[str, Any]]) -> ComparedRow:
    values = tuple(_value(summary, figure) for summary in summaries)
    base, *others = values
    if base is None:
        nothing = (None,) * len(values)
        return ComparedRow(figure, unit, values, nothing, nothing, "no value in the first run")
    note = ""
    if base == 0:
        note = "0 in the first run"
    elif figure.startswith(_FLOORED) and base < BASELINE_FLOOR:
        note = f"below {BASELINE_FLOOR} in the first run"
    ratios = [None if note or value is None else round(value / base, 6) for value in others]
    differences = tuple(None if value is None else round(value - base, 6) for value in values)
    return ComparedRow(figure, unit, values, (1.0, *ratios), differences, note)


def _value(summary: Mapping[str, Any], figure: str) -> float | None:
    at: Any = summary
    for key in figure.split("."):
        at = at.get(key) if isinstance(at, Mapping) else None
    return at if isinstance(at, int | float) and not isinstance(at, bool) else None


def _doubts(names: tuple[str, ...], summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    doubts = []
    for name, summary in zip(names, summaries, strict=True):
        if summary["fidelity"]["verdict"] != "within bounds":
            doubts.append(f"{name}: fidelity: {summary['fidelity']['reason']}")
        if not summary["run"]["complete"]:
            doubts.append(f"{name}: the run did not end as planned")
    modes = {summary["run"]["mode"] for summary in summaries}
    if len(modes) > 1:
        doubts.append(f"runs of different modes ({', '.join(sorted(modes))})")
    hosts = {json.dumps(s["run"]["host"], sort_keys=True) for s in summaries}
    if len(hosts) > 1 and len(modes) == 1:
        doubts.append("runs of different machines")
    return doubts
