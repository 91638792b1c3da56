import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import rng
from testbed.ran.channel import (
    BLOCK_SLOTS,
    SHANNON_GAP_DB,
    TARGET_BLER,
    Channel,
    adapt_mcs,
    bler,
    cqi_thresholds_cdb,
    crc_draws,
    crc_draws_array,
    crc_ok,
    half_bler_sinr_db,
    mcs_of_cqi,
)
from testbed.ran.numerology import Direction
from testbed.ran.plan import CellPlan, TransportBlock
from testbed.ran.tables import MCS_TABLES, mcs_entry


def channel(**changes):
    settings = {
        "seed": 7,
        "cell": 3,
        "n_ues": 4,
        "mcs_table": 2,
        "mean_db": 15.0,
        "ue_sd_db": 4.0,
        "fading_sd_db": 2.0,
        "correlation_per_slot": 0.95,
        "cqi_delay_slots": 8,
    }
    return Channel(**(settings | changes))


def test_sinr_does_not_depend_on_the_order_of_questions():
    slots = [0, 5, BLOCK_SLOTS - 1, BLOCK_SLOTS, 3 * BLOCK_SLOTS + 1, 10 * BLOCK_SLOTS]
    forward, backward = channel(), channel()
    ahead = {slot: forward.sinr_cdb(slot) for slot in slots}
    assert {slot: backward.sinr_cdb(slot) for slot in reversed(slots)} == ahead
    assert forward.sinr_cdb(0) == ahead[0]  # also after its block has been dropped


def test_seed_and_cell_change_the_channel():
    base = channel().sinr_cdb(0)
    assert channel(seed=8).sinr_cdb(0) != base
    assert channel(cell=4).sinr_cdb(0) != base


def test_fading_is_first_order_autoregressive_over_block_edges():
    rho, sd = 0.95, 2.0
    made = channel(n_ues=64, ue_sd_db=0.0)
    slots = 40 * BLOCK_SLOTS
    x = np.array([made.sinr_cdb(slot) for slot in range(slots)]) / 100 - 15.0
    # 64 UEs of 40 blocks, each with about (1 - rho)/(1 + rho) of its samples independent.
    error = sd / np.sqrt(x.size * (1 - rho) / (1 + rho))
    assert abs(x.mean()) < 4 * error
    assert x.std() == pytest.approx(sd, rel=0.02)
    assert np.corrcoef(x[:-1].ravel(), x[1:].ravel())[0, 1] == pytest.approx(rho, abs=0.005)
    edges = np.arange(BLOCK_SLOTS, slots, BLOCK_SLOTS)
    step_at_edges = (x[edges] - rho * x[edges - 1]).std()
    assert step_at_edges == pytest.approx(sd * np.sqrt(1 - rho**2), rel=0.05)


def test_ue_means_follow_their_distribution():
    means = np.array(channel(n_ues=1000).mean_cdb) / 100
    assert means.mean() == pytest.approx(15.0, abs=4 * 4.0 / np.sqrt(1000))
    assert means.std() == pytest.approx(4.0, rel=0.1)
    # One UE more does not move the others.
    assert channel(n_ues=5).mean_cdb[:4] == channel(n_ues=4).mean_cdb


def test_reported_mcs_is_that_of_the_sinr_some_slots_ago():
    made = channel(cqi_delay_slots=8)
    for slot in (8, 300, BLOCK_SLOTS + 3):
        expected = [adapt_mcs(sinr, 2) for sinr in made.sinr_cdb(slot - 8)]
        assert made.reported_mcs(slot) == expected
    assert made.reported_mcs(3) == [adapt_mcs(sinr, 2) for sinr in made.sinr_cdb(0)]


def test_half_of_the_blocks_fail_at_the_threshold():
    # 16QAM at 1/2 is 2 bits per RE; Shannon asks for SINR 2**2 - 1 = 3, which is 4.77 dB.
    assert half_bler_sinr_db(2.0) == pytest.approx(4.771 + SHANNON_GAP_DB, abs=1e-3)
    row = mcs_entry(2, 10)
    assert bler(half_bler_sinr_db(row.spectral_efficiency), 2, 10) == pytest.approx(0.5)


@given(
    table=st.sampled_from([1, 2]),
    sinr_db=st.floats(-30, 40),
    more_db=st.floats(0, 20),
    mcs=st.integers(0, 27),
    transmissions=st.integers(1, 3),
)
def test_bler_falls_with_sinr_and_with_combining(table, sinr_db, more_db, mcs, transmissions):
    here = bler(sinr_db, table, mcs, transmissions)
    assert 0 <= here <= 1
    assert bler(sinr_db + more_db, table, mcs, transmissions) <= here
    assert bler(sinr_db, table, mcs, transmissions + 1) <= here


def test_bler_rises_with_spectral_efficiency():
    for table, rows in MCS_TABLES.items():
        by_efficiency = sorted(rows, key=lambda row: row.spectral_efficiency)
        for sinr_db in (-5.0, 5.0, 15.0):
            rates = [bler(sinr_db, table, row.index) for row in by_efficiency]
            assert rates == sorted(rates)


def test_chase_combining_of_two_adds_three_decibels():
    assert bler(8.0, 2, 10, transmissions=2) == pytest.approx(bler(8.0 + 3.0103, 2, 10), rel=1e-3)


@pytest.mark.parametrize("table", [1, 2])
def test_link_adaptation_keeps_the_target(table):
    thresholds = cqi_thresholds_cdb(table)
    assert list(thresholds) == sorted(thresholds)
    assert list(mcs_of_cqi(table)) == sorted(mcs_of_cqi(table))
    top = len(MCS_TABLES[table]) - 1
    for sinr_cdb in range(200, 3000, 7):
        mcs = adapt_mcs(sinr_cdb, table)
        assert bler(sinr_cdb / 100, table, mcs) <= TARGET_BLER
        # Quantising the report costs something, but never a CQI step and more.
        reported = max(t for t in thresholds if t <= sinr_cdb)
        assert mcs == top or bler(reported / 100, table, mcs + 2) > TARGET_BLER
    assert adapt_mcs(-3000, table) == 0
    assert adapt_mcs(4000, table) == top


def block(ue, sinr_cdb, mcs_index=10, transmission=1):
    return TransportBlock(ue, 0, transmission, 10, 1, mcs_index, 1000, 1, 2570, sinr_cdb)


def test_crc_fails_as_often_as_the_curve_says():
    threshold_cdb = round(100 * half_bler_sinr_db(mcs_entry(2, 10).spectral_efficiency))
    failed = sum(
        not ok
        for slot in range(1000)
        for ok in crc_ok(
            1,
            CellPlan(0, slot, Direction.UL, (block(0, threshold_cdb), block(1, threshold_cdb))),
            2,
            n_ues=2,
        )
    )
    assert failed == pytest.approx(1000, abs=4 * np.sqrt(2000 * 0.25))


def test_crc_of_a_block_does_not_depend_on_the_other_blocks():
    blocks = tuple(block(ue, 900) for ue in range(8))
    for slot in range(50):
        whole = crc_ok(1, CellPlan(0, slot, Direction.UL, blocks), 2, n_ues=8)
        alone = crc_ok(1, CellPlan(0, slot, Direction.UL, (blocks[5],)), 2, n_ues=8)
        assert alone == [whole[5]]
    assert crc_ok(1, CellPlan(0, 0, Direction.UL, ()), 2, n_ues=8) == []


def test_crc_of_a_ue_that_the_cell_does_not_have_is_an_error():
    with pytest.raises(IndexError):
        crc_ok(1, CellPlan(0, 0, Direction.UL, (block(3, 900),)), 2, n_ues=3)


def test_block_decodes_where_its_draw_reaches_the_error_rate():
    """The rule itself, block by block, over the edge between two blocks of draws."""
    seen = set()
    for slot in range(BLOCK_SLOTS - 40, BLOCK_SLOTS + 40):
        blocks = tuple(block(ue, 1000 + 10 * ue, transmission=1 + ue % 2) for ue in range(6))
        draws = crc_draws(5, 2, slot, Direction.DL, 6)
        expected = [draws[b.ue] >= bler(b.sinr_cdb / 100, 2, 10, b.transmission) for b in blocks]
        assert crc_ok(5, CellPlan(2, slot, Direction.DL, blocks), 2, n_ues=6) == expected
        seen.update(expected)
    assert seen == {True, False}


def test_draws_of_the_first_ues_do_not_depend_on_how_many_there_are():
    for slot in (0, BLOCK_SLOTS - 1, BLOCK_SLOTS):
        many = crc_draws(1, 0, slot, Direction.UL, 8)
        assert crc_draws(1, 0, slot, Direction.UL, 3) == many[:3]


def test_draws_are_uniform_and_independent_from_slot_to_slot():
    """Mean 1/2 and variance 1/12 of a uniform number; correlations within 4 standard errors."""
    draws = crc_draws_array(1, 0, Direction.UL, 0, 40 * BLOCK_SLOTS, 4)
    error = 1 / np.sqrt(draws.size)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert draws.mean() == pytest.approx(0.5, abs=4 * error / np.sqrt(12))
    assert draws.var() == pytest.approx(1 / 12, rel=0.02)
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 4 * error
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 8 * error


@pytest.mark.parametrize("first", [0, 5, BLOCK_SLOTS - 3, 2 * BLOCK_SLOTS])
@pytest.mark.parametrize("count", [1, 7, BLOCK_SLOTS + 9])
def test_arrays_hold_what_the_slots_hold(first, count):
    """SINR, reported MCS and draws of many slots at once equal those of each slot."""
    slots = range(first, first + count)
    by_slot, at_once = channel(), channel()
    assert at_once.mcs_array(first, count).tolist() == [by_slot.reported_mcs(s) for s in slots]
    assert at_once.sinr_array(first, count).tolist() == [by_slot.sinr_cdb(s) for s in slots]
    draws = crc_draws_array(7, 3, Direction.DL, first, count, 4)
    assert draws.tolist() == [crc_draws(7, 3, s, Direction.DL, 4) for s in slots]


def test_arrays_may_be_changed_by_who_asked():
    made = channel()
    before = made.sinr_cdb(0).copy()
    made.sinr_array(0, 3)[:] = 0
    crc_draws_array(7, 3, Direction.DL, 0, 3, 4)[:] = 2
    assert made.sinr_cdb(0) == before == made.sinr_array(0, 1)[0].tolist()
    assert max(crc_draws(7, 3, 0, Direction.DL, 4)) < 1


def test_fading_is_the_recursion_of_its_definition():
    """x(t+1) = rho x(t) + sqrt(1 - rho^2) sd w over the edge of a block, from the same draws."""
    rho, sd, n_ues = 0.95, 2.0, 4
    made = channel(ue_sd_db=0.0)
    x = sd * rng.generator(7, "ran.sinr.start", 3).standard_normal(n_ues)
    for number in range(2):
        noise = rng.generator(7, "ran.sinr.fading", 3, number)
        for index, w in enumerate(noise.standard_normal((BLOCK_SLOTS, n_ues))):
            slot = number * BLOCK_SLOTS + index
            assert made.sinr_cdb(slot) == pytest.approx(100 * (15.0 + x), abs=0.51)
            x = rho * x + np.sqrt(1 - rho**2) * sd * w


def test_draws_differ_by_slot_cell_direction_and_seed():
    keys = [(1, 0, 0, Direction.UL), (2, 0, 0, Direction.UL), (1, 1, 0, Direction.UL)]
    keys += [(1, 0, 1, Direction.UL), (1, 0, 0, Direction.DL)]
    draws = [tuple(crc_draws(*key, n_ues=4)) for key in keys]
    assert len(set(draws)) == len(keys)
