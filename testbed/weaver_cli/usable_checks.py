"""The targets of ``reproduce usable``, computed from its rows.

Owns targets; a missed one is a finding. The RAN's are ``usable_ran``.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from testbed.experiments.experiment import Check, check
from testbed.weaver_cli.grid import HEADLINE_US
from testbed.weaver_cli.grid_figures import Row
from testbed.weaver_cli.usable_gains import PLACE, WHATS, median_of
from testbed.weaver_cli.usable_ran import ran_checks

PAPER_GAIN = 4.9
SHAPED_FLOOR = 0.3
SHAPING_GAIN = 1.3
OF_BOUND_MEDIAN = 0.92
OF_BOUND_LEAST = 0.85
BOUND_FLOOR = 0.3


def checks_of(rows: Sequence[Row], scenario: str) -> list[Check]:
    """All targets of one scenario, at the headline quantum where none is named."""
    gains = [
        row
        for row in rows
        if row["kind"] == "gain" and row["scenario"] == scenario and not row["variant"]
    ]
    return [
        *(_largest_gain(gains, scenario, what) for what in WHATS),
        *_shaping_checks(gains, scenario),
        *_bound_checks(rows, scenario),
        *ran_checks(rows, scenario),
    ]


def _of(gains: Sequence[Row], step: str, what: str) -> list[Row]:
    return [
        row
        for row in gains
        if row["step"] == step and row["what"] == what and row["q_us"] == HEADLINE_US
    ]


def _where(row: Row) -> str:
    return f"{row['cells']} cells, load {row['load']:g}"


def _largest_gain(gains: Sequence[Row], scenario: str, what: str) -> Check:
    mine = _of(gains, "a->c", what)
    with_ratio = [row for row in mine if row["ratio"] is not None]
    counted = [row for row in with_ratio if row["to"] >= SHAPED_FLOOR]
    best = max(counted, key=lambda row: float(row["ratio"]), default=None)
    note = f"baseline >= 0.05 at {len(with_ratio)} of {len(mine)} points"
    if with_ratio:
        note += f", median there {median(row['ratio'] for row in with_ratio):.2f}"
    if mine:
        note += f"; median difference {median(row['points'] for row in mine):.3f}"
    if best is not None:
        note += f"; largest at {_where(best)}, p95 change {_delay_note(best)}"
    return check(
        f"{scenario}: {what} gain a->c, largest",
        None if best is None else best["ratio"],
        ">=",
        PAPER_GAIN,
        paper=PAPER_GAIN,
        note=note,
    )


def _delay_note(row: Row) -> str:
    parts = [
        f"{figures['p95'] / 1000:+.1f} ms (5QI {five_qi})"
        for five_qi, figures in row["delay_change_us"].items()
        if figures["p95"] is not None
    ]
    return ", ".join(parts) or "unknown"


def _shaping_checks(gains: Sequence[Row], scenario: str) -> list[Check]:
    """What shaping alone gains (b to c), in promised fraction."""
    below = [row for row in _of(gains, "b->c", "promised") if not row["overload"]]
    # From nothing to something is a gain too, of which there is no ratio.
    lost = [row for row in below if row["points_min"] <= 0]
    ratios = [row["ratio"] for row in below if row["ratio"] is not None]
    return [
        check(
            f"{scenario}: promised b->c, points below overload without a gain",
            len(lost) if below else None,
            "==",
            0,
            note=f"of {len(below)}" + (f": {'; '.join(map(_where, lost))}" if lost else ""),
        ),
        check(
            f"{scenario}: promised gain b->c below overload, median",
            median_of(ratios),
            ">=",
            SHAPING_GAIN,
            note=f"b promises 0.05 or more at {len(ratios)} of {len(below)} points; "
            f"median difference {_shown(median_of(row['points'] for row in below))}",
        ),
    ]


def of_bound(rows: Sequence[Row], scenario: str, key: str) -> list[tuple[Row, float, float]]:
    """(a row of the place, usable / bound, bound) of each place below overload.

    Means over pieces and seeds, weighted by their windows, at the headline quantum.
    """
    places: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["kind"] == "bound" and row["scenario"] == scenario and row["q_us"] == HEADLINE_US:
            places.setdefault(tuple(row[name] for name in PLACE), []).append(row)
    found = []
    for group in places.values():
        limit = sum(row[key] * row["starts"] for row in group)
        usable = sum(row["usable_fraction"] * row["starts"] for row in group)
        if limit > 0 and not group[0]["overload"]:
            found.append((group[0], usable / limit, limit / sum(row["starts"] for row in group)))
    return found


def _bound_checks(rows: Sequence[Row], scenario: str) -> list[Check]:
    bounds = [row for row in rows if row["kind"] == "bound" and row["scenario"] == scenario]
    if not bounds:
        return []
    checks = []
    for key, kind in (
        ("bound_fraction", "bound"),
        ("bound_fraction_granular", "bound in SM steps"),
    ):
        found = of_bound(rows, scenario, key)
        high = [entry for entry in found if entry[2] > BOUND_FLOOR]
        worst = min(high, key=lambda entry: entry[1], default=None)
        checks += [
            check(
                f"{scenario}: c's usable of the {kind}, median",
                median_of(share for _, share, _ in found),
                ">=",
                OF_BOUND_MEDIAN,
                note=f"{len(found)} points below overload",
            ),
            check(
                f"{scenario}: c's usable of the {kind}, least where it exceeds {BOUND_FLOOR:g}",
                None if worst is None else round(worst[1], 6),
                ">=",
                OF_BOUND_LEAST,
                note="" if worst is None else f"at {_where(worst[0])}",
            ),
        ]
    above = [
        row for row in bounds if row["usable_fraction"] > row["bound_fraction_granular"] + 1e-6
    ]
    checks.append(
        check(
            f"{scenario}: runs that have more than the bound",
            len(above),
            "==",
            0,
            note=f"of {len(bounds)}",
        )
    )
    return checks


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
