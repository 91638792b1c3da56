"""Bench: cell-slots per second of the node simulator, without report. Prints JSON.

Two topologies: the quickstart (two sites train one model), and the same four cells at load 0.3
without a job. Wall time shows what a user waits; process time what it costs on a busy machine.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, ".")

from testbed.ran.numerology import slot_us
from testbed.sim import Simulator
from testbed.topology.load import load_topology
from testbed.topology.schema import Topology

QUICKSTART = Path("topologies/quickstart.toml")
TIME_SCALE = 20.0
REPEATS = 3
RAN_ONLY = [
    "jobs={}",
    *(
        f"sites.{site}.gnbs.g1.cells.0.{direction}_traffic.load=0.3"
        for site in ("north", "south")
        for direction in ("ul", "dl")
    ),
]


def measure(name: str, topology: Topology) -> dict[str, object]:
    """One row: the same run ``REPEATS`` times."""
    wall_s: list[float] = []
    process_s: list[float] = []
    for _ in range(REPEATS):
        wall, process = time.perf_counter(), time.process_time()
        result = Simulator(topology, TIME_SCALE).run()
        wall_s.append(time.perf_counter() - wall)
        process_s.append(time.process_time() - process)
    cells = list(topology.cells())
    cell_slots = sum(result.end_us / slot_us(ref.spec.scs_khz) for ref in cells)
    return {
        "topology": name,
        "cells": len(cells),
        "node_steps": result.steps,
        "wall_s": [round(value, 2) for value in wall_s],
        "process_s": [round(value, 2) for value in process_s],
        "cell_slots_per_s": round(cell_slots / median(wall_s)),
        "cell_slots_per_process_s": round(cell_slots / median(process_s)),
        "node_steps_per_process_s": round(result.steps / median(process_s)),
    }


def main() -> None:
    """Print one JSON object."""
    rows = [
        measure("quickstart", load_topology(QUICKSTART, slot_wall_ms_min=None)),
        measure("ran_only", load_topology(QUICKSTART, RAN_ONLY, slot_wall_ms_min=None)),
    ]
    print(json.dumps({"bench": "simulator", "repeats": REPEATS, "rows": rows}))


if __name__ == "__main__":
    main()
