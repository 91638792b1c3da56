"""Bench: how long the spare-compute controller takes per slot, and the MAC step around it. JSON.

Every UE has data waiting in both directions all the time, blocks fail as the channel says, and the
cells have 100 MHz. One row per number of cells:

- ``plan``: the compiled decision, both directions of a slot together;
- ``controller``: all that a MAC asks of the policy in a slot: views to grants, limits of
  retransmissions, the promise;
- ``step``: the whole MAC step around it: arrivals, results, views, new blocks.

Each is measured in passes of its own, so that no clock is within what another one times. All passes
do the same work slot by slot: ``best_us`` is of each slot's least processor time, what the work
costs by itself; ``cpu_us`` is of all slots of all passes, ``wall_us`` the same by the wall clock,
which also tells how busy the machine is. Slots of all kinds count: four of five plan downlink, one
of five plans uplink as well.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

sys.path.insert(0, ".")

import numpy as np

from testbed.ran.channel import crc_ok
from testbed.ran.config import CellConfig
from testbed.ran.mac import GnbMac
from testbed.ran.plan import BlockResult, CellPlan, Outcome
from testbed.ran.traffic import FullBuffer
from testbed.shaping import policy as shaping
from testbed.shaping.contract import SiteGpu
from testbed.topology.profiles import gpu_profile

CELLS = (1, 4, 8)
UES = 32
WARM_UP_SLOTS = 200
SLOTS = 1000
PASSES = 7
SEED = 1
ASKED = ("schedule", "retransmission_limit", "note_retransmissions", "promise")
_OUTCOMES = {True: Outcome.ACK, False: Outcome.NACK}


class Stopwatch:
    """Adds up what its calls take, until the slot is over."""

    def __init__(self) -> None:
        self.slots: list[tuple[int, int]] = []
        self._cpu_ns = self._wall_ns = 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time added."""

        def timed(*arguments: object) -> object:
            wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
            result = function(*arguments)
            self._cpu_ns += time.thread_time_ns() - cpu_ns
            self._wall_ns += time.perf_counter_ns() - wall_ns
            return result

        return timed

    def end_slot(self) -> None:
        """Note the slot's time and begin the next."""
        self.slots.append((self._cpu_ns, self._wall_ns))
        self._cpu_ns = self._wall_ns = 0


def summary(passes: Sequence[Stopwatch]) -> dict[str, list[float]]:
    """[median, p99, maximum] per slot, microseconds."""
    taken_us = np.array([watch.slots[WARM_UP_SLOTS:] for watch in passes]) / 1000
    cpu_us, wall_us = taken_us[..., 0], taken_us[..., 1]
    return {
        name: [round(float(np.quantile(values, at)), 1) for at in (0.5, 0.99, 1.0)]
        for name, values in (
            ("best_us", cpu_us.min(axis=0)),
            ("cpu_us", cpu_us),
            ("wall_us", wall_us),
        )
    }


def busy_cells(count: int) -> tuple[CellConfig, ...]:
    """Cells whose UEs always have data waiting; every eighth UE has a delay budget of 8 ms."""
    five_qi = tuple(80 if ue % 8 == 7 else 9 for ue in range(UES))
    return tuple(
        CellConfig(
            cell_id,
            n_ues=UES,
            dl_layers=4,
            ul_layers=2,
            dl_traffic=FullBuffer(300_000),
            ul_traffic=FullBuffer(300_000),
            five_qi=five_qi,
        )
        for cell_id in range(count)
    )


def bound_policy(cells: tuple[CellConfig, ...]) -> shaping.SpareCompute:
    """A new controller of one GB10 that serves these cells."""
    policy = shaping.SpareCompute()
    policy.bind(SiteGpu(gpu_profile("gb10"), cells, 1500, 125, 300))
    return policy


def run(
    cells: Sequence[CellConfig],
    policy: shaping.SpareCompute,
    watch: Stopwatch,
    whole_step: bool = False,
) -> None:
    """Slots of a MAC, results coming back when they are due; ``whole_step``: is timed."""
    mac = GnbMac(cells, seed=SEED, dl_policy=policy, ul_policy=policy)
    step = watch.around(mac.step) if whole_step else mac.step
    due: dict[int, list[tuple[CellPlan, list[BlockResult]]]] = {}
    for slot in range(WARM_UP_SLOTS + SLOTS):
        for plan, results in due.pop(slot, ()):
            mac.feedback(plan.slot, plan.direction, plan.cell, results)
        for plan in step(slot):
            config = cells[plan.cell]
            fine = crc_ok(SEED, plan, config.mcs_table, config.n_ues)
            results = [
                BlockResult(block.ue, block.harq_id, _OUTCOMES[ok])
                for block, ok in zip(plan.blocks, fine, strict=True)
            ]
            at = plan.slot + config.feedback_slots(plan.direction)
            due.setdefault(at, []).append((plan, results))
        policy.promise()
        mac.take_delivered()
        watch.end_slot()


def plan_alone(cells: tuple[CellConfig, ...]) -> Stopwatch:
    watch = Stopwatch()
    with replaced(shaping, "plan_rows", watch.around(shaping.plan_rows)):
        run(cells, bound_policy(cells), watch)
    return watch


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """An attribute that is another one for a while."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def controller_alone(cells: tuple[CellConfig, ...]) -> Stopwatch:
    watch, policy = Stopwatch(), bound_policy(cells)
    for name in ASKED:
        setattr(policy, name, watch.around(getattr(policy, name)))
    run(cells, policy, watch)
    return watch


def whole_step(cells: tuple[CellConfig, ...]) -> Stopwatch:
    watch = Stopwatch()
    run(cells, bound_policy(cells), watch, whole_step=True)
    return watch


def main() -> None:
    """Print one JSON object per number of cells."""
    gc.freeze()  # as a node process does
    for count in CELLS:
        cells = busy_cells(count)
        row: dict[str, object] = {
            "bench": "spare-compute controller",
            "cells": count,
            "ues_per_cell": UES,
            "slots": SLOTS,
            "passes": PASSES,
        }
        for name, measure in (
            ("plan", plan_alone),
            ("controller", controller_alone),
            ("step", whole_step),
        ):
            row[name] = summary([measure(cells) for _ in range(PASSES)])
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
