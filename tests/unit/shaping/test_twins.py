"""The same decisions by other ways: plain Python, and views copied one by one into the arrays."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import testbed.shaping
from testbed.ran.capacity import ftp3_at_load
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction
from testbed.ran.schedulers import Grant, SlotView
from testbed.shaping import plan as planning
from testbed.shaping import smoother
from testbed.shaping.arrays import GrantArrays, empty_grants, empty_slot, radio_tables
from testbed.shaping.contract import Promise, SiteGpu
from testbed.shaping.policy import SpareCompute
from testbed.shaping.retransmissions import note_retransmissions, retransmission_limit
from testbed.shaping.state import (
    BREACHES,
    DOWNLINK,
    LEVEL_SMS,
    PROMISED_UNTIL,
    SHAPED,
    SMOOTHED,
    UPLINK,
    WANTED_SMS,
    Tuning,
    new_controller,
)
from testbed.topology.profiles import gpu_profile

from .loop import Gnb, site

NUMBERS = {Direction.DL: DOWNLINK, Direction.UL: UPLINK}


# --- a policy that fills the arrays in the obvious way --------------------------------------------


class OneByOne:
    """``SpareCompute`` without rows: each field of each UE's view goes to its place by name."""

    def bind(self, gpu_site: SiteGpu) -> None:
        self.params, self.state = new_controller(gpu_site, SHAPED, Tuning())
        cells = gpu_site.cells
        rule = gpu_site.gpu.phy.ul_iterations
        self.index = {cell.cell_id: c for c, cell in enumerate(cells)}
        self.tables = {way: radio_tables(cells, way, rule) for way in Direction}
        self.slot = empty_slot(len(cells), max(cell.n_ues for cell in cells))
        self.out = empty_grants(len(cells), 8)
        self.now_slot = 0

    def schedule(self, view: SlotView) -> list[Grant]:
        self.now_slot = view.now_slot
        slot, tables = self.slot, self.tables[view.direction]
        for array in slot:
            array[...] = 0
        slot.kind[:] = -1
        for cell in view.cells:
            c = self.index[cell.cell]
            slot.kind[c] = tables.kind_of_phase[c, view.slot % 5]
            slot.free_prb[c], slot.max_grants[c] = cell.free_prb, cell.max_grants
            for block in cell.retransmissions:
                slot.retx_blocks[c] += block.code_blocks
                work = tables.milli_per_block[c, block.mcs_index]
                slot.retx_milli[c] += block.code_blocks * work
            for ue in cell.ues:
                slot.backlog[c, ue.ue] = ue.backlog_bytes
                slot.mcs[c, ue.ue] = ue.mcs_index
                slot.head_bytes[c, ue.ue] = ue.head_bytes
                slot.head_deadline_us[c, ue.ue] = ue.deadline_us
                slot.tail_deadline_us[c, ue.ue] = ue.tail_deadline_us
                slot.average_rate[c, ue.ue] = ue.average_rate
        planning.plan(
            *(self.params, self.state, tables, slot, NUMBERS[view.direction]),
            *(view.now_slot, view.slot, self.out),
        )
        return [
            Grant(cell.cell, int(self.out.ue[c, n]), int(self.out.n_prb[c, n]))
            for cell in view.cells
            for c in (self.index[cell.cell],)
            for n in range(self.out.granted[c])
        ]

    def retransmission_limit(
        self, direction: Direction, air_slot: int, cell: int, oldest_blocks: int
    ) -> int:
        tables, c = self.tables[direction], self.index[cell]
        where = (tables, NUMBERS[direction], air_slot, c, oldest_blocks)
        return int(retransmission_limit(self.params, self.state, *where))

    def note_retransmissions(self, direction: Direction, air_slot: int, code_blocks: int) -> None:
        where = (NUMBERS[direction], air_slot, code_blocks)
        note_retransmissions(self.params, self.state, *where)

    def promise(self) -> Promise:
        marks, until = self.state.marks, int(self.state.marks[PROMISED_UNTIL])
        slots = range(self.now_slot, until)
        rows = tuple((slot, int(self.state.promised[slot % 512])) for slot in slots)
        return Promise(rows, until, int(marks[BREACHES]), int(marks[WANTED_SMS]))


def busy(cell_id: int) -> CellConfig:
    """UEs of all kinds under half a load, many blocks of which fail."""
    cell = CellConfig(
        cell_id,
        n_ues=6,
        ul_layers=2,
        sinr_correlation_per_slot=0.5,
        five_qi=(9, 80, 3, 84, 1, 9),
    )
    traffic = {
        f"{way.value.lower()}_traffic": ftp3_at_load(cell, way, 0.5, 8000) for way in Direction
    }
    return replace(cell, **traffic)


def test_rows_give_what_copying_one_by_one_gives():
    """Also the promise, slot by slot. The cells' identifiers are not their places."""
    cells = (busy(7), busy(3))
    gnbs = [Gnb(cells, policy) for policy in (SpareCompute(), OneByOne())]  # type: ignore[arg-type]
    granted = 0
    for _ in range(150):
        ours, plain = (gnb.step() for gnb in gnbs)
        assert ours.plans == plain.plans
        assert (ours.after, ours.new_breaches) == (plain.after, plain.new_breaches)
        granted += len(ours.plans)
    counters = gnbs[0].mac.cell(7).ul.counters
    assert granted > 150
    assert counters.retransmissions > 0


# --- without a compiler ---------------------------------------------------------------------------


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every compiled function of the package is the Python function that it was made of."""
    for found in pkgutil.iter_modules(testbed.shaping.__path__):
        module = importlib.import_module(f"testbed.shaping.{found.name}")
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher):
                monkeypatch.setattr(module, name, value.py_func)


@pytest.mark.parametrize("mode", [SHAPED, SMOOTHED])
def test_python_decides_as_the_compiled_code_does(mode, request):
    """Two cells with backlogs from Philox; both directions of some slots, the state to the bit."""
    cells = tuple(CellConfig(c, n_ues=3, ul_layers=2, five_qi=(9, 80, 3)) for c in range(2))
    compiled = decisions(cells, mode)
    request.getfixturevalue("interpreted")
    assert not isinstance(planning.plan, Dispatcher)
    assert decisions(cells, mode) == compiled
    assert sum(len(granted) for of_slot in compiled[0] for granted in of_slot) > 5


def decisions(cells: tuple[CellConfig, ...], mode: int) -> tuple[list[Any], bytes]:
    """The grants of some slots, and the state in the end."""
    draw = np.random.Generator(np.random.Philox(key=mode))
    params, state = new_controller(site(cells), mode, Tuning(hold_us=2500))
    tables = {way: radio_tables(cells, way, "fixed") for way in Direction}
    slot, out = empty_slot(2, 3), empty_grants(2, 8)
    grants: list[Any] = []
    for now_slot, direction, air_slot in (
        (3, Direction.DL, 6),
        (3, Direction.UL, 9),
        (5, Direction.DL, 8),
        (8, Direction.UL, 14),
        (9, Direction.DL, 12),
    ):
        slot.kind[:] = tables[direction].kind_of_phase[:, air_slot % 5]
        slot.free_prb[:] = draw.integers(50, 273, 2)
        slot.max_grants[:] = draw.integers(1, 8, 2)
        slot.retx_blocks[:] = draw.integers(0, 8, 2)
        slot.retx_milli[:] = 1000 * slot.retx_blocks
        slot.backlog[:] = draw.integers(0, 60_000, (2, 3)) * draw.integers(0, 2, (2, 3))
        slot.mcs[:] = draw.integers(0, 28, (2, 3))
        slot.head_bytes[:] = slot.backlog // 3
        slot.head_deadline_us[:] = air_slot * 500 + draw.integers(0, 30_000, (2, 3))
        slot.tail_deadline_us[:] = slot.head_deadline_us + 4000
        slot.average_rate[:] = draw.uniform(0, 5000, (2, 3))
        number = NUMBERS[direction]
        planning.plan(params, state, tables[direction], slot, number, now_slot, air_slot, out)
        grants.append(shown(out))
    return grants, state.tobytes()


def shown(out: GrantArrays) -> list[list[tuple[int, int]]]:
    return [
        list(zip(out.ue[c, :count].tolist(), out.n_prb[c, :count].tolist(), strict=True))
        for c, count in enumerate(out.granted.tolist())
    ]


# --- the load smoother ----------------------------------------------------------------------------


def test_smoother_by_hand():
    """gb10. A load of 1 (48 SMs): the average moves 0.15 of the way, limited to 0.08 per uplink
    slot: 8 + 40 * (0.08, 0.16, 0.24, 0.32) SMs, rounded up to a partition. No load: it falls
    by 0.048, 0.0408, 0.03468 of the range; a step down waits until it is 1.6 SMs below it."""
    cells = tuple(CellConfig(c, n_ues=1) for c in range(6))
    params, state = new_controller(site(cells), SMOOTHED, Tuning())
    state.full[:6], state.full_milli[:6] = 60, 1000
    levels, loads = [], []
    for uplink_slot in range(11):
        if uplink_slot == 4:
            state.full[:] = 0
        levels.append(int(smoother.smoothed_level(params, state)))
        loads.append(float(state.smooth))
    assert loads[:7] == pytest.approx([0.08, 0.16, 0.24, 0.32, 0.272, 0.2312, 0.19652])
    # 11.2, 14.4, 17.6, 20.8; 18.9, 17.2, 15.9, 14.7, 13.7 (below 24 - 8 - 1.6), 12.8, 12.1
    assert levels == [16, 16, 24, 24, 24, 24, 24, 24, 16, 16, 16]
    assert state.marks[LEVEL_SMS] == 16


def test_sizes_that_the_records_do_not_hold_are_named():
    cell = CellConfig(0, n_ues=300)
    with pytest.raises(ValueError, match="UEs of a cell: 300, allowed are at most 256"):
        new_controller(SiteGpu(gpu_profile("gb10"), (cell,), 1500, 125, 300), SHAPED, Tuning())


@pytest.mark.parametrize(
    ("key", "value"), [("drain_permille", 0), ("horizon_us", 50_001), ("down_permille", 999)]
)
def test_tuning_is_checked(key, value):
    with pytest.raises(ValueError, match=f"{key} = {value}: allowed is"):
        Tuning(**{key: value})
