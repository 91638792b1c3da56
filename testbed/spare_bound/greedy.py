"""A schedule that serves all cells as early as radio and GPU allow, to tell what cannot be in time.

Owns the lowering of deadline curves: where this schedule is late, the bound asks for no more than
what it attains. Lower curves only raise the bound, so that it stays one for every policy that keeps
all budgets; and the programme has a solution by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from testbed.gpu.cost import DOWNLINK, UPLINK
from testbed.spare_bound.costs import Envelope, decode_envelope, encode_envelope
from testbed.spare_bound.curves import LinkCurves
from testbed.spare_bound.inputs import BoundInput, Floats
from testbed.spare_bound.places import Place, places

_ROUNDING_BLOCKS = 1e-6
"""Sums of fractions of code blocks differ by less than this for no reason but rounding."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """Curves whose deadlines the schedule keeps.

    ``late_blocks``: the most code blocks that are late at any time, both directions added.
    """

    downlink: LinkCurves
    uplink: LinkCurves
    late_blocks: float


def lowered(given: BoundInput, downlink: LinkCurves, uplink: LinkCurves) -> Lowered:
    """Lower both directions' deadlines to what the schedule attains (downlink goes first)."""
    room = _Room(given)
    dl = _serve(given, DOWNLINK, downlink, room)
    ul = _serve(given, UPLINK, uplink, room)
    late = (_late(curves, served) for curves, served in ((downlink, dl), (uplink, ul)))
    return Lowered(
        _lower(downlink, dl), _lower(uplink, ul), sum(float(each.max()) for each in late)
    )


def _late(curves: LinkCurves, served: Floats) -> Floats:
    """[slots]: code blocks that are late, those of rounding left out."""
    late = curves.due - served
    each: Floats = np.where(late > _ROUNDING_BLOCKS, late, 0.0).sum(axis=(0, 1))
    return each


def _lower(curves: LinkCurves, served: Floats) -> LinkCurves:
    slots = served.shape[2]
    inside = np.minimum(curves.last, slots - 1)
    missed = (curves.due - served)[curves.cell, curves.kind, inside] > _ROUNDING_BLOCKS
    return replace(
        curves,
        due=np.minimum(curves.due, served),
        last=np.where(missed, slots, curves.last),
    )


class _Room:
    """SM-time that is left in each execution slot."""

    def __init__(self, given: BoundInput) -> None:
        gpu = given.gpu
        self._sms = gpu.sms
        self._decode_sms = min(gpu.sms, max(gpu.phy.ran_sm_cap, gpu.min_sms))
        self._used: dict[int, float] = {}
        self._decoding: dict[int, float] = {}

    def free_sm_us(self, place: Place, uplink: bool) -> float:
        """What work may take of a place; work with less of the slot counts as if it came first."""
        free = self._sms * place.width_us - self._used.get(place.slot, 0.0)
        if uplink:
            decoding = self._decoding.get(place.slot, 0.0)
            free = min(free, self._decode_sms * place.width_us - decoding)
        return max(0.0, free)

    def take(self, where: tuple[Place, ...], uplink: bool, sm_us: float) -> None:
        for place in where:
            taken = min(sm_us, self.free_sm_us(place, uplink))
            sm_us -= taken
            self._used[place.slot] = self._used.get(place.slot, 0.0) + taken
            if uplink:
                self._decoding[place.slot] = self._decoding.get(place.slot, 0.0) + taken


def _serve(given: BoundInput, direction: int, curves: LinkCurves, room: _Room) -> Floats:
    """[C, K, slots]: code blocks served, cumulative."""
    uplink = direction == UPLINK
    envelope = decode_envelope(given) if uplink else None
    cells, kinds, slots = curves.arrived.shape
    served = np.zeros((cells, kinds, slots))
    done = [[0.0] * kinds for _ in range(cells)]
    carrying = np.flatnonzero(curves.capacity.max(axis=0) > 0)
    before = 0
    for slot in carrying.tolist():
        served[..., before:slot] = np.array(done)[..., None]
        before = slot
        capacity = curves.capacity[:, slot]
        cost = envelope or encode_envelope(given, float(capacity.max()))
        where = places(given, direction, slot)
        free = sum(room.free_sm_us(place, uplink) for place in where)
        arrived, due = curves.arrived[..., slot].tolist(), curves.due[..., slot].tolist()
        slot_service = _Slot(cost, capacity.tolist(), free)
        # What is due now, the most urgent class first; then the rest; each where it costs least.
        everything = range(1, len(cost.width) + 1)
        for kind in range(kinds):
            for segments in everything:
                for cell in range(cells):
                    urgent = due[cell][kind] - done[cell][kind]
                    done[cell][kind] += slot_service.give(cell, urgent, segments)
        for segments in everything:
            for cell in range(cells):
                for kind in range(kinds):
                    waiting = arrived[cell][kind] - done[cell][kind]
                    done[cell][kind] += slot_service.give(cell, waiting, segments)
        room.take(where, uplink, free - slot_service.free_sm_us)
    served[..., before:] = np.array(done)[..., None]
    return served


class _Slot:
    """One air slot: code blocks of each cell so far, and the SM-time that is left for more."""

    def __init__(self, cost: Envelope, capacity: list[float], free_sm_us: float) -> None:
        self._ends = np.cumsum(cost.width).tolist()
        self._slopes = cost.slope.tolist()
        self._capacity = capacity
        self._blocks = [0.0] * len(capacity)
        self.free_sm_us = free_sm_us

    def give(self, cell: int, wanted: float, segments: int) -> float:
        """Serve up to ``wanted`` code blocks of a cell within the first segments of its cost."""
        given = 0.0
        if wanted <= 0:
            return given
        for end, slope in zip(self._ends[:segments], self._slopes, strict=False):
            room = min(end, self._capacity[cell]) - self._blocks[cell]
            blocks = min(wanted - given, room)
            if blocks <= 0:
                continue
            if slope > 0:
                blocks = min(blocks, self.free_sm_us / slope)
            self._blocks[cell] += blocks
            self.free_sm_us -= blocks * slope
            given += blocks
        return given
