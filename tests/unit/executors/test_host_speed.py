"""The probe against a clock that says how long each pass took."""

from __future__ import annotations

from testbed.executors.host_speed import SpeedProbe


class Clock:
    """Each pair of readings is ``cost`` apart, save for those that ``once`` names."""

    def __init__(self, cost):
        self.cost = cost
        self.once = []
        self.now = 0
        self._inside = False

    def __call__(self):
        if self._inside:
            self.now += self.once.pop(0) if self.once else self.cost
        self._inside = not self._inside
        return self.now


def test_a_slow_core_shows_and_the_least_ever_seen_is_the_measure():
    clock = Clock(400)
    probe = SpeedProbe(clock)
    assert probe.slowdown_permille() == 1000
    clock.cost = 1600
    assert probe.slowdown_permille() == 4000
    clock.cost = 200
    assert probe.slowdown_permille() == 1000
    clock.cost = 400
    assert probe.slowdown_permille() == 2000


def test_interrupted_passes_are_not_a_slow_core():
    clock = Clock(400)
    probe = SpeedProbe(clock)
    clock.once = [9000, 9000]
    assert probe.slowdown_permille() == 1000


def test_a_clock_that_stood_still_gave_no_reading():
    clock = Clock(400)
    probe = SpeedProbe(clock)
    clock.once = [400, 0, 400]
    assert probe.slowdown_permille() == 1000
    assert probe.slowdown_permille() == 1000
    clock.cost = 800
    assert probe.slowdown_permille() == 2000


def test_a_clock_too_coarse_for_the_work_never_calls_the_core_slow():
    assert SpeedProbe(Clock(0)).slowdown_permille() == 1000


def test_the_real_clock_gives_a_figure_of_this_core():
    assert 1000 <= SpeedProbe().slowdown_permille() < 1_000_000
