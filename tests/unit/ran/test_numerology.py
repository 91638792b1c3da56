import pytest

from testbed.ran.numerology import (
    Direction,
    SlotKind,
    TddPattern,
    dl_res_per_prb,
    n_prb,
    res_per_prb,
    slot_us,
    ul_res_per_prb,
)


@pytest.mark.parametrize(("scs_khz", "length_us"), [(15, 1000), (30, 500), (60, 250), (120, 125)])
def test_slot_length_is_one_millisecond_over_two_to_the_mu(scs_khz, length_us):
    assert slot_us(scs_khz) == length_us


def test_unknown_spacing_is_refused_with_those_allowed():
    with pytest.raises(ValueError, match=r"scs_khz = 45: allowed are 15, 30, 60, 120"):
        slot_us(45)


# TS 38.101-1 table 5.3.2-1 and TS 38.101-2 table 5.3.2-1.
@pytest.mark.parametrize(
    ("bandwidth_mhz", "scs_khz", "expected"),
    [
        (5, 30, 11),
        (20, 30, 51),
        (40, 30, 106),
        (60, 30, 162),
        (100, 30, 273),
        (10, 15, 52),
        (20, 15, 106),
        (50, 15, 270),
        (100, 60, 135),
        (50, 120, 32),
        (100, 120, 66),
        (200, 120, 132),
        (400, 120, 264),
    ],
)
def test_prbs_of_a_carrier(bandwidth_mhz, scs_khz, expected):
    assert n_prb(bandwidth_mhz, scs_khz) == expected


def test_unknown_carrier_is_refused_with_those_allowed():
    with pytest.raises(ValueError, match=r"100: allowed at 15 kHz are 5, 10, .*, 50"):
        n_prb(100, 15)


def test_pattern_repeats():
    tdd = TddPattern.parse("DDDSU")
    assert "".join(tdd.kind(slot).value for slot in range(8)) == "DDDSUDDD"
    assert str(tdd) == "DDDSU"
    assert tdd.period_us(30) == 2500


@pytest.mark.parametrize("text", ["", "DDXSU", "DDD", "UUU", "dddsu"])
def test_bad_pattern_is_refused(text):
    with pytest.raises(ValueError, match="tdd = "):
        TddPattern.parse(text)


def test_data_re_per_prb_by_hand():
    # D: 14 symbols less 2 of control and 1 of DM-RS, 12 subcarriers each, is 132.
    # S: 10 less the same is 84. U: 14 less 1 is 156, which is also the cap of TS 38.214 5.1.3.2.
    assert [dl_res_per_prb(kind) for kind in SlotKind] == [132, 84, 0]
    assert [ul_res_per_prb(kind) for kind in SlotKind] == [0, 0, 156]


def test_a_special_slot_carries_downlink_only():
    tdd = TddPattern.parse("DSU")
    assert [tdd.carries(slot, Direction.DL) for slot in range(3)] == [True, True, False]
    assert [tdd.carries(slot, Direction.UL) for slot in range(3)] == [False, False, True]
    assert res_per_prb(SlotKind.S, Direction.UL) == 0
