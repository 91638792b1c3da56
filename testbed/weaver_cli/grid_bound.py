"""The offline bound beside a run: the same arrivals, the same slots, the same quanta.

Owns how a run is cut into pieces for the linear programme of ``testbed.spare_bound``, and which
deadlines it is held to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from testbed.gpu import spare
from testbed.ran.mac import channel_of
from testbed.ran.numerology import Direction
from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.shaping.arrays import Ints
from testbed.slotbench.results import BenchRun
from testbed.slotbench.scenario import DIRECTIONS, Setup
from testbed.spare_bound.bound import bound
from testbed.spare_bound.inputs import (
    BoundInput,
    LinkLoad,
    Sdus,
    arrived,
    carrier_bytes,
    known_slots,
    least_work_milli,
)

BEFORE_US = 500_000
"""How much of the run before a piece the programme knows: longer than any delay budget."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a run: windows that start in [from_us, to_us) and end by ``to_us`` are averaged."""

    from_us: int
    to_us: int


def pieces_of(setup: Setup, piece_us: int, count: int) -> list[Piece]:
    """``count`` pieces of the measured interval, evenly spread over it; fewer where it is short."""
    measured_us = setup.end_us - setup.warmup_us
    slots, period = measured_us // setup.slot_us, piece_us // setup.slot_us
    fits = max(1, min(count, slots // period))
    length_us = min(period, slots) * setup.slot_us
    room = slots * setup.slot_us - fits * length_us
    starts = [
        setup.warmup_us + i * length_us + _slots_of(room * i // fits, setup) for i in range(fits)
    ]
    return [Piece(start, start + length_us) for start in starts]


def _slots_of(duration_us: int, setup: Setup) -> int:
    return duration_us // setup.slot_us * setup.slot_us


def bound_figures(
    run: BenchRun, piece: Piece, windows_us: tuple[int, ...] = PROMISE_WINDOWS_US
) -> list[dict[str, float | int]]:
    """One row per quantum: the bound, and what the run left usable in the same windows.

    The bound holds for every policy that delivers each SDU within its budget or by when this run
    did, whichever is later, over the same channel (no UE is given more than the best MCS of its
    cell). An SDU that arrived before the piece and its lead, or is due after it, asks for nothing.

    Raises:
        testbed.spare_bound.program.SolverError: no solution.
    """
    given = _given(run, piece, windows_us)
    found = bound(given)
    steps = spare.stack(*(run.pieces[name] for name in ("from_us", "to_us", "sms")))
    sms = run.setup.gpu.sms
    ran = steps.clipped(sms)
    rows: list[dict[str, float | int]] = []
    for window in found.windows:
        starts = spare.slots_within(run.setup.slot_us, piece.from_us, piece.to_us, window.window_us)
        usable = spare.usable_fraction(ran, sms, starts, window.window_us)
        assert usable is not None  # a piece is longer than the longest window
        rows.append(
            {
                "q_us": window.window_us,
                "starts": window.starts,
                "usable_fraction": round(usable, 6),
                "bound_fraction": round(window.bound_fraction, 6),
                "bound_fraction_granular": round(window.bound_fraction_granular, 6),
                "late_blocks": round(found.late_blocks, 3),
            }
        )
    return rows


def _given(run: BenchRun, piece: Piece, windows_us: tuple[int, ...]) -> BoundInput:
    """The piece as the programme sees it: slot 0 is ``BEFORE_US`` before it, in whole periods."""
    setup = run.setup
    period = len(setup.worst_sms)
    first = max(0, (piece.from_us - BEFORE_US) // setup.slot_us) // period * period
    end = piece.to_us // setup.slot_us
    from_slot = piece.from_us // setup.slot_us - first
    dl, ul = (_load(run, direction, first, end + 2) for direction in DIRECTIONS)
    return BoundInput(
        gpu=setup.ran_gpu,
        slot_us=setup.slot_us,
        ul_decode_budget_us=setup.ul_decode_budget_us,
        fronthaul_lead_us=setup.fronthaul_lead_us,
        training_bandwidth_permille=setup.training_bandwidth_permille,
        ul_work_milli=least_work_milli(setup.ran_gpu, setup.cells),
        downlink=dl,
        uplink=ul,
        windows_us=windows_us,
        from_slot=from_slot,
        to_slot=end - first,
        end_slot=end - first,
    )


def _load(run: BenchRun, direction: Direction, first_slot: int, end_slot: int) -> LinkLoad:
    """One direction of air slots [first_slot, end_slot), moved to begin at slot 0."""
    setup = run.setup
    shift_us = first_slot * setup.slot_us
    sdus = arrived(setup.cells, direction, setup.seed, min(end_slot, setup.drain_slot))
    deadline_us = np.maximum(sdus.deadline_us, _delivered_us(run, direction, sdus))
    here = sdus.arrival_us >= shift_us
    return LinkLoad(
        sdus=Sdus(
            cell=sdus.cell[here],
            ue=sdus.ue[here],
            traffic_class=sdus.traffic_class[here],
            n_bytes=sdus.n_bytes[here],
            arrival_us=sdus.arrival_us[here] - shift_us,
            deadline_us=deadline_us[here] - shift_us,
        ),
        known_slots=known_slots(setup.cells, direction),
        capacity_bytes=_capacity_bytes(setup, direction, first_slot, end_slot),
    )


def _capacity_bytes(setup: Setup, direction: Direction, first_slot: int, end_slot: int) -> Ints:
    """[C, slots]: the carrier at the best MCS of any UE, as it was known when it was planned."""
    best = np.zeros((len(setup.cells), end_slot), np.int64)
    for c, cell in enumerate(setup.cells):
        ahead = cell.plan_ahead_slots(direction)
        reported = channel_of(cell, setup.seed).mcs_array(0, end_slot).max(axis=1)
        best[c] = reported[np.maximum(np.arange(end_slot) - ahead, 0)]
    return carrier_bytes(setup.cells, direction, end_slot, best)[:, first_slot:]


def _delivered_us(run: BenchRun, direction: Direction, sdus: Sdus) -> Ints:
    """When the run delivered each SDU; its end where it did not."""
    ids = np.array([cell.cell_id for cell in run.setup.cells])
    key = ("cell", "ue", "arrival_us", "bytes")
    wanted = pl.DataFrame(
        {
            "cell": ids[sdus.cell],
            "ue": sdus.ue,
            "arrival_us": sdus.arrival_us,
            "bytes": sdus.n_bytes,
        }
    )
    mine = run.sdus.where(run.sdus["direction"] == DIRECTIONS.index(direction))
    done = pl.DataFrame({name: mine[name] for name in (*key, "delivered_us")})
    # SDUs that are alike are delivered in the order in which they arrived.
    alike = pl.int_range(pl.len()).over(key).alias("alike")
    both = wanted.with_columns(alike).join(
        done.sort("delivered_us").with_columns(alike),
        on=(*key, "alike"),
        how="left",
        maintain_order="left",
    )
    delivered = both["delivered_us"].fill_null(run.end_us)
    return delivered.to_numpy().astype(np.int64)
