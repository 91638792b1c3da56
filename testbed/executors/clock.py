"""Emulated time: integer microseconds since the epoch of the run, on CLOCK_MONOTONIC."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmulatedClock:
    """Emulated time 0 is at ``epoch_ns``; one emulated us lasts ``wall_ns_per_us`` wall ns."""

    epoch_ns: int
    wall_ns_per_us: int

    def now_us(self) -> int:
        """The emulated time now; negative before the epoch."""
        return (time.monotonic_ns() - self.epoch_ns) // self.wall_ns_per_us

    def wall_ns(self, at_us: int) -> int:
        """The reading of CLOCK_MONOTONIC at emulated ``at_us``."""
        return self.epoch_ns + at_us * self.wall_ns_per_us
