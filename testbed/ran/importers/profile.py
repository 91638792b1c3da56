"""Load over time as arrays: what a study of many cells over a day works with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.ran.importers.common import ONLY_CELL, IntervalLoad, LoadLog
from testbed.ran.numerology import Direction
from testbed.ran.traces import Trace


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """Bytes per cell and interval, all arrays of shape (rows,), in order of time, then cell.

    Attributes:
        time_s: start of the interval, seconds from the start of the log's first.
        length_s: its length, seconds.
        cell: the cell's name.
        dl_bytes, ul_bytes: bytes of all UEs of the cell, as logged (not rounded).
    """

    time_s: NDArray[np.float64]
    length_s: NDArray[np.float64]
    cell: NDArray[np.str_]
    dl_bytes: NDArray[np.float64]
    ul_bytes: NDArray[np.float64]


def profile_of(log: LoadLog) -> LoadProfile:
    """The profile of a log; UEs of one cell are summed where their intervals are the same."""
    rows: dict[tuple[int, int, str], list[float]] = {}
    for load in log.loads:
        total = rows.setdefault((load.start_us, load.length_us, load.cell), [0.0, 0.0])
        total[0] += load.dl_bytes
        total[1] += load.ul_bytes
    return _profile([IntervalLoad(*key, None, *total) for key, total in rows.items()])


def profile_of_trace(trace: Trace, interval_s: float) -> LoadProfile:
    """Bytes of a trace per interval, empty ones included, as those of one cell named "0"."""
    length_us = max(1, round(interval_s * 1e6))
    count = trace.duration_us // length_us + 1
    bins = {direction: [0] * count for direction in Direction}
    for arrival in trace.arrivals:
        bins[arrival.direction][arrival.time_us // length_us] += arrival.n_bytes
    return _profile(
        [
            IntervalLoad(index * length_us, length_us, ONLY_CELL, None, dl, ul)
            for index, (dl, ul) in enumerate(
                zip(bins[Direction.DL], bins[Direction.UL], strict=True)
            )
        ]
    )


def _profile(loads: list[IntervalLoad]) -> LoadProfile:
    loads = sorted(loads, key=lambda load: (load.start_us, load.cell))
    return LoadProfile(
        np.array([load.start_us / 1e6 for load in loads], dtype=np.float64),
        np.array([load.length_us / 1e6 for load in loads], dtype=np.float64),
        np.array([load.cell for load in loads], dtype=np.str_),
        np.array([load.dl_bytes for load in loads], dtype=np.float64),
        np.array([load.ul_bytes for load in loads], dtype=np.float64),
    )
