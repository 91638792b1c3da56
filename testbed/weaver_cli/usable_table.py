"""What the terminal shows of ``reproduce usable``: a line per point, and the gains over the grid.

Owns which of the rows' figures are shown, and their short form; the JSON has them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from testbed.weaver_cli.arms import ARMS, FIXED_SHARE, MAIN_ARMS, SHAPED, UNSHAPED
from testbed.weaver_cli.grid import HEADLINE_US
from testbed.weaver_cli.grid_figures import Row
from testbed.weaver_cli.usable_gains import PLACE, Arms, by_place

_WINDOW = str(HEADLINE_US)
_SUMMARY = {
    "step": "step",
    "what": "of",
    "points_of": "points",
    "places": "n",
    "with_ratio": "n with ratio",
    "ratio_median": "ratio, median",
    "ratio_largest": "largest",
    "best": "at",
    "points_median": "difference, median",
    "points_largest": "largest difference",
}


def sections_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Tables by title, all at the headline quantum: medians and ranges over seeds."""
    sections: dict[str, list[Row]] = {}
    quantum = f"quantum {HEADLINE_US / 1000:g} ms"
    for place, seeds in by_place(rows).items():
        scenario, variant, cells, load = place
        of_seeds = list(seeds.values())
        overload = next(iter(of_seeds[0].values()))["overload"]
        point = {"cells": cells, "load": f"{load:g}{'*' if overload else ''}"}
        name = f"{scenario}{', ' + variant if variant else ''}"
        seen = f"{len(of_seeds)} seed{'s' if len(of_seeds) > 1 else ''}"
        for title, line in (
            ("usable fraction", _usable(of_seeds) | {"bound": _bound(rows, place)}),
            ("promised fraction and the RAN", _promised(of_seeds) | _radio(of_seeds)),
        ):
            title = f"{name}: {title}, {quantum}, {seen} (*: overload)"
            sections.setdefault(title, []).append(point | line)
    for row in rows:
        if row["kind"] == "gain summary" and row["q_us"] == HEADLINE_US:
            title = f"{row['scenario']}: gains over the grid, {quantum}"
            shown = {heading: row[name] for name, heading in _SUMMARY.items()}
            sections.setdefault(title, []).append(shown)
    return sections


def _usable(of_seeds: Sequence[Arms]) -> Row:
    return {
        arm: _range([run["usable_fraction"][_WINDOW] for run in _runs(of_seeds, arm)])
        for arm in (*(arm.name for arm in ARMS), FIXED_SHARE)
    }


def _promised(of_seeds: Sequence[Arms]) -> Row:
    return {
        f"promised {arm.name}": _range(
            [run["promised_fraction"][_WINDOW] for run in _runs(of_seeds, arm.name)]
        )
        for arm in MAIN_ARMS
    }


def _radio(of_seeds: Sequence[Arms]) -> Row:
    """Arms a and c side by side."""
    both = [_runs(of_seeds, arm.name) for arm in (UNSHAPED, SHAPED)]
    line: Row = {
        "missed a, c": ", ".join(_percent([_missed(run) for run in runs]) for runs in both),
        "late a, c": ", ".join(_percent([run["late_byte_share"] for run in runs]) for runs in both),
    }
    classes = {five_qi for runs in both for run in runs for five_qi in run["delay_us"]}
    for five_qi in sorted(classes, key=int):
        delays = [[run["delay_us"].get(five_qi, {}).get("p95") for run in runs] for runs in both]
        line[f"p95 ms a, c (5QI {five_qi})"] = ", ".join(map(_ms, delays))
    return line


def _runs(of_seeds: Sequence[Arms], arm: str) -> list[Row]:
    return [arms[arm] for arms in of_seeds if arm in arms]


def _missed(run: Row) -> float | None:
    blocks = sum(run["scheduled_blocks"].values())
    return sum(run["deadline_misses"].values()) / blocks if blocks else None


def _bound(rows: Sequence[Row], place: tuple[Any, ...]) -> str:
    mine = [
        row["bound_fraction"]
        for row in rows
        if row["kind"] == "bound"
        and row["q_us"] == HEADLINE_US
        and tuple(row[name] for name in PLACE) == place
    ]
    return _range(mine)


def _range(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    middle = f"{median(values):.2f}"
    return middle if round(low, 2) == round(high, 2) else f"{middle} ({low:.2f}-{high:.2f})"


def _percent(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * median(known):.2f} %" if known else "-"


def _ms(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known) / 1000:.1f}" if known else "-"
