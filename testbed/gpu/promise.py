"""What may be promised beyond the known plans: the worst that the cells could ask for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from testbed.gpu.cost import DOWNLINK, UPLINK, PhyDemand
from testbed.gpu.phy_tasks import PhyBudgetUs, deadline_us, ready_us
from testbed.gpu.profile import GpuProfile
from testbed.gpu.sizing import PhySizing, Saturation
from testbed.gpu.timeline import RanTimeline, Reservation, TaskKey, TaskRequest

_NO_BUDGET = PhyBudgetUs(0, 0)


@dataclass(frozen=True, slots=True)
class CellWorst:
    """One cell's largest tasks: the slots of its TDD period that carry each direction."""

    cell: int
    period_slots: int
    downlink_slots: tuple[int, ...]
    uplink_slots: tuple[int, ...]
    downlink: PhyDemand
    uplink: PhyDemand


class WorstCase:
    """The RAN's SMs per slot if every cell were full, over one common TDD period.

    Found by placing periods of full slots on an empty timeline and reading the last but one, so
    that decodes that span slots count where they run. Sized to saturation, less work takes
    fewer SMs for a shorter time. Under another sizing it may take longer, so that the tasks of a
    direction then count with their peak until their deadline.
    """

    def __init__(
        self,
        gpu: GpuProfile,
        slot_us: int,
        cells: Sequence[CellWorst],
        other_permille: int,
        sizing: PhySizing | None = None,
        budget: PhyBudgetUs = _NO_BUDGET,
    ) -> None:
        self._slot_us = slot_us
        self._budget = budget
        self._period = math.lcm(*(cell.period_slots for cell in cells))
        timeline = RanTimeline(gpu, other_permille, sizing)
        stretched = sizing is not None and not isinstance(sizing, Saturation)
        peaks: list[int] = []
        # As many periods ahead of the one that is read as a task can last.
        first = self._period * (1 + (budget.ul_decode_us // slot_us + 1) // self._period)
        for air_slot in range(first + 2 * self._period):
            for direction in (DOWNLINK, UPLINK):
                placed = timeline.reserve(self._requests(cells, air_slot, direction))
                if placed and stretched:
                    self._stretch(placed, peaks)
        if not stretched:
            peaks = timeline.sms_by_slot(0, slot_us)
        read = peaks[first : first + self._period]
        per_slot = tuple(min(gpu.sms, sms) for sms in read + [0] * (self._period - len(read)))
        # most[f][n]: the largest SM count in n slots from slot f of the period on.
        starts = range(self._period)
        ahead = [(per_slot * 2)[first : first + self._period] for first in starts]
        self._most = [tuple(accumulate(slots, max, initial=0)) for slots in ahead]

    def _stretch(self, placed: Sequence[Reservation], peaks: list[int]) -> None:
        """Add the peak of a group to every slot until its last deadline, or its end if later."""
        until_us = max(max(item.end_us, item.request.deadline_us) for item in placed)
        pieces = [piece for item in placed for piece in item.pieces()]
        peak = max(
            sum(sms for from_us, to_us, sms in pieces if from_us <= at_us < to_us)
            for at_us, _, _ in pieces
        )
        first = placed[0].request.ready_us // self._slot_us
        last = (until_us - 1) // self._slot_us
        peaks += [0] * (last + 1 - len(peaks))
        for slot in range(max(0, first), last + 1):
            peaks[slot] += peak

    def within(self, start_us: int, end_us: int) -> int:
        """Largest SM count that full cells could take in [start_us, end_us); 0 if it is empty."""
        if end_us <= start_us:
            return 0
        slots = (end_us - 1) // self._slot_us - start_us // self._slot_us + 1
        most = self._most[start_us // self._slot_us % self._period]
        return most[min(slots, self._period)]

    def _requests(
        self, cells: Sequence[CellWorst], air_slot: int, direction: int
    ) -> Iterable[TaskRequest]:
        ready = ready_us(direction, air_slot, self._slot_us)
        deadline = deadline_us(
            direction,
            air_slot,
            self._slot_us,
            self._budget.ul_decode_us,
            self._budget.fronthaul_lead_us,
        )
        for cell in cells:
            downlink = direction == DOWNLINK
            if air_slot % cell.period_slots in (
                cell.downlink_slots if downlink else cell.uplink_slots
            ):
                key = TaskKey(cell.cell, air_slot, direction)
                demand = cell.downlink if downlink else cell.uplink
                yield TaskRequest(key, ready, deadline, demand)
