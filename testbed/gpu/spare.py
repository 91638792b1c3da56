"""Spare arithmetic: SMs over time as step functions, and the figures that follow from them.

Pure numpy over int64; times are emulated microseconds, SM-time is exact integer SM-us. What a node
wrote down comes in as arrays; nothing here knows of tables, nodes or files. R is the RAN's SM
count over time, Q that of running quanta, S the SMs of the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """``values[i]`` holds on [at_us[i], at_us[i + 1]); 0 before the first, the last one for ever.

    ``at_us`` ascends strictly.
    """

    at_us: Ints
    values: Ints

    def at(self, times_us: npt.ArrayLike) -> Ints:
        """The value at each of these times."""
        index = np.searchsorted(self.at_us, np.asarray(times_us), side="right") - 1
        padded = np.concatenate((self.values, [0]))
        return np.asarray(padded[index], dtype=np.int64)

    def clipped(self, most: int) -> Steps:
        """The same with no value above ``most``."""
        return Steps(self.at_us, np.minimum(self.values, most))


def stack(start_us: npt.ArrayLike, end_us: npt.ArrayLike, amount: npt.ArrayLike) -> Steps:
    """Sum of intervals: each adds ``amount`` on [start_us, end_us). Empty ones add nothing."""
    start, end, add = _columns(start_us, end_us, amount)
    keep = end > start
    times = np.concatenate((start[keep], end[keep]))
    deltas = np.concatenate((add[keep], -add[keep]))
    at, inverse = np.unique(times, return_inverse=True)
    sums = np.zeros(len(at), dtype=np.int64)
    np.add.at(sums, inverse, deltas)
    return Steps(at, np.cumsum(sums))


def states(at_us: npt.ArrayLike, state: npt.ArrayLike) -> Steps:
    """A state that changes at each of these times; of equal times the last one given counts."""
    at, value = _columns(at_us, state)
    order = np.argsort(at, kind="stable")
    at, value = at[order], value[order]
    last = np.append(at[1:] != at[:-1], True)[: len(at)]
    return Steps(at[last], value[last])


def plus(left: Steps, right: Steps) -> Steps:
    """The sum of two functions."""
    at = np.union1d(left.at_us, right.at_us)
    return Steps(at, left.at(at) + right.at(at))


def largest(functions: Sequence[Steps]) -> Steps:
    """The largest of several functions at each time."""
    if not functions:
        return Steps(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    at = np.unique(np.concatenate([f.at_us for f in functions]))
    return Steps(at, np.max([f.at(at) for f in functions], axis=0))


def edges(from_us: int, to_us: int, *functions: Steps) -> Ints:
    """All breakpoints within [from_us, to_us], both ends included, ascending."""
    points = [np.array([from_us, to_us], dtype=np.int64)]
    points += [f.at_us[(f.at_us > from_us) & (f.at_us < to_us)] for f in functions]
    return np.unique(np.concatenate(points))


def integral(steps: Steps, from_us: int, to_us: int) -> int:
    """SM-us under ``steps`` within [from_us, to_us)."""
    if to_us <= from_us:
        return 0
    points = edges(from_us, to_us, steps)
    return int(np.dot(steps.at(points[:-1]), np.diff(points)))


def window_max(steps: Steps, starts_us: npt.ArrayLike, window_us: int) -> Ints:
    """Maximum over [t, t + window_us) for each start t; O((n + m) log n) by a sparse table."""
    if window_us <= 0:
        raise ValueError(f"window_us = {window_us}: must be positive")
    starts = np.asarray(starts_us, dtype=np.int64)
    values = np.concatenate((np.zeros(1, dtype=np.int64), steps.values))
    first = np.searchsorted(steps.at_us, starts, side="right")
    beyond = np.searchsorted(steps.at_us, starts + window_us, side="left") + 1
    length = beyond - first  # at least 1: the piece that holds at t
    level = np.frexp(length)[1].astype(np.int64) - 1  # floor(log2(length)), exact
    result = np.zeros(len(starts), dtype=np.int64)
    table = values
    highest = int(level.max()) if len(level) else -1
    for power in range(highest + 1):
        here = level == power
        width = 1 << power
        result[here] = np.maximum(table[first[here]], table[beyond[here] - width])
        if power < highest:
            table = np.maximum(table[:-width], table[width:])
    return result


def slots_within(slot_us: int, from_us: int, to_us: int, window_us: int = 0) -> Ints:
    """Starts of the slots whose window [t, t + window_us) lies wholly within [from_us, to_us]."""
    first = -(-from_us // slot_us)
    beyond = (to_us - max(window_us, 1)) // slot_us + 1
    return np.arange(first, max(first, beyond), dtype=np.int64) * slot_us


def usable_fraction(ran: Steps, sms: int, starts_us: npt.ArrayLike, window_us: int) -> float | None:
    """Mean over slot starts t of (S - max R over [t, t + window_us)) / S; None without starts."""
    starts = np.asarray(starts_us, dtype=np.int64)
    if not len(starts):
        return None
    return spare_mean(window_max(ran, starts, window_us), sms)


def spare_mean(taken_sms: npt.ArrayLike, sms: int) -> float | None:
    """Mean of (S - taken) / S, a GPU that is wanted in full or beyond counting 0; None of none."""
    taken = np.minimum(np.asarray(taken_sms, dtype=np.int64), sms)
    if not len(taken):
        return None
    return (sms * len(taken) - int(taken.sum())) / (sms * len(taken))


def changes_per_s(levels: npt.ArrayLike, measured_us: int) -> float:
    """How often a level differs from the one before it, per emulated second."""
    values = np.asarray(levels, dtype=np.int64)
    return int(np.count_nonzero(np.diff(values))) * 1e6 / measured_us


class TrainerState(IntEnum):
    """What a trainer is about when none of its quanta runs; of several trainers the largest."""

    IDLE = 0
    WAITING = 1
    WORK = 2


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Where the idle SM-time went: a partition, in SM-us, of S T - integral of R."""

    committed: int
    wasted: Mapping[str, int]
    """SM-time of quanta whose step was not committed, by cause."""
    narrow: int
    """Leased, while a quantum ran on fewer SMs than the lease had."""
    gaps: int
    """Leased, the trainer had work, but no quantum fitted or ran."""
    waiting: int
    """Leased, the trainer waited for other sites: barrier, collective, next step."""
    idle: int
    """Leased, the trainer had nothing to do otherwise: start, drain, recovery."""
    not_leased: int
    """Rounding to the SM step, notice, switching, no lease."""

    @property
    def total(self) -> int:
        """All of it."""
        parts = (self.committed, self.narrow, self.gaps, self.waiting, self.idle, self.not_leased)
        return sum(parts) + sum(self.wasted.values())


def where_it_went(
    sms: int,
    from_us: int,
    to_us: int,
    *,
    ran: Steps,
    lease: Steps,
    committed: Steps,
    wasted: Mapping[str, Steps],
    state: Steps,
) -> IdleTime:
    """Partition the SM-time that the RAN left within [from_us, to_us).

    At each instant the idle SMs S - R go to running quanta first (committed, then wasted by cause
    in the order given), then to the rest of the lease, then to "not leased". Quanta and leases
    count at most the idle SMs: what overlaps the RAN is a violation, not use of idle time.
    """
    points = edges(from_us, to_us, ran, lease, committed, state, *wasted.values())
    at, duration = points[:-1], np.diff(points)
    left = sms - np.clip(ran.at(at), 0, sms)
    leased = np.minimum(lease.at(at), left)

    def take(amount: Ints) -> tuple[int, Ints]:
        nonlocal left
        taken = np.minimum(amount, left)
        left = left - taken
        return int(np.dot(taken, duration)), taken

    used = committed.at(at)
    done, running = take(used)
    thrown: dict[str, int] = {}
    for cause, steps in wasted.items():
        amount = steps.at(at)
        thrown[cause], taken = take(amount)
        used, running = used + amount, running + taken
    rest = np.maximum(leased - running, 0)
    quiet, doing = used == 0, state.at(at)

    def sum_where(mask: npt.NDArray[Any]) -> int:
        return int(np.dot(rest * mask, duration))

    return IdleTime(
        committed=done,
        wasted=thrown,
        narrow=sum_where(~quiet),
        gaps=sum_where(quiet & (doing == TrainerState.WORK)),
        waiting=sum_where(quiet & (doing == TrainerState.WAITING)),
        idle=sum_where(quiet & (doing == TrainerState.IDLE)),
        not_leased=int(np.dot(left - rest, duration)),
    )


@dataclass(frozen=True, slots=True)
class Overlap:
    """RAN and quanta together wanted more than the GPU's SMs throughout [start_us, end_us)."""

    start_us: int
    end_us: int
    most_sms: int
    """The largest excess over S, at most what the quanta held."""
    sm_us: int

    @property
    def duration_us(self) -> int:
        return self.end_us - self.start_us


def overlaps(ran: Steps, quanta: Steps, sms: int, from_us: int, to_us: int) -> Sequence[Overlap]:
    """Where R + Q > S while a quantum runs, as maximal intervals, ascending."""
    if to_us <= from_us:
        return []
    points = edges(from_us, to_us, ran, quanta)
    at, duration = points[:-1], np.diff(points)
    running = quanta.at(at)
    excess = np.minimum(ran.at(at) + running - sms, running)
    over = excess > 0
    change = np.diff(np.concatenate(([False], over, [False])).astype(np.int8))
    found = zip(np.flatnonzero(change == 1), np.flatnonzero(change == -1), strict=True)
    return [
        Overlap(
            start_us=int(points[first]),
            end_us=int(points[beyond]),
            most_sms=int(excess[first:beyond].max()),
            sm_us=int(np.dot(excess[first:beyond], duration[first:beyond])),
        )
        for first, beyond in found
    ]


def split_by_tolerance(
    found: Sequence[Overlap], tolerance_us: int
) -> tuple[list[Overlap], list[Overlap]]:
    """(violations, jitter): those that last longer than ``tolerance_us``, and the others."""
    return (
        [item for item in found if item.duration_us > tolerance_us],
        [item for item in found if item.duration_us <= tolerance_us],
    )


def _columns(*columns: npt.ArrayLike) -> tuple[Ints, ...]:
    arrays = tuple(np.asarray(column, dtype=np.int64) for column in columns)
    if len({len(array) for array in arrays}) > 1:
        raise ValueError(f"columns of different lengths {[len(array) for array in arrays]}")
    return arrays
