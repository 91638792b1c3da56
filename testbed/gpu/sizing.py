"""PHY sizing policies: how many SMs the tasks that become ready together may have between them.

A policy sees one group of tasks and may ask when each would end under any limit. To write one,
return a limit::

    class HalfOfTheGpu:
        def most_sms(self, group: PhyGroup) -> int:
            return max(group.gpu.min_sms, group.gpu.sms // 2)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.gpu.cost import PhyDemand
from testbed.gpu.profile import GpuProfile


@dataclass(frozen=True, slots=True)
class PhyGroup:
    """PHY tasks of one GPU that become ready together, in the order in which they get their SMs.

    Attributes:
        gpu: the profile.
        ready_us: when all of them may begin.
        demands, deadlines_us: of each task.
        ends_us: a limit in SMs -> when each task would end if all of them together had at most
            so many, beside what is reserved already.
    """

    gpu: GpuProfile
    ready_us: int
    demands: tuple[PhyDemand, ...]
    deadlines_us: tuple[int, ...]
    ends_us: Callable[[int], Sequence[int]]


class PhySizing(Protocol):
    """Asked once for each group, when it is placed on the timeline."""

    def most_sms(self, group: PhyGroup) -> int:
        """The most SMs that the group may have at a time: ``gpu.min_sms`` to ``gpu.sms``."""
        ...


class Saturation:
    """As many SMs as make the tasks faster, so that each ends as early as it can.

    Works badly for training beside it: short, high peaks leave few SMs that are free for long.
    """

    def most_sms(self, group: PhyGroup) -> int:
        """The whole GPU; no task takes more than saturates it."""
        return group.gpu.sms


class Deadline:
    """The fewest SMs on which every task of the group still meets its deadline.

    Leaves no slack: a quantum that is late by a microsecond makes a stretched decode late too. The
    whole GPU where the deadlines cannot be met.
    """

    def most_sms(self, group: PhyGroup) -> int:
        """The smallest partition size that is enough."""
        for sms in group.gpu.sm_levels():
            ends_us = group.ends_us(sms)
            if all(
                end_us <= deadline_us
                for end_us, deadline_us in zip(ends_us, group.deadlines_us, strict=True)
            ):
                return sms
        return group.gpu.sms
