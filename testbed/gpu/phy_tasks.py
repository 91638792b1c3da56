"""When PHY work of an air slot may begin and must be done."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.gpu.cost import DOWNLINK


@dataclass(frozen=True, slots=True)
class PhyBudgetUs:
    """How long PHY work may take: a decode after its slot, downlink before its air time."""

    ul_decode_us: int
    fronthaul_lead_us: int


def ready_us(direction: int, air_slot: int, slot_us: int) -> int:
    """Downlink work begins one slot ahead of the air; an uplink decode when its slot has ended."""
    return (air_slot - 1) * slot_us if direction == DOWNLINK else (air_slot + 1) * slot_us


def deadline_us(
    direction: int, air_slot: int, slot_us: int, ul_decode_budget_us: int, fronthaul_lead_us: int
) -> int:
    """Downlink samples must leave ``fronthaul_lead_us`` ahead of the air; an uplink decode has
    ``ul_decode_budget_us`` from the end of its slot."""
    if direction == DOWNLINK:
        return air_slot * slot_us - fronthaul_lead_us
    return (air_slot + 1) * slot_us + ul_decode_budget_us


def known_until_us(dl_known_slot: int, ul_known_slot: int, slot_us: int) -> int:
    """Until when all PHY work is known if plans reach through these air slots: the earliest
    moment at which work of a later air slot could begin."""
    return min(
        ready_us(DOWNLINK, dl_known_slot + 1, slot_us), ready_us(1, ul_known_slot + 1, slot_us)
    )
