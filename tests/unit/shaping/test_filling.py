"""Who is served within a cell: order, limits, and proportional fair where nothing is urgent."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction, SlotKind, res_per_prb
from testbed.ran.qos import mac_budget_us
from testbed.ran.schedulers import CellView, ProportionalFair, SlotView, UeView
from testbed.ran.tbs import block_sizes
from testbed.shaping.arrays import RadioTables, radio_tables
from testbed.shaping.filling import NO_LIMIT, fill_cell, first_at_least, last_at_most, order_ues
from testbed.shaping.state import SHAPED, ControllerState, Tuning, new_controller

from .loop import site

UES = 6
RECEIVED_US = 100_000
TUNING = Tuning(urgent_permille=400)
CELLS = tuple(
    CellConfig(c, n_ues=UES, ul_layers=2, bandwidth_mhz=width, five_qi=(9, 80, 3, 84, 1, 9))
    for c, width in enumerate((20, 100))
)
TABLES = radio_tables(CELLS, Direction.UL, "efficiency")
RES = res_per_prb(SlotKind.U, Direction.UL)
SIZES = [
    [block_sizes(cell.n_prb, RES, cell.mcs_table, mcs, cell.ul_layers) for mcs in range(28)]
    for cell in CELLS
]
PARAMS, STATE = new_controller(site(CELLS), SHAPED, TUNING)
NO_MARGIN, _ = new_controller(site(CELLS), SHAPED, TUNING)
NO_MARGIN.margin_us[:] = 0
"""For UEs that keep no time, and leave no PRBs, for retransmissions."""


def ue_view(c: int, ue: int, backlog: int, mcs: int, average: float, deadline_us: int) -> UeView:
    """As a MAC makes them (``UeView``'s description)."""
    sizes = SIZES[c][mcs]
    n_prb = CELLS[c].n_prb
    drain = next((n for n, size in enumerate(sizes) if size.tbs_bytes >= backlog), n_prb)
    rate = sizes[-1].tbs_bytes / n_prb
    return UeView(ue, backlog, mcs, rate, drain, average, 0, deadline_us, 9)


@st.composite
def cell_views(draw, urgent: bool) -> list[CellView]:
    """Both cells, with any UEs waiting; ``urgent``: some may be near their deadline, or late."""
    slack_us = st.integers(-50_000, 300_000) if urgent else st.sampled_from([-1, 10**6])
    views = []
    for c, cell in enumerate(CELLS):
        ues = tuple(
            ue_view(
                c,
                ue,
                draw(st.sampled_from([1, 40, 3000, 100_000, 10**7])),
                draw(st.integers(0, 27)),
                draw(st.sampled_from([0.0, 10.5, 4e3, 2e4])),
                RECEIVED_US + draw(slack_us),
            )
            for ue in sorted(draw(st.sets(st.integers(0, UES - 1))))
        )
        free = draw(st.integers(0, cell.n_prb))
        grants = draw(st.integers(0, 8))
        views.append(
            CellView(c, cell.n_prb, free, grants, RES, cell.mcs_table, cell.ul_layers, (), ues)
        )
    return views


def show(views: list[CellView]) -> ControllerState:
    """The state that a plan would have made of these views."""
    phase = CELLS[0].tdd.kinds.index(SlotKind.U)
    STATE.backlog[:] = 0
    for view in views:
        c = view.cell
        STATE.kind[c] = TABLES.kind_of_phase[c, phase]
        STATE.free_prb[c], STATE.max_grants[c] = view.free_prb, view.max_grants
        for ue in view.ues:
            STATE.backlog[c, ue.ue] = ue.backlog_bytes
            STATE.mcs[c, ue.ue] = ue.mcs_index
            STATE.average_rate[c, ue.ue] = ue.average_rate
            STATE.head_deadline_us[c, ue.ue] = ue.deadline_us
    order_ues(PARAMS, STATE, TABLES, RECEIVED_US)
    return STATE


def grants(state: ControllerState, c: int) -> list[tuple[int, int, int]]:
    """(cell, UE, PRBs) of a cell, as granted."""
    count = state.granted[c]
    ues, prbs = state.grant_ue[c, :count].tolist(), state.grant_prb[c, :count].tolist()
    return [(c, ue, n_prb) for ue, n_prb in zip(ues, prbs, strict=True)]


@settings(max_examples=80)
@given(views=cell_views(urgent=False))
def test_is_proportional_fair_where_nothing_is_urgent_and_nothing_limited(views):
    """What is late already has no deadline left to keep. Reference: the MAC's own policy, which
    leaves no PRBs beside those that it grants."""
    state = show(views)
    expected = ProportionalFair().schedule(SlotView(0, 0, Direction.UL, tuple(views)))
    for c in range(len(CELLS)):
        blocks = fill_cell(NO_MARGIN, state, TABLES, c, NO_LIMIT, NO_LIMIT)
        made = grants(state, c)
        assert made == [tuple(grant) for grant in expected if grant.cell == c]
        assert blocks == code_blocks(state, c, made)


def code_blocks(state: ControllerState, c: int, made: list[tuple[int, int, int]]) -> int:
    return sum(SIZES[c][state.mcs[c, ue]][n_prb].code_blocks for _, ue, n_prb in made)


@settings(max_examples=80)
@given(views=cell_views(urgent=True))
def test_near_deadlines_go_first_in_their_order_then_the_best_rates(views):
    """40 % of the budget or less is left, and time for retransmissions: served by deadline."""
    state = show(views)
    for view in views:
        near, others = [], []
        for ue in view.ues:
            budget_us = mac_budget_us(CELLS[view.cell].ue_five_qi(ue.ue))
            near_us = budget_us * 400 // 1000 + PARAMS.margin_us[view.cell, ue.ue]
            by_deadline = 0 <= ue.deadline_us - RECEIVED_US < near_us
            (near if by_deadline else others).append(ue)
        near.sort(key=lambda ue: (ue.deadline_us, ue.ue))
        others.sort(key=lambda ue: (-ue.bytes_per_prb / max(ue.average_rate, 1.0), ue.ue))
        order = state.ue_order[view.cell, : state.ue_count[view.cell]].tolist()
        assert order == [ue.ue for ue in (*near, *others)]


@settings(max_examples=80)
@given(
    views=cell_views(urgent=True),
    limit=st.sampled_from([0, 1, 2, 7, 20, 60, NO_LIMIT]),
    block_limit=st.sampled_from([1, 5, 40, NO_LIMIT]),
)
def test_stays_within_prbs_grants_and_code_blocks(views, limit, block_limit):
    state = show(views)
    for view in views:
        c = view.cell
        blocks = fill_cell(PARAMS, state, TABLES, c, limit, block_limit)
        made = grants(state, c)
        waiting = {ue.ue: ue for ue in view.ues}
        assert blocks == code_blocks(state, c, made) <= limit
        assert sum(n_prb for *_, n_prb in made) <= view.free_prb
        assert len(made) <= view.max_grants
        assert len({ue for _, ue, _ in made}) == len(made)
        for _, ue, n_prb in made:
            assert 1 <= n_prb <= waiting[ue].drain_prb, "no more than drains the backlog"
            if PARAMS.margin_us[c, ue] > 0:
                assert n_prb <= math.ceil(0.9 * view.n_prb), "a tenth is left to others"
                assert SIZES[c][waiting[ue].mcs_index][n_prb].code_blocks <= block_limit
        if made:
            assert state.full_milli[c] == max(
                TABLES.milli_per_block[c, waiting[ue].mcs_index] for _, ue, _ in made
            )


def test_look_up_of_sizes():
    """By hand: the fewest PRBs of at least a size, the most PRBs of at most one."""
    sizes = np.array([0, 10, 20, 20, 30])
    assert [first_at_least(sizes, 4, wanted) for wanted in (0, 1, 10, 11, 20, 21, 30)] == [
        *(0, 1, 1, 2, 2, 4, 4)
    ]
    assert first_at_least(sizes, 4, 31) == 4, "all there are"
    assert [last_at_most(sizes, 4, limit) for limit in (0, 9, 10, 20, 29, 30, 99)] == [
        *(0, 0, 1, 3, 3, 4, 4)
    ]


def test_tables_are_those_of_the_standard():
    """TS 38.214 by the function that is tested against other libraries; -1: no such slot."""
    tables: RadioTables = TABLES
    assert tables.kind_of_phase.tolist() == [[-1, -1, -1, -1, 0]] * 2
    assert tables.n_prb.tolist() == [51, 273]
    for c, cell in enumerate(CELLS):
        for mcs in (0, 13, 27):
            expected = [(size.tbs_bytes, size.code_blocks) for size in SIZES[c][mcs]]
            sizes = tables.tbs_bytes[c, 0, mcs, : cell.n_prb + 1].tolist()
            blocks = tables.code_blocks[c, 0, mcs, : cell.n_prb + 1].tolist()
            assert list(zip(sizes, blocks, strict=True)) == expected
    # Iterations by spectral efficiency (facts of cuPHY): below 0.4 twenty, above 7.2 seven.
    assert [int(tables.milli_per_block[0, mcs]) for mcs in (0, 1, 27)] == [2000, 2000, 700]
