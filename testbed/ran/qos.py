"""5QI characteristics: how long a packet may take, and how much of that is the radio's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# TS 23.501 table 5.7.4-1: packet delay budget in milliseconds.
_PDB_MS: Mapping[int, int] = MappingProxyType(
    {1: 100, 2: 150, 3: 50, 4: 300, 5: 100, 6: 300, 7: 100, 8: 300, 9: 300}
    | {65: 75, 69: 60, 80: 10, 82: 10, 83: 10, 84: 30, 85: 5}
)

CORE_SHARE_US = 20_000
"""Time between the UPF and the gNB that the standard takes off by default."""

SHORT_CORE_SHARE_US = 2_000
"""The same for budgets below 20 ms, whose UPF must stand close to the cell."""


def five_qis() -> tuple[int, ...]:
    """The 5QI values that a UE may have here."""
    return tuple(_PDB_MS)


def packet_delay_budget_us(five_qi: int) -> int:
    """Packet delay budget between UE and UPF, microseconds (TS 23.501 table 5.7.4-1).

    Raises:
        ValueError: an unknown 5QI; the text lists those known.
    """
    if five_qi not in _PDB_MS:
        known = ", ".join(str(value) for value in _PDB_MS)
        raise ValueError(f"five_qi = {five_qi!r}: allowed are {known}")
    return _PDB_MS[five_qi] * 1000


def mac_budget_us(five_qi: int) -> int:
    """What the radio may use of the packet delay budget, microseconds.

    The budget less the core's share: 20 ms, or 2 ms where the whole budget is below 20 ms. (The
    notes of TS 23.501 table 5.7.4-1 give single values for some 5QIs; this is one rule for all.)
    """
    budget_us = packet_delay_budget_us(five_qi)
    core_us = CORE_SHARE_US if budget_us >= CORE_SHARE_US else SHORT_CORE_SHARE_US
    return budget_us - core_us
