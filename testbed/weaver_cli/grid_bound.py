"""The offline bound beside a run: the same arrivals, the same slots, the same quanta.

Owns how a run becomes the input of ``testbed.spare_bound``, and which deadlines it is held to.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from testbed.gpu import spare
from testbed.ran.mac import channel_of
from testbed.ran.numerology import Direction
from testbed.shaping.arrays import Ints
from testbed.slotbench.results import BenchRun
from testbed.slotbench.scenario import DIRECTIONS
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


def bound_figures(run: BenchRun, windows_us: tuple[int, ...]) -> list[dict[str, float | int]]:
    """One row per quantum: the bound, and what the run left usable in the same windows.

    Over the measured interval. The bound holds for every policy that delivers each SDU within its
    budget or by when this run did, whichever is later, over the same channel (no UE is given more
    than the best MCS of its cell). The warm-up must be longer than the delay budgets: what was
    left over from it may have been served for nothing.

    Raises:
        ValueError: a quantum that does not fit into the interval.
        testbed.spare_bound.program.SolverError: no solution.
    """
    setup = run.setup
    found = bound(_given(run, windows_us))
    steps = spare.stack(*(run.pieces[name] for name in ("from_us", "to_us", "sms")))
    sms = setup.gpu.sms
    ran = steps.clipped(sms)
    rows: list[dict[str, float | int]] = []
    for window in found.windows:
        starts = spare.slots_within(setup.slot_us, setup.warmup_us, setup.end_us, window.window_us)
        usable = spare.usable_fraction(ran, sms, starts, window.window_us)
        assert usable is not None  # else the bound had refused the window
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


def _given(run: BenchRun, windows_us: tuple[int, ...]) -> BoundInput:
    setup = run.setup
    end = setup.end_us // setup.slot_us
    dl, ul = (_load(run, direction, end + 2) for direction in DIRECTIONS)
    return BoundInput(
        gpu=setup.gpu,
        slot_us=setup.slot_us,
        ul_decode_budget_us=setup.ul_decode_budget_us,
        fronthaul_lead_us=setup.fronthaul_lead_us,
        training_bandwidth_permille=setup.training_bandwidth_permille,
        ul_work_milli=least_work_milli(setup.gpu, setup.cells),
        downlink=dl,
        uplink=ul,
        windows_us=windows_us,
        from_slot=-(-setup.warmup_us // setup.slot_us),
        to_slot=end,
        end_slot=end,
    )


def _load(run: BenchRun, direction: Direction, n_slots: int) -> LinkLoad:
    """One direction of air slots [0, n_slots)."""
    setup = run.setup
    sdus = arrived(setup.cells, direction, setup.seed, min(n_slots, setup.drain_slot))
    deadline_us = np.maximum(sdus.deadline_us, _delivered_us(run, direction, sdus))
    best = np.zeros((len(setup.cells), n_slots), np.int64)
    for c, cell in enumerate(setup.cells):
        reported = channel_of(cell, setup.seed).mcs_array(0, n_slots).max(axis=1)
        planned = np.arange(n_slots) - cell.plan_ahead_slots(direction)
        best[c] = reported[np.maximum(planned, 0)]
    return LinkLoad(
        sdus=replace(sdus, deadline_us=deadline_us),
        known_slots=known_slots(setup.cells, direction),
        capacity_bytes=carrier_bytes(setup.cells, direction, n_slots, best),
    )


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
