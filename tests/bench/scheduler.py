"""Bench: our proportional fair beside sionna's PFSchedulerSUMIMO, on the same inputs. JSON.

The rules are the same where one UE has a whole resource: argmax R / T, and T <- 0.98 T + 0.02 R of
what the UE got. So every UE has more waiting than the carrier holds, and its rate is that of the
whole carrier. What is timed is the scheduler's call alone; views and tensors are made beforehand.
Slots per second are those of the median call.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.util import find_spec
from statistics import median

sys.path.insert(0, ".")

import numpy as np
from numpy.typing import NDArray

from testbed.ran.numerology import Direction
from testbed.ran.schedulers import CellView, ProportionalFair, SlotView, UeView
from testbed.rng import generator

BETA = 0.98
N_PRB = 273
SLOTS = 500
CASES = ((1, 16), (8, 32))
"""(cells, UEs per cell)."""
_FLOOR_IS_FAR = 1e6
"""T in such units that ``ProportionalFair.MIN_RATE``, which sionna does not have, never counts."""

Winners = NDArray[np.int64]
Rates = NDArray[np.float64]


def rates(cells: int, ues: int, slots: int, seed: int = 1) -> Rates:
    """R, float64 [slots, cells, UEs]: log-normal, each UE with a mean of its own."""
    draw = generator(seed, "bench.scheduler", cells, ues)
    means = draw.normal(0.0, 1.0, (1, cells, ues))
    moving: Rates = np.exp(means + draw.normal(0.0, 0.5, (slots, cells, ues)))
    return moving


def achieved(rate: Rates, winner: Winners) -> Rates:
    """What each UE got, float64 [cells, UEs]: the winner its rate, the others nothing."""
    got = np.zeros_like(rate)
    cells = np.arange(len(rate))
    got[cells, winner] = rate[cells, winner]
    return got


def ours(rate: Rates) -> tuple[Winners, float]:
    """Who is granted the carrier, int64 [slots, cells], and the seconds of a median call."""
    policy = ProportionalFair()
    slots, cells, ues = rate.shape
    average, last = np.ones((cells, ues)), np.zeros((cells, ues))
    winners = np.zeros((slots, cells), np.int64)
    taken_ns = []
    for slot in range(slots):
        average = BETA * average + (1 - BETA) * last
        view = _view(slot, rate[slot], average)
        begun_ns = time.perf_counter_ns()
        grants = policy.schedule(view)
        taken_ns.append(time.perf_counter_ns() - begun_ns)
        for grant in grants:
            assert grant.n_prb == N_PRB
            winners[slot, grant.cell] = grant.ue
        last = achieved(rate[slot], winners[slot])
    return winners, median(taken_ns) / 1e9


def sionnas(rate: Rates, resources: int) -> tuple[Winners, float]:
    """The same by sionna with so many frequency resources, which all have the same rates."""
    import torch
    from sionna.sys import PFSchedulerSUMIMO

    torch.set_num_threads(1)
    slots, cells, ues = rate.shape
    policy = PFSchedulerSUMIMO(ues, resources, 1, cells, beta=BETA, precision="double")
    last = np.zeros((cells, ues))
    winners = np.zeros((slots, cells), np.int64)
    taken_ns = []
    with torch.inference_mode():
        for slot in range(slots):
            now = torch.from_numpy(rate[slot])[:, None, None, :].expand(-1, 1, resources, -1)
            before = torch.from_numpy(last)
            begun_ns = time.perf_counter_ns()
            scheduled = policy(before, now)
            taken_ns.append(time.perf_counter_ns() - begun_ns)
            # [cells, 1, resources, UEs, 1], one UE in each resource, here the same in all.
            chosen = scheduled[:, 0, :, :, 0].to(torch.int64).argmax(-1).numpy()
            assert (chosen == chosen[:, :1]).all()
            winners[slot] = chosen[:, 0]
            last = achieved(rate[slot], winners[slot])
    return winners, median(taken_ns) / 1e9


def _view(slot: int, rate: Rates, average: Rates) -> SlotView:
    cells = tuple(
        CellView(
            cell=cell,
            n_prb=N_PRB,
            free_prb=N_PRB,
            max_grants=8,
            res_per_prb=156,
            mcs_table=2,
            layers=2,
            retransmissions=(),
            ues=tuple(
                UeView(
                    ue=ue,
                    backlog_bytes=10**9,
                    mcs_index=10,
                    bytes_per_prb=bytes_per_prb,
                    drain_prb=N_PRB,
                    average_rate=average_rate * _FLOOR_IS_FAR,
                    head_of_line_us=0,
                    deadline_us=10**6,
                    five_qi=9,
                )
                for ue, (bytes_per_prb, average_rate) in enumerate(
                    zip(rate[cell].tolist(), average[cell].tolist(), strict=True)
                )
            ),
        )
        for cell in range(len(rate))
    )
    return SlotView(slot, slot * 500, Direction.UL, cells)


def main() -> None:
    """Print one JSON object per case and number of resources."""
    installed = find_spec("sionna") is not None
    for cells, ues in CASES:
        rate = rates(cells, ues, SLOTS)
        winners, our_s = ours(rate)
        for resources in (1, N_PRB):
            row: dict[str, object] = {
                "bench": "proportional fair",
                "cells": cells,
                "ues_per_cell": ues,
                "sionna_resources": resources,
                "ranloom_slots_per_s": round(1 / our_s),
            }
            if installed:
                theirs, their_s = sionnas(rate, resources)
                row |= {
                    "sionna_slots_per_s": round(1 / their_s),
                    "ratio": round(their_s / our_s, 3),
                    "same_allocations": int((winners == theirs).sum()),
                    "allocations": winners.size,
                }
            else:
                row |= {"ratio": None, "reason": 'no sionna: pip install "ranloom[sionna]"'}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
