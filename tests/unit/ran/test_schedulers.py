import numpy as np
import pytest

from testbed.errors import PolicyError
from testbed.ran.mac import GnbMac
from testbed.ran.numerology import Direction
from testbed.ran.schedulers import (
    CellView,
    Grant,
    ProportionalFair,
    RoundRobin,
    SlotView,
    UeView,
    check_grants,
    fill,
)
from testbed.ran.traffic import FullBuffer

from .helpers import steady_cell

UL, DL = Direction.UL, Direction.DL


def ue(index, drain_prb=100, bytes_per_prb=100.0, average_rate=100.0, deadline_us=1000):
    backlog = int(drain_prb * bytes_per_prb)
    return UeView(
        index, backlog, 10, bytes_per_prb, drain_prb, average_rate, 0, deadline_us, five_qi=9
    )


def slot(*ues, free_prb=273, max_grants=8, cells=1, number=12):
    made = tuple(
        CellView(cell, 273, free_prb, max_grants, 156, 2, 1, (), tuple(ues))
        for cell in range(cells)
    )
    return SlotView(number, number * 500, UL, made)


def granted(policy, view):
    return [(grant.ue, grant.n_prb) for grant in policy.schedule(view)]


def test_proportional_fair_by_hand():
    # R/T: UE 0 100/400 = 0.25, UE 1 50/100 = 0.5, UE 2 300/1000 = 0.3.
    view = slot(
        ue(0, 150, 100.0, 400.0), ue(1, 100, 50.0, 100.0), ue(2, 100, 300.0, 1000.0), free_prb=273
    )
    assert granted(ProportionalFair(), view) == [(1, 100), (2, 100), (0, 73)]


def test_proportional_fair_ties_go_to_the_lower_index_and_silence_to_the_channel():
    view = slot(ue(0, 200, 50.0, 0.0), ue(1, 200, 80.0, 0.0), ue(2, 200, 80.0, 0.0), free_prb=300)
    assert granted(ProportionalFair(), view) == [(1, 200), (2, 100)]


def test_round_robin_by_hand():
    policy = RoundRobin()
    everyone = [ue(index, 100) for index in range(4)]
    assert granted(policy, slot(*everyone)) == [(0, 100), (1, 100), (2, 73)]
    assert granted(policy, slot(*everyone)) == [(3, 100), (0, 100), (1, 73)]
    # UE 2 has nothing: the turn passes it.
    assert granted(policy, slot(everyone[0], everyone[1], everyone[3])) == [
        (3, 100),
        (0, 100),
        (1, 73),
    ]
    assert granted(policy, slot()) == []


def test_round_robin_turns_are_per_cell():
    view = slot(ue(0, 200), ue(1, 200), free_prb=200, cells=2)
    policy = RoundRobin()
    assert [(g.cell, g.ue) for g in policy.schedule(view)] == [(0, 0), (1, 0)]
    assert [(g.cell, g.ue) for g in policy.schedule(view)] == [(0, 1), (1, 1)]


def test_fill_stops_at_the_grants_of_the_slot():
    view = slot(*(ue(index, 10) for index in range(5)), max_grants=3)
    assert [grant.ue for grant in fill(view.cells[0], view.cells[0].ues)] == [0, 1, 2]


class EarliestDeadline:
    """The policy of the module's docstring."""

    def schedule(self, view):
        return [
            grant
            for cell in view.cells
            for grant in fill(cell, sorted(cell.ues, key=lambda ue: (ue.deadline_us, ue.ue)))
        ]


def test_a_policy_of_ones_own_is_a_few_lines():
    view = slot(ue(0, 200, deadline_us=900), ue(1, 200, deadline_us=500))
    assert granted(EarliestDeadline(), view) == [(1, 200), (0, 73)]


class Fixed:
    """Returns what it was given."""

    def __init__(self, grants):
        self.grants = grants

    def schedule(self, view):
        return self.grants


@pytest.mark.parametrize(
    ("grants", "message"),
    [
        ([Grant(0, 0, 200), Grant(0, 1, 100)], r"cell 0: 300 PRBs granted, allowed are 273"),
        ([Grant(0, 7, 10)], r"cell 0: grant for UE 7, .*allowed are \[0, 1\]"),
        ([Grant(0, 0, 10), Grant(0, 0, 10)], r"grant for UE 0, .*granted already"),
        ([Grant(5, 0, 10)], r"grant for cell 5, allowed are \[0\]"),
        ([Grant(0, 0, 0)], r"0 PRBs for UE 0, allowed is an int of at least 1"),
        ([Grant(0, 0, 1.5)], r"1.5 PRBs for UE 0"),
        ([Grant(0, 0, np.int64(3))], r"PRBs for UE 0, allowed is an int"),
        (None, r"returned None, allowed is a sequence of Grant"),
        ([(0, 0, 5)], r"returned \[\(0, 0, 5\)\], allowed is a sequence of Grant"),
    ],
)
def test_what_a_policy_may_not_grant_is_refused_by_name(grants, message):
    view = slot(ue(0), ue(1))
    with pytest.raises(PolicyError, match=rf"policy Fixed, slot 12 UL.*{message}"):
        check_grants(Fixed(grants), view, grants)


def test_too_many_grants_are_refused():
    view = slot(ue(0), ue(1), max_grants=1)
    with pytest.raises(PolicyError, match="2 grants, allowed are 1"):
        check_grants(Fixed([]), view, [Grant(0, 0, 1), Grant(0, 1, 1)])


def test_the_mac_checks_its_policy():
    cell = steady_cell(dl_traffic=FullBuffer())
    policy = Fixed([Grant(0, 0, 274)])
    mac = GnbMac([cell], seed=1, dl_policy=policy, ul_policy=policy)
    with pytest.raises(PolicyError, match="policy Fixed, slot 3 DL, cell 0: 274 PRBs"):
        mac.step(0)
