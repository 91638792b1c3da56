"""Arrivals of one link, drawn in blocks of slots. Owns what each draw is keyed by.

A block of ``BLOCK_SLOTS`` slots holds the arrivals after the start of the slot before its first, up
to and including the start of its last: an arrival at t belongs to the first slot start at or after
t. Each process is a pure function of (seed, stream, cell, block); it must keep no state but caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from testbed import rng
from testbed.ran.numerology import Direction
from testbed.ran.traces import map_rntis
from testbed.ran.traffic.modulation import diurnal_factors, fgn_factors
from testbed.ran.traffic.specs import (
    IMIX_BYTES,
    Ftp3,
    Imix,
    Mixed,
    OneSpec,
    Periodic,
    Replay,
    TrafficSpec,
    Xr,
)

BLOCK_SLOTS = 256
"""Slots whose arrivals are drawn together; part of what a seed means."""

EVENT_BLOCK = 64
"""Packets or frames of each UE that are drawn together; part of what a seed means."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Sizes = Callable[[np.random.Generator, tuple[int, ...]], Ints]
"""(generator, shape) -> bytes of each SDU."""

# TR 38.838, clause 5: deviation over the mean and reach of a frame's size, and of its jitter.
_XR_SIZE_SD, _XR_SIZE_REACH = 0.105, 0.5
_XR_JITTER_SD_US, _XR_JITTER_REACH_US = 2000.0, 4000


class Batch(NamedTuple):
    """Arrivals: microseconds from slot 0, UE, bytes; those of one UE and time in their order."""

    time_us: Ints
    ue: Ints
    n_bytes: Ints


class Process(Protocol):
    """Arrivals of some UEs of a cell in one direction."""

    def batch(self, block: int) -> Batch:
        """Arrivals of one block of slots, and perhaps some from before the run (below 0)."""
        ...


def ordered(batch: Batch) -> Batch:
    """In order of time, then UE, without what lies before the run."""
    order = np.lexsort((batch.ue, batch.time_us))
    order = order[np.searchsorted(batch.time_us[order], 0) :]
    return Batch(batch.time_us[order], batch.ue[order], batch.n_bytes[order])


@dataclass(frozen=True, slots=True)
class Key:
    """What the draws of a process are keyed by, beside the number of a block."""

    seed: int
    stream: str
    cell: int

    def generator(self, block: int) -> np.random.Generator:
        """The generator of one block."""
        return rng.generator(self.seed, self.stream, self.cell, block)

    def within(self, name: str | int) -> Key:
        """A stream of its own below this one."""
        return Key(self.seed, f"{self.stream}.{name}", self.cell)


def process(
    spec: TrafficSpec, *, seed: int, cell: int, direction: Direction, n_ues: int, slot_us: int
) -> Process:
    """The process that a description asks for (a full buffer has no arrivals of its own)."""
    key = Key(seed, f"ran.traffic.{direction.value}", cell)
    if not isinstance(spec, Mixed):
        return _one(spec, key, direction, n_ues, slot_us)
    return MixedProcess(
        [
            (part.first_ue, _one(part.spec, key.within(index), direction, part.n_ues, slot_us))
            for index, part in enumerate(spec.parts)
        ]
    )


def _one(spec: OneSpec, key: Key, direction: Direction, n_ues: int, slot_us: int) -> Process:
    match spec:
        case Ftp3():
            files = _equal(spec.file_bytes)
            return PoissonProcess(spec, spec.files_per_s_per_ue, files, key, n_ues, slot_us)
        case Imix():
            return PoissonProcess(spec, spec.packets_per_s_per_ue, _imix, key, n_ues, slot_us)
        case Periodic():
            sizes = _uniform(spec.bytes_min, spec.bytes_max)
            return CyclicProcess((spec.period_us, 1), sizes, False, key, n_ues, slot_us)
        case Xr():
            frames = _frames(spec.frame_bytes)
            period_us = (1_000_000, spec.fps)
            return CyclicProcess(period_us, frames, spec.jitter, key, n_ues, slot_us)
        case Replay():
            return ReplayProcess(spec, direction, n_ues, slot_us)
        case _:
            return MixedProcess([])


class PoissonProcess:
    """Poisson arrivals of equal UEs, the intensity moving from slot to slot if it is modulated."""

    def __init__(
        self,
        spec: Ftp3 | Imix,
        per_s_per_ue: float,
        sizes: Sizes,
        key: Key,
        n_ues: int,
        slot_us: int,
    ) -> None:
        self._spec = spec
        self._per_s = per_s_per_ue * n_ues
        self._sizes = sizes
        self._key = key
        self._n_ues = n_ues
        self._slot_us = slot_us
        self._factors(np.zeros(1, np.int64))  # noise is drawn now: it would stall the first slot

    def batch(self, block: int) -> Batch:
        """Arrivals of one block of slots."""
        draw = self._key.generator(block)
        modulated = self._spec.fgn is not None or self._spec.diurnal is not None
        times = self._by_slot(draw, block) if modulated else self._evenly(draw, block)
        ues = draw.integers(0, self._n_ues, size=len(times))
        return Batch(times, ues, self._sizes(draw, (len(times),)))

    def _evenly(self, draw: np.random.Generator, block: int) -> Ints:
        # Given its count, a Poisson process is a set of uniform times; UEs of one rate are uniform.
        after_us, upto_us = _window_us(block, self._slot_us)
        count = int(draw.poisson(self._per_s * (upto_us - after_us) / 1e6))
        return draw.integers(after_us + 1, upto_us + 1, size=count)

    def _by_slot(self, draw: np.random.Generator, block: int) -> Ints:
        starts_us = (block * BLOCK_SLOTS + np.arange(-1, BLOCK_SLOTS - 1)) * self._slot_us
        expected = self._per_s * self._slot_us / 1e6 * self._factors(starts_us)
        starts_us = np.repeat(starts_us, draw.poisson(expected))
        return starts_us + draw.integers(1, self._slot_us + 1, size=len(starts_us))

    def _factors(self, starts_us: Ints) -> Floats:
        """The factor that holds in each slot: the one at its middle."""
        middle_us = np.maximum(0, starts_us + self._slot_us // 2)
        factors = np.ones(len(starts_us))
        if (fgn := self._spec.fgn) is not None:
            noise = self._key.within("fgn")
            factors *= fgn_factors(fgn, noise.seed, noise.stream, noise.cell, middle_us)
        if self._spec.diurnal is not None:
            factors *= diurnal_factors(self._spec.diurnal, middle_us)
        return factors


class CyclicProcess:
    """One SDU per UE and period, from a random phase per UE, with or without jitter."""

    def __init__(
        self,
        period_us: tuple[int, int],
        sizes: Sizes,
        jitter: bool,
        key: Key,
        n_ues: int,
        slot_us: int,
    ) -> None:
        """``period_us`` is a fraction (numerator, denominator)."""
        self._length, self._per = period_us
        self._sizes = sizes
        self._reach_us = _XR_JITTER_REACH_US if jitter else 0
        self._key = key
        self._n_ues = n_ues
        self._slot_us = slot_us
        self._drawn: dict[int, Batch] = {}
        phases = key.within("phase").generator(0)
        self._phase_us = phases.integers(0, self._length // self._per, size=n_ues)

    def batch(self, block: int) -> Batch:
        """Arrivals of one block of slots."""
        after_us, upto_us = _window_us(block, self._slot_us)
        # Event k is at phase + k periods, phase below one period, and jitter reaches both ways.
        first = max(0, (after_us - self._reach_us) * self._per // self._length - 1)
        last = (upto_us + self._reach_us) * self._per // self._length + 1
        numbers = range(first // EVENT_BLOCK, last // EVENT_BLOCK + 1)
        self._drawn = {n: self._drawn.get(n) or self._events(n) for n in numbers}
        return _joined([_within(events, after_us, upto_us) for events in self._drawn.values()])

    def _events(self, number: int) -> Batch:
        """One block of events of all UEs."""
        draw = self._key.generator(number)
        shape = (EVENT_BLOCK, self._n_ues)
        sizes = self._sizes(draw, shape)
        events = number * EVENT_BLOCK + np.arange(EVENT_BLOCK)
        times = (events * self._length // self._per)[:, None] + self._phase_us
        if self._reach_us:
            sds = _truncated_normal(draw, shape, self._reach_us / _XR_JITTER_SD_US)
            times = times + np.rint(sds * _XR_JITTER_SD_US).astype(np.int64)
        ues = np.broadcast_to(np.arange(self._n_ues), shape)
        return Batch(times.ravel(), ues.ravel(), sizes.ravel())


class ReplayProcess:
    """Arrivals of a trace, RNTIs mapped onto UEs by ``traces.map_rntis``."""

    def __init__(self, spec: Replay, direction: Direction, n_ues: int, slot_us: int) -> None:
        start_us = round(spec.start_s * 1e6)
        end_us = spec.trace.duration_us + 1
        if spec.length_s is not None:
            end_us = start_us + round(spec.length_s * 1e6)
        # A loop shorter than a slot would fold several rounds into each slot for ever.
        length_us = max(slot_us, int((end_us - start_us) / spec.time_compress))
        ue_of = map_rntis(spec.trace, n_ues)
        played = [
            (time_us, ue_of[a.rnti], max(1, int(a.n_bytes * spec.bytes_scale)))
            for a in spec.trace.arrivals
            if a.direction is direction and start_us <= a.time_us < end_us
            if (time_us := int((a.time_us - start_us) / spec.time_compress)) < length_us
            or not spec.loop
        ]
        self._slot_us = slot_us
        self._loop_us = length_us if spec.loop and played else None
        rows = np.array(played, np.int64).reshape(-1, 3)
        self._played = Batch(rows[:, 0], rows[:, 1], rows[:, 2])

    def batch(self, block: int) -> Batch:
        """Arrivals of one block of slots."""
        after_us, upto_us = _window_us(block, self._slot_us)
        if self._loop_us is None:
            return self._between(after_us, upto_us, 0)
        turns = range(max(0, after_us // self._loop_us), upto_us // self._loop_us + 1)
        return _joined([self._between(after_us, upto_us, t * self._loop_us) for t in turns])

    def _between(self, after_us: int, upto_us: int, origin_us: int) -> Batch:
        times = self._played.time_us
        low, high = np.searchsorted(times, (after_us - origin_us, upto_us - origin_us), "right")
        part = slice(low, high)
        return Batch(origin_us + times[part], self._played.ue[part], self._played.n_bytes[part])


class MixedProcess:
    """Several processes, each for UEs from some number on; none at all: silence."""

    def __init__(self, parts: Sequence[tuple[int, Process]]) -> None:
        self._parts = parts

    def batch(self, block: int) -> Batch:
        """Arrivals of one block of slots."""
        drawn = [(first_ue, part.batch(block)) for first_ue, part in self._parts]
        return _joined([batch._replace(ue=batch.ue + first_ue) for first_ue, batch in drawn])


def _window_us(block: int, slot_us: int) -> tuple[int, int]:
    """(after, up to): the times whose arrivals the slots of a block take."""
    after_us = (block * BLOCK_SLOTS - 1) * slot_us
    return after_us, after_us + BLOCK_SLOTS * slot_us


def _within(batch: Batch, after_us: int, upto_us: int) -> Batch:
    chosen = np.flatnonzero((batch.time_us > after_us) & (batch.time_us <= upto_us))
    return Batch(batch.time_us[chosen], batch.ue[chosen], batch.n_bytes[chosen])


def _joined(batches: Sequence[Batch]) -> Batch:
    if not batches:
        return Batch(*(np.zeros(0, np.int64) for _ in Batch._fields))
    return Batch(*(np.concatenate(column) for column in zip(*batches, strict=True)))


def _equal(n_bytes: int) -> Sizes:
    return lambda draw, shape: np.full(shape, n_bytes, np.int64)


def _uniform(lowest: int, highest: int) -> Sizes:
    return lambda draw, shape: draw.integers(lowest, highest + 1, size=shape)


def _imix(draw: np.random.Generator, shape: tuple[int, ...]) -> Ints:
    return np.array(IMIX_BYTES)[draw.integers(0, len(IMIX_BYTES), size=shape)]


def _frames(mean_bytes: float) -> Sizes:
    def sizes(draw: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        sds = _truncated_normal(draw, shape, _XR_SIZE_REACH / _XR_SIZE_SD)
        frames = np.rint(mean_bytes * (1 + _XR_SIZE_SD * sds)).astype(np.int64)
        return np.maximum(1, frames)

    return sizes


def _truncated_normal(
    draw: np.random.Generator, shape: tuple[int, ...], reach_sds: float
) -> Floats:
    """Standard normal given that it lies within +-reach: what falls outside is drawn again."""
    values = draw.standard_normal(shape)
    while (outside := np.abs(values) > reach_sds).any():
        values[outside] = draw.standard_normal(int(outside.sum()))
    return values
