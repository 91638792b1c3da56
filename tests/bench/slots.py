"""Bench: slots on time against the number of sites at scale 20 (two cells per site). JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, ".")
sys.path.insert(0, "tests")

from harness import live_run, small_topology

SITES = (1, 2, 3, 4)


def main() -> None:
    """Print one JSON object per number of sites."""
    for count in SITES:
        with tempfile.TemporaryDirectory() as folder:
            names = tuple(f"s{index}" for index in range(count))
            topology = small_topology(Path(folder) / "bench.toml", names, 500_000)
            with live_run(topology, Path(folder) / "run") as run:
                status = run.finish(180)
                summary = json.loads((run.run_dir / "summary.json").read_text())
        fidelity = summary["fidelity"]
        print(
            json.dumps(
                {
                    "bench": "slots on time",
                    "sites": count,
                    "status": status,
                    "slots_on_time": fidelity["slots_on_time"],
                    "lateness_us": fidelity["lateness_us"],
                    "host_slow_share": fidelity["host_slow_share"],
                    "slots_on_time_at_speed": fidelity["slots_on_time_at_speed"],
                    "verdict": fidelity["verdict"],
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
