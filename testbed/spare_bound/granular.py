"""What follows from SMs being given in steps: a slot in which anything runs takes ``min_sms``.

Owns the intervals in which something must run, and their rows: an SDU is first worked on in exactly
one execution slot, and every window that holds that slot takes ``min_sms`` at least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testbed.gpu.cost import DOWNLINK, UPLINK
from testbed.spare_bound.curves import LinkCurves
from testbed.spare_bound.greedy import Lowered
from testbed.spare_bound.inputs import BoundInput, Floats, Ints
from testbed.spare_bound.places import places
from testbed.spare_bound.program import Program
from testbed.spare_bound.windows import Windows
from testbed.spare_bound.work import RanColumns


@dataclass(frozen=True, slots=True)
class Intervals:
    """Work runs in at least one of the execution slots ``first`` to ``last`` of ``RanColumns``.

    Positions, both included. No interval holds another one, so that both ends ascend.
    """

    first: Ints
    last: Ints


def forced_intervals(given: BoundInput, ran: RanColumns, curves: Lowered) -> Intervals:
    """The intervals of all SDUs whose deadlines were not lowered, without what they imply."""
    spans: set[tuple[int, int]] = set()
    for direction, link in ((DOWNLINK, curves.downlink), (UPLINK, curves.uplink)):
        spans |= _spans(given, direction, link)
    # Only what lies within the programme's execution slots is forced there.
    begin, end = given.from_slot, int(ran.slot[-1]) if len(ran.slot) else -1
    kept = {(first, last) for first, last in spans if first >= begin and last <= end}
    first = np.searchsorted(ran.slot, [span[0] for span in kept])
    last = np.searchsorted(ran.slot, [span[1] for span in kept], side="right") - 1
    return _minimal(first.astype(np.int64), last.astype(np.int64))


def least_sms(given: BoundInput, windows: Windows, forced: Intervals) -> Floats:
    """[windows]: ``min_sms`` for those that hold a whole interval, else 0."""
    # Of the intervals that begin in the window, the first one ends first.
    follows = np.searchsorted(forced.first, windows.first)
    ends = np.append(forced.last, np.iinfo(np.int64).max)[follows]
    return np.where(ends <= windows.last, float(given.gpu.min_sms), 0.0)


def add_hits(
    program: Program, given: BoundInput, windows: Windows, forced: Intervals, columns: Ints
) -> None:
    """Rows for the windows that hold a part of an interval.

    ``columns``: of the windows' SMs. A column for each slot of an interval says that the work
    begins there; they sum to 1, and ``min_sms`` times those within a window is at most its SMs.
    """
    free = least_sms(given, windows, forced) == 0
    for first, last in zip(forced.first.tolist(), forced.last.tolist(), strict=True):
        # Windows ascend in both ends.
        low = int(np.searchsorted(windows.last, first))
        high = int(np.searchsorted(windows.first, last, side="right"))
        touched = np.flatnonzero(free[low:high]) + low
        if not len(touched):
            continue
        hits = program.columns(np.zeros(last - first + 1), 1.0)
        program.equal(1.0, (0, hits, 1.0))
        begin = np.maximum(windows.first[touched], first) - first
        length = np.minimum(windows.last[touched], last) - first - begin + 1
        row = np.repeat(np.arange(len(touched)), length)
        within = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
        program.at_most(
            np.zeros(len(touched)),
            (row, hits[np.repeat(begin, length) + within], float(given.gpu.min_sms)),
            (np.arange(len(touched)), columns[touched], -1.0),
        )


def _spans(given: BoundInput, direction: int, link: LinkCurves) -> set[tuple[int, int]]:
    """(first, last) execution slot of each SDU that must be served within the input."""
    kept = link.last < given.n_slots
    return {
        (places(given, direction, first)[0].slot, places(given, direction, last)[-1].slot)
        for first, last in zip(link.first[kept].tolist(), link.last[kept].tolist(), strict=True)
    }


def _minimal(first: Ints, last: Ints) -> Intervals:
    """Those that hold no other one, ascending."""
    order = np.lexsort((-first, last))
    begins, ends = first[order], last[order]
    # By ascending end: one that begins no later than an earlier one holds it.
    before = np.concatenate(([-1], np.maximum.accumulate(begins)[:-1])) if len(order) else begins
    keep = begins > before
    return Intervals(begins[keep], ends[keep])
