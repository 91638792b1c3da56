"""Three points of the grid live, and the simulator beside them with the same seed.

Owns the comparison; what is run is what ``up`` and ``sim`` run, into run directories of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import NodeFailed
from testbed.experiments.experiment import Check, check, progress
from testbed.topology.schema import Topology
from testbed.weaver_cli.arms import SHAPED, UNSHAPED, Arm
from testbed.weaver_cli.grid import HEADLINE_US, Point, grid_topology
from testbed.weaver_cli.grid_figures import Row

POINTS: tuple[tuple[int, float, Arm], ...] = (
    (1, 0.3, SHAPED),
    (2, 0.3, SHAPED),
    (1, 0.1, UNSHAPED),
)
"""(cells, load, arm)."""

MEASURED_S = 1.0
MOST_APART = 0.03
CONFIDENCE = 0.95


def live_rows(scenario: str, seed: int, out: Path) -> list[Row]:
    """A row per point. Run directories are written below ``out/live``, or ``out/live-2`` and so on.

    Time is scaled as ``doctor`` found this machine to keep it, or as the scenario says if that is
    slower.

    Raises:
        RanloomError: a run that cannot begin, or that failed.
    """
    directory = _unused(out)
    return [
        _row(Point(scenario, cells, load, seed, MEASURED_S), arm, directory)
        for cells, load, arm in POINTS
    ]


def _unused(out: Path) -> Path:
    names = ("live", *(f"live-{number}" for number in range(2, 1000)))
    return next(path for name in names if not (path := out / name).exists())


def _row(point: Point, arm: Arm, directory: Path) -> Row:
    from testbed.host.live_run import run_live, run_simulated
    from testbed.host.machine import machine_facts, with_machine_facts
    from testbed.topology.sizes import time_scale

    policies = (f"site.mac={arm.policy}", f"site.phy={arm.sizing}")
    topology = with_machine_facts(grid_topology(point, policies))
    scale = max(time_scale(topology, machine_facts().steady_slot_wall_ms), _scale_of(topology))
    name = f"{arm.name}-{point.cells}-{point.load:g}-{point.seed}"
    progress(f"{point}, arm {arm.name}: simulated, then live at scale {scale:g}")
    run_simulated(topology, scale, directory / f"{name}-sim", journals=False)
    live = directory / f"{name}-live"
    result = run_live(topology, scale, live, lambda now_us, note: None)
    if result.status != "done":
        raise NodeFailed(f"{live}: {result.status}: {result.reason}")
    return {
        "kind": "live",
        "scenario": point.name,
        "variant": "",
        "cells": point.cells,
        "load": point.load,
        "seed": point.seed,
        "arm": arm.name,
        "time_scale": scale,
        "live": _figures(live),
        "simulated": _figures(directory / f"{name}-sim"),
    }


def _scale_of(topology: Topology) -> float:
    return topology.time.scale if isinstance(topology.time.scale, float) else 1.0


def _figures(run_dir: Path) -> Row:
    """What is compared, of a run directory."""
    from testbed.record.run_dir import summarise_run

    summary = summarise_run(run_dir)
    radio: Mapping[str, Any] = summary["ran"]
    return {
        "usable_fraction": summary["spare"]["usable_fraction"][str(HEADLINE_US)],
        "misses": {way: radio[way]["deadline_misses"] for way in ("dl", "ul")},
        "blocks": {way: radio["scheduled_blocks"][way] for way in ("dl", "ul")},
        "slots_on_time": summary["fidelity"]["slots_on_time"],
        "verdict": summary["fidelity"]["verdict"],
    }


def live_checks(rows: Sequence[Row]) -> list[Check]:
    """Per point: usable fractions within ``MOST_APART``, intervals of the miss rates that meet."""
    checks = []
    for row in (row for row in rows if row["kind"] == "live"):
        place = f"live, {row['arm']} at {row['cells']} x {row['load']:g}"
        live, simulated = row["live"], row["simulated"]
        verdict = f"live run: {live['verdict']}, slots on time {live['slots_on_time']}"
        checks.append(
            check(
                f"{place}: usable fraction apart from the simulator's",
                round(abs(live["usable_fraction"] - simulated["usable_fraction"]), 6),
                "<=",
                MOST_APART,
                note=verdict,
            )
        )
        apart = [way for way in ("dl", "ul") if not _intervals_meet(live, simulated, way)]
        checks.append(
            check(
                f"{place}: directions whose miss rates' {CONFIDENCE:.0%} intervals do not meet",
                len(apart),
                "==",
                0,
                note=f"live {live['misses']} of {live['blocks']}, "
                f"simulated {simulated['misses']} of {simulated['blocks']}",
            )
        )
    return checks


def _intervals_meet(left: Row, right: Row, way: str) -> bool:
    first, second = (miss_interval(row["misses"][way], row["blocks"][way]) for row in (left, right))
    return first[0] <= second[1] and second[0] <= first[1]


def miss_interval(missed: int, blocks: int) -> tuple[float, float]:
    """Exact binomial interval of a rate (Clopper and Pearson); of nothing, all rates."""
    if blocks == 0:
        return 0.0, 1.0
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE) / 2
    met = blocks - missed
    low = betaincinv(missed, met + 1, tail) if missed else 0.0
    high = betaincinv(missed + 1, met, 1 - tail) if met else 1.0
    return float(low), float(high)
