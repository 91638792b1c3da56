"""Rates and levels by hand. gb10: 60 us and 22 us per code block on 8 SMs per 10 of them; DDDSU.

SM time of a decode, with the 60 us on 8 SMs: 2,240 SM-us for 10 code blocks, 7,520 for 20, 16,320
for 30, 28,640 for 40, 44,480 for 50; what lies between is in proportion. 8 % are lost in packing.
Decodes of slot 4 run in the three slots after it; downlink runs in the slot before its air slot, so
that of the four downlink slots of a period three lie beside decodes that take all of their time.
"""

from __future__ import annotations

import pytest

from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction
from testbed.shaping.arrays import radio_tables
from testbed.shaping.levels import needed_level, note_rates, press, promise_ahead, split
from testbed.shaping.state import (
    BREACHES,
    DOWNLINK,
    LIMIT_SMS,
    PAYLOAD_BYTES,
    PROMISED_UNTIL,
    SHAPED,
    UPLINK,
    WANTED_SMS,
    Tuning,
    new_controller,
)

from .loop import site

PERIOD = 5
CALM = Tuning(hold_us=10_000)  # four periods
UL_SLOT = 9
DONE_US = 10 * 500 + 1500
"""When a block of that slot is decoded at the latest."""


def controller(*five_qi: int, cells: int = 1, tuning: Tuning | None = None):
    """Parameters and state of cells with these UEs, and the uplink's tables."""
    configs = tuple(
        CellConfig(c, n_ues=len(five_qi), ul_layers=2, five_qi=five_qi) for c in range(cells)
    )
    params, state = new_controller(site(configs), SHAPED, tuning or Tuning())
    return params, state, radio_tables(configs, Direction.UL, "fixed")


def waiting(state, ue: int, head: int, due_us: int, more: int = 0, tail_due_us: int = 0) -> None:
    """A UE of cell 0 with so many code blocks in its first SDU and behind it; best MCS."""
    state.backlog[0, ue] = (head + more) * PAYLOAD_BYTES
    state.head_bytes[0, ue] = head * PAYLOAD_BYTES
    state.head_deadline_us[0, ue] = due_us
    state.tail_deadline_us[0, ue] = tail_due_us or due_us
    state.mcs[0, ue] = 27


def rates(params, state, tables) -> tuple[float, float]:
    """(rate, pressing) of cell 0 in the uplink."""
    note_rates(params, state, tables, UPLINK, UL_SLOT)
    return state.rate[UPLINK, 0], state.pressing[UPLINK, 0]


# --- rates ----------------------------------------------------------------------------------------


def test_backlog_is_drained_in_a_share_of_its_budget():
    """5QI 9: 35 % of 280 ms are 98 ms, a period is 2.5 ms of it. Its deadline presses less."""
    params, state, tables = controller(9)
    waiting(state, 0, 40, 280_000)
    rate, pressing = rates(params, state, tables)
    assert rate == pytest.approx(40 * 2.5 / 98)
    assert pressing == 0, "not due within the horizon"


def test_deadline_asks_for_more_than_the_drain_does():
    """5QI 80 has 8 ms, no room for a retransmission. 40 blocks that are due in 4 periods and a bit
    have 5 turns; draining within the whole budget asks for 2.5 / 8 of them."""
    params, state, tables = controller(80, tuning=Tuning(drain_permille=1000))
    waiting(state, 0, 40, DONE_US + 4 * 2500 + 1)
    assert rates(params, state, tables) == (12.5, 8.0)
    waiting(state, 0, 40, DONE_US + 2499)
    assert rates(params, state, tables) == (40.0, 40.0)


def test_time_for_retransmissions_is_kept():
    """5QI 9: three retransmissions of 11 slots and a period: 24 ms before the deadline."""
    params, state, tables = controller(9)
    waiting(state, 0, 40, DONE_US + 24_000 + 2499)
    assert rates(params, state, tables) == (40.0, 40.0)
    waiting(state, 0, 40, DONE_US + 24_000 + 2500)
    assert rates(params, state, tables) == (20.0, 20.0)


def test_deadlines_add_up_in_their_order():
    """10 blocks now, 30 more in two turns, 20 more in four: 10 / 1, 40 / 2, 60 / 4."""
    params, state, tables = controller(80, 80, tuning=Tuning(drain_permille=1000))
    waiting(state, 0, 10, DONE_US, 30, DONE_US + 2500)
    waiting(state, 1, 20, DONE_US + 7500)
    assert rates(params, state, tables) == (20.0, 20.0)


def test_what_is_late_already_presses_no_more():
    params, state, tables = controller(80)
    waiting(state, 0, 8, DONE_US - 1)
    rate, pressing = rates(params, state, tables)
    assert (rate, pressing) == (pytest.approx(8 * 2.5 / 2.8), 0.0)


def test_radio_carries_no_more_than_the_carrier():
    """TS 38.214 5.1.3.2, 273 PRB, 156 RE, 948 / 1024, 8 bits, 2 layers: N_info 630,835, N' = 39 *
    2^14, 76 code blocks, 638,984 bits; one uplink slot per period."""
    params, state, tables = controller(80)
    waiting(state, 0, 10_000, DONE_US)
    assert rates(params, state, tables) == pytest.approx([638_984 / 8 / PAYLOAD_BYTES] * 2)


# --- levels ---------------------------------------------------------------------------------------


def ask(state, ul: tuple[float, ...], dl: tuple[float, ...] = ()) -> None:
    """Rates of the cells, code blocks per period; their downlink carriers have 129."""
    state.rate[:] = 0
    state.rate[UPLINK, : len(ul)] = ul
    state.rate[DOWNLINK, : len(dl)] = dl
    state.carrier[:] = 129.0


@pytest.mark.parametrize(
    ("ul", "dl", "level"),
    [
        ((), (), 8),
        ((20.0,), (), 8),  # 1.08 * 7520 / 8 = 1015 us of 1500
        ((29.0,), (), 16),  # 15,440 SM-us: 2084 us on 8, 1042 on 16
        ((20.0, 20.0), (), 16),  # 15,040 SM-us: 2030 us on 8, 1015 on 16
        ((60.0,) * 4, (), 48),  # 40 SMs are the most that decode: not enough, but all there is
        ((29.0,), (120.0,), 16),  # 270 us of downlink in the one slot of 345 that is free
        ((29.0,), (100.0, 100.0), 16),  # two lanes in it
        ((29.0,), (200.0,), 24),  # more than one carrier: a lane beside the decode
        ((), (250.0,), 8),
    ],
)
def test_level_by_hand(ul, dl, level):
    params, state, _ = controller(9, cells=4)
    ask(state, ul, dl)
    assert needed_level(params, state, False, 1000, 48) == level


def test_level_is_at_most_what_was_asked_for():
    params, state, _ = controller(9, cells=2)
    ask(state, (20.0, 20.0))
    assert needed_level(params, state, False, 1000, 8) == 8


def test_split_of_a_level_by_hand():
    """8 SMs, 10 blocks up (1.08 * 280 us) and 100 down (230 us) of a carrier of 129, per period.

    Decodes within one slot: 500 / 302 times. Within two: 1000 / 302, two free slots of 345 / 230,
    2 * 129 / 100 of the carrier: 2.58 times. Within three one slot is left: 345 / 230 times.
    """
    params, state, _ = controller(9)
    ask(state, (10.0,), (100.0,))
    margin, sms, decode_us = split(params, state, 8, False, 1000)
    assert (margin, sms, decode_us) == (pytest.approx(2.58), 8, 1000)
    # 15 blocks take 4880 SM-us, within two slots; 150 blocks down are less of a hurdle.
    assert split(params, state, 8, False, 1500)[0] == pytest.approx(1000 / (1.08 * 4880 / 8))


# --- the promise ----------------------------------------------------------------------------------


class Promised:
    """A controller period by period; the promise is seen as it was when it was made."""

    def __init__(self, tuning: Tuning = CALM) -> None:
        self.params, self.state, _ = controller(9, tuning=tuning)
        self.period = 0

    def go(self, periods: int = 1) -> list[int]:
        """The SMs promised for the last slot of the promise, after each of so many periods."""
        levels = []
        for _ in range(periods):
            promise_ahead(self.params, self.state, self.period * PERIOD)
            press(self.params, self.state, self.period * PERIOD)
            levels.append(self.at(self.until - 1))
            self.period += 1
        return levels

    @property
    def until(self) -> int:
        return int(self.state.marks[PROMISED_UNTIL])

    def at(self, slot: int) -> int:
        return int(self.state.promised[slot % 512])

    def mark(self, place: int) -> int:
        return int(self.state.marks[place])


def test_promise_reaches_a_horizon_ahead():
    """20 ms are 40 slots, one period more for its own length, and the one that has begun."""
    promised = Promised()
    assert promised.go(3) == [8, 8, 8]
    assert promised.until == 3 * PERIOD + 45


def test_level_goes_up_at_once_but_not_within_what_was_promised():
    promised = Promised()
    promised.go()
    until = promised.until
    ask(promised.state, (29.0,))
    assert promised.go() == [16]
    assert [promised.at(slot) for slot in (7, until - 1, until)] == [8, 8, 16]
    assert promised.mark(BREACHES) == 0
    assert promised.mark(WANTED_SMS) == 16


def test_level_comes_down_step_by_step_after_a_while():
    promised = Promised()
    ask(promised.state, (45.0,))  # 36,560 SM-us: 1645 us on 24 SMs, 1234 on 32
    assert promised.go(3) == [32] * 3
    ask(promised.state, ())
    assert promised.go(12) == [32] * 3 + [24] * 4 + [16] * 4 + [8]


def test_level_that_is_needed_again_is_held_anew():
    promised = Promised()
    ask(promised.state, (29.0,))
    promised.go()
    ask(promised.state, ())
    promised.go(3)
    ask(promised.state, (29.0,))
    promised.go()
    ask(promised.state, ())
    assert promised.go(4) == [16, 16, 16, 8]


def test_level_comes_down_only_with_a_margin():
    """31 blocks are 17,552 SM-us: 1185 us on 16 SMs; with 15 % more 23,281: 1571 us, too long."""
    promised = Promised()
    ask(promised.state, (31.0,))
    assert promised.go() == [16]
    ask(promised.state, (45.0,))
    assert promised.go() == [32]
    ask(promised.state, (31.0,))
    assert promised.go(10)[-1] == 24, "16 would do, but not with the margin"


def test_promise_is_broken_for_what_is_due_and_counted_once():
    promised = Promised()
    promised.go()
    promised.state.pressing[UPLINK, 0] = 29.0
    assert promised.go() == [16]
    now = PERIOD
    first = now + 2  # what is planned from now on runs from there on
    assert {promised.at(slot) for slot in range(first, promised.until)} == {16}
    assert promised.at(first - 1) == 8
    assert promised.mark(BREACHES) == 1
    promised.go(2)
    assert promised.mark(BREACHES) == 1


def test_limit_holds_for_what_is_promised_from_now_on():
    promised = Promised()
    ask(promised.state, (45.0,))
    assert promised.go(2) == [32, 32]
    until = promised.until
    promised.state.marks[LIMIT_SMS] = 16
    assert promised.go() == [16]
    assert promised.at(until - 1) == 32, "a promise stands, also for the others' sake"
    assert promised.mark(WANTED_SMS) == 32
    promised.state.pressing[UPLINK, 0] = 45.0
    assert promised.go() == [32], "the RAN goes first"
    assert promised.mark(BREACHES) == 1
