"""No schedule beats the bound: random ones on the real timeline of reservations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import assume, settings
from hypothesis import given as examples
from hypothesis import strategies as st

from testbed.gpu import spare
from testbed.gpu.cost import DOWNLINK, UPLINK, phy_demand
from testbed.gpu.phy_tasks import deadline_us, ready_us
from testbed.gpu.sizing import Deadline, Saturation
from testbed.gpu.timeline import RanTimeline, TaskKey, TaskRequest
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction
from testbed.spare_bound.bound import bound
from testbed.spare_bound.inputs import BoundInput, LinkLoad, Sdus, carrier_bytes

from .makers import GB10

FINE = replace(GB10, name="fine", sm_step=1, min_sms=1)
"""On it the SMs of a schedule come close to the fluid programme's, so that little slack hides."""

SLOT_US, SLOTS, KNOWN, CELLS, UES = 500, 60, 2, 2, 3
DECODE_US, LEAD_US = 1500, 125
DIRECTIONS = {DOWNLINK: Direction.DL, UPLINK: Direction.UL}
CARRYING = {
    DOWNLINK: [slot for slot in range(5, 45) if slot % 5 != 4],
    UPLINK: [slot for slot in range(5, 45) if slot % 5 == 4],
}

chunks = st.lists(
    st.tuples(st.integers(0, 7), st.integers(1, 40).map(lambda blocks: 1000 * blocks)),
    min_size=1,
    max_size=3,
)
"""Of one SDU: which of the next carrying slots, and how many bytes go there."""

schedules = st.lists(
    st.tuples(
        st.sampled_from([DOWNLINK, UPLINK]),
        st.integers(0, CELLS - 1),
        st.integers(0, UES - 1),
        st.integers(0, 31),
        chunks,
        st.sampled_from([0, 0, 700]),
    ),
    min_size=4,
    max_size=14,
)


def code_blocks(n_bytes):
    """TS 38.212 5.2.2 for base graph 1."""
    bits = 8 * n_bytes + 24
    return 1 if bits <= 8448 else math.ceil(bits / 8424)


def sent(schedule):
    """Per SDU its chunks (air slot, bytes), and the bytes by (direction, cell, slot, UE)."""
    rows, blocks = [], {}
    for direction, cell, ue, begin, parts, waited_us in schedule:
        carrying = CARRYING[direction]
        at = [
            (carrying[min(begin % len(carrying) + k, len(carrying) - 1)], n_bytes)
            for k, n_bytes in parts
        ]
        rows.append((direction, cell, ue, at, waited_us))
        for slot, n_bytes in at:
            key = (direction, cell, slot, ue)
            blocks[key] = blocks.get(key, 0) + n_bytes
    return rows, blocks


def reserve(gpu, blocks, sizing):
    """The reservation of each (direction, cell, slot)."""
    wanted = {}
    for (direction, cell, slot, _), n_bytes in blocks.items():
        key = TaskKey(cell, slot, direction)
        wanted[key] = wanted.get(key, 0) + code_blocks(n_bytes)
    requests = [
        TaskRequest(
            key,
            ready_us(key.direction, key.air_slot, SLOT_US),
            deadline_us(key.direction, key.air_slot, SLOT_US, DECODE_US, LEAD_US),
            phy_demand(gpu, key.direction, count, 1000 * count),
        )
        for key, count in wanted.items()
    ]
    placed = RanTimeline(gpu, 300, sizing).reserve(requests)
    return {item.request.key: item for item in placed}


def input_of(gpu, rows, reservations, windows_us):
    """The same arrivals; every SDU is due when the schedule delivered it."""
    cells = [CellConfig(cell, dl_layers=4, ul_layers=2) for cell in range(CELLS)]
    loads = {}
    for direction, name in DIRECTIONS.items():
        table = []
        for own, cell, ue, at, waited_us in rows:
            if own != direction:
                continue
            last = max(slot for slot, _ in at)
            decoded = max(reservations[TaskKey(cell, slot, direction)].end_us for slot, _ in at)
            done_us = (last + 1) * SLOT_US if direction == DOWNLINK else decoded
            arrival_us = (min(slot for slot, _ in at) - KNOWN) * SLOT_US - waited_us
            table.append((cell, ue, ue % 2, sum(n for _, n in at), arrival_us, done_us))
        columns = np.array(table, np.int64).reshape(-1, 6).T
        loads[direction] = LinkLoad(Sdus(*columns), KNOWN, carrier_bytes(cells, name, SLOTS))
    return BoundInput(
        gpu=gpu,
        slot_us=SLOT_US,
        ul_decode_budget_us=DECODE_US,
        fronthaul_lead_us=LEAD_US,
        training_bandwidth_permille=300,
        ul_work_milli=1000,
        downlink=loads[DOWNLINK],
        uplink=loads[UPLINK],
        windows_us=windows_us,
        from_slot=8,
        to_slot=40,
        end_slot=50,
    )


@settings(max_examples=20)
@examples(
    st.sampled_from([GB10, FINE]),
    schedules,
    st.sampled_from([Deadline(), Saturation()]),
    st.sampled_from([500, 2500, 5000]),
    st.sampled_from([6_000, 1_000_000]),
)
def test_no_schedule_leaves_more_than_the_bound(gpu, schedule, sizing, window_us, piece_us):
    """Its SDUs are due when it delivered them, so that it keeps all budgets by construction."""
    rows, blocks = sent(schedule)
    reservations = reserve(gpu, blocks, sizing)
    assume(all(item.end_us <= item.request.deadline_us for item in reservations.values()))
    pieces = [piece for item in reservations.values() for piece in item.pieces()]
    ran = spare.stack(*np.array(pieces, np.int64).T)
    starts_us = np.arange(8, 40) * SLOT_US
    usable = spare.usable_fraction(ran, gpu.sms, starts_us, window_us)
    result = bound(input_of(gpu, rows, reservations, (window_us,)), piece_us=piece_us)
    (found,) = result.windows
    assert found.starts == len(starts_us)
    assert usable is not None
    assert usable <= found.bound_fraction_granular + 1e-9
    assert found.bound_fraction_granular <= found.bound_fraction
