"""In which slots of the GPU's time the work of an air slot can run, and for how long of each."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.gpu.phy_tasks import deadline_us, ready_us
from testbed.spare_bound.inputs import BoundInput


@dataclass(frozen=True, slots=True)
class Place:
    """The first ``width_us`` of the execution slot ``slot`` (slots are numbered as air slots)."""

    slot: int
    width_us: int


def places(given: BoundInput, direction: int, air_slot: int) -> tuple[Place, ...]:
    """Where the work of an air slot can run, ascending. All begin with their slot."""
    slot_us = given.slot_us
    start_us = ready_us(direction, air_slot, slot_us)
    end_us = deadline_us(
        direction, air_slot, slot_us, given.ul_decode_budget_us, given.fronthaul_lead_us
    )
    return tuple(
        Place(at_us // slot_us, min(slot_us, end_us - at_us))
        for at_us in range(start_us, end_us, slot_us)
    )
