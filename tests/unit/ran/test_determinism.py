import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

SCRIPT = """
import hashlib
from dataclasses import replace
from testbed.ran.capacity import ftp3_at_load
from testbed.ran.channel import crc_ok
from testbed.ran.config import CellConfig
from testbed.ran.mac import GnbMac
from testbed.ran.nr_scope import parse_nr_scope
from testbed.ran.numerology import Direction
from testbed.ran.plan import BlockResult, Outcome
from testbed.ran.schedulers import ProportionalFair, RoundRobin
from testbed.ran.traffic import Replay

with open("tests/data/nr_scope_dci.csv") as file:
    trace = parse_nr_scope(file, "log").trace
cells = []
for cell_id in (0, 1):
    cell = CellConfig(cell_id, n_ues=4)
    uplink = Replay(trace, start_s=3.0, loop=True, bytes_scale=20.0, time_compress=10.0)
    downlink = ftp3_at_load(cell, Direction.DL, 0.7, 100_000)
    cells.append(replace(cell, dl_traffic=downlink, ul_traffic=uplink))
mac = GnbMac(cells, seed=42, dl_policy=ProportionalFair(), ul_policy=RoundRobin())
digest = hashlib.sha256()
blocks = 0
for slot in range(800):
    for plan in mac.step(slot):
        digest.update(repr(plan).encode())
        blocks += len(plan.blocks)
        results = [
            BlockResult(block.ue, block.harq_id, Outcome.ACK if ok else Outcome.NACK)
            for block, ok in zip(plan.blocks, crc_ok(42, plan, 2, n_ues=4))
        ]
        mac.feedback(plan.slot, plan.direction, plan.cell, results)
    digest.update(repr(mac.take_delivered()).encode())
assert blocks > 500, blocks
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_bytes_under_any_hash_seed():
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
