"""The parts of the bound, each against an independent calculation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from testbed.gpu.cost import DOWNLINK, UPLINK, duration_us, phy_demand
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction
from testbed.ran.qos import mac_budget_us
from testbed.ran.traffic import Ftp3, arrival_source
from testbed.spare_bound.costs import BLOCK_BYTES, decode_envelope, encode_envelope
from testbed.spare_bound.curves import link_curves
from testbed.spare_bound.inputs import arrived, carrier_bytes, known_slots, least_work_milli
from testbed.spare_bound.places import Place, places
from testbed.spare_bound.program import Program, SolverError
from testbed.spare_bound.windows import add_windows, windows_of
from testbed.spare_bound.work import RanColumns

from .makers import GB10, given, load

SETTINGS = settings(max_examples=40)


@pytest.mark.parametrize("training_permille", [0, 300, 700])
def test_no_decode_takes_less_sm_time_than_the_envelope(training_permille):
    """Against the cost model itself, at every number of blocks and every constant SM count."""
    asked = given(gpu=GB10, training_bandwidth_permille=training_permille, ul_decode_budget_us=1500)
    envelope = decode_envelope(asked)
    assert np.all(np.diff(envelope.slope) > 0)
    touched = 0
    for blocks in range(1, int(envelope.most_blocks) + 1):
        demand = phy_demand(GB10, UPLINK, blocks, 1000 * blocks)
        least = min(
            sms * duration_us(GB10, demand, sms, training_permille) for sms in range(8, 49, 8)
        )
        assert envelope.sm_us(blocks) <= least + 1e-9
        touched += envelope.sm_us(blocks) > least - 100
    assert touched >= 3


def test_the_largest_decode_is_the_one_that_fits_its_budget():
    """GB10, 40 SMs: 54 blocks take 60 + 22 x 54 x 48 / 40 = 1485.6 us, 55 take 1512."""
    assert decode_envelope(given(gpu=GB10, ul_decode_budget_us=1500)).most_blocks == 54


def test_downlink_costs_most_per_block_where_few_are_sent():
    """GB10: (30 + 2 n) x 8 SM-us; of at most 60 blocks 240 / 60 + 16 each. 172 fit into 375 us."""
    few = encode_envelope(given(gpu=GB10), 60.0)
    assert (few.most_blocks, few.slope.tolist()) == (60.0, [20.0])
    assert encode_envelope(given(gpu=GB10), 500.0).most_blocks == 172


def test_no_transport_block_beats_the_bytes_of_a_code_block():
    """TS 38.214 5.1.3.2 and TS 38.212 5.2.2, all allocations of the scenario's two directions."""
    from testbed.ran.tbs import block_sizes

    densest = max(
        size.tbs_bytes / size.code_blocks
        for table, rows in ((1, 29), (2, 28))
        for mcs in range(rows)
        for layers in (1, 2, 4)
        for size in block_sizes(273, 156, table, mcs, layers)[1:]
    )
    assert 0.99 * BLOCK_BYTES < densest <= BLOCK_BYTES


def test_places_of_work():
    """Uplink from the slot's end for its budget, downlink one slot ahead less the lead."""
    asked = given(ul_decode_budget_us=1250)
    assert places(asked, UPLINK, 7) == (Place(8, 500), Place(9, 500), Place(10, 250))
    assert places(asked, DOWNLINK, 7) == (Place(6, 375),)


def test_curves_of_a_pattern():
    """Uplink in slots 4, 9, 14: arrivals wait for the next, deadlines fall on the last before."""
    uplink = load([(0, 0, 9, 3, 5, 13), (0, 1, 80, 2, 4, 9)], carries=[4, 9, 14])
    curves = link_curves(given(uplink), UPLINK)
    assert curves.budget_us[0] < curves.budget_us[1]
    assert curves.arrived[0, :, [3, 4, 9]].tolist() == [[0, 0], [2, 0], [2, 3]]
    assert curves.due[0, :, [8, 9, 39]].tolist() == [[0, 0], [2, 3], [2, 3]]


@SETTINGS
@examples(
    st.lists(st.integers(0, 48), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sets(st.integers(0, 39)),
)
def test_window_columns_are_the_rolling_maximum(values, length, idle):
    """Against max() of each window; slots of ``idle`` have no column."""
    slots = [slot for slot in range(len(values)) if slot not in idle]
    asked = given(
        windows_us=(500 * length,),
        from_slot=0,
        to_slot=len(values),
        end_slot=len(values) + 30,
        uplink=load(carries=(), slots=100),
        downlink=load(carries=(), slots=100),
    )
    program = Program()
    held = np.array([values[slot] for slot in slots], dtype=np.float64)
    ran = RanColumns(np.array(slots, np.int64), program.columns(held, held))
    windows = windows_of(asked, ran, 500 * length)
    add_windows(program, 48, ran, windows, np.zeros(len(windows.count)))
    by_slot = {slot: values[slot] for slot in slots}
    expected = sum(
        max((by_slot.get(slot, 0) for slot in range(t, t + length)), default=0)
        for t in range(len(values))
    )
    assert windows.starts == len(values)
    if slots:
        assert program.solve().proven_cost == pytest.approx(expected, abs=1e-6)
    else:
        assert expected == 0


@SETTINGS
@examples(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6))
def test_the_proven_cost_is_the_optimum_by_another_method(seed, rows, columns):
    """Random programmes that x = 1 solves, against HiGHS' simplex method."""
    draw = np.random.Generator(np.random.Philox(seed))
    matrix = draw.integers(-3, 4, (rows, columns)).astype(float)
    cost = draw.integers(-3, 4, columns).astype(float)
    right = matrix.sum(axis=1) + draw.integers(0, 2, rows)
    program = Program()
    x = program.columns(np.zeros(columns), 5.0, cost)
    row, column = np.nonzero(matrix)
    program.at_most(right, (row, x[column], matrix[row, column]))
    program.equal([float(columns)], (np.zeros(columns, int), x, 1.0))
    simplex = linprog(
        cost, matrix, right, np.ones((1, columns)), [columns], (0, 5), method="highs-ds"
    )
    found = program.solve()
    assert found.proven_cost == pytest.approx(simplex.fun, abs=1e-6)
    assert found.proven_cost <= found.cost + 1e-9


def test_an_impossible_programme_is_an_error():
    program = Program()
    x = program.columns(0.0, 1.0)
    program.at_most([-1.0], (0, x, 1.0))
    with pytest.raises(SolverError, match="status 2"):
        program.solve()


def test_columns_must_have_finite_bounds_in_order():
    with pytest.raises(ValueError, match="finite"):
        Program().columns(0.0, np.inf)
    with pytest.raises(ValueError, match="in order"):
        Program().columns(1.0, 0.0)


def test_a_copy_of_a_programme_goes_its_own_way():
    program = Program()
    x = program.columns(0.0, 4.0, -1.0)
    twin = program.copy()
    twin.at_most([1.0], (0, x, 1.0))
    assert (program.solve().cost, twin.solve().cost) == (-4.0, -1.0)


def test_arrivals_are_those_of_the_cells():
    """Against the slot-by-slot source, with the radio's budget of each UE's 5QI."""
    traffic = Ftp3(200.0, 5000)
    cells = [CellConfig(cell, n_ues=3, ul_traffic=traffic, five_qi=(9, 9, 80)) for cell in (3, 8)]
    found = arrived(cells, Direction.UL, 7, 600)
    rows = list(
        zip(found.cell, found.ue, found.n_bytes, found.arrival_us, found.deadline_us, strict=True)
    )
    expected = []
    for index, cell in enumerate(cells):
        source = arrival_source(
            traffic, seed=7, cell=cell.cell_id, direction=Direction.UL, n_ues=3, slot_us=500
        )
        for slot in range(600):
            for item in source.arrivals(slot):
                due = item.arrival_us + mac_budget_us(80 if item.ue == 2 else 9)
                expected.append((index, item.ue, item.n_bytes, item.arrival_us, due))
    assert len(rows) > 100
    assert rows == expected
    assert set(found.traffic_class.tolist()) == {9, 80}


def test_capacity_and_lookahead_of_cells():
    """273 PRB, table 2, MCS 27: 590,128 bits on 144 RE are facts; here 156 RE (UL) and 132 (DL)."""
    cell = CellConfig(0, dl_layers=4, ul_layers=2, ul_report_delay_slots=2)
    downlink = carrier_bytes([cell], Direction.DL, 10)
    # TS 38.214 5.1.3.2 on 132 RE and four layers: 1,081,512 bits.
    assert downlink[0, [0, 4, 5]].tolist() == [1_081_512 // 8, 0, 1_081_512 // 8]
    assert 0 < downlink[0, 3] < downlink[0, 0]
    low = carrier_bytes([cell], Direction.UL, 10, np.full((1, 10), 5))
    assert np.flatnonzero(low[0]).tolist() == [4, 9]
    assert low[0, 4] < carrier_bytes([cell], Direction.UL, 10)[0, 4]
    assert known_slots([cell], Direction.DL) == 3
    assert known_slots([cell], Direction.UL) == 3 + 3 + 2
    assert least_work_milli(GB10, [cell]) == 1000
    saving = dataclasses.replace(
        GB10, phy=dataclasses.replace(GB10.phy, ul_iterations="efficiency")
    )
    assert least_work_milli(saving, [cell]) == 700
