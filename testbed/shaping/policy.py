"""MAC policies that shape the RAN's load on the GPU, for a MAC node.

Owns the way between a policy's views and the compiled controller's arrays; decides nothing itself.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import repeat

import numpy as np

from testbed.errors import PolicyError
from testbed.ran.numerology import Direction
from testbed.ran.schedulers import Grant, SlotView, UeView
from testbed.shaping.arrays import (
    GrantArrays,
    Ints,
    RadioTables,
    SlotArrays,
    empty_grants,
    empty_slot,
    radio_tables,
)
from testbed.shaping.compiled import as_row
from testbed.shaping.contract import Promise, SiteGpu
from testbed.shaping.entry import UE_ROWS, limit_of, note, plan_rows, promised_rows
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
    Tuning,
    new_controller,
)

_NUMBERS = {Direction.DL: DOWNLINK, Direction.UL: UPLINK}
_UE_COLUMNS = [UeView._fields.index(name) for name in UE_ROWS]
_AVERAGE_RATE = UeView._fields.index("average_rate")
_CELL_COLUMNS = 6


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
        _Bound(site, self.MODE, self._tuning).try_all()  # no slot waits for the compiler
        self._bound = _Bound(site, self.MODE, self._tuning)

    def schedule(self, view: SlotView) -> Sequence[Grant]:
        """Grants of one air slot and direction."""
        return self._known().schedule(view)

    def retransmission_limit(
        self, direction: Direction, air_slot: int, cell: int, oldest_blocks: int
    ) -> int:
        """Code blocks that a cell's retransmissions may have in that slot."""
        return self._known().retransmission_limit(direction, air_slot, cell, oldest_blocks)

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
        params, state = new_controller(site, mode, tuning)
        cells = site.cells
        n_ues = max(cell.n_ues for cell in cells)
        self._shaped = mode == SHAPED
        self._params, self._state = as_row(params), as_row(state)
        self._marks = state.marks
        self._promised = np.zeros((RING_SLOTS, 2), np.int64)
        self._index = {cell.cell_id: c for c, cell in enumerate(cells)}
        rule = site.gpu.phy.ul_iterations
        self._tables: dict[Direction, RadioTables] = {
            direction: radio_tables(cells, direction, rule) for direction in Direction
        }
        self._milli: dict[Direction, list[list[int]]] = {
            direction: tables.milli_per_block.tolist() for direction, tables in self._tables.items()
        }
        self._ues = np.zeros((len(UE_ROWS), len(cells) * n_ues), np.int64)
        self._average_rate = np.zeros(len(cells) * n_ues)
        self._slot: SlotArrays = empty_slot(len(cells), n_ues)
        self._out: GrantArrays = empty_grants(
            len(cells), max(cell.max_ues_per_slot for cell in cells)
        )
        self._now_slot = 0

    def try_all(self) -> None:
        """Call everything once, on empty slots: compiled, or loaded as compiled earlier."""
        for direction in Direction:
            self.schedule(SlotView(0, 0, direction, (), 0))
            self.retransmission_limit(direction, 0, next(iter(self._index)), 1)
            self.note_retransmissions(direction, 0, 1)
        self.promise()

    def schedule(self, view: SlotView) -> list[Grant]:
        self._now_slot = view.now_slot
        plan_rows(
            self._params,
            self._state,
            self._tables[view.direction],
            self._rows(view),
            self._ues,
            self._average_rate,
            self._slot,
            _NUMBERS[view.direction],
            view.now_slot,
            view.slot,
            self._out,
        )
        granted, ues, prbs = [array.tolist() for array in self._out]
        grants: list[Grant] = []
        for cell in view.cells:
            c = self._index[cell.cell]
            first = granted[c]
            grants += map(Grant, repeat(cell.cell), ues[c][:first], prbs[c][:first])
        return grants

    def _rows(self, view: SlotView) -> Ints:
        """The view as rows: of the cells, returned, and of their UEs, kept."""
        milli_per_block = self._milli[view.direction]
        rows: list[tuple[int, ...]] = []
        ues: list[UeView] = []
        for cell in view.cells:
            c = self._index[cell.cell]
            blocks = milli = 0
            for block in cell.retransmissions:
                blocks += block.code_blocks
                milli += block.code_blocks * milli_per_block[c][block.mcs_index]
            rows.append((c, len(cell.ues), cell.free_prb, cell.max_grants, blocks, milli))
            ues += cell.ues
        if ues:
            columns = tuple(zip(*ues, strict=True))
            # Three times as fast as an assignment, which looks at the type of each number.
            numbers = struct.Struct(f"{len(ues)}q")
            for row, column in enumerate(_UE_COLUMNS):
                numbers.pack_into(self._ues[row], 0, *columns[column])
            struct.pack_into(f"{len(ues)}d", self._average_rate.data, 0, *columns[_AVERAGE_RATE])
        return np.array(rows, np.int64).reshape(len(rows), _CELL_COLUMNS)

    def retransmission_limit(
        self, direction: Direction, air_slot: int, cell: int, oldest_blocks: int
    ) -> int:
        number, c, tables = _NUMBERS[direction], self._index[cell], self._tables[direction]
        return int(limit_of(self._params, self._state, tables, number, air_slot, c, oldest_blocks))

    def note_retransmissions(self, direction: Direction, air_slot: int, code_blocks: int) -> None:
        note(self._params, self._state, _NUMBERS[direction], air_slot, code_blocks)

    def promise(self) -> Promise:
        wanted = int(self._marks[WANTED_SMS])
        if not self._shaped:
            return Promise((), 0, 0, wanted)
        first, until = self._now_slot, int(self._marks[PROMISED_UNTIL])
        count = promised_rows(self._state, first, until, self._promised)
        rows = tuple([(slot, sms) for slot, sms in self._promised[:count].tolist()])
        return Promise(rows, until, int(self._marks[BREACHES]), wanted)

    def limit(self, sms: int) -> None:
        self._marks[LIMIT_SMS] = sms
