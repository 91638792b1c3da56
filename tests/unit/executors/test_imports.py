"""The parts that hosts and the simulator import are free of torch."""

from __future__ import annotations

import subprocess
import sys

LIGHT = [
    "clock",
    "config",
    "gate_costs",
    "gate_engine",
    "link",
    "pace",
    "process",
    "quantum_cursor",
    "text",
    "timer",
    "__main__",
]


def test_light_modules_do_not_import_torch():
    names = ", ".join(f"testbed.executors.{name}" for name in LIGHT)
    check = f"import {names}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0
