"""What arrives at a cell's buffers: FTP model 3, a full buffer, a replayed trace, or nothing.

Arrivals are a pure function of (seed, cell, direction, slot): no policy, load or late message can
shift them, so two runs that differ in a policy alone see the same bytes. An arrival at time t is
handed over at the first slot start at or after t and keeps t as its arrival time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed import rng
from testbed.ran.numerology import Direction
from testbed.ran.traces import Trace, map_rntis

BLOCK_SLOTS = 256
"""Slots whose arrivals are drawn together; part of what a seed means."""


@dataclass(frozen=True, slots=True)
class NoTraffic:
    """Nothing arrives."""


@dataclass(frozen=True, slots=True)
class Ftp3:
    """FTP model 3 (TR 36.889): files of one size, a Poisson process per UE."""

    files_per_s_per_ue: float
    file_bytes: int = 500_000

    def __post_init__(self) -> None:
        if not 0 <= self.files_per_s_per_ue < 1e6:
            raise ValueError(
                f"files_per_s_per_ue = {self.files_per_s_per_ue!r}: allowed is 0 to below 1e6"
            )
        if self.file_bytes < 1:
            raise ValueError(f"file_bytes = {self.file_bytes!r}: must be at least 1")


@dataclass(frozen=True, slots=True)
class FullBuffer:
    """Each UE always has at least ``backlog_bytes`` waiting.

    The MAC adds one SDU of that size whenever the backlog falls below it, so here the arrivals
    depend on the service: delays mean nothing, and runs of two policies are not paired.
    """

    backlog_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        if self.backlog_bytes < 1:
            raise ValueError(f"backlog_bytes = {self.backlog_bytes!r}: must be at least 1")


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace played back; each of its arrivals is one SDU.

    Args:
        trace: both directions; each link takes its own.
        start_s: where in the trace slot 0 is, in seconds of the trace.
        length_s: how much of the trace to play; to its last arrival if None.
        loop: start again at ``start_s`` when that part has been played.
        bytes_scale: factor on every arrival's bytes (never below 1 byte).
        time_compress: 2.0 plays twice as fast.
    """

    trace: Trace
    start_s: float = 0.0
    length_s: float | None = None
    loop: bool = False
    bytes_scale: float = 1.0
    time_compress: float = 1.0

    def __post_init__(self) -> None:
        last_s = self.trace.duration_us / 1e6
        if not 0 <= self.start_s <= last_s:
            raise ValueError(
                f"start_s = {self.start_s!r}: allowed is 0 to {last_s}, the trace's last arrival"
            )
        for key, value in (
            ("length_s", 1.0 if self.length_s is None else self.length_s),
            ("bytes_scale", self.bytes_scale),
            ("time_compress", self.time_compress),
        ):
            if not 0 < value < 1e9:
                raise ValueError(f"{key} = {value!r}: allowed is above 0 and below 1e9")


TrafficSpec = NoTraffic | Ftp3 | FullBuffer | Replay


@dataclass(frozen=True, slots=True)
class Arrival:
    """One SDU (a file or a packet) of one UE."""

    ue: int
    n_bytes: int
    arrival_us: int


class ArrivalSource(Protocol):
    """Arrivals of one link (a cell and a direction)."""

    def arrivals(self, slot: int) -> Sequence[Arrival]:
        """Arrivals in (start of the slot before, start of this slot], in order of time."""
        ...


def arrival_source(
    spec: TrafficSpec, *, seed: int, cell: int, direction: Direction, n_ues: int, slot_us: int
) -> ArrivalSource:
    """The source that a traffic description asks for (a full buffer has no arrivals of its own)."""
    if isinstance(spec, Ftp3):
        return Ftp3Source(spec, seed, cell, direction, n_ues, slot_us)
    if isinstance(spec, Replay):
        return ReplaySource(spec, direction, n_ues, slot_us)
    return SilentSource()


class SilentSource:
    """No arrivals."""

    def arrivals(self, slot: int) -> Sequence[Arrival]:
        """Always empty."""
        return ()


class Ftp3Source:
    """Poisson arrivals, drawn in blocks of slots from (seed, stream, cell, block)."""

    def __init__(
        self, spec: Ftp3, seed: int, cell: int, direction: Direction, n_ues: int, slot_us: int
    ) -> None:
        self._spec = spec
        self._seed = seed
        self._stream = f"ran.traffic.{direction.value}"
        self._cell = cell
        self._n_ues = n_ues
        self._slot_us = slot_us
        self._block = -1
        self._by_slot: dict[int, list[Arrival]] = {}

    def arrivals(self, slot: int) -> Sequence[Arrival]:
        """Files of all UEs whose arrival falls just before or on this slot's start."""
        block = slot // BLOCK_SLOTS
        if block != self._block:
            self._by_slot = self._draw(block)
            self._block = block
        return self._by_slot.get(slot, ())

    def _draw(self, block: int) -> dict[int, list[Arrival]]:
        # Given its count, a Poisson process is a set of uniform times; UEs of one rate are uniform.
        length_us = BLOCK_SLOTS * self._slot_us
        rate = self._spec.files_per_s_per_ue * self._n_ues * length_us / 1e6
        draw = rng.generator(self._seed, self._stream, self._cell, block)
        count = int(draw.poisson(rate))
        first_us = (block * BLOCK_SLOTS - 1) * self._slot_us + 1
        times = draw.integers(first_us, first_us + length_us, size=count).tolist()
        ues = draw.integers(0, self._n_ues, size=count).tolist()
        by_slot: dict[int, list[Arrival]] = {}
        for time_us, ue in sorted(zip(times, ues, strict=True)):
            if time_us < 0:  # The window of slot 0 begins before the run does.
                continue
            slot = -(-time_us // self._slot_us)
            by_slot.setdefault(slot, []).append(Arrival(ue, self._spec.file_bytes, time_us))
        return by_slot


class ReplaySource:
    """Arrivals of a trace, RNTIs mapped onto UEs by ``traces.map_rntis``."""

    def __init__(self, spec: Replay, direction: Direction, n_ues: int, slot_us: int) -> None:
        start_us = round(spec.start_s * 1e6)
        end_us = spec.trace.duration_us + 1
        if spec.length_s is not None:
            end_us = start_us + round(spec.length_s * 1e6)
        ue_of = map_rntis(spec.trace, n_ues)
        played = [
            a
            for a in spec.trace.arrivals
            if a.direction is direction and start_us <= a.time_us < end_us
        ]
        self._slot_us = slot_us
        self._times_us = [int((a.time_us - start_us) / spec.time_compress) for a in played]
        self._ues = [ue_of[a.rnti] for a in played]
        self._bytes = [max(1, int(a.n_bytes * spec.bytes_scale)) for a in played]
        # A loop shorter than a slot would fold several rounds into each slot for ever.
        length_us = max(slot_us, int((end_us - start_us) / spec.time_compress))
        self._loop_us = length_us if spec.loop and played else None

    def arrivals(self, slot: int) -> Sequence[Arrival]:
        """Trace arrivals in (start of the slot before, start of this slot]."""
        upto_us = slot * self._slot_us
        after_us = upto_us - self._slot_us
        if self._loop_us is None:
            return self._between(after_us, upto_us, 0)
        first, last = max(0, after_us // self._loop_us), upto_us // self._loop_us
        return [
            arrival
            for turn in range(first, last + 1)
            for arrival in self._between(after_us, upto_us, turn * self._loop_us)
        ]

    def _between(self, after_us: int, upto_us: int, origin_us: int) -> list[Arrival]:
        low = bisect_right(self._times_us, after_us - origin_us)
        high = bisect_right(self._times_us, upto_us - origin_us, lo=low)
        if self._loop_us is not None:
            high = min(high, bisect_left(self._times_us, self._loop_us))
        return [
            Arrival(self._ues[i], self._bytes[i], origin_us + self._times_us[i])
            for i in range(low, high)
        ]
