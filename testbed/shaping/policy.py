"""MAC policies that shape the RAN's load on the GPU, for a MAC node.

Owns the way between a policy's views and the compiled controller's arrays; decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.errors import PolicyError
from testbed.ran.numerology import Direction
from testbed.ran.schedulers import Grant, SlotView
from testbed.shaping.arrays import (
    GrantArrays,
    RadioTables,
    SlotArrays,
    empty_grants,
    empty_slot,
    radio_tables,
)
from testbed.shaping.contract import Promise, SiteGpu
from testbed.shaping.plan import plan
from testbed.shaping.retransmissions import note_retransmissions, retransmission_limit
from testbed.shaping.state import (
    BREACHES,
    DOWNLINK,
    LIMIT_SMS,
    PROMISED_UNTIL,
    RING_SLOTS,
    SHAPED,
    SMOOTHED,
    UPLINK,
    WANTED_SMS,
    ControllerParams,
    ControllerState,
    Tuning,
    new_controller,
)


class SpareCompute:
    """Keeps the SMs that the RAN takes within a steady envelope, promised a horizon ahead.

    Serves what its deadlines need, then what the envelope has room for, evenly over the cells; the
    envelope follows the backlog slowly. Works badly where delay budgets are hardly longer than the
    TDD period: nothing can wait then, and nothing can be shaped.
    """

    MODE = SHAPED

    def __init__(self, tuning: Tuning | None = None) -> None:
        self._tuning = tuning or Tuning()
        self._bound: _Bound | None = None

    def bind(self, site: SiteGpu) -> None:
        """Learn the GPU and the cells. Raises ValueError for cells of different TDD periods."""
        self._bound = _Bound(site, self.MODE, self._tuning)

    def schedule(self, view: SlotView) -> Sequence[Grant]:
        """Grants of one air slot and direction."""
        return self._known().schedule(view)

    def retransmission_limit(self, direction: Direction, air_slot: int) -> int:
        """Code blocks that the next cell's retransmissions may have in that slot."""
        return self._known().retransmission_limit(direction, air_slot)

    def note_retransmissions(self, direction: Direction, air_slot: int, code_blocks: int) -> None:
        """A cell's retransmissions have been placed."""
        self._known().note_retransmissions(direction, air_slot, code_blocks)

    def promise(self) -> Promise:
        """The envelope, from the first slot that is still promised."""
        return self._known().promise()

    def limit(self, sms: int) -> None:
        """Promise and plan no more than that from now on, but for emergencies."""
        self._known().limit(sms)

    def _known(self) -> _Bound:
        if self._bound is None:
            raise PolicyError(f"policy {type(self).__name__}: bind() comes before the first slot")
        return self._bound


class LoadSmoother(SpareCompute):
    """A baseline: SMs follow an average of the demand, slowly and blind to deadlines.

    Works badly under load that keeps rising, and wherever a budget is short: it holds data back for
    the average's sake alone. It promises nothing.
    """

    MODE = SMOOTHED


class _Bound:
    """The controller of one gNB, and the arrays through which it is asked."""

    def __init__(self, site: SiteGpu, mode: int, tuning: Tuning) -> None:
        self._params: ControllerParams
        self._state: ControllerState
        self._params, self._state = new_controller(site, mode, tuning)
        cells = site.cells
        self._index = {cell.cell_id: c for c, cell in enumerate(cells)}
        rule = site.gpu.phy.ul_iterations
        self._tables: dict[Direction, RadioTables] = {
            direction: radio_tables(cells, direction, rule) for direction in Direction
        }
        self._slot: SlotArrays = empty_slot(len(cells), max(cell.n_ues for cell in cells))
        self._out: GrantArrays = empty_grants(
            len(cells), max(cell.max_ues_per_slot for cell in cells)
        )
        self._period = len(cells[0].tdd.kinds)
        self._now_slot = 0

    def schedule(self, view: SlotView) -> list[Grant]:
        tables = self._tables[view.direction]
        self._show(view, tables)
        self._now_slot = view.now_slot
        number = _number(view.direction)
        plan(
            self._params,
            self._state,
            tables,
            self._slot,
            number,
            view.now_slot,
            view.slot,
            self._out,
        )
        granted = self._out.granted.tolist()
        grants: list[Grant] = []
        for cell in view.cells:
            c = self._index[cell.cell]
            ues = self._out.ue[c, : granted[c]].tolist()
            prbs = self._out.n_prb[c, : granted[c]].tolist()
            grants += [Grant(cell.cell, ue, n_prb) for ue, n_prb in zip(ues, prbs, strict=True)]
        return grants

    def _show(self, view: SlotView, tables: RadioTables) -> None:
        slot = self._slot
        slot.kind.fill(-1)
        slot.backlog.fill(0)
        phase = view.slot % self._period
        for cell in view.cells:
            c = self._index[cell.cell]
            slot.kind[c] = tables.kind_of_phase[c, phase]
            slot.free_prb[c] = cell.free_prb
            slot.max_grants[c] = cell.max_grants
            blocks = milli = 0
            for block in cell.retransmissions:
                blocks += block.code_blocks
                milli += block.code_blocks * int(tables.milli_per_block[c, block.mcs_index])
            slot.retx_blocks[c] = blocks
            slot.retx_milli[c] = milli
            ues = cell.ues
            if not ues:
                continue
            index = [ue.ue for ue in ues]
            slot.backlog[c, index] = [ue.backlog_bytes for ue in ues]
            slot.mcs[c, index] = [ue.mcs_index for ue in ues]
            slot.head_bytes[c, index] = [ue.head_bytes for ue in ues]
            slot.head_deadline_us[c, index] = [ue.deadline_us for ue in ues]
            slot.tail_deadline_us[c, index] = [ue.tail_deadline_us for ue in ues]
            slot.average_rate[c, index] = [ue.average_rate for ue in ues]

    def retransmission_limit(self, direction: Direction, air_slot: int) -> int:
        return int(retransmission_limit(self._params, self._state, _number(direction), air_slot))

    def note_retransmissions(self, direction: Direction, air_slot: int, code_blocks: int) -> None:
        number = _number(direction)
        note_retransmissions(self._params, self._state, number, air_slot, code_blocks)

    def promise(self) -> Promise:
        marks = self._state.marks
        wanted = int(marks[WANTED_SMS])
        if self._params.mode != SHAPED:
            return Promise((), 0, 0, wanted)
        until = int(marks[PROMISED_UNTIL])
        first = self._now_slot
        rows: list[tuple[int, int]] = []
        for run_slot in range(first, until):
            sms = int(self._state.promised[run_slot % RING_SLOTS])
            if not rows or rows[-1][1] != sms:
                rows.append((run_slot, sms))
        return Promise(tuple(rows), until, int(marks[BREACHES]), wanted)

    def limit(self, sms: int) -> None:
        self._state.marks[LIMIT_SMS] = sms


def _number(direction: Direction) -> int:
    return DOWNLINK if direction is Direction.DL else UPLINK
