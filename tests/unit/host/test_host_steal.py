"""Stolen CPU time, between two readings that the test makes up."""

from __future__ import annotations

from collections import namedtuple

import pytest

from testbed.host import steal

Linux = namedtuple("Linux", "user system idle steal guest")
Other = namedtuple("Other", "user system idle")


def meter(monkeypatch, before, after):
    readings = [before, after]
    monkeypatch.setattr(steal.psutil, "cpu_times", lambda: readings.pop(0))
    return steal.StealMeter().share()


def test_share_of_all_time_without_what_is_counted_twice(monkeypatch):
    """3 s stolen of 10 + 5 + 12 + 3 = 30 s; the guest's 4 s are in the user's 10."""
    before, after = Linux(100, 50, 200, 7, 2), Linux(110, 55, 212, 10, 6)
    assert meter(monkeypatch, before, after) == pytest.approx(3 / 30)


@pytest.mark.parametrize("times", [Other(1, 2, 3), Linux(1, 2, 3, 4, 5)])
def test_without_a_count_or_without_time_there_is_no_share(monkeypatch, times):
    assert meter(monkeypatch, times, times) is None
