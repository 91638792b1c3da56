"""Arrivals of a description, as arrays."""

from __future__ import annotations

from typing import Any

from testbed.ran.numerology import Direction
from testbed.ran.traffic import ArrivalArrays, TrafficSpec, arrivals_array

SLOT_US = 500
SLOTS_PER_S = 2000


def drawn(spec: TrafficSpec, n_slots: int, **changes: Any) -> ArrivalArrays:
    """Arrivals of slots 0 to n_slots - 1 at one cell of 4 UEs, uplink."""
    key = {"seed": 1, "cell": 0, "direction": Direction.UL, "n_ues": 4, "slot_us": SLOT_US}
    return arrivals_array(spec, **(key | changes), n_slots=n_slots)


def rows(arrivals: ArrivalArrays) -> list[tuple[int, ...]]:
    """One tuple per SDU: slot, UE, bytes, time."""
    return list(zip(*(column.tolist() for column in arrivals), strict=True))
