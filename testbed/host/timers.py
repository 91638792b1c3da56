"""A node's timers on one timerfd: exact to the kernel, where an event loop's own are to 1 ms."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from testbed.executors.clock import EmulatedClock
from testbed.executors.timer import DeadlineTimer


class Timers:
    """Timers by key, in emulated time; they fire on the event loop once the clock runs."""

    def __init__(self, on_due: Callable[[str, int], None]) -> None:
        """``on_due(key, at_us)``: called for each timer that has come."""
        self._on_due = on_due
        self._timer = DeadlineTimer()
        self._at_us: dict[str, int] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._count = 0
        self._clock: EmulatedClock | None = None
        asyncio.get_running_loop().add_reader(self._timer.fileno(), self._readable)

    def start(self, clock: EmulatedClock) -> None:
        """Emulated time exists from here on."""
        self._clock = clock
        self._arm()

    def set(self, key: str, at_us: int) -> None:
        """Fire at ``at_us``; replaces the timer of that key."""
        self._at_us[key] = at_us
        self._count += 1
        heapq.heappush(self._heap, (at_us, self._count, key))
        if self._heap[0][2] == key:
            self._arm()

    def cancel(self, key: str) -> None:
        """Forget the timer of that key, if any."""
        self._at_us.pop(key, None)

    def close(self) -> None:
        """No timer fires any more."""
        if self._timer.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._timer.fileno())
        self._timer.close()

    def _arm(self) -> None:
        while self._heap and self._at_us.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # cancelled or replaced
        if self._heap and self._clock is not None:
            self._timer.arm(self._clock.wall_ns(self._heap[0][0]))

    def _readable(self) -> None:
        self._timer.acknowledge()
        if self._clock is None:
            return
        now_us = self._clock.now_us()
        while self._heap and self._heap[0][0] <= now_us:
            at_us, _, key = heapq.heappop(self._heap)
            if self._at_us.get(key) == at_us:
                del self._at_us[key]
                self._on_due(key, at_us)
        self._arm()
