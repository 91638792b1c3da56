"""Largest SM counts of windows as rows of a linear programme, and what must be at least in each.

Owns the windows that start in each slot; those over the same execution slots are one column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testbed.spare_bound.inputs import BoundInput, Floats, Ints
from testbed.spare_bound.program import Program
from testbed.spare_bound.work import RanColumns


@dataclass(frozen=True, slots=True)
class Windows:
    """The different windows of one length, and how often each occurs.

    Attributes:
        first, last: positions in the execution slots of ``RanColumns``, both included; ascending.
        count: windows that start in the interval and hold just these execution slots.
        starts: all of them, those without any execution slot included.
    """

    first: Ints
    last: Ints
    count: Ints
    starts: int


def windows_of(given: BoundInput, ran: RanColumns, window_us: int) -> Windows:
    """The windows [t, t + window_us) of all slot starts t of the interval.

    Of a window that is no multiple of the slot only whole slots count.
    """
    slots = window_us // given.slot_us
    starts = np.arange(given.from_slot, min(given.to_slot, given.end_slot - slots + 1))
    first = np.searchsorted(ran.slot, starts)
    last = np.searchsorted(ran.slot, starts + slots) - 1
    some = first <= last
    pairs, count = np.unique(np.column_stack((first[some], last[some])), axis=0, return_counts=True)
    return Windows(pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), count, len(starts))


def add_windows(
    program: Program, sms: int, ran: RanColumns, windows: Windows, least_sms: Floats
) -> Ints:
    """A column per window, at least the SMs of each of its slots, with its count as cost.

    The maximum goes over two chains that start at an anchor within the window, as van Herk's
    filter does: three columns and six rows per slot, whatever the window's length.

    Args:
        program: to be extended.
        sms: of the GPU; no column is larger.
        ran: the SMs of each slot.
        windows: of one length.
        least_sms: [windows], a lower bound of each.
    """
    columns = program.columns(least_sms, sms, windows.count)
    position = 0
    while position < len(columns):
        anchor = int(windows.last[position])
        # Windows ascend in both ends: all up to here hold the anchor.
        beyond = int(np.searchsorted(windows.first, anchor, side="right"))
        group = slice(position, beyond)
        first, last = windows.first[group], windows.last[group]
        down = _chain(program, sms, ran.column[int(first[0]) : anchor + 1][::-1])
        row = np.arange(beyond - position)
        program.at_most(
            np.zeros(len(row)), (row, down[anchor - first], 1.0), (row, columns[group], -1.0)
        )
        longer = np.flatnonzero(last > anchor)
        if len(longer):
            up = _chain(program, sms, ran.column[anchor + 1 : int(last[-1]) + 1])
            row = np.arange(len(longer))
            program.at_most(
                np.zeros(len(row)),
                (row, up[last[longer] - anchor - 1], 1.0),
                (row, columns[group][longer], -1.0),
            )
        position = beyond
    return columns


def _chain(program: Program, sms: int, ran: Ints) -> Ints:
    """Columns of the running maximum of the columns ``ran``, in their order."""
    chain = program.columns(np.zeros(len(ran)), sms)
    row = np.arange(len(ran))
    program.at_most(np.zeros(len(ran)), (row, ran, 1.0), (row, chain, -1.0))
    row = np.arange(len(ran) - 1)
    program.at_most(np.zeros(len(row)), (row, chain[:-1], 1.0), (row, chain[1:], -1.0))
    return chain
