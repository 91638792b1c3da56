"""Soak: deaths and interruptions at random times, again and again. JSON; exit 1 if one went wrong.

Each round starts a run, ends it in one of the ways below after a random while, and checks that
within two seconds no process, socket or shared memory is left, that decoys with similar names
live, that the run directory still gives a report, and that no sample is lost where the coordinator
lived to say what became of each. "lose": a trainer's process is killed, and after another random
while, in which its next life starts or takes the state, Ctrl-C ends the run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, ".")
sys.path.insert(0, "tests")

from harness import ROOT, LiveRun, decoys, live_run, shared_memory, small_topology

WAYS = (
    "lose north.pretrain.trainer",
    "lose north.pretrain.trainer/executor",
    "kill all trainers",
    "kill north.g1.phy",
    "kill north.g1.phy/executor",
    "kill launcher",
    "interrupt once",
    "interrupt twice",
)
TRAINERS = ("north.pretrain.trainer", "south.pretrain.trainer")
ABRUPT = ("kill launcher", "interrupt twice")


def _end(run: LiveRun, way: str, then_s: float) -> int:
    """Do it, and return the exit status that is expected."""
    verb, target = way.split(" ", 1)
    if verb == "lose":
        os.kill(run.pids()[target], signal.SIGKILL)
        time.sleep(then_s)
        verb, target = "interrupt", "once"
    if verb == "interrupt":
        for _ in range(1 if target == "once" else 2):
            run.process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        return 130
    pids = run.pids()
    doomed = TRAINERS if target == "all trainers" else (target,)
    for name in doomed:
        os.kill(pids[name], signal.SIGKILL)
    return -9 if target == "launcher" else 1


def _round(number: int, way: str, wait_s: float, then_s: float, folder: Path) -> dict[str, object]:
    topology = small_topology(folder / f"{number}.toml", ("north", "south"), 3_000_000)
    before = shared_memory()
    problems: list[str] = []
    with decoys() as others, live_run(topology, folder / f"run{number}") as run:
        run.wait_running()
        time.sleep(wait_s)
        expected = _end(run, way, then_s)
        status = run.finish(90)
        if status != expected:
            problems.append(f"exit status {status}, not {expected}")
        problems += [f"left: {left}" for left in run.leftovers()]
        problems += [f"decoy {p.pid} died" for p in others if p.poll() is not None]
        report = subprocess.run(
            [sys.executable, str(ROOT / "run.py"), "report", str(run.run_dir)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if report.returncode != 0:
            problems.append(f"report: {report.stderr.strip()[-300:]}")
        elif way not in ABRUPT:
            summary = json.loads((run.run_dir / "summary.json").read_text())
            lost = summary["training"]["jobs"]["pretrain"]["samples"]["lost"]
            problems += [f"{lost} samples lost"] if lost else []
    problems += [f"left in /dev/shm: {name}" for name in shared_memory() - before]
    return {
        "round": number,
        "way": way,
        "after_s": round(wait_s, 2),
        "then_s": round(then_s, 2),
        "problems": problems,
    }


def main() -> int:
    """Run the rounds; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds):
            way = WAYS[number % len(WAYS)]
            waits_s = draw.uniform(0.0, 6.0), draw.uniform(0.0, 12.0)
            result = _round(number, way, *waits_s, Path(folder))
            bad += bool(result["problems"])
            print(json.dumps(result), flush=True)
    print(json.dumps({"bench": "soak", "rounds": given.rounds, "failed": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
