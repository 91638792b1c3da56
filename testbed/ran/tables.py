"""MCS and CQI tables of TS 38.214 (5.1.3.1, 5.2.2.1), without their reserved rows.

Table 1 goes up to 64QAM, table 2 up to 256QAM. A cell that schedules from MCS table t is reported
to with CQI table t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class McsEntry:
    """One row of an MCS or CQI table.

    ``qm`` is bits per symbol; ``rate_x1024`` is the code rate times 1024 (two rows of MCS table 2
    hold a half, hence a float; both are exact in binary).
    """

    index: int
    qm: int
    rate_x1024: float

    @property
    def rate(self) -> float:
        """Code rate, 0 to 1."""
        return self.rate_x1024 / 1024

    @property
    def spectral_efficiency(self) -> float:
        """Bits per resource element of one layer."""
        return self.qm * self.rate_x1024 / 1024


def _rows(first_index: int, *groups: tuple[int, tuple[float, ...]]) -> tuple[McsEntry, ...]:
    flat = [(qm, rate) for qm, rates in groups for rate in rates]
    return tuple(McsEntry(first_index + i, qm, float(rate)) for i, (qm, rate) in enumerate(flat))


MCS_TABLES: Mapping[int, tuple[McsEntry, ...]] = MappingProxyType(
    {
        1: _rows(
            0,
            (2, (120, 157, 193, 251, 308, 379, 449, 526, 602, 679)),
            (4, (340, 378, 434, 490, 553, 616, 658)),
            (6, (438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948)),
        ),
        2: _rows(
            0,
            (2, (120, 193, 308, 449, 602)),
            (4, (378, 434, 490, 553, 616, 658)),
            (6, (466, 517, 567, 616, 666, 719, 772, 822, 873)),
            (8, (682.5, 711, 754, 797, 841, 885, 916.5, 948)),
        ),
    }
)
"""TS 38.214 tables 5.1.3.1-1 and 5.1.3.1-2: rows 0..28 and 0..27."""

CQI_TABLES: Mapping[int, tuple[McsEntry, ...]] = MappingProxyType(
    {
        1: _rows(
            1,
            (2, (78, 120, 193, 308, 449, 602)),
            (4, (378, 490, 616)),
            (6, (466, 567, 666, 772, 873, 948)),
        ),
        2: _rows(
            1,
            (2, (78, 193, 449)),
            (4, (378, 490, 616)),
            (6, (466, 567, 666, 772, 873)),
            (8, (711, 797, 885, 948)),
        ),
    }
)
"""TS 38.214 tables 5.2.2.1-2 and 5.2.2.1-3: rows 1..15; CQI 0 (out of range) has no row."""


def mcs_entry(mcs_table: int, mcs_index: int) -> McsEntry:
    """Row of an MCS table.

    Raises:
        ValueError: no such table, or a reserved or missing index.
    """
    rows = MCS_TABLES.get(mcs_table)
    if rows is None:
        raise ValueError(f"mcs_table = {mcs_table!r}: allowed are 1 (64QAM), 2 (256QAM)")
    if not 0 <= mcs_index < len(rows):
        raise ValueError(
            f"mcs_index = {mcs_index!r}: allowed in MCS table {mcs_table} are 0 to {len(rows) - 1}"
        )
    return rows[mcs_index]
