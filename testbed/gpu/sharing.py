"""How PHY tasks that become ready together share the SMs that are free, over time.

Every task first gets one partition step, in the order given (by deadline); then the task that has
least of what saturates it gets the next step, until all are saturated or nothing is left. When a
task ends, or an earlier reservation changes, the rest share anew. All of them together stay within
a limit (``testbed.gpu.sizing``), uplink decodes also within the profile's ``ran_sm_cap``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.gpu.cost import PhyDemand, rate
from testbed.gpu.profile import GpuProfile

_Steps = Sequence[tuple[int, int, int]]


@dataclass(slots=True)
class _Run:
    """One task on its way: what is left, and the SMs that it has had."""

    demand: PhyDemand
    uplink: bool
    fixed_us: float
    work_us: float
    steps: list[tuple[int, int]]

    def left_us(self, speed: float) -> float:
        return self.fixed_us + self.work_us / speed if speed > 0 else math.inf

    def advance(self, elapsed_us: float, speed: float) -> None:
        if speed > 0:
            fixed = min(self.fixed_us, elapsed_us)
            self.fixed_us -= fixed
            self.work_us -= (elapsed_us - fixed) * speed

    @property
    def done(self) -> bool:
        return self.fixed_us <= 0 and self.work_us <= 1e-6


class Sharer:
    """Shares one GPU; ``used`` and ``decoding`` are earlier reservations (all, and uplink)."""

    def __init__(
        self, gpu: GpuProfile, other_permille: int, used: _Steps, decoding: _Steps
    ) -> None:
        self._gpu = gpu
        self._other_permille = other_permille
        self._used = used
        self._decoding = decoding
        edges = {edge for left, right, _ in (*used, *decoding) for edge in (left, right)}
        self._changes = sorted(edges)

    def share(
        self, ready_us: int, tasks: Sequence[tuple[PhyDemand, bool]], most_sms: int
    ) -> list[list[tuple[int, int]]]:
        """(from_us, sms) of each task (demand, uplink?), from ``ready_us`` to its end.

        ``most_sms``: what the tasks may have together at any time, at least ``gpu.min_sms``.
        """
        runs = [
            _Run(demand, uplink, demand.fixed_us, demand.work_us, []) for demand, uplink in tasks
        ]
        now_us = ready_us
        active = list(runs)
        while active:
            counts = self._distribute(now_us, active, most_sms)
            speeds = [self._speed(run, sms) for run, sms in zip(active, counts, strict=True)]
            first_us = min(run.left_us(speed) for run, speed in zip(active, speeds, strict=True))
            after = bisect_right(self._changes, now_us)
            events = self._changes[after : after + 1]
            if first_us < math.inf:
                # Whole microseconds, so that a reservation begins where another one ends.
                events.append(now_us + max(1, math.ceil(first_us - 1e-6)))
            next_us = min(events)  # behind the last reservation there are always free SMs
            for run, sms, speed in zip(active, counts, speeds, strict=True):
                if not run.steps or run.steps[-1][1] != sms:
                    run.steps.append((now_us, sms))
                run.advance(next_us - now_us, speed)
            active = [run for run in active if not run.done]
            now_us = next_us
        return [run.steps for run in runs]

    def _speed(self, run: _Run, sms: int) -> float:
        return rate(self._gpu, run.demand, sms, self._other_permille) if sms else 0.0

    def _distribute(self, now_us: int, active: Sequence[_Run], most_sms: int) -> list[int]:
        free = min(self._gpu.sms - _at(self._used, now_us), most_sms)
        cap = max(self._gpu.phy.ran_sm_cap, self._gpu.min_sms)
        decode_free = cap - _at(self._decoding, now_us)
        counts = [0] * len(active)

        def give(index: int, sms: int) -> bool:
            nonlocal free, decode_free
            uplink = active[index].uplink
            if sms > free or (uplink and sms > decode_free):
                return False
            counts[index] += sms
            free -= sms
            decode_free -= sms if uplink else 0
            return True

        for index in range(len(active)):
            give(index, self._gpu.min_sms)
        growing = {i for i, sms in enumerate(counts) if 0 < sms < active[i].demand.sms}
        while growing:
            index = min(growing, key=lambda i: (counts[i] / active[i].demand.sms, i))
            if not give(index, self._gpu.sm_step) or counts[index] >= active[index].demand.sms:
                growing.discard(index)
        return counts


def _at(steps: _Steps, time_us: int) -> int:
    for left, right, sms in steps:
        if left <= time_us < right:
            return sms
    return 0
