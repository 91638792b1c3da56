"""Small inputs whose optimum can be found by hand.

The GPU has 48 SMs in steps of 8, and a cost without fixed parts: a decode of n code blocks takes
25 n us on 8 ceil(n / 10) SMs, so that its SM-time follows 200 SM-us per block up to 10 blocks, 600
for the next ten, 1000 for the ten after that; a downlink block takes 1 us on 8 SMs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from testbed.spare_bound.costs import BLOCK_BYTES
from testbed.spare_bound.inputs import BoundInput, LinkLoad, Sdus
from testbed.topology.profiles import gpu_profile

SLOT_US = 500
PLENTY = 100 * BLOCK_BYTES

GB10 = gpu_profile("gb10")
SIMPLE = replace(
    GB10,
    phy=replace(
        GB10.phy,
        ul_fixed_us=0.0,
        ul_code_block_us=25.0,
        ran_sm_cap=48,
        contention_slope=0.0,
        dl_fixed_us=0.0,
        dl_code_block_us=1.0,
    ),
)


def sdus(*rows):
    """Rows (cell, ue, class, code blocks, first air slot, last air slot), nothing known ahead.

    Deadlines are such that what the last air slot carries is received just in time even where a
    decode takes the slot after it in full.
    """
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    cell, ue, kind, blocks, first, last = table.T
    return Sdus(
        cell.astype(np.int64),
        ue.astype(np.int64),
        kind.astype(np.int64),
        np.floor(blocks * BLOCK_BYTES).astype(np.int64),
        (first * SLOT_US).astype(np.int64),
        ((last + 2) * SLOT_US - 1).astype(np.int64),
    )


def load(rows=(), *, cells=1, slots=40, carries=None, capacity_bytes=PLENTY):
    """A link; ``carries``: the air slots that carry it, all if None."""
    capacity = np.zeros((cells, slots), np.int64)
    capacity[:, slice(None) if carries is None else list(carries)] = capacity_bytes
    return LinkLoad(sdus(*rows), 0, capacity)


def given(uplink=None, downlink=None, **changes):
    """Windows of ``windows_us`` that start in [from_slot, to_slot), nothing else to be said."""
    values = {
        "gpu": SIMPLE,
        "slot_us": SLOT_US,
        "ul_decode_budget_us": 500,
        "fronthaul_lead_us": 125,
        "training_bandwidth_permille": 0,
        "ul_work_milli": 1000,
        "uplink": uplink or load(carries=()),
        "downlink": downlink or load(carries=()),
        "windows_us": (5000,),
        "from_slot": 1,
        "to_slot": 2,
        "end_slot": 30,
    }
    return BoundInput(**(values | changes))
