"""Bench: cell-slots per second of the node simulator on the quickstart, without report. JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, ".")

from testbed.sim import Simulator
from testbed.topology.load import load_topology


def main() -> None:
    """Print one JSON object."""
    path = Path("topologies/quickstart.toml")
    topology = load_topology(path, slot_wall_ms_min=None)
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        result = Simulator(topology, 20.0).run()
        taken.append(time.perf_counter() - begun)
    cells = len(list(topology.cells()))
    slots = result.end_us / 500
    best = min(taken)
    print(
        json.dumps(
            {
                "bench": "simulator",
                "topology": path.name,
                "cells": cells,
                "node_steps": result.steps,
                "seconds": [round(value, 2) for value in taken],
                "cell_slots_per_s": round(cells * slots / best),
                "node_steps_per_s": round(result.steps / best),
            }
        )
    )


if __name__ == "__main__":
    main()
