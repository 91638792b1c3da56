"""5QI characteristics: how long a packet may take, the radio's part of it, how many may fail."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# TS 23.501 table 5.7.4-1: packet delay budget in milliseconds, packet error rate.
_TABLE: Mapping[int, tuple[int, float]] = MappingProxyType(
    {1: (100, 1e-2), 2: (150, 1e-3), 3: (50, 1e-3), 4: (300, 1e-6), 5: (100, 1e-6)}
    | {6: (300, 1e-6), 7: (100, 1e-3), 8: (300, 1e-6), 9: (300, 1e-6)}
    | {65: (75, 1e-2), 69: (60, 1e-6), 80: (10, 1e-6), 82: (10, 1e-4), 83: (10, 1e-4)}
    | {84: (30, 1e-5), 85: (5, 1e-5)}
)

CORE_SHARE_US = 20_000
"""Time between the UPF and the gNB that the standard takes off by default."""

SHORT_CORE_SHARE_US = 2_000
"""The same for budgets below 20 ms, whose UPF must stand close to the cell."""


def five_qis() -> tuple[int, ...]:
    """The 5QI values that a UE may have here."""
    return tuple(_TABLE)


def packet_delay_budget_us(five_qi: int) -> int:
    """Packet delay budget between UE and UPF, microseconds (TS 23.501 table 5.7.4-1).

    Raises:
        ValueError: an unknown 5QI; the text lists those known.
    """
    return _row(five_qi)[0] * 1000


def packet_error_rate(five_qi: int) -> float:
    """Share of packets that may be lost or come after the budget (TS 23.501 table 5.7.4-1).

    Raises:
        ValueError: an unknown 5QI; the text lists those known.
    """
    return _row(five_qi)[1]


def mac_budget_us(five_qi: int) -> int:
    """What the radio may use of the packet delay budget, microseconds.

    The budget less the core's share: 20 ms, or 2 ms where the whole budget is below 20 ms. (The
    notes of TS 23.501 table 5.7.4-1 give single values for some 5QIs; this is one rule for all.)
    """
    budget_us = packet_delay_budget_us(five_qi)
    core_us = CORE_SHARE_US if budget_us >= CORE_SHARE_US else SHORT_CORE_SHARE_US
    return budget_us - core_us


def _row(five_qi: int) -> tuple[int, float]:
    if five_qi not in _TABLE:
        known = ", ".join(str(value) for value in _TABLE)
        raise ValueError(f"five_qi = {five_qi!r}: allowed are {known}")
    return _TABLE[five_qi]
