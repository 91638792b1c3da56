"""A MAC policy that shapes nothing, promises what a test says, and notes what it is told."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.ran.schedulers import Grant, ProportionalFair, SlotView
from testbed.shaping.contract import Promise, SiteGpu


class Shaper:
    """Proportional fair, with the further methods of a policy that knows of the GPU."""

    def __init__(self) -> None:
        self.bound: list[SiteGpu] = []
        self.limits: list[tuple[int, int]] = []
        self.next = Promise(((0, 16),), 12, 0, 16)
        self.asked: list[int] = []
        self._fair = ProportionalFair()
        self._slots = 0

    def bind(self, site: SiteGpu) -> None:
        self.bound.append(site)

    def schedule(self, view: SlotView) -> Sequence[Grant]:
        self.asked.append(view.now_slot)
        return self._fair.schedule(view)

    def promise(self) -> Promise:
        self._slots += 1
        return self.next

    def limit(self, sms: int) -> None:
        self.limits.append((self._slots, sms))
