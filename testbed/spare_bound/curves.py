"""Arrivals as cumulative curves: what can be, and what must have been on the air by each slot.

Owns the step from bytes to code blocks and from microseconds to air slots; both err on the side of
less work and more time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.spare_bound.costs import BLOCK_BYTES, earliest_done_us
from testbed.spare_bound.inputs import BoundInput, Floats, Ints, Sdus


@dataclass(frozen=True, slots=True)
class LinkCurves:
    """One direction: C cells, K classes (the most urgent first), all slots of the input.

    Attributes:
        arrived: [C, K, slots], code blocks that may be on the air up to and with that slot.
        due: [C, K, slots], code blocks that must be.
        capacity: [C, slots], code blocks that the radio can carry.
        budget_us: [K], mean time from arrival to deadline.
        cell, kind, first, last: of each SDU its cell, class, and the air slots of which one at
            least must carry it; ``last`` is the number of slots where that is later than the input.
    """

    arrived: Floats
    due: Floats
    capacity: Floats
    budget_us: Floats
    cell: Ints
    kind: Ints
    first: Ints
    last: Ints


def link_curves(given: BoundInput, direction: int) -> LinkCurves:
    """The curves of one direction, before any lowering.

    An SDU that cannot be in time is due in the first slot that can carry it. One that can share no
    transport block with another SDU of its UE takes whole code blocks; all others the fraction
    that their bytes are of the largest code block.
    """
    load = given.load(direction)
    sdus, n_slots = load.sdus, given.n_slots
    carries = load.capacity_bytes > 0
    known = -(-sdus.arrival_us // given.slot_us) + load.known_slots
    timely = (sdus.deadline_us - earliest_done_us(given, direction)) // given.slot_us
    first = _next_carrying(carries)[sdus.cell, np.clip(known, 0, n_slots)]
    last = _last_carrying(carries)[sdus.cell, np.clip(timely, -1, n_slots) + 1]
    last = np.maximum(first, np.where(timely >= n_slots, n_slots, last))

    budget_us, kind = _by_urgency(sdus)
    blocks = sdus.n_bytes / BLOCK_BYTES
    alone = _alone(sdus, first, last)
    blocks[alone] = np.ceil(blocks[alone])

    shape = (given.n_cells, len(budget_us), n_slots + 1)
    arrived, due = np.zeros(shape), np.zeros(shape)
    np.add.at(arrived, (sdus.cell, kind, first), blocks)
    np.add.at(due, (sdus.cell, kind, last), blocks)
    return LinkCurves(
        arrived=np.cumsum(arrived, axis=2)[..., :n_slots],
        due=np.cumsum(due, axis=2)[..., :n_slots],
        capacity=_capacity(load.capacity_bytes, sdus, alone, blocks),
        budget_us=budget_us,
        cell=sdus.cell,
        kind=kind,
        first=first,
        last=last,
    )


def _capacity(
    capacity_bytes: Ints, sdus: Sdus, alone: npt.NDArray[np.bool_], blocks: Floats
) -> Floats:
    """Code blocks per cell and slot. Those rounded up count their bytes and more: the radio is
    given the largest of each UE on top."""
    most: dict[tuple[int, int], float] = {}
    for cell, ue, value in zip(
        sdus.cell[alone].tolist(), sdus.ue[alone].tolist(), blocks[alone].tolist(), strict=True
    ):
        most[cell, ue] = max(most.get((cell, ue), 0.0), value)
    extra = np.zeros(len(capacity_bytes))
    for (cell, _), value in most.items():
        extra[cell] += value
    return np.where(capacity_bytes > 0, capacity_bytes / BLOCK_BYTES + extra[:, None], 0.0)


def _by_urgency(sdus: Sdus) -> tuple[Floats, Ints]:
    """Mean budgets of the classes, the shortest first, and the class of each SDU in that order.

    Without SDUs, one class.
    """
    classes, index = np.unique(sdus.traffic_class, return_inverse=True)
    if not len(classes):
        return np.zeros(1), index.astype(np.int64)
    budget = (sdus.deadline_us - sdus.arrival_us).astype(np.float64)
    mean_us = np.bincount(index, budget) / np.bincount(index)
    order = np.argsort(mean_us, kind="stable")
    return mean_us[order], np.argsort(order)[index].astype(np.int64)


def _alone(sdus: Sdus, first: Ints, last: Ints) -> npt.NDArray[np.bool_]:
    """Whether no other SDU of the same UE can be on the air in any of an SDU's slots."""
    order = np.lexsort((first, sdus.ue, sdus.cell))
    link = np.cumsum(
        np.diff(sdus.cell[order], prepend=-1).astype(bool)
        | np.diff(sdus.ue[order], prepend=-1).astype(bool)
    )
    span = int(last.max(initial=0)) + 2
    begin, end = link * span + first[order], link * span + last[order]
    latest = np.concatenate(([-1], np.maximum.accumulate(end)[:-1]))
    following = np.concatenate((begin[1:], [np.iinfo(np.int64).max]))
    result = np.zeros(len(order), np.bool_)
    result[order] = (latest < begin) & (following > end)
    return result


def _next_carrying(carries: npt.NDArray[np.bool_]) -> Ints:
    """[C, slots + 1]: the first slot from each on that carries; ``slots`` if none does."""
    cells, slots = carries.shape
    found = np.where(carries, np.arange(slots), slots)
    padded = np.concatenate((found, np.full((cells, 1), slots)), axis=1)
    result: Ints = np.minimum.accumulate(padded[:, ::-1], axis=1)[:, ::-1].astype(np.int64)
    return result


def _last_carrying(carries: npt.NDArray[np.bool_]) -> Ints:
    """[C, slots + 2]: at index i + 1 the last slot up to and with i that carries; -1 if none."""
    cells, slots = carries.shape
    found = np.where(carries, np.arange(slots), -1)
    padded = np.concatenate((np.full((cells, 1), -1), found, np.full((cells, 1), -1)), axis=1)
    result: Ints = np.maximum.accumulate(padded, axis=1).astype(np.int64)
    return result
