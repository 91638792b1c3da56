"""What one arm gains over another at the same point, and what that costs in delay.

Owns gains, their summary over a grid, and the medians over seeds; reads rows of kind ``run``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from testbed.record.compare import BASELINE_FLOOR
from testbed.record.measure.numbers import rounded
from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.weaver_cli.arms import STEPS
from testbed.weaver_cli.grid import HEADLINE_US
from testbed.weaver_cli.grid_figures import Row, misses

WHATS = ("usable", "promised")
PLACE = ("scenario", "variant", "cells", "load")
_STATE = ("overload", "phy_infeasible")

Arms = Mapping[str, Row]


def by_place(rows: Iterable[Row]) -> dict[tuple[Any, ...], dict[int, dict[str, Row]]]:
    """place -> seed -> arm -> its run; rows of fixed shares that there are none of left out."""
    places: dict[tuple[Any, ...], dict[int, dict[str, Row]]] = {}
    for row in rows:
        if row["kind"] == "run" and row["idle_fraction"] is not None:
            key = tuple(row[name] for name in PLACE)
            places.setdefault(key, {}).setdefault(row["seed"], {})[row["arm"]] = row
    return places


def spread(values: Iterable[float | None], name: str) -> Row:
    """Median, least and largest of the values that there are, under ``name`` and its endings."""
    known = [value for value in values if value is not None]
    if not known:
        return {name: None, f"{name}_min": None, f"{name}_max": None}
    low, high = min(known), max(known)
    middle = median(known)
    return {name: rounded(middle), f"{name}_min": rounded(low), f"{name}_max": rounded(high)}


def gain_rows(rows: Iterable[Row]) -> list[Row]:
    """A row per place, step, fraction and quantum, over its seeds.

    ``ratio``: of the two arms' fractions, same seed, where the first is at least 0.05 (below,
    any ratio would look large); ``points``: the difference of the fractions; ``from``, ``to``: the
    fractions. ``delay_change_us``: by 5QI, the second arm's percentile less the first's, where
    both delivered anything. Medians over seeds; ``_min`` and ``_max`` beside them.
    """
    found: list[Row] = []
    for place, seeds in by_place(rows).items():
        for first, second in STEPS:
            pairs = [
                (arms[first], arms[second])
                for arms in seeds.values()
                if first in arms and second in arms
            ]
            if not pairs:
                continue
            common = {
                "kind": "gain",
                **dict(zip(PLACE, place, strict=True)),
                **{key: pairs[0][0][key] for key in _STATE},
                "step": f"{first}->{second}",
                "seeds": len(pairs),
            }
            delays = {"delay_change_us": _delay_change_us(pairs)}
            found += [
                common | _gain(pairs, what, window_us) | delays
                for what in WHATS
                for window_us in PROMISE_WINDOWS_US
            ]
    return found


def _gain(pairs: Sequence[tuple[Row, Row]], what: str, window_us: int) -> Row:
    key, window = f"{what}_fraction", str(window_us)
    fractions = [(first[key][window], second[key][window]) for first, second in pairs]
    ratios = [after / before for before, after in fractions if before >= BASELINE_FLOOR]
    return {
        "what": what,
        "q_us": window_us,
        "from": rounded(median(before for before, _ in fractions)),
        "to": rounded(median(after for _, after in fractions)),
        "ratio_seeds": len(ratios),
        **spread(ratios, "ratio"),
        **spread((after - before for before, after in fractions), "points"),
    }


def _delay_change_us(pairs: Sequence[tuple[Row, Row]]) -> Row:
    classes = sorted({five_qi for pair in pairs for row in pair for five_qi in row["delay_us"]})
    return {
        five_qi: {name: _change(pairs, five_qi, name) for name in ("p50", "p95")}
        for five_qi in classes
    }


def _change(pairs: Sequence[tuple[Row, Row]], five_qi: str, name: str) -> float | None:
    both = [tuple(row["delay_us"].get(five_qi, {}).get(name) for row in pair) for pair in pairs]
    return median_of(after - before for before, after in both if None not in (before, after))


def median_of(values: Iterable[float]) -> float | None:
    """The median; None of none."""
    known = list(values)
    return rounded(float(median(known))) if known else None


def summary_rows(gains: Iterable[Row]) -> list[Row]:
    """Each step over the places of a scenario: median and maximum of gains and differences.

    ``below overload`` alone, and all. ``best``: where the largest ratio is.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in gains:
        if row["variant"]:
            continue
        key = tuple(row[name] for name in ("scenario", "step", "what", "q_us"))
        groups.setdefault((*key, "all"), []).append(row)
        if not row["overload"]:
            groups.setdefault((*key, "below overload"), []).append(row)
    return [
        {
            "kind": "gain summary",
            **dict(zip(("scenario", "step", "what", "q_us", "points_of"), key, strict=True)),
            **_summary(group),
        }
        for key, group in groups.items()
    ]


def _summary(group: Sequence[Row]) -> Row:
    with_ratio = [row for row in group if row["ratio"] is not None]
    best = max(with_ratio, key=lambda row: float(row["ratio"]), default=None)
    return {
        "places": len(group),
        "with_ratio": len(with_ratio),
        "ratio_median": median_of(row["ratio"] for row in with_ratio),
        "ratio_largest": None if best is None else best["ratio"],
        "best": "" if best is None else f"{best['cells']} cells, load {best['load']:g}",
        "points_median": median_of(row["points"] for row in group),
        "points_largest": max(row["points"] for row in group),
    }


def point_rows_over_seeds(rows: Iterable[Row]) -> list[Row]:
    """A row per place and arm: medians over its seeds and their range, at the headline quantum."""
    return [
        _over_seeds(place, name, [arms[name] for arms in seeds.values() if name in arms])
        for place, seeds in by_place(rows).items()
        for name in _names(seeds.values())
    ]


def _names(of_seeds: Iterable[Arms]) -> Iterator[str]:
    yield from dict.fromkeys(name for arms in of_seeds for name in arms)


def _over_seeds(place: tuple[Any, ...], arm: str, runs: Sequence[Row]) -> Row:
    window = str(HEADLINE_US)
    row: Row = {
        "kind": "point",
        **dict(zip(PLACE, place, strict=True)),
        **{key: runs[0][key] for key in _STATE},
        "arm": arm,
        "seeds": len(runs),
        **spread((run["usable_fraction"][window] for run in runs), "usable"),
        **spread((run["promised_fraction"][window] for run in runs), "promised"),
        **spread((run["idle_fraction"] for run in runs), "idle"),
        **spread((float(misses(run)) for run in runs), "misses"),
        **spread((run["throughput_ratio"] for run in runs), "throughput_ratio"),
    }
    for five_qi in sorted({key for run in runs for key in run["delay_us"]}):
        of_class = [run["delay_us"].get(five_qi, {}) for run in runs]
        for name in ("p95", "late_byte_share"):
            row |= spread((figures.get(name) for figures in of_class), f"{name}_{five_qi}")
    return row
