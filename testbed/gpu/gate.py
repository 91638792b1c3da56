"""Leases, and the one decision of the gate: may the next quantum start, and on how many SMs?

Pure: the live executor calls ``next_start`` on the lease that its node replaced atomically, the
simulator on the same lease in virtual time. Running quanta are never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """``sms`` SMs may be used in [start_us, end_us)."""

    start_us: int
    end_us: int
    sms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """SMs over time for one job: windows ascending, not overlapping; gaps grant nothing."""

    epoch: int
    windows: tuple[Window, ...]
    bandwidth_permille: int = 0

    @property
    def end_us(self) -> int:
        """When the last window ends; 0 for an empty lease."""
        return self.windows[-1].end_us if self.windows else 0


@dataclass(frozen=True, slots=True)
class Start:
    """Start now on ``sms`` SMs; the quantum ends by ``until_us``."""

    sms: int
    until_us: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Ask again at ``at_us``: a start there ends earlier than one now, or is the first possible."""

    at_us: int
    sms: int


@dataclass(frozen=True, slots=True)
class Never:
    """Nothing in this lease can hold the quantum; ask again when the lease is replaced."""

    reason: str


def next_start(
    lease: Lease, now_us: int, cost_p99_us: Mapping[int, int]
) -> Start | WaitUntil | Never:
    """Where the next quantum should start so that it ends earliest, wholly within the lease.

    Args:
        lease: the SMs granted over time.
        now_us: the current emulated time.
        cost_p99_us: SM count -> p99 of the quantum's duration on it.

    Candidates are now and the start of each later window, each on every SM count; a candidate is
    feasible if the lease holds at least that many SMs from its start to its end without a gap.
    Of equally early ends the earlier start wins, then the smaller SM count: SMs that do not make a
    quantum faster (one that is bound by memory) are left alone.
    """
    windows = [window for window in lease.windows if window.end_us > now_us]
    if not windows:
        return Never("no lease" if not lease.windows else "the lease has ended")
    best: tuple[int, int, int] | None = None
    fastest = sorted([(cost_us, sms) for sms, cost_us in cost_p99_us.items()])
    for index, window in enumerate(windows):
        start_us = max(now_us, window.start_us)
        if best is not None and start_us >= best[0]:
            break
        for cost_us, sms in fastest:
            end_us = start_us + cost_us
            if best is not None and end_us >= best[0]:
                break  # of equally early ends, the earlier start has won
            if sms <= window.sms and _holds(windows, index, sms, end_us):
                best = (end_us, start_us, sms)
                break
    if best is None:
        return Never("no window is long and wide enough for one quantum")
    end_us, start_us, sms = best
    if start_us > now_us:
        return WaitUntil(start_us, sms)
    return Start(sms, end_us)


def _holds(windows: list[Window], index: int, sms: int, end_us: int) -> bool:
    """Whether windows[index:] grant at least ``sms`` without a gap until ``end_us``."""
    reached_us = windows[index].start_us
    for window in windows[index:]:
        if window.start_us != reached_us or window.sms < sms:
            return False
        if window.end_us >= end_us:
            return True
        reached_us = window.end_us
    return False
