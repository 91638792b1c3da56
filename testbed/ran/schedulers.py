"""MAC scheduling policies: what they see, what they return, and two of them.

A policy is asked once per slot and direction for all cells of its gNB together, after the
retransmissions have taken their PRBs. To write one, return grants in the order they should be
served::

    class EarliestDeadline:
        def schedule(self, view: SlotView) -> list[Grant]:
            return [
                grant
                for cell in view.cells
                for grant in fill(cell, sorted(cell.ues, key=lambda ue: (ue.deadline_us, ue.ue)))
            ]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from testbed.errors import PolicyError
from testbed.ran.numerology import Direction
from testbed.ran.plan import TransportBlock


class UeView(NamedTuple):
    """A UE that has data waiting, a free HARQ process, and no retransmission in this slot.

    Attributes:
        ue: index within the cell.
        backlog_bytes: bytes that wait.
        mcs_index: what link adaptation picked for it.
        bytes_per_prb: of a block over the whole carrier at that MCS; the rate R is in proportion.
        drain_prb: PRBs that drain the backlog, at most the carrier's.
        average_rate: newly sent bytes per slot of this direction, exponentially averaged (T).
        head_of_line_us: arrival time of the SDU that is next to be sent.
        deadline_us: that time plus the radio's share of the 5QI's packet delay budget.
        five_qi: its 5QI.
        head_bytes: bytes left of the SDU that is next to be sent.
        tail_deadline_us: the deadline of the last SDU that waits.
    """

    ue: int
    backlog_bytes: int
    mcs_index: int
    bytes_per_prb: float
    drain_prb: int
    average_rate: float
    head_of_line_us: int
    deadline_us: int
    five_qi: int
    head_bytes: int = 0
    tail_deadline_us: int = 0


class CellView(NamedTuple):
    """One cell in one slot: what is left after its retransmissions, and who may have it.

    ``max_grants`` is how many UEs more fit the slot; ``n_prb`` is the whole carrier. MCS table,
    layers and RE per PRB are what ``tbs.block_sizes`` needs to tell code blocks from PRBs.
    """

    cell: int
    n_prb: int
    free_prb: int
    max_grants: int
    res_per_prb: int
    mcs_table: int
    layers: int
    retransmissions: tuple[TransportBlock, ...]
    ues: tuple[UeView, ...]


class SlotView(NamedTuple):
    """One air slot of one direction, planned in ``now_slot``, all cells that carry it."""

    slot: int
    slot_start_us: int
    direction: Direction
    cells: tuple[CellView, ...]
    now_slot: int = 0


class Grant(NamedTuple):
    """New data: PRBs for one UE in the slot that was asked for."""

    cell: int
    ue: int
    n_prb: int


class MacScheduler(Protocol):
    """A scheduling policy. It may keep state, but must draw no randomness and read no clock."""

    def schedule(self, view: SlotView) -> Sequence[Grant]:
        """Grants for the slot, at most one per UE, within each cell's free PRBs and grants."""
        ...


@runtime_checkable
class RetransmissionShaper(Protocol):
    """A policy that may also hold retransmissions back; asked before the view, cell by cell,
    where any wait."""

    def retransmission_limit(
        self, direction: Direction, air_slot: int, cell: int, oldest_blocks: int
    ) -> int:
        """Code blocks that a cell's retransmissions may have in that air slot.

        ``oldest_blocks``: those of the retransmission that waits longest for a slot of this size.
        """
        ...

    def note_retransmissions(self, direction: Direction, air_slot: int, code_blocks: int) -> None:
        """So many were placed for that cell."""
        ...


def fill(cell: CellView, order: Iterable[UeView]) -> list[Grant]:
    """Give each UE in turn the PRBs that drain its backlog, until PRBs or grants run out."""
    grants: list[Grant] = []
    left = cell.free_prb
    for ue in order:
        if left <= 0 or len(grants) == cell.max_grants:
            break
        n_prb = min(left, ue.drain_prb)
        grants.append(Grant(cell.cell, ue.ue, n_prb))
        left -= n_prb
    return grants


class RoundRobin:
    """The UE after the one served last goes first; each drains its backlog before the next.

    Fair in turns, not in rates or PRBs. Works badly where UEs differ: one at a poor MCS with much
    waiting takes a whole slot whenever its turn comes.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], int] = {}

    def schedule(self, view: SlotView) -> list[Grant]:
        """Grants in rotation order."""
        granted: list[Grant] = []
        for cell in view.cells:
            key = (cell.cell, view.direction.value)
            last = self._last.get(key, -1)
            order = sorted(cell.ues, key=lambda ue: (ue.ue <= last, ue.ue))
            grants = fill(cell, order)
            if grants:
                self._last[key] = grants[-1].ue
            granted += grants
        return granted


class ProportionalFair:
    """Largest R / T first: what a UE's channel gives now, over what it has had of late.

    T <- beta T + (1 - beta) R per slot of the direction, with R what the UE was sent; the MAC keeps
    it (``CellConfig.average_rate_beta``), so that this class has no state. Blind to deadlines and
    to the size of a backlog.
    """

    MIN_RATE = 1.0
    """Bytes per slot: a UE that was never served ranks by its channel, not by a division by 0."""

    def schedule(self, view: SlotView) -> list[Grant]:
        """Grants in order of R / T; the lower UE index wins a tie."""
        granted: list[Grant] = []
        for cell in view.cells:
            order = sorted(
                cell.ues,
                key=lambda ue: (-ue.bytes_per_prb / max(ue.average_rate, self.MIN_RATE), ue.ue),
            )
            granted += fill(cell, order)
        return granted


def check_grants(policy: object, view: SlotView, grants: Sequence[Grant]) -> list[list[Grant]]:
    """Sort a policy's grants by cell, in the view's order, refusing what it may not grant.

    Raises:
        PolicyError: no sequence of grants, an unknown cell or UE, a UE granted twice, no PRB, or
            more PRBs or grants than the cell has left.
    """
    by_cell: dict[int, list[Grant]] = {cell.cell: [] for cell in view.cells}
    try:
        for grant in grants:
            if grant.cell not in by_cell:
                what = f": grant for cell {grant.cell}, allowed are {sorted(by_cell)}"
                raise _refusal(policy, view, what)
            by_cell[grant.cell].append(grant)
    except (TypeError, AttributeError):
        what = f": returned {grants!r}, allowed is a sequence of Grant"
        raise _refusal(policy, view, what) from None
    for cell in view.cells:
        if (granted := by_cell[cell.cell]) and (fault := _fault(cell, granted)):
            raise _refusal(policy, view, f", cell {cell.cell}: {fault}")
    return list(by_cell.values())


def _refusal(policy: object, view: SlotView, what: str) -> PolicyError:
    place = f"policy {type(policy).__name__}, slot {view.slot} {view.direction.value}"
    return PolicyError(place + what)


def _fault(cell: CellView, grants: list[Grant]) -> str:
    """What is wrong with the grants of a cell; empty where nothing is."""
    waiting = {ue.ue for ue in cell.ues}
    total = 0
    for grant in grants:
        ue, n_prb = grant.ue, grant.n_prb
        if ue not in waiting:
            known = sorted(ue.ue for ue in cell.ues)
            return (
                f"grant for UE {ue}, which is not in the view or was granted "
                f"already; allowed are {known}, once each"
            )
        waiting.remove(ue)
        # bool and numpy integers are refused too: plans must be plain integers to be sent.
        if type(n_prb) is not int or n_prb < 1:
            return f"{n_prb!r} PRBs for UE {ue}, allowed is an int of at least 1"
        total += n_prb
    if total > cell.free_prb:
        return f"{total} PRBs granted, allowed are {cell.free_prb}"
    if len(grants) > cell.max_grants:
        return f"{len(grants)} grants, allowed are {cell.max_grants}"
    return ""
