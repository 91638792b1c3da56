"""Is the RAN as good as before? Each run beside the unshaped one of the same point and seed.

Owns the five conditions of a RAN that shaping has left alone, and who broke which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.experiments.experiment import Check, check
from testbed.record.measure.numbers import rounded
from testbed.weaver_cli.arms import SHAPED, UNSHAPED
from testbed.weaver_cli.grid_figures import Row, misses
from testbed.weaver_cli.usable_gains import by_place

MORE_LATE = 0.001
LEAST_THROUGHPUT = 0.99
LESS_FAIR = 0.02

CONDITIONS = {
    "late bytes": f"late_byte_share at most {MORE_LATE:g} higher per class",
    "misses": "no additional deadline miss",
    "throughput": f"throughput_ratio >= {LEAST_THROUGHPUT:g}",
    "p99": "p99 delay within budget where the unshaped run's is",
    "fairness": f"Jain index not lower by more than {LESS_FAIR:g}",
}
_MOST_LISTED = 12


def ran_rows(rows: Iterable[Row]) -> list[Row]:
    """A row per run of an arm other than a: how far it is from a, and the conditions it breaks."""
    return [
        ran_row(row, arms[UNSHAPED.name])
        for seeds in by_place(rows).values()
        for arms in seeds.values()
        if UNSHAPED.name in arms
        for row in arms.values()
        if row["arm"] != UNSHAPED.name
    ]


def ran_row(run: Row, unshaped: Row) -> Row:
    """One run against a's of the same point and seed.

    What a does not have (nothing was delivered, so no delay and no fairness) cannot be worse: such
    a condition holds.
    """
    classes = sorted({*run["delay_us"], *unshaped["delay_us"]})
    late = {five_qi: _more_late(run, unshaped, five_qi) for five_qi in classes}
    over = [five_qi for five_qi in classes if _newly_over_budget(run, unshaped, five_qi)]
    fairness = {way: _less(unshaped["jain"][way], run["jain"][way]) for way in ("dl", "ul")}
    more_misses = misses(run) - misses(unshaped)
    kept = run["throughput_ratio"]
    broken = {
        "late bytes": any(value > MORE_LATE for value in late.values()),
        "misses": more_misses > 0,
        "throughput": kept is not None and kept < LEAST_THROUGHPUT,
        "p99": bool(over),
        "fairness": any(value > LESS_FAIR for value in fairness.values()),
    }
    names = (*("scenario", "variant", "cells", "load", "seed"), "overload", "phy_infeasible")
    return {
        "kind": "ran",
        **{name: run[name] for name in names},
        "arm": run["arm"],
        "more_late_bytes": late,
        "more_misses": more_misses,
        "throughput_ratio": kept,
        "p99_over_budget": over,
        "less_fair": fairness,
        "broken": [name for name, is_broken in broken.items() if is_broken],
    }


def _more_late(run: Row, unshaped: Row, five_qi: str) -> float:
    ours, theirs = (late_share(row, five_qi) for row in (run, unshaped))
    return float(rounded(ours - theirs) or 0.0)


def late_share(row: Row, five_qi: str) -> float:
    """The late bytes of a class, 0 to 1; all where it got nothing."""
    share = row["delay_us"].get(five_qi, {}).get("late_byte_share")
    return 1.0 if share is None else float(share)


def _newly_over_budget(run: Row, unshaped: Row, five_qi: str) -> bool:
    before, after = (row["delay_us"].get(five_qi, {}) for row in (unshaped, run))
    if before.get("p99") is None or before["p99"] > before["ran_delay_budget_us"]:
        return False
    return after.get("p99") is None or after["p99"] > after["ran_delay_budget_us"]


def _less(before: float | None, after: float | None) -> float:
    """By how much an index is lower; nothing served is an index of 0."""
    if before is None:
        return 0.0
    return float(rounded(before - (after or 0.0)) or 0.0)


def ran_checks(rows: Sequence[Row], scenario: str) -> list[Check]:
    """For arm c: how many runs of a scenario break each condition, and which ones."""
    mine = [
        row
        for row in rows
        if row["kind"] == "ran"
        and row["scenario"] == scenario
        and row["arm"] == SHAPED.name
        and not row["variant"]
    ]
    checks = [_check(scenario, f"c: {text}", mine, {name}) for name, text in CONDITIONS.items()]
    below = [row for row in mine if not row["overload"] and not row["phy_infeasible"]]
    return [*checks, _check(scenario, "c: all of these, below overload", below, set(CONDITIONS))]


def _check(scenario: str, name: str, rows: Sequence[Row], conditions: set[str]) -> Check:
    broken = [row for row in rows if conditions & set(row["broken"])]
    listed = [f"{row['cells']} x {row['load']:g} seed {row['seed']}" for row in broken]
    if len(listed) > _MOST_LISTED:
        listed[_MOST_LISTED:] = [f"and {len(listed) - _MOST_LISTED} more"]
    return check(
        f"{scenario}, {name}: runs that break it",
        len(broken) if rows else None,
        "==",
        0,
        note=f"of {len(rows)} runs" + (f": {'; '.join(listed)}" if listed else ""),
    )
