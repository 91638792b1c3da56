"""The RAN's side of a GPU's timeline: reservations of PHY tasks, and what they leave spare.

Owns which SMs a PHY task is planned to have and when. Training never enters here: the RAN is
placed first, and leases are cut from what is left (``spare_windows``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from testbed.errors import PolicyError
from testbed.gpu.cost import UPLINK, PhyDemand, Segment, finish_us
from testbed.gpu.gate import Window
from testbed.gpu.profile import GpuProfile
from testbed.gpu.sharing import Sharer
from testbed.gpu.sizing import PhyGroup, PhySizing, Saturation


class TaskKey(NamedTuple):
    """One PHY task: a cell, an air slot and a direction."""

    cell: int
    air_slot: int
    direction: int

    @property
    def uplink(self) -> bool:
        """Whether it is an uplink decode."""
        return self.direction == UPLINK


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A task that may begin at ``ready_us``."""

    key: TaskKey
    ready_us: int
    deadline_us: int
    demand: PhyDemand


@dataclass(frozen=True, slots=True)
class Reservation:
    """SMs of one task over time: ``steps`` (from_us, sms), the last one until ``end_us``."""

    request: TaskRequest
    steps: tuple[tuple[int, int], ...]
    end_us: int

    @property
    def start_us(self) -> int:
        """When it first has SMs."""
        for from_us, sms in self.steps:
            if sms > 0:
                return from_us
        raise ValueError(f"{self.request.key} never has SMs")

    @property
    def first_sms(self) -> int:
        """SMs with which it begins."""
        return next(sms for _, sms in self.steps if sms > 0)

    def pieces(self) -> list[tuple[int, int, int]]:
        """(from_us, to_us, sms), ascending, without gaps."""
        bounds = [*self.steps, (self.end_us, 0)]
        return [(left[0], right[0], left[1]) for left, right in pairwise(bounds)]


class RanTimeline:
    """Reservations of one GPU. A later plan never changes an earlier reservation."""

    def __init__(
        self,
        gpu: GpuProfile,
        other_bandwidth_permille: int = 0,
        sizing: PhySizing | None = None,
    ) -> None:
        """An empty timeline.

        Args:
            gpu: the profile.
            other_bandwidth_permille: share that training may use beside a decode.
            sizing: how many SMs a group of tasks may have; None: what saturates them.
        """
        self._gpu = gpu
        self._other_permille = other_bandwidth_permille
        self._sizing = sizing or Saturation()
        self._reservations: list[Reservation] = []
        self._profiles: dict[bool | None, list[tuple[int, int, int]]] = {}

    def reservations(self) -> Sequence[Reservation]:
        """All reservations that were not dropped, in the order in which they were made."""
        return self._reservations

    def drop_before(self, now_us: int) -> None:
        """Forget reservations that ended at or before ``now_us``."""
        left = [item for item in self._reservations if item.end_us > now_us]
        if len(left) < len(self._reservations):
            self._reservations = left
            self._profiles.clear()

    def replace(self, old: Reservation, new: Reservation) -> None:
        """Put ``new`` in the place of ``old``: the task will run otherwise than it was planned."""
        self._reservations = [new if item is old else item for item in self._reservations]
        self._profiles.clear()

    def reserve(self, requests: Iterable[TaskRequest]) -> list[Reservation]:
        """Place tasks; those that become ready together share what is free (``sharing``).

        Raises PolicyError where the sizing policy returns what it may not.
        """
        ordered = sorted(requests, key=_order)
        placed: list[Reservation] = []
        for ready_us, group in groupby(ordered, key=attrgetter("ready_us")):
            reserved = self._place_group(ready_us, list(group))
            self._reservations += reserved
            self._profiles.clear()
            placed += reserved
        return placed

    def _place_group(self, ready_us: int, members: list[TaskRequest]) -> list[Reservation]:
        used = self.ran_steps(ready_us, None, uplink=None)
        decoding = self.ran_steps(ready_us, None, uplink=True)
        sharer = Sharer(self._gpu, self._other_permille, used, decoding)
        tasks = [(request.demand, request.key.uplink) for request in members]
        tried: dict[int, list[Reservation]] = {}

        def within(most_sms: int) -> list[Reservation]:
            if most_sms not in tried:
                shares = sharer.share(ready_us, tasks, self._checked(most_sms))
                tried[most_sms] = [
                    self._reservation(request, steps)
                    for request, steps in zip(members, shares, strict=True)
                ]
            return tried[most_sms]

        group = PhyGroup(
            self._gpu,
            ready_us,
            tuple(request.demand for request in members),
            tuple(request.deadline_us for request in members),
            lambda most_sms: [placed.end_us for placed in within(most_sms)],
        )
        return within(self._sizing.most_sms(group))

    def _reservation(self, request: TaskRequest, steps: list[tuple[int, int]]) -> Reservation:
        segments = [Segment(at, sms, self._other_permille) for at, sms in steps]
        end_us = finish_us(self._gpu, request.demand, segments)
        kept = tuple(step for step in steps if step[0] < end_us)
        return Reservation(request, kept, end_us)

    def _checked(self, most_sms: int) -> int:
        least, most = self._gpu.min_sms, self._gpu.sms
        if type(most_sms) is not int or not least <= most_sms <= most:
            policy = type(self._sizing).__name__
            raise PolicyError(f"PHY sizing {policy}: {most_sms!r} SMs: allowed {least} to {most}")
        return most_sms

    def sms_by_slot(self, first_slot: int, slot_us: int) -> list[int]:
        """The RAN's largest SM count within each slot, from a slot on to the last reservation."""
        largest: list[int] = []
        for from_us, to_us, sms in self.ran_steps(first_slot * slot_us, None):
            first, last = from_us // slot_us - first_slot, (to_us - 1) // slot_us - first_slot
            largest += [0] * (last + 1 - len(largest))
            for slot in range(first, last + 1):
                largest[slot] = max(largest[slot], sms)
        return largest

    def ran_sms_within(self, start_us: int, end_us: int) -> int:
        """The RAN's largest SM count in [start_us, end_us)."""
        if end_us <= start_us:
            return 0
        steps = self._steps(None)
        return max([sms for first, to, sms in steps if first < end_us and to > start_us], default=0)

    def ran_steps(
        self,
        start_us: int,
        end_us: int | None,
        uplink: bool | None = None,
        without: Reservation | None = None,
    ) -> list[tuple[int, int, int]]:
        """(from_us, to_us, SMs of the RAN) covering [start_us, end_us), ascending.

        ``end_us`` None: until the last reservation ends. ``uplink``: of uplink decodes only.
        ``without``: a reservation to leave out.
        """
        if without is not None:
            others = [item for item in self._reservations if item is not without]
            return _clipped(_profile(others, uplink), start_us, end_us)
        return _clipped(self._steps(uplink), start_us, end_us)

    def _steps(self, uplink: bool | None) -> list[tuple[int, int, int]]:
        profile = self._profiles.get(uplink)
        if profile is None:
            profile = self._profiles[uplink] = _profile(self._reservations, uplink)
        return profile

    def spare_windows(self, start_us: int, end_us: int) -> tuple[Window, ...]:
        """Grantable SMs over time in [start_us, end_us): the whole GPU less the RAN, rounded down
        to the partition step. Windows of no SMs are left out."""
        gpu = self._gpu
        windows: list[Window] = []
        for from_us, to_us, ran_sms in self.ran_steps(start_us, end_us):
            sms = gpu.round_down(gpu.sms - ran_sms)
            if sms == 0:
                continue
            if windows and windows[-1].end_us == from_us and windows[-1].sms == sms:
                windows[-1] = Window(windows[-1].start_us, to_us, sms)
            else:
                windows.append(Window(from_us, to_us, sms))
        return tuple(windows)


def _profile(
    reservations: Sequence[Reservation], uplink: bool | None
) -> list[tuple[int, int, int]]:
    """(from_us, to_us, SMs) from the first reservation to the end of the last, ascending."""
    deltas: defaultdict[int, int] = defaultdict(int)
    for item in reservations:
        if uplink is None or item.request.key.uplink == uplink:
            before = 0
            for from_us, sms in item.steps:
                deltas[from_us] += sms - before
                before = sms
            deltas[item.end_us] -= before
    steps: list[tuple[int, int, int]] = []
    first_us = sms = 0
    for time_us, change in sorted(deltas.items()):
        if change:
            if steps or sms:
                steps.append((first_us, time_us, sms))
            first_us = time_us
            sms += change
    return steps


def _clipped(
    profile: Sequence[tuple[int, int, int]], start_us: int, end_us: int | None
) -> list[tuple[int, int, int]]:
    """The part of a profile within [start_us, end_us), with no SMs before and behind it."""
    if end_us is None:
        end_us = profile[-1][1] if profile else start_us
    if end_us <= start_us:
        return []
    steps: list[tuple[int, int, int]] = []
    reached_us = start_us
    for from_us, to_us, sms in profile:
        if to_us > reached_us:
            if from_us >= end_us:
                break
            if from_us > reached_us:  # before the first reservation
                steps.append((reached_us, from_us, 0))
            reached_us = min(to_us, end_us)
            steps.append((max(from_us, start_us), reached_us, sms))
    if reached_us < end_us:
        steps.append((reached_us, end_us, 0))
    return steps


def _order(request: TaskRequest) -> tuple[int, int, int, int]:
    key = request.key
    return (request.ready_us, request.deadline_us, key.cell, key.air_slot)


def held_steps(
    gpu: GpuProfile,
    reservation: Reservation,
    ran_beside: Sequence[tuple[int, int, int]],
    held: Sequence[tuple[int, int]],
) -> list[tuple[int, int]]:
    """The SMs that a task really gets while quanta still hold some: (from_us, sms).

    ``ran_beside``: the other tasks' SMs as ``ran_steps`` gives them. ``held``: (end_us, sms) of
    quanta that still run. The task has its reserved SMs as far as the GPU has them left, takes the
    rest as the quanta end ("at the next block boundary"), and keeps its last count to its end.
    """
    start_us = reservation.start_us
    late = [quantum for quantum in held if quantum[0] > start_us]
    if not late:
        return list(reservation.steps)
    planned = dict(reservation.steps)
    first_us = reservation.steps[0][0]
    freed: defaultdict[int, int] = defaultdict(int, dict.fromkeys(planned, 0))
    free = gpu.sms
    for end_us, sms in late:
        freed[end_us] += sms
        free -= sms
    for from_us, to_us, sms in ran_beside:
        freed[from_us] -= sms
        freed[to_us] += sms
    wanted = 0
    steps: list[tuple[int, int]] = []
    for time_us, change in sorted(freed.items()):
        free += change
        wanted = planned.get(time_us, wanted)
        if time_us >= first_us:
            sms = max(0, min(wanted, free))
            if not steps or steps[-1][1] != sms:
                steps.append((time_us, sms))
    return steps
