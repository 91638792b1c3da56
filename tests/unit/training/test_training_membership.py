"""Who takes part, step by step."""

from __future__ import annotations

import pytest

from testbed.training.membership import Membership


def test_all_take_part_at_first():
    members = Membership(("a", "b"))
    assert (members.epoch, members.present, members.workers) == (1, ("a", "b"), ("a", "b"))
    assert members.admit() == ()
    assert members.epoch == 1, "nothing has changed"


def test_the_way_back():
    members = Membership(("a", "b", "c"))
    assert members.lose("a")
    assert (members.present, members.epoch) == (("b", "c"), 1), "the caller says when it counts"
    members.next_epoch()
    members.join("a")
    assert (members.waiting, members.present) == (("a",), ("b", "c"))
    assert members.admit() == ("a",)
    assert (members.epoch, members.present, members.workers) == (3, ("a", "b", "c"), ("b", "c"))
    assert (members.healing, members.waiting) == (("a",), ())
    members.heal("a")
    assert (members.healing, members.workers) == ((), ("a", "b", "c"))


def test_one_that_waits_or_heals_may_die_again():
    members = Membership(("a", "b"))
    members.lose("a")
    members.join("a")
    assert not members.lose("a"), "it did not take part"
    assert members.waiting == ()
    members.join("a")
    members.admit()
    assert members.lose("a"), "it takes part in the sum while it heals"
    assert (members.healing, members.present) == ((), ("b",))


@pytest.mark.parametrize("member", ["a", "stranger"])
def test_nobody_joins_who_was_not_lost(member):
    with pytest.raises(ValueError, match="cannot join"):
        Membership(("a", "b")).join(member)
