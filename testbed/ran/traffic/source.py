"""Arrivals handed out: slot by slot to a MAC, or as arrays for many slots at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from testbed.ran.numerology import Direction
from testbed.ran.traffic.processes import BLOCK_SLOTS, Batch, Process, ordered, process
from testbed.ran.traffic.specs import TrafficSpec

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One SDU (a file, a frame or a packet) of one UE."""

    ue: int
    n_bytes: int
    arrival_us: int


class ArrivalArrays(NamedTuple):
    """SDUs in order of arrival: the slot that takes them, UE, bytes, arrival in microseconds."""

    slot: Ints
    ue: Ints
    n_bytes: Ints
    arrival_us: Ints


class ArrivalSource(Protocol):
    """Arrivals of one link (a cell and a direction)."""

    def arrivals(self, slot: int) -> Sequence[Arrival]:
        """Arrivals in (start of the slot before, start of this slot], by time, then UE."""
        ...


def arrival_source(
    spec: TrafficSpec, *, seed: int, cell: int, direction: Direction, n_ues: int, slot_us: int
) -> ArrivalSource:
    """The source that a traffic description asks for (a full buffer has no arrivals of its own)."""
    drawn = process(spec, seed=seed, cell=cell, direction=direction, n_ues=n_ues, slot_us=slot_us)
    return BlockSource(drawn, slot_us)


def arrivals_array(
    spec: TrafficSpec,
    *,
    seed: int,
    cell: int,
    direction: Direction,
    n_ues: int,
    slot_us: int,
    n_slots: int,
    first_slot: int = 0,
) -> ArrivalArrays:
    """The arrivals of slots [first_slot, first_slot + n_slots), as ``arrival_source`` gives them.

    In the same order, with one row per SDU. A full buffer has none: its bytes are the MAC's.
    """
    drawn = process(spec, seed=seed, cell=cell, direction=direction, n_ues=n_ues, slot_us=slot_us)
    if n_slots < 1:
        return ArrivalArrays(*(np.zeros(0, np.int64) for _ in ArrivalArrays._fields))
    end_slot = first_slot + n_slots
    blocks = range(first_slot // BLOCK_SLOTS, (end_slot - 1) // BLOCK_SLOTS + 1)
    batches = [ordered(drawn.batch(block)) for block in blocks]
    columns = Batch(*(np.concatenate(column) for column in zip(*batches, strict=True)))
    slots = _slot_of(columns.time_us, slot_us)
    low, high = np.searchsorted(slots, (first_slot, end_slot))
    rows = ArrivalArrays(slots, columns.ue, columns.n_bytes, columns.time_us)
    return ArrivalArrays(*(column[low:high] for column in rows))


class BlockSource:
    """Serves a process slot by slot; keeps the block that was asked for last."""

    def __init__(self, drawn: Process, slot_us: int) -> None:
        self._process = drawn
        self._slot_us = slot_us
        self._block = -1
        self._by_slot: dict[int, list[Arrival]] = {}

    def arrivals(self, slot: int) -> Sequence[Arrival]:
        """SDUs whose arrival falls just before or on this slot's start."""
        block = slot // BLOCK_SLOTS
        if block != self._block:
            self._load(block)
        return self._by_slot.get(slot, ())

    def _load(self, block: int) -> None:
        batch = ordered(self._process.batch(block))
        by_slot: dict[int, list[Arrival]] = {}
        for slot, ue, n_bytes, time_us in zip(
            _slot_of(batch.time_us, self._slot_us).tolist(),
            batch.ue.tolist(),
            batch.n_bytes.tolist(),
            batch.time_us.tolist(),
            strict=True,
        ):
            by_slot.setdefault(slot, []).append(Arrival(ue, n_bytes, time_us))
        self._by_slot = by_slot
        self._block = block


def _slot_of(time_us: Ints, slot_us: int) -> Ints:
    """The first slot whose start is at or after each time."""
    return -(-time_us // slot_us)
