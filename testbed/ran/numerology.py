"""Slots, carrier widths and TDD patterns of NR.

Owns the arithmetic of the radio frame: how long a slot is, how many PRBs a carrier has, which slot
carries what, and how many resource elements (RE) a PRB offers for data in a slot. It knows nothing
of cells, UEs or traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Direction(Enum):
    """Which way a transport block travels."""

    DL = "DL"
    UL = "UL"


class SlotKind(Enum):
    """D: all downlink. S: downlink, guard, short uplink control. U: all uplink."""

    D = "D"
    S = "S"
    U = "U"


SYMBOLS_PER_SLOT = 14
SUBCARRIERS_PER_PRB = 12
MAX_RE_PER_PRB = 156
"""TS 38.214 5.1.3.2 counts at most 156 RE of each PRB towards the transport block size."""

CONTROL_SYMBOLS = 2
"""PDCCH symbols at the head of a D or S slot; they carry no data."""

SPECIAL_DL_SYMBOLS = 10
"""Downlink symbols of an S slot, control included; then 2 of guard and 2 of uplink control."""

DMRS_RE_PER_PRB = 12
"""One front-loaded DM-RS symbol, type 1, both CDM groups kept free of data: at most 4 ports."""

MAX_LAYERS = 4

_SLOT_US: Mapping[int, int] = MappingProxyType({15: 1000, 30: 500, 60: 250, 120: 125})

# TS 38.101-1 table 5.3.2-1 (FR1); 120 kHz from TS 38.101-2 table 5.3.2-1 (FR2).
_N_PRB: Mapping[int, Mapping[int, int]] = MappingProxyType(
    {
        15: MappingProxyType(
            {5: 25, 10: 52, 15: 79, 20: 106, 25: 133, 30: 160, 35: 188, 40: 216, 45: 242, 50: 270}
        ),
        30: MappingProxyType(
            {5: 11, 10: 24, 15: 38, 20: 51, 25: 65, 30: 78, 35: 92, 40: 106, 45: 119, 50: 133}
            | {60: 162, 70: 189, 80: 217, 90: 245, 100: 273}
        ),
        60: MappingProxyType(
            {10: 11, 15: 18, 20: 24, 25: 31, 30: 38, 35: 44, 40: 51, 45: 58, 50: 65}
            | {60: 79, 70: 93, 80: 107, 90: 121, 100: 135}
        ),
        120: MappingProxyType({50: 32, 100: 66, 200: 132, 400: 264}),
    }
)


def slot_us(scs_khz: int) -> int:
    """Length of a slot in microseconds: 1 ms / 2**mu (TS 38.211 4.3.2).

    Raises:
        ValueError: the subcarrier spacing is none of 15, 30, 60, 120 kHz.
    """
    if scs_khz not in _SLOT_US:
        raise ValueError(f"scs_khz = {scs_khz!r}: allowed are {_listed(_SLOT_US)}")
    return _SLOT_US[scs_khz]


def n_prb(bandwidth_mhz: int, scs_khz: int) -> int:
    """PRBs of a carrier: TS 38.101-1 table 5.3.2-1 at 15, 30, 60 kHz, TS 38.101-2 at 120 kHz.

    60 kHz is read as FR1, where 50 MHz holds 65 PRBs (in FR2 it would hold 66).

    Raises:
        ValueError: no such carrier; the text lists the bandwidths allowed at that spacing.
    """
    slot_us(scs_khz)
    carriers = _N_PRB[scs_khz]
    if bandwidth_mhz not in carriers:
        raise ValueError(
            f"bandwidth_mhz = {bandwidth_mhz!r}: allowed at {scs_khz} kHz are {_listed(carriers)}"
        )
    return carriers[bandwidth_mhz]


def dl_symbols(kind: SlotKind) -> int:
    """Symbols that carry PDSCH in one slot of this kind, control taken off."""
    if kind is SlotKind.D:
        return SYMBOLS_PER_SLOT - CONTROL_SYMBOLS
    if kind is SlotKind.S:
        return SPECIAL_DL_SYMBOLS - CONTROL_SYMBOLS
    return 0


def ul_symbols(kind: SlotKind) -> int:
    """Symbols that carry PUSCH in one slot of this kind; S slots carry uplink control alone."""
    return SYMBOLS_PER_SLOT if kind is SlotKind.U else 0


def dl_res_per_prb(kind: SlotKind) -> int:
    """PDSCH RE per PRB: D 132, S 84, U 0 (TS 38.214 5.1.3.2, N'_RE, capped at 156)."""
    return _res_per_prb(dl_symbols(kind))


def ul_res_per_prb(kind: SlotKind) -> int:
    """PUSCH RE per PRB: U 156, D and S 0 (TS 38.214 6.1.4.2, N'_RE, capped at 156)."""
    return _res_per_prb(ul_symbols(kind))


def res_per_prb(kind: SlotKind, direction: Direction) -> int:
    """Data RE per PRB of a slot in one direction; 0 where the slot carries none."""
    return dl_res_per_prb(kind) if direction is Direction.DL else ul_res_per_prb(kind)


@dataclass(frozen=True, slots=True)
class TddPattern:
    """A repeating sequence of slot kinds; slot 0 of the run is its first."""

    kinds: tuple[SlotKind, ...]

    @classmethod
    def parse(cls, text: str) -> TddPattern:
        """Read a pattern such as ``"DDDSU"``, one letter of D, S, U per slot.

        Raises:
            ValueError: another letter, or no slot for one of the two directions.
        """
        unknown = [letter for letter in text if letter not in ("D", "S", "U")]
        if unknown:
            raise ValueError(f"tdd = {text!r}: {unknown[0]!r} is none of D, S, U")
        if "U" not in text or not ("D" in text or "S" in text):
            raise ValueError(f"tdd = {text!r}: needs at least one U and one D or S")
        return cls(tuple(SlotKind(letter) for letter in text))

    def __str__(self) -> str:
        return "".join(kind.value for kind in self.kinds)

    def kind(self, slot: int) -> SlotKind:
        """Kind of an absolute slot number (0 is the run's first slot)."""
        return self.kinds[slot % len(self.kinds)]

    def carries(self, slot: int, direction: Direction) -> bool:
        """Whether that slot carries data in that direction."""
        return res_per_prb(self.kind(slot), direction) > 0

    def period_us(self, scs_khz: int) -> int:
        """Length of one repetition in microseconds."""
        return len(self.kinds) * slot_us(scs_khz)


def _res_per_prb(symbols: int) -> int:
    if symbols == 0:
        return 0
    return min(MAX_RE_PER_PRB, SUBCARRIERS_PER_PRB * symbols - DMRS_RE_PER_PRB)


def _listed(keys: Mapping[int, object]) -> str:
    return ", ".join(str(key) for key in keys)
