"""What ``reproduce partition`` should find: mechanisms in order, and what switches cost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from testbed.experiments.experiment import Check, check
from testbed.record.measure.numbers import ratio
from testbed.weaver_cli.arms import SHAPED, UNSHAPED
from testbed.weaver_cli.partition_runs import KINDS, SWITCHING, Row, by_case, lent

LEAST_BASELINE = 0.05
"""A ratio to less than this share of the GPU says nothing."""


def checks_of(rows: Sequence[Row]) -> list[Check]:
    """The checks; a value is None where no case has the mechanisms that it compares."""
    cases = by_case(rows)
    checks = [_order(cases, kind) for kind in KINDS]
    for kind in KINDS:
        name = kind.replace("_", " ")
        checks.append(
            check(
                f"green contexts over the best fixed share, shaped, {name}: median ratio",
                _median_ratio(_shaped(cases), kind, "green_context", "static"),
                ">=",
                1.0,
                note="a fixed share takes nothing back from training, whatever the RAN's load",
            )
        )
    lost = [case["green_context"]["foresight"]["lost_share"] for case in cases]
    checks.append(
        check(
            "green contexts: share of the GPU lost in switches, largest",
            max(lost, default=None),
            "<=",
            0.01,
            paper="a switch takes microseconds",
        )
    )
    checks.append(
        check(
            "MPS over green contexts, shaped, foresight: median ratio",
            _median_ratio(_shaped(cases), "foresight", "mps", "green_context"),
            "<=",
            1.0,
            paper="a switch takes about 300 ms",
        )
    )
    checks.append(
        check(
            "MIG over green contexts, shaped, foresight: median ratio",
            _median_ratio(_shaped(cases), "foresight", "mig", "green_context"),
            "<=",
            1.0,
            paper="a switch takes about 7 s",
        )
    )
    checks.append(
        check(
            "MPS with foresight, shaped less unshaped: median difference, of the GPU",
            _gain_of_shaping(cases),
            ">=",
            0.0,
            note="what a slow mechanism can follow is the envelope, not its height alone",
        )
    )
    return checks


def _order(cases: Sequence[dict[str, Row]], kind: str) -> Check:
    """How often a slower mechanism lends more than a faster one."""
    wrong = compared = 0
    for case in cases:
        fractions = [lent(case[name], kind) for name in SWITCHING]
        known = [value for value in fractions if value is not None]
        compared += len(known) > 1
        wrong += known != sorted(known, reverse=True)
    return check(
        f"runs whose order is not green >= MPS >= MIG, {kind.replace('_', ' ')}",
        wrong if compared else None,
        "==",
        0,
        note=f"of {compared}; MPS takes part without MIG where there is none",
    )


def _shaped(cases: Sequence[dict[str, Row]]) -> list[dict[str, Row]]:
    return [case for case in cases if _arm(case) == SHAPED.name]


def _arm(case: dict[str, Row]) -> str:
    return str(case["green_context"]["arm"])


def _median_ratio(
    cases: Sequence[dict[str, Row]], kind: str, part: str, whole: str
) -> float | None:
    """Of the cases that have both, and of the second no less than ``LEAST_BASELINE``."""
    ratios = []
    for case in cases:
        values = [lent(case[name], kind) if name in case else None for name in (part, whole)]
        if values[0] is not None and values[1] is not None and values[1] >= LEAST_BASELINE:
            ratios.append(ratio(values[0], values[1]))
    known = [value for value in ratios if value is not None]
    return float(median(known)) if known else None


def _gain_of_shaping(cases: Sequence[dict[str, Row]]) -> float | None:
    by_arm: dict[str, dict[tuple[object, ...], float]] = {SHAPED.name: {}, UNSHAPED.name: {}}
    for case in cases:
        row = case["mps"]
        value = lent(row, "foresight")
        if value is not None and _arm(case) in by_arm:
            key = tuple(row[name] for name in ("scenario", "cells", "load", "seed", "measured_s"))
            by_arm[_arm(case)][key] = value
    shaped, unshaped = by_arm[SHAPED.name], by_arm[UNSHAPED.name]
    gains = [value - unshaped[key] for key, value in shaped.items() if key in unshaped]
    return float(median(gains)) if gains else None
