"""5QI characteristics against TS 23.501 table 5.7.4-1."""

import pytest

from testbed.ran.qos import five_qis, packet_delay_budget_us, packet_error_rate

TABLE = {
    1: (100, 1e-2),
    2: (150, 1e-3),
    3: (50, 1e-3),
    4: (300, 1e-6),
    5: (100, 1e-6),
    6: (300, 1e-6),
    7: (100, 1e-3),
    8: (300, 1e-6),
    9: (300, 1e-6),
    65: (75, 1e-2),
    69: (60, 1e-6),
    80: (10, 1e-6),
    82: (10, 1e-4),
    83: (10, 1e-4),
    84: (30, 1e-5),
    85: (5, 1e-5),
}


def test_budget_and_error_rate_of_every_5qi():
    assert {
        five_qi: (packet_delay_budget_us(five_qi) / 1000, packet_error_rate(five_qi))
        for five_qi in five_qis()
    } == TABLE


def test_an_unknown_5qi_has_no_error_rate():
    with pytest.raises(ValueError, match="five_qi = 10: allowed are 1, 2, 3"):
        packet_error_rate(10)
