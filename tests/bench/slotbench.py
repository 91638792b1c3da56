"""Bench: cell-slots per second of the slot bench on one core, by policy, cells and load. JSON.

Compiling, and loading what was compiled earlier, is left out: a short run comes first.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, ".")

from testbed.slotbench.scenario import scenario_of
from testbed.slotbench.simulate import run_bench
from testbed.topology.load import load_topology
from testbed.topology.schema import Topology

POINTS = (
    ("proportional_fair", "saturation"),
    ("proportional_fair", "deadline"),
    ("spare_compute", "deadline"),
)
CELLS = (1, 4, 8)
LOADS = (0.3, 0.7)
REPEATS = 3


def scenario(cells: int, load: float, measured_us: int) -> Topology:
    """The scenario of record with that many cells and that load in both directions."""
    group = "sites.site.gnbs.g1.cells[0]"
    changes = [
        f"{group}.count={cells}",
        f"{group}.classes[0].ul_traffic.load={load}",
        f"{group}.classes[0].dl_traffic.load={load}",
        f"time.measured_us={measured_us}",
    ]
    return load_topology(Path("topologies/weaver_usable.toml"), changes, slot_wall_ms_min=None)


def main() -> None:
    """Print one JSON object per point."""
    for policy, sizing in POINTS:
        run_bench(scenario_of(scenario(1, LOADS[0], 10_000)), policy, sizing)
        for cells in CELLS:
            for load in LOADS:
                point = scenario_of(scenario(cells, load, 5_000_000))
                rates = []
                for _ in range(REPEATS):
                    begun = time.process_time()
                    run = run_bench(point, policy, sizing)
                    taken_s = time.process_time() - begun
                    rates.append(cells * run.end_us / run.setup.slot_us / taken_s)
                result = {
                    "bench": "slotbench",
                    "policy": policy,
                    "sizing": sizing,
                    "cells": cells,
                    "load": load,
                    "cell_slots_per_cpu_s": [round(rate) for rate in rates],
                    "median": round(median(rates)),
                }
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
