"""One RAN run through every partition mechanism: what training could be lent, and what it cost.

Owns the cases and their rows. What a mechanism can do is ``testbed.gpu.partitions``; the RAN is run
once per case, and once more for each fixed share that is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from testbed.gpu.partition_replay import (
    Lent,
    Promises,
    lent_as_promised,
    lent_with_foresight,
)
from testbed.gpu.partitions import Mechanism, PartitionName, mechanism, mig_instances
from testbed.gpu.profile import GpuProfile
from testbed.gpu.spare import Steps, slots_within, stack
from testbed.record.measure.numbers import rounded
from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.slotbench.results import BenchRun
from testbed.slotbench.scenario import BenchScenario
from testbed.weaver_cli.arms import Arm
from testbed.weaver_cli.grid import HEADLINE_US, Point, run_arm, scenario_at
from testbed.weaver_cli.grid_figures import misses, run_figures, throughput_ratio

Row = dict[str, Any]

_QUANTA = tuple(map(str, PROMISE_WINDOWS_US))

SWITCHING: tuple[PartitionName, ...] = ("green_context", "mps", "mig")
"""From the fastest to the slowest."""

LATE_SLACK = 0.001
THROUGHPUT_FLOOR = 0.99
"""A fixed share leaves the RAN as it was: no more deadline misses, in no class more than so much
more of the bytes late, and at least so much of the bytes delivered."""

MOST_LATE = 0.01
"""A RAN with a larger share of its bytes late has nothing that a fixed share could leave it."""

PROBE_S = 1.0
"""Measured length of the run that shows most fixed shares to be too large."""


@dataclass(frozen=True, slots=True)
class Case:
    """One RAN run. ``static``: also look for its best fixed share, which takes more runs."""

    point: Point
    arm: Arm
    static: bool = True


def rows_of(case: Case) -> list[Row]:
    """A row per mechanism. Raises TopologyError for a scenario that the bench does not run.

    Fractions are of the GPU, 0 to 1, by quantum in microseconds: ``usable_fraction`` and
    ``promised_fraction`` without a partition; ``foresight_fraction`` is lent where all of the run
    is known ahead, ``as_promised_fraction`` where no more is known than was promised. Of each of
    the two also ``switches``, ``switching_share`` (of the time, a switch under way) and
    ``lost_share`` (of the GPU's SM-time, kept from both sides by switches).
    """
    scenario = scenario_at(case.point)
    run = run_arm(scenario, case.arm)
    figures = run_figures(scenario, run)
    common = _common(case, run, figures)
    rows = [common | _switching_row(name, run) for name in SWITCHING]
    if case.static:
        rows.append(common | static_row(case, scenario, run.setup.gpu, figures))
    return rows


def _common(case: Case, run: BenchRun, figures: Row) -> Row:
    point = case.point
    return {
        "scenario": point.scenario,
        "gpu": run.setup.gpu.name,
        "cells": point.cells,
        "load": point.load,
        "seed": point.seed,
        "measured_s": point.measured_s,
        "arm": case.arm.name,
        "deadline_misses": misses(figures),
        "late_byte_share": figures["late_byte_share"],
        **{key: figures[key] for key in ("usable_fraction", "promised_fraction")},
    }


# --- mechanisms that switch -----------------------------------------------------------------------


def _switching_row(name: PartitionName, run: BenchRun) -> Row:
    gpu = run.setup.gpu
    if name == "mig" and mig_instances(gpu) is None:
        return nothing_lent(name, f"{gpu.name} has no MIG")
    of = mechanism(name, gpu)
    foresight, promised = foresight_of(run, of), as_promised(run, of)
    # A quantum must end with the switch behind it within what was promised: of the longest window
    # that is not recorded.
    beyond = {str(PROMISE_WINDOWS_US[-1]): None}
    return _row(
        name,
        (_fractions(foresight, gpu), _fractions(promised, gpu) | beyond),
        (_switches(foresight, of, run), _switches(promised, of, run)),
        switch_us=of.switch_us,
    )


def foresight_of(run: BenchRun, of: Mechanism) -> Lent:
    """What the mechanism could lend of the measured interval, if the run were known ahead."""
    setup = run.setup
    return lent_with_foresight(
        ran_of(run),
        setup.gpu.sms,
        of,
        setup.warmup_us,
        setup.end_us,
        slot_us=setup.slot_us,
        quanta_us=PROMISE_WINDOWS_US,
    )


def as_promised(run: BenchRun, of: Mechanism) -> Lent:
    """What it could lend on the promises of the run, in slots whose windows are all measured."""
    return lent_as_promised(promises_of(run), run.setup.gpu.sms, of, quanta_us=PROMISE_WINDOWS_US)


def ran_of(run: BenchRun) -> Steps:
    """The RAN's SMs over time."""
    pieces = run.pieces
    return stack(pieces["from_us"], pieces["to_us"], pieces["sms"])


def promises_of(run: BenchRun) -> Promises:
    """What stood promised at the start of each slot whose windows are all measured."""
    setup, rows = run.setup, run.promises
    at_us = rows["slot"] * setup.slot_us
    measured = slots_within(setup.slot_us, setup.warmup_us, setup.end_us, PROMISE_WINDOWS_US[-1])
    rows = rows.where(np.isin(at_us, measured))
    within = [rows[f"within_{window_us}_us"] for window_us in PROMISE_WINDOWS_US]
    return Promises(
        rows["slot"] * setup.slot_us,
        PROMISE_WINDOWS_US,
        np.stack(within, axis=1),
        max(setup.worst_sms),
    )


def _fractions(lent: Lent, gpu: GpuProfile) -> dict[str, float | None]:
    return {str(q): rounded(lent.fraction(q, gpu.sms)) for q in PROMISE_WINDOWS_US}


def _switches(lent: Lent, of: Mechanism, run: BenchRun) -> Row:
    measured_us = run.setup.end_us - run.setup.warmup_us
    return {
        "switches": lent.switches,
        "switching_share": rounded(lent.switches * of.switch_us / measured_us),
        "lost_share": rounded(lent.lost_sm_us / (run.setup.gpu.sms * measured_us)),
    }


# --- a fixed share --------------------------------------------------------------------------------


def static_row(case: Case, scenario: BenchScenario, gpu: GpuProfile, whole: Row) -> Row:
    """The largest share of the partition grid that leaves the RAN as it was, found by sweep.

    Args:
        case, scenario, gpu: what was run on the whole GPU.
        whole: the figures of that run.
    """
    if whole["late_byte_share"] is None or whole["late_byte_share"] > MOST_LATE:
        return nothing_lent("static", "the RAN is late on the whole GPU already")
    for share_sms in reversed(shares_of(gpu)):
        ran_sms = gpu.sms - share_sms
        if _fails_early(case, ran_sms, whole):
            continue
        figures = run_figures(scenario, run_arm(scenario, case.arm, ran_sms))
        if as_good(figures, whole):
            return fixed_row(share_sms, gpu) | {
                "deadline_misses": misses(figures),
                "late_byte_share": figures["late_byte_share"],
            }
    return nothing_lent("static", "no share leaves the RAN as it was")


def _fails_early(case: Case, ran_sms: int, whole: Row) -> bool:
    """Whether the first part of the run alone has more misses than all of it may have.

    A run begins like any shorter one of the same seed.
    """
    if case.point.measured_s < 2 * PROBE_S:
        return False
    scenario = scenario_at(replace(case.point, measured_s=PROBE_S))
    probe = run_figures(scenario, run_arm(scenario, case.arm, ran_sms))
    return misses(probe) > misses(whole)


def shares_of(gpu: GpuProfile) -> list[int]:
    """Fixed shares of training, ascending: partitions that leave the RAN one."""
    return [sms for sms in gpu.sm_levels() if gpu.sms - sms >= gpu.min_sms]


def as_good(figures: Row, whole: Row) -> bool:
    """Whether a run leaves the RAN what the run on the whole GPU, same seed, leaves it."""
    if misses(figures) > misses(whole):
        return False
    kept = throughput_ratio(figures, whole)
    if kept is not None and kept < THROUGHPUT_FLOOR:
        return False
    return not any(
        _more_late(figures["delay_us"].get(five_qi), of_class)
        for five_qi, of_class in whole["delay_us"].items()
    )


def _more_late(ours: Row | None, theirs: Row) -> bool:
    before = theirs["late_byte_share"]
    now = None if ours is None else ours["late_byte_share"]
    if before is None or now is None:
        return before is not None  # nothing is delivered any more
    return bool(now > before + LATE_SLACK)


def fixed_row(share_sms: int, gpu: GpuProfile) -> Row:
    """A share of training that never changes: lent at any quantum, known for ever."""
    fractions = dict.fromkeys(_QUANTA, rounded(share_sms / gpu.sms))
    never = {"switches": 0, "switching_share": 0.0, "lost_share": 0.0}
    return _row("static", (fractions, fractions), (never, never), training_sms=share_sms)


def nothing_lent(name: PartitionName, reason: str) -> Row:
    """A mechanism that is not to be had."""
    unknown = dict.fromkeys(_QUANTA)
    never = dict.fromkeys(("switches", "switching_share", "lost_share"))
    return _row(name, (unknown, unknown), (never, never), reason=reason)


def _row(
    name: PartitionName,
    fractions: tuple[Row, Row],
    switches: tuple[Row, Row],
    *,
    reason: str = "",
    switch_us: int | None = None,
    training_sms: int | None = None,
) -> Row:
    """``fractions``, ``switches``: with foresight, as promised."""
    return {
        "mechanism": name,
        "reason": reason,
        "switch_us": switch_us,
        "training_sms": training_sms,
        "foresight_fraction": dict(fractions[0]),
        "as_promised_fraction": dict(fractions[1]),
        "foresight": dict(switches[0]),
        "as_promised": dict(switches[1]),
    }


# --- reading rows ---------------------------------------------------------------------------------

KINDS = ("as_promised", "foresight")


def lent(row: Row, kind: str, quantum_us: int = HEADLINE_US) -> float | None:
    """The share of the GPU that was lent for quanta of that length."""
    value: float | None = row[f"{kind}_fraction"][str(quantum_us)]
    return value


def by_case(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """The rows of each case, by mechanism."""
    cases: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        cases.setdefault(_key(row, *_PLACE, "seed"), {})[row["mechanism"]] = row
    return list(cases.values())


_PLACE = ("scenario", "gpu", "cells", "load", "measured_s", "arm")


def over_seeds(rows: Iterable[Row]) -> list[tuple[Row, Sequence[Row]]]:
    """(what they share, the rows) of rows that differ in nothing but the seed."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(row, *_PLACE, "mechanism"), []).append(row)
    names = (*_PLACE, "mechanism")
    return [(dict(zip(names, key, strict=True)), group) for key, group in groups.items()]


def _key(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
