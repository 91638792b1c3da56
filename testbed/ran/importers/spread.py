"""From bytes per interval to a trace: single arrivals, as files or packets of one size.

Bytes are conserved: for every UE (or cell) and direction, the arrivals up to the end of an interval
sum to the log's bytes up to there, rounded to whole bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed import rng
from testbed.errors import TraceError
from testbed.ran.importers.common import IntervalLoad, LoadLog, list_cells
from testbed.ran.numerology import Direction
from testbed.ran.traces import MAX_RNTI, Trace, TraceArrival

MAX_ARRIVALS = 5_000_000
"""About a gigabyte while it is written; more is a mistake in the size of files or the window."""

Spread = Literal["even", "poisson"]


@dataclass(frozen=True, slots=True)
class SpreadOptions:
    """How bytes become arrivals.

    Attributes:
        file_bytes: size of each arrival; the last one of an interval holds what is left.
        spread: ``even``: at equal distances, the first half a distance after the interval's start;
            ``poisson``: as a Poisson process with that number of arrivals, i.e. at uniform times.
        seed: of the Poisson times.
        ues: over how many UEs a cell's total is dealt, in turn, where the log knows no UEs.
        start_s, length_s: the part of the log that is wanted; to its end if no length is given. An
            interval partly inside counts by its part.
    """

    file_bytes: int = 1500
    spread: Spread = "even"
    seed: int = 1
    ues: int = 8
    start_s: float = 0.0
    length_s: float | None = None

    def __post_init__(self) -> None:
        """Raises TraceError: a value out of range."""
        for key, value, lowest, highest in (
            ("file_bytes", self.file_bytes, 1, 10**9),
            ("seed", self.seed, 0, 2**63),
            ("ues", self.ues, 1, 1024),
            ("start_s", self.start_s, 0, 1e9),
            ("length_s", 1 if self.length_s is None else self.length_s, 1e-6, 1e9),
        ):
            if not lowest <= value <= highest:
                raise TraceError(f"{key} = {value!r}: allowed is {lowest:g} to {highest:g}")


def spread_loads(log: LoadLog, options: SpreadOptions) -> Trace:
    """One cell's arrivals; several cells are taken together if they were chosen by name.

    A UE keeps its RNTI. Where the log knows none, and where UEs of several cells come together,
    RNTIs count from 1.

    Raises:
        TraceError: several cells and none chosen, nothing in the window, or more than
            ``MAX_ARRIVALS``.
    """
    if len(log.cells) > 1 and not log.chosen:
        raise TraceError(
            f"the log has {len(log.cells)} cells, choose one (--cell): {list_cells(log.cells)}"
        )
    start_us = round(options.start_s * 1e6)
    end_us = log.duration_us
    if options.length_s is not None:
        end_us = start_us + max(1, round(options.length_s * 1e6))
    loads = [part for load in log.loads if (part := _clip(load, start_us, end_us)) is not None]
    expected = sum((load.dl_bytes + load.ul_bytes) / options.file_bytes for load in loads)
    if expected > MAX_ARRIVALS:
        raise TraceError(
            f"about {expected:.3g} arrivals of {options.file_bytes} bytes, allowed are "
            f"{MAX_ARRIVALS}: take larger files, or a part of the log (start, length)"
        )
    arrivals = list(_arrivals(loads, options, start_us))
    if not arrivals:
        raise TraceError(
            f"no byte from {options.start_s:g} s on; the log lasts {log.duration_us / 1e6:g} s"
        )
    arrivals.sort(key=lambda a: (a.time_us, a.rnti, a.direction.value))
    return Trace(tuple(arrivals))


def _clip(load: IntervalLoad, start_us: int, end_us: int) -> IntervalLoad | None:
    """The part of an interval within [start, end)."""
    first_us = max(load.start_us, start_us)
    length_us = min(load.start_us + load.length_us, end_us) - first_us
    if length_us <= 0:
        return None
    share = length_us / load.length_us
    return IntervalLoad(
        first_us, length_us, load.cell, load.rnti, load.dl_bytes * share, load.ul_bytes * share
    )


def _arrivals(
    loads: list[IntervalLoad], options: SpreadOptions, origin_us: int
) -> Iterator[TraceArrival]:
    """All arrivals, streams one after another within each interval."""
    streams = sorted({(load.cell, -1 if load.rnti is None else load.rnti) for load in loads})
    several_cells = len({cell for cell, _ in streams}) > 1
    number = {stream: index for index, stream in enumerate(streams, start=1)}
    if several_cells and len(streams) > MAX_RNTI:
        raise TraceError(f"{len(streams)} UEs in all, allowed are {MAX_RNTI}")
    exact: dict[tuple[int, Direction], float] = {}
    sent: dict[tuple[int, Direction], int] = {}
    turn = 0
    for load in loads:
        stream = number[(load.cell, -1 if load.rnti is None else load.rnti)]
        for direction, n_bytes in ((Direction.DL, load.dl_bytes), (Direction.UL, load.ul_bytes)):
            key = (stream, direction)
            exact[key] = exact.get(key, 0.0) + n_bytes
            whole = round(exact[key]) - sent.get(key, 0)
            sent[key] = sent.get(key, 0) + whole
            count = -(-whole // options.file_bytes)
            times = _times_us(load, count, options, stream, direction) - origin_us
            for index, time_us in enumerate(times.tolist(), start=1):
                size = options.file_bytes
                if index == count:
                    size = whole - (count - 1) * options.file_bytes
                if load.rnti is None:
                    rnti = 1 + turn % options.ues
                    turn += 1
                else:
                    rnti = stream if several_cells else load.rnti
                yield TraceArrival(time_us, rnti, direction, size)


def _times_us(
    load: IntervalLoad, count: int, options: SpreadOptions, stream: int, direction: Direction
) -> NDArray[np.int64]:
    """Ascending times within the interval."""
    if options.spread == "even":
        steps = 2 * np.arange(count, dtype=np.int64) + 1
        return load.start_us + steps * load.length_us // max(1, 2 * count)
    draw = rng.generator(options.seed, f"ran.import.{direction.value}", stream, load.start_us)
    return load.start_us + np.sort(draw.integers(0, load.length_us, size=count, dtype=np.int64))
