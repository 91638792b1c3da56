"""The runs behind ``reproduce usable``: all arms of a point, the best fixed share, the bound.

Owns what one worker does, and the form of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.gpu.sizing import Saturation
from testbed.record.measure.numbers import rounded
from testbed.slotbench.scenario import BenchScenario, setup_of
from testbed.weaver_cli.arms import ARMS, FIXED_SHARE, SHAPED, UNSHAPED, Arm
from testbed.weaver_cli.grid import Point, grid_topology, run_arm, scenario_at
from testbed.weaver_cli.grid_bound import bound_figures
from testbed.weaver_cli.grid_figures import (
    Row,
    fixed_share_figures,
    misses,
    run_figures,
    throughput_ratio,
)
from testbed.weaver_cli.grid_offered import offered
from testbed.weaver_cli.partition_runs import as_good, shares_of

BROKEN_DOWN = 0.1
"""Share of the deadlines of a direction: an unshaped RAN that misses more has nothing to spare."""

_BEGINNINGS = (0.05, 0.25)
"""Parts of the measured time that are tried before all of it."""


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """``bounded_s`` of a run from the end of its warm-up, at some quanta, in rows of a kind."""

    kind: str
    point: Point
    bounded_s: float
    windows_us: tuple[int, ...]


def point_rows(point: Point, arms: Sequence[Arm] = ARMS, *, fixed: bool = True) -> list[Row]:
    """A row per arm, a first; with ``fixed`` also one of the best fixed share.

    The best fixed share is the largest that training can have of the GPU for good while a's policy
    and sizing, confined to the rest, leave the RAN what the run on the whole GPU leaves it: no more
    deadline misses, nothing of note more late or undelivered. ``share_sms`` is None where no share
    does that, and where the RAN has broken down on the whole GPU already (``BROKEN_DOWN``).

    Raises:
        TopologyError: a point that the bench cannot run.
    """
    scenario = scenario_at(point)
    common = common_of(point, scenario)
    figures = {arm.name: run_figures(scenario, run_arm(scenario, arm)) for arm in arms}
    unshaped = figures[UNSHAPED.name]
    rows = [common | _of_arm(arm) | figures[arm.name] for arm in arms]
    if fixed:
        rows.append(common | _fixed_row(point, unshaped))
    for row in rows:
        row["throughput_ratio"] = None if _is_empty(row) else throughput_ratio(row, unshaped)
    return rows


def common_of(point: Point, scenario: BenchScenario) -> Row:
    """What all rows of a point say of it."""
    asked = offered(setup_of(scenario, Saturation()), point.load)
    return {
        "kind": "run",
        "scenario": point.name,
        "variant": point.variant,
        "cells": point.cells,
        "load": point.load,
        "seed": point.seed,
        "measured_s": point.measured_s,
        "offered_gpu_share": rounded(asked.gpu_share),
        "decode_share": rounded(asked.decode_share),
        "overload": asked.overload,
        "phy_infeasible": asked.phy_infeasible,
    }


def _of_arm(arm: Arm) -> Row:
    return {"arm": arm.name, "policy": arm.policy, "sizing": arm.sizing, "share_sms": None}


def _fixed_row(point: Point, unshaped: Row) -> Row:
    arm = _of_arm(UNSHAPED) | {"arm": FIXED_SHARE}
    gpu = setup_of(scenario_at(point), Saturation()).gpu
    rates = [rate for rate in unshaped["deadline_miss_rate"].values() if rate is not None]
    if max(rates, default=0.0) <= BROKEN_DOWN:
        for share_sms in reversed(shares_of(gpu)):
            figures = _as_good(point, gpu.sms - share_sms, unshaped)
            if figures is not None:
                left = fixed_share_figures(share_sms / gpu.sms)
                return arm | {"share_sms": share_sms} | figures | left
    return arm | dict.fromkeys(unshaped)


def _as_good(point: Point, ran_sms: int, unshaped: Row) -> Row | None:
    """Figures of arm a on so many SMs, if the RAN is as on the whole GPU.

    A shorter run is a beginning of a longer one, so that what it misses the longer one misses too:
    shares that are far too large are found out soon.
    """
    for part in (*_BEGINNINGS, 1.0):
        scenario = scenario_at(replace(point, measured_s=point.measured_s * part))
        figures = run_figures(scenario, run_arm(scenario, UNSHAPED, ran_sms))
        if misses(figures) > misses(unshaped):
            return None
    return figures if as_good(figures, unshaped) else None


def _is_empty(row: Row) -> bool:
    """Whether this is the row of a fixed share that there is none of."""
    return row["idle_fraction"] is None


def bound_rows(plan: BoundPlan) -> list[Row]:
    """The bound beside arm c: a row per quantum.

    A run of just the time that is bounded: the beginning of a longer one, but for what arrives at
    its end and is served later.

    Raises:
        TopologyError: a point that the bench cannot run.
        testbed.spare_bound.program.SolverError: no solution.
    """
    point = replace(plan.point, measured_s=min(plan.point.measured_s, plan.bounded_s))
    scenario = scenario_at(point)
    run = run_arm(scenario, SHAPED)
    common = common_of(point, scenario) | {"kind": plan.kind, "arm": SHAPED.name}
    return [common | figures for figures in bound_figures(run, plan.windows_us)]


def dl_cost_variants(point: Point) -> list[Point]:
    """The point with the downlink's assumed cost at half and at double. Raises TopologyError."""
    (site,) = grid_topology(point).sites
    phy = setup_of(scenario_at(point), Saturation()).gpu.phy
    costs = {"dl_fixed_us": phy.dl_fixed_us, "dl_code_block_us": phy.dl_code_block_us}
    return [
        replace(
            point,
            variant=f"downlink cost x {factor:g}",
            sets=tuple(
                f"sites.{site}.gpu_overrides.phy.{key}={factor * value!r}"
                for key, value in costs.items()
            ),
        )
        for factor in (0.5, 2.0)
    ]
