"""What may be promised beyond the known plans: the worst that the cells could ask for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.gpu.cost import PhyDemand
from testbed.gpu.phy_tasks import ready_us
from testbed.gpu.profile import GpuProfile
from testbed.gpu.timeline import RanTimeline, TaskKey, TaskRequest


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

    Found by placing three periods of full slots on an empty timeline and reading the middle one,
    so that decodes that span slots count where they run.
    """

    def __init__(
        self, gpu: GpuProfile, slot_us: int, cells: Sequence[CellWorst], other_permille: int
    ) -> None:
        self._slot_us = slot_us
        self._period = math.lcm(*(cell.period_slots for cell in cells))
        timeline = RanTimeline(gpu, other_permille)
        for air_slot in range(3 * self._period):
            timeline.reserve(self._requests(cells, air_slot))
        first = self._period
        self._per_slot = tuple(
            min(gpu.sms, timeline.ran_sms_within(slot * slot_us, (slot + 1) * slot_us))
            for slot in range(first, first + self._period)
        )

    def within(self, start_us: int, end_us: int) -> int:
        """Largest SM count that full cells could take in [start_us, end_us); 0 if it is empty."""
        if end_us <= start_us:
            return 0
        first = start_us // self._slot_us
        last = (end_us - 1) // self._slot_us
        slots = range(first, min(last, first + self._period - 1) + 1)
        return max(self._per_slot[slot % self._period] for slot in slots)

    def _requests(self, cells: Sequence[CellWorst], air_slot: int) -> Iterable[TaskRequest]:
        for cell in cells:
            phase = air_slot % cell.period_slots
            for direction, slots, demand in (
                (0, cell.downlink_slots, cell.downlink),
                (1, cell.uplink_slots, cell.uplink),
            ):
                if phase in slots:
                    ready = ready_us(direction, air_slot, self._slot_us)
                    key = TaskKey(cell.cell, air_slot, direction)
                    yield TaskRequest(key, ready, ready, demand)
