"""How fast the core runs at this moment, by a fixed piece of work. Torch-free.

A virtual machine's cores can fall to a fraction of their speed for tens of milliseconds, with no
steal time accounted and no gap that a clock would show. Work then takes several times as long,
whatever it is: this tells such slots from those that the testbed itself made late.

The clock is the monotonic one. The kernel's CPU clocks may stand still over a whole pass on such a
machine (about one pass in a million was read as 0 ns while 27 us went by); one such reading as the
least would make every later one a fall. A pass that was preempted is passed over instead: the
fastest of a few counts.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from testbed.record.schema import HOST_AT_SPEED_PERMILLE

_WORK_BYTES = 4096
_PASSES = 3
_FIRST_PROBES = 200
_MOST_PERMILLE = 1_000_000


class SpeedProbe:
    """Time of a fixed piece of work, in thousandths of the least that was ever seen.

    The first probes, which find that least, are made when it is made: some milliseconds.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._work = bytes(_WORK_BYTES)
        self._least_ns: int | None = None
        for _ in range(_FIRST_PROBES):
            self.slowdown_permille()

    def slowdown_permille(self) -> int:
        """1000: as fast as ever; 4000: the same work takes four times as long now."""
        cost_ns = self._cost_ns()
        if cost_ns <= 0:  # the clock did not move: no reading
            return HOST_AT_SPEED_PERMILLE
        least_ns = cost_ns if self._least_ns is None else min(self._least_ns, cost_ns)
        self._least_ns = least_ns
        return min(HOST_AT_SPEED_PERMILLE * cost_ns // least_ns, _MOST_PERMILLE)

    def _cost_ns(self) -> int:
        hashlib.sha256(self._work)  # so that caches and predictors are warm, whatever ran before
        return min(self._pass_ns() for _ in range(_PASSES))

    def _pass_ns(self) -> int:
        begun_ns = self._clock_ns()
        hashlib.sha256(self._work)
        return self._clock_ns() - begun_ns
