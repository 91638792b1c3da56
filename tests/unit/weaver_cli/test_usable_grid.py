"""Points of a grid, what they ask of the GPU, pieces of a run, tasks of a pool, the live checks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TopologyError
from testbed.gpu.sizing import Saturation
from testbed.slotbench.scenario import setup_of
from testbed.weaver_cli import EXPERIMENTS
from testbed.weaver_cli.grid import OF_RECORD, Point, grid_topology, scenario_at, scenario_path
from testbed.weaver_cli.grid_figures import fixed_share_figures, throughput_ratio
from testbed.weaver_cli.grid_offered import offered
from testbed.weaver_cli.grid_pool import Pool, Task
from testbed.weaver_cli.usable_live import live_checks, miss_interval
from testbed.weaver_cli.usable_runs import dl_cost_variants

from .usable_rows import figures

POINT = Point(OF_RECORD, 2, 0.3, 7, 1.5)


def test_a_point_changes_cells_load_seed_and_time_and_nothing_else():
    topology = grid_topology(POINT)
    (group,) = topology.sites["site"].gnbs["g1"].cells
    assert (group.count, topology.seed, topology.time.measured_us) == (2, 7, 1_500_000)
    files, packets = group.classes
    assert (files.ul_traffic.load, files.dl_traffic.load) == (0.3, 0.3)  # type: ignore[union-attr]
    assert packets.ul_traffic.kind == "periodic"


def test_a_grid_needs_one_group_of_cells(tmp_path: Path):
    text = scenario_path(OF_RECORD).read_text()
    group = text[text.index("[[sites.site.gnbs.g1.cells]]") :]
    path = tmp_path / "two.toml"
    path.write_text(text + "\n" + group, encoding="utf-8")
    with pytest.raises(TopologyError, match=r"cells\[0\], sites.site.gnbs.g1.cells\[1\]"):
        grid_topology(Point(str(path), 1, 0.3, 1))


def test_offered_work_of_the_scenario_of_record_by_hand():
    """A full carrier at 18 dB has 46 code blocks in U, 78 in D, 50 in S (TS 38.214 5.1.3.2).

    Uplink: 8 SMs x 60 us + 40 SMs x 22 us x 46 = 40,960 SM-us; downlink 8 x (30 + 2 x 78) = 1,488
    in each D, 8 x (30 + 2 x 50) = 1,040 in S; of 48 x 2,500 SM-us, 0.3 of it for each of 2 cells.
    Evenly: ceil(0.3 x 46) = 14 blocks, 480 + 16 x 22 x 14 = 5,408 SM-us of 40 x 1,500, twice.
    """
    setup = setup_of(scenario_at(POINT), Saturation())
    asked = offered(setup, 0.3)
    per_cell = 40_960 + 3 * 1_488 + 1_040
    assert asked.gpu_share == pytest.approx(2 * 0.3 * per_cell / (48 * 2_500))
    assert asked.decode_share == pytest.approx(2 * 5_408 / (40 * 1_500))
    assert not asked.overload
    assert not asked.phy_infeasible
    assert offered(setup, 2.4).overload
    assert offered(setup, 1.0).phy_infeasible


def test_downlink_cost_is_halved_and_doubled():
    """gb10: 30 us and 2 us per code block."""
    costs = [
        setup_of(scenario_at(point), Saturation()).gpu.phy for point in dl_cost_variants(POINT)
    ]
    assert [(phy.dl_fixed_us, phy.dl_code_block_us) for phy in costs] == [(15, 1), (60, 4)]


def test_throughput_is_of_both_directions_and_unknown_of_nothing():
    assert throughput_ratio(figures(0.5, settled=990), figures(0.5)) == pytest.approx(0.99)
    assert throughput_ratio(figures(0.5), figures(0.5, settled=0)) is None


def test_a_fixed_share_is_usable_and_promised_at_any_quantum():
    shares = fixed_share_figures(1 / 3)
    assert set(shares["usable_fraction"].values()) == {0.333333}
    assert shares["promised_fraction"] == shares["usable_fraction"]


def test_a_pool_keeps_the_order_of_its_tasks_and_passes_errors_on():
    with ThreadPoolExecutor(2) as executor:
        workers = Pool(executor)
        tasks = [Task(pow, (2, n), float(n + 1), f"2 ** {n}") for n in range(5)]
        assert workers.run(tasks) == [1, 2, 4, 8, 16]
        assert workers.run([]) == []
        with pytest.raises(ZeroDivisionError):
            workers.run([Task(divmod, (1, 0), 1.0, "no")])


def test_intervals_of_miss_rates_by_hand():
    """Clopper and Pearson, none of n: up to 1 - 0.025 ** (1 / n)."""
    assert miss_interval(0, 10) == pytest.approx((0.0, 1 - 0.025**0.1))
    assert miss_interval(10, 10) == pytest.approx((0.025**0.1, 1.0))
    assert miss_interval(0, 0) == (0.0, 1.0)


def test_live_and_simulated_must_be_close():
    def side(usable: float, ul_misses: int) -> dict[str, Any]:
        return {
            "usable_fraction": usable,
            "misses": {"dl": 0, "ul": ul_misses},
            "blocks": {"dl": 500, "ul": 100},
            "slots_on_time": 1.0,
            "verdict": "ok",
        }

    def met(live: dict[str, Any]) -> list[bool | None]:
        row = {
            "kind": "live",
            "arm": "c",
            "cells": 1,
            "load": 0.3,
            "live": live,
            "simulated": side(0.8, 2),
        }
        return [check.met for check in live_checks([row])]

    assert met(side(0.83, 4)) == [True, True]
    assert met(side(0.831, 60)) == [False, False]


def test_both_experiments_take_the_common_options():
    for name in ("usable", "ran-impact"):
        with EXPERIMENTS[name].make_context(name, []) as context:
            assert {"quick", "out", "scenario" if name == "ran-impact" else "scenarios"} <= set(
                context.params
            )
