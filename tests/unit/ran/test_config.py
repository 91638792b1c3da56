from dataclasses import replace

import pytest

from testbed.ran.capacity import (
    files_per_s_per_ue,
    ftp3_at_load,
    nominal_bytes_per_s,
    offered_load,
)
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction, TddPattern
from testbed.ran.plan import Outcome
from testbed.ran.qos import five_qis, mac_budget_us, packet_delay_budget_us
from testbed.ran.traffic import FullBuffer

from .helpers import always, gnb, run, steady_cell

UL, DL = Direction.UL, Direction.DL


def test_defaults_are_a_100_mhz_cell():
    cell = CellConfig(0)
    assert (cell.n_prb, cell.slot_us) == (273, 500)
    assert cell.plan_ahead_slots(DL) == 3
    assert cell.plan_ahead_slots(UL) == 6
    assert [cell.ue_five_qi(ue) for ue in range(8)] == [9] * 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth_mhz": 75}, r"cell 4: bandwidth_mhz = 75: allowed at 30 kHz are 5, 10"),
        ({"scs_khz": 240}, r"cell 4: scs_khz = 240: allowed are 15"),
        ({"five_qi": (9, 10)}, r"cell 4: five_qi = 10: allowed are 1, 2"),
        ({"five_qi": (9,)}, r"cell 4: five_qi = \(9,\): allowed is one value per UE \(2\)"),
        ({"n_ues": 0}, r"cell 4: n_ues = 0: allowed is 1 to"),
        ({"mcs_table": 3}, r"mcs_table = 3: allowed is 1 to 2"),
        ({"ul_layers": 5}, r"ul_layers = 5: allowed is 1 to 4"),
        ({"harq_processes": 17}, r"harq_processes = 17: allowed is 1 to 16"),
        ({"ul_feedback_slots": 0}, r"ul_feedback_slots = 0"),
        ({"sinr_mean_db": float("nan")}, r"sinr_mean_db = nan"),
        ({"sinr_correlation_per_slot": 1.5}, r"sinr_correlation_per_slot = 1.5"),
        ({"tdd": TddPattern.parse("DDDDDSU")}, r"tdd = 'DDDDDSU \(3500 us\)'.*divides 20 ms"),
    ],
)
def test_bad_values_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        CellConfig(4, **({"n_ues": 2} | change))


# TS 23.501 table 5.7.4-1.
@pytest.mark.parametrize(
    ("five_qi", "pdb_ms", "mac_ms"),
    [(1, 100, 80), (3, 50, 30), (9, 300, 280), (84, 30, 10), (82, 10, 8), (85, 5, 3)],
)
def test_delay_budgets(five_qi, pdb_ms, mac_ms):
    assert packet_delay_budget_us(five_qi) == pdb_ms * 1000
    assert mac_budget_us(five_qi) == mac_ms * 1000


def test_every_5qi_leaves_the_radio_something():
    assert all(mac_budget_us(five_qi) > 0 for five_qi in five_qis())
    with pytest.raises(ValueError, match="five_qi = 77: allowed are 1, 2, 3"):
        packet_delay_budget_us(77)


def test_nominal_capacity_by_hand():
    # MCS table 1 at 30 dB: MCS 28. One layer of 273 PRBs of 156 RE is the published 237,776 bits;
    # DDDSU at 30 kHz has 400 U slots per second.
    cell = steady_cell(mcs_table=1)
    assert nominal_bytes_per_s(cell, UL) == pytest.approx(237_776 / 8 * 400)
    assert offered_load(cell, UL, 237_776 / 8 * 200) == pytest.approx(0.5)


def test_ftp3_rate_for_a_load_by_hand():
    cell = steady_cell(mcs_table=1, n_ues=4)
    # 0.5 of 11,888,800 bytes/s, in files of 100,000 bytes from 4 UEs.
    assert files_per_s_per_ue(cell, UL, 0.5, 100_000) == pytest.approx(14.861)
    assert ftp3_at_load(cell, UL, 0.5, 100_000).files_per_s_per_ue == pytest.approx(14.861)


@pytest.mark.parametrize("direction", [UL, DL])
def test_a_full_buffer_carries_exactly_the_nominal_capacity(direction):
    cell = steady_cell(n_ues=2, dl_traffic=FullBuffer(), ul_traffic=FullBuffer())
    mac = gnb(cell)
    plans, _ = run(mac, range(200), always(Outcome.ACK))
    # 150 slots are 30 whole patterns.
    window = [p for p in plans if p.direction is direction and 20 <= p.slot < 170]
    carried = sum(block.tbs_bytes for plan in window for block in plan.blocks)
    assert carried == round(nominal_bytes_per_s(cell, direction) * 150 * 500e-6)


def test_half_load_is_carried_and_twice_the_load_is_not():
    acked = {}
    for load in (0.5, 2.0):
        cell = steady_cell(n_ues=4)
        cell = replace(cell, ul_traffic=ftp3_at_load(cell, UL, load, 20_000))
        mac = gnb(cell)
        run(mac, range(4000), always(Outcome.ACK))
        acked[load] = mac.cell(0).ul.counters.acknowledged_bytes / (
            nominal_bytes_per_s(cell, UL) * 2.0
        )
    assert acked[0.5] == pytest.approx(0.5, rel=0.15)
    assert acked[2.0] == pytest.approx(1.0, rel=0.02)
