"""Round robin and proportional fair, compiled: the twins of ``testbed.ran.schedulers``.

Owns the order in which a cell's UEs are served, where the GPU has no say in it.
"""

from __future__ import annotations

from testbed.ran.schedulers import ProportionalFair
from testbed.shaping.arrays import Floats, GrantArrays, Ints, RadioTables, SlotArrays
from testbed.shaping.compiled import compiled, inlined
from testbed.shaping.filling import first_at_least

_MIN_RATE = ProportionalFair.MIN_RATE


@inlined
def _grant(
    tables: RadioTables, view: SlotArrays, c: int, ue: int, left: int, out: GrantArrays
) -> int:
    """Give a UE the PRBs that drain its backlog; returns the PRBs that are left."""
    sizes = tables.tbs_bytes[c, view.kind[c], view.mcs[c, ue]]
    drain = first_at_least(sizes, tables.n_prb[c], view.backlog[c, ue])
    n_prb = min(left, drain)
    out.ue[c, out.granted[c]] = ue
    out.n_prb[c, out.granted[c]] = n_prb
    out.granted[c] += 1
    return left - n_prb


@compiled
def proportional_fair(
    tables: RadioTables, view: SlotArrays, rank: Floats, out: GrantArrays
) -> None:
    """Largest R / T first, the lower UE index in a tie. ``rank``: [U], room to work in."""
    n_cells, n_ues = view.backlog.shape
    for c in range(n_cells):
        out.granted[c] = 0
        kind, left = view.kind[c], view.free_prb[c]
        if kind < 0:
            continue
        waiting = 0
        for ue in range(n_ues):
            rank[ue] = -1.0
            if view.backlog[c, ue] > 0:
                waiting += 1
                n_prb = tables.n_prb[c]
                bytes_per_prb = tables.tbs_bytes[c, kind, view.mcs[c, ue], n_prb] / n_prb
                rank[ue] = bytes_per_prb / max(view.average_rate[c, ue], _MIN_RATE)
        while waiting > 0 and left > 0 and out.granted[c] < view.max_grants[c]:
            best = 0
            for ue in range(1, n_ues):
                if rank[ue] > rank[best]:
                    best = ue
            rank[best] = -1.0
            waiting -= 1
            left = _grant(tables, view, c, best, left, out)


@compiled
def round_robin(
    tables: RadioTables, view: SlotArrays, last_served: Ints, direction: int, out: GrantArrays
) -> None:
    """The UE after the one served last goes first. ``last_served``: [L], -1 where none was."""
    n_cells, n_ues = view.backlog.shape
    for c in range(n_cells):
        out.granted[c] = 0
        if view.kind[c] < 0:
            continue
        left, link = view.free_prb[c], 2 * c + direction
        first = last_served[link] + 1
        for index in range(n_ues):
            ue = (first + index) % n_ues
            if left <= 0 or out.granted[c] == view.max_grants[c]:
                break
            if view.backlog[c, ue] > 0:
                left = _grant(tables, view, c, ue, left, out)
                last_served[link] = ue
