"""Who is served within a cell, and with how many PRBs: compiled; sees nothing of the GPU."""

from __future__ import annotations

from testbed.shaping.arrays import Ints, RadioTables
from testbed.shaping.compiled import compiled, typed
from testbed.shaping.state import ControllerParams, ControllerState

NO_LIMIT = typed(1 << 40)
MIN_RATE = 1.0

SPARED_PART = 10
"""One part in so many of the carrier is left to others beside a UE that can wait."""


@compiled
def first_at_least(sizes: Ints, n_prb: int, wanted: int) -> int:
    """The fewest PRBs (0 to ``n_prb``) of at least that size; ``n_prb`` where none is enough."""
    low, high = 0, n_prb
    while low < high:
        middle = (low + high) // 2
        if sizes[middle] >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def last_at_most(sizes: Ints, n_prb: int, limit: int) -> int:
    """The most PRBs (0 to ``n_prb``) of at most that size."""
    low, high = 0, n_prb
    while low < high:
        middle = (low + high + 1) // 2
        if sizes[middle] <= limit:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def order_ues(
    params: ControllerParams,
    state: ControllerState,
    tables: RadioTables,
    received_us: int,
) -> None:
    """Sort each cell's UEs: those whose deadline nears, by deadline; then by R / T.

    ``received_us``: when a block of this slot is received. A UE that is late already has no
    deadline left to keep and competes by R / T.
    """
    n_cells, n_ues = (params.n_cells, params.n_ues)
    for c in range(n_cells):
        count = 0
        kind = state.kind[c]
        if kind >= 0:
            n_prb = tables.n_prb[c]
            for ue in range(n_ues):
                if state.backlog[c, ue] == 0:
                    continue
                slack_us = state.head_deadline_us[c, ue] - received_us
                near_us = params.budget_us[c, ue] * params.urgent_permille // 1000
                if 0 <= slack_us < near_us + params.margin_us[c, ue]:
                    key = -1e15 + state.head_deadline_us[c, ue]
                else:
                    bytes_per_prb = tables.tbs_bytes[c, kind, state.mcs[c, ue], n_prb] / n_prb
                    key = -bytes_per_prb / max(state.average_rate[c, ue], MIN_RATE)
                place = count
                while place > 0 and state.ue_key[c, place - 1] > key:
                    state.ue_key[c, place] = state.ue_key[c, place - 1]
                    state.ue_order[c, place] = state.ue_order[c, place - 1]
                    place -= 1
                state.ue_key[c, place] = key
                state.ue_order[c, place] = ue
                count += 1
        state.ue_count[c] = count


@compiled
def fill_cell(
    params: ControllerParams,
    state: ControllerState,
    tables: RadioTables,
    c: int,
    limit_blocks: int,
    block_limit: int,
) -> int:
    """Grant the UEs of a cell in order, within that many code blocks; returns those granted.

    ``block_limit``: code blocks at most of a transport block that may come again.

    Leaves the largest work per block among them in ``state.full_milli``.
    """
    state.granted[c] = 0
    kind = state.kind[c]
    left_prb, left_blocks = state.free_prb[c], limit_blocks
    milli = 0
    for index in range(state.ue_count[c]):
        if left_prb <= 0 or left_blocks <= 0 or state.granted[c] == state.max_grants[c]:
            break
        ue = state.ue_order[c, index]
        mcs = state.mcs[c, ue]
        carrier = tables.n_prb[c]
        if params.margin_us[c, ue] > 0:  # it may come again: leave PRBs beside a retransmission
            carrier -= carrier // SPARED_PART
        n_prb = min(
            left_prb,
            carrier,
            first_at_least(tables.tbs_bytes[c, kind, mcs], tables.n_prb[c], state.backlog[c, ue]),
        )
        blocks = tables.code_blocks[c, kind, mcs]
        most = left_blocks
        if params.margin_us[c, ue] > 0:
            most = min(most, block_limit)
        if blocks[n_prb] > most:
            n_prb = last_at_most(blocks, n_prb, most)
        if n_prb == 0:
            continue
        place = state.granted[c]
        state.grant_ue[c, place] = ue
        state.grant_prb[c, place] = n_prb
        state.granted[c] = place + 1
        left_prb -= n_prb
        left_blocks -= blocks[n_prb]
        milli = max(milli, tables.milli_per_block[c, mcs])
    state.full_milli[c] = max(milli, 1)
    return int(limit_blocks - left_blocks)
