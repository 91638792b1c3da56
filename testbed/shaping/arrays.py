"""The radio's state of one slot as dense arrays: what compiled policies read and write.

C cells, U UEs per cell at most, G grants per cell and slot at most, K kinds of slot with their own
number of RE per PRB, M rows of an MCS table, P PRBs of the widest carrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.gpu.cost import decoder_iterations
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction, res_per_prb
from testbed.ran.tables import MCS_TABLES
from testbed.ran.tbs import block_sizes

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class RadioTables(NamedTuple):
    """Look-up tables of one direction.

    Attributes:
        kind_of_phase: [C, slots of the TDD period], index into K, -1 where nothing is carried.
        tbs_bytes: [C, K, M, P + 1], size of a block by PRBs, bytes.
        code_blocks: [C, K, M, P + 1], its code blocks.
        milli_per_block: [C, M], work of a code block: 100 times its decoder iterations.
        n_prb: [C], PRBs of the carrier.
    """

    kind_of_phase: Ints
    tbs_bytes: Ints
    code_blocks: Ints
    milli_per_block: Ints
    n_prb: Ints


class SlotArrays(NamedTuple):
    """What a policy sees of one air slot and direction; UEs that cannot be granted have backlog 0.

    Attributes:
        kind: [C], index into the tables' K, -1 where the cell does not carry this direction.
        free_prb, max_grants: [C], left after the retransmissions.
        retx_blocks, retx_milli: [C], code blocks and work of the retransmissions.
        backlog: [C, U], bytes that wait.
        mcs: [C, U], row of the MCS table.
        head_bytes: [C, U], bytes left of the SDU that is next to be sent.
        head_deadline_us, tail_deadline_us: [C, U], of the first and the last SDU that waits.
        average_rate: [C, U], newly sent bytes per slot of this direction, averaged.
    """

    kind: Ints
    free_prb: Ints
    max_grants: Ints
    retx_blocks: Ints
    retx_milli: Ints
    backlog: Ints
    mcs: Ints
    head_bytes: Ints
    head_deadline_us: Ints
    tail_deadline_us: Ints
    average_rate: Floats


class GrantArrays(NamedTuple):
    """Grants of one slot: the first ``granted[c]`` of ``ue`` and ``n_prb`` [C, G], in order."""

    granted: Ints
    ue: Ints
    n_prb: Ints


def radio_tables(
    cells: Sequence[CellConfig], direction: Direction, iteration_rule: str
) -> RadioTables:
    """Tables of some cells. All must have one TDD period (ValueError)."""
    periods = {len(cell.tdd.kinds) for cell in cells}
    if len(periods) > 1:
        raise ValueError(f"cells of one gNB must agree in their TDD period, got {sorted(periods)}")
    res = [[res_per_prb(kind, direction) for kind in cell.tdd.kinds] for cell in cells]
    kinds = [sorted({re for re in of_cell if re}) for of_cell in res]
    shape = (
        len(cells),
        max(len(of_cell) for of_cell in kinds),
        max(len(MCS_TABLES[cell.mcs_table]) for cell in cells),
        max(cell.n_prb for cell in cells) + 1,
    )
    tbs, blocks = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    milli = np.zeros((len(cells), shape[2]), np.int64)
    phases = np.full((len(cells), periods.pop()), -1, np.int64)
    for c, cell in enumerate(cells):
        phases[c] = [kinds[c].index(re) if re else -1 for re in res[c]]
        for row in MCS_TABLES[cell.mcs_table]:
            efficiency = round(1000 * row.spectral_efficiency) / 1000
            milli[c, row.index] = 100 * decoder_iterations(iteration_rule, efficiency)
            for k, re in enumerate(kinds[c]):
                sizes = block_sizes(
                    cell.n_prb, re, cell.mcs_table, row.index, cell.layers(direction)
                )
                tbs[c, k, row.index, : len(sizes)] = [size.tbs_bytes for size in sizes]
                blocks[c, k, row.index, : len(sizes)] = [size.code_blocks for size in sizes]
    return RadioTables(phases, tbs, blocks, milli, np.array([c.n_prb for c in cells]))


def empty_slot(n_cells: int, n_ues: int) -> SlotArrays:
    """Arrays to be filled anew in each slot."""

    def of_cells() -> Ints:
        return np.zeros(n_cells, np.int64)

    def of_ues() -> Ints:
        return np.zeros((n_cells, n_ues), np.int64)

    return SlotArrays(
        *(of_cells(), of_cells(), of_cells(), of_cells(), of_cells()),
        *(of_ues(), of_ues(), of_ues(), of_ues(), of_ues()),
        np.zeros((n_cells, n_ues)),
    )


def empty_grants(n_cells: int, n_grants: int) -> GrantArrays:
    """Room for the grants of a slot."""
    ue, n_prb = (np.zeros((n_cells, n_grants), np.int64) for _ in range(2))
    return GrantArrays(np.zeros(n_cells, np.int64), ue, n_prb)
