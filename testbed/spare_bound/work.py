"""The RAN's work as rows of a linear programme: service of the curves, its SM-time, and the SMs.

Service is a cumulative column between the deadline and the arrival curve. Its SM-time runs in the
places of its air slots (``places``), and the SMs of an execution slot are at least the SM-time of
its first w microseconds over w, for every w at which work must have ended.

To keep the programme small, and the bound valid, service is known at the ends of *blocks* of a few
air slots alone, but for classes whose budget is not much longer than that: within a block it is
free. What decodes cost is convex per cell; two rows say so. In each air slot the cost of what is
served there, were it spread over the cells as cheaply as possible; in each block the cost of each
cell's service, were it spread evenly over the block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.gpu.cost import DOWNLINK, UPLINK
from testbed.spare_bound.costs import Envelope, decode_envelope, encode_envelope
from testbed.spare_bound.curves import LinkCurves
from testbed.spare_bound.inputs import BoundInput, Floats, Ints
from testbed.spare_bound.places import Place, places
from testbed.spare_bound.program import Program


@dataclass(frozen=True, slots=True)
class RanColumns:
    """The execution slots in which anything can run, ascending, and the columns of their SMs."""

    slot: Ints
    column: Ints


@dataclass(frozen=True, slots=True)
class Service:
    """The service of one direction, as what is known at the ends of a programme.

    Attributes:
        start, end: columns of the code blocks served before the first air slot and up to and with
            the last one; [C, K] for uplink, [K] for downlink.
        base: the same shape, what the columns leave out.
        rows: [..., blocks], the rows that say that service adds up from block to block.
        first_slot: [blocks], the first air slot of each.
        coarse: [K], whether these rows alone say so.
    """

    start: Ints
    end: Ints
    base: Floats
    rows: Ints
    first_slot: Ints
    coarse: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Work:
    """What ``add_work`` added. A direction that no air slot carries has no service."""

    ran: RanColumns
    downlink: Service | None
    uplink: Service | None


@dataclass(frozen=True, slots=True)
class _Part:
    """A column of SM-slots of work in the first ``width_us`` of an execution slot."""

    width_us: int
    uplink: bool
    column: int


_Parts = dict[int, list[_Part]]


def add_work(
    program: Program,
    given: BoundInput,
    downlink: LinkCurves,
    uplink: LinkCurves,
    end_exec_slot: int,
    block_us: int,
) -> Work:
    """Add the work of all air slots that can begin in [given.from_slot, end_exec_slot).

    What of it can run later costs nothing there.

    Args:
        program: to be extended. SM-time is in SM-slots (SMs x slot length).
        given: the input.
        downlink, uplink: curves that a schedule can keep.
        end_exec_slot: behind the last execution slot of the programme.
        block_us: length of a block, at least.
    """
    parts: _Parts = {slot: [] for slot in range(given.from_slot, end_exec_slot)}
    dl = _add_downlink(program, given, downlink, parts, block_us)
    ul = _add_uplink(program, given, uplink, parts, block_us)
    active = [slot for slot, here in parts.items() if here]
    columns = program.columns(np.zeros(len(active)), given.gpu.sms)
    held = [(parts[slot], column) for slot, column in zip(active, columns.tolist(), strict=True)]
    _add_sms(program, given, held)
    return Work(RanColumns(np.array(active, np.int64), columns), dl, ul)


def _add_sms(program: Program, given: BoundInput, held: list[tuple[list[_Part], int]]) -> None:
    """SMs of each execution slot, at least what its parts need; and the decodes' own limit."""
    sms, decodes = _Sums(), _Sums()
    for parts, column in held:
        for width_us in sorted({part.width_us for part in parts}):
            within = [part for part in parts if part.width_us <= width_us]
            share = width_us / given.slot_us
            terms = [(part.column, 1.0) for part in within]
            sms.add([*terms, (column, -share)], 0.0)
            decoding = [(part.column, 1.0) for part in within if part.uplink]
            if len(decoding) > 1:  # a single one is bounded as a column
                decodes.add(decoding, _decode_sms(given) * share)
    for sums in (sms, decodes):
        program.at_most(sums.right, (sums.row, sums.column, sums.value))


class _Sums:
    """Rows that are found one by one, to be added at once."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        self.right: list[float] = []

    def add(self, terms: list[tuple[int, float]], right: float) -> None:
        self.row += [len(self.right)] * len(terms)
        self.column += [column for column, _ in terms]
        self.value += [value for _, value in terms]
        self.right.append(right)


def _decode_sms(given: BoundInput) -> int:
    return min(given.gpu.sms, max(given.gpu.phy.ran_sm_cap, given.gpu.min_sms))


class _Link:
    """One direction: its air slots within the programme, cut into blocks.

    slot, where: air slots whose work can begin in the programme, and the places of each.
    first, last: positions of each block's first and last air slot. block: of each air slot.
    """

    def __init__(
        self, given: BoundInput, direction: int, curves: LinkCurves, parts: _Parts, block_us: int
    ) -> None:
        self.curves = curves
        self.slot: list[int] = []
        self.where: list[tuple[Place, ...]] = []
        for slot in np.flatnonzero(curves.capacity.max(axis=0) > 0).tolist():
            here = places(given, direction, slot)
            if here[0].slot in parts:
                self.slot.append(slot)
                self.where.append(here)
        begin = np.array(self.slot[:1] or [0])
        cut = (np.array(self.slot, np.int64) - begin) * given.slot_us // block_us
        self.last = np.flatnonzero(np.diff(cut, append=-1)) if self.slot else np.zeros(0, np.int64)
        self.block = np.searchsorted(self.last, np.arange(len(self.slot)))
        self.first = np.concatenate(([0], self.last[:-1] + 1)) if self.slot else self.last

    def base(self) -> Floats:
        """[C, K]: code blocks due before the first air slot; columns leave them out."""
        return _before(self.curves.due, self.slot[0])

    def curve(self, curve: Floats, ends: Ints) -> Floats:
        """[C, K, 1 + ends]: a curve before the first air slot and at some positions, less base."""
        at = curve[..., np.array(self.slot)[ends]]
        whole = np.concatenate((_before(curve, self.slot[0])[..., None], at), axis=-1)
        return np.asarray(whole - self.base()[..., None])

    def service(
        self, total: Ints, rows: Ints, base: Floats, coarse: npt.NDArray[np.bool_]
    ) -> Service:
        """From cumulative columns [..., 1 + blocks] and their rows."""
        first_slot = np.array(self.slot)[self.first]
        return Service(total[..., 0], total[..., -1], base, rows, first_slot, coarse)


def _before(curve: Floats, slot: int) -> Floats:
    return np.asarray(curve[..., slot - 1] if slot else np.zeros(curve.shape[:-1]))


def _service(program: Program, due: Floats, arrived: Floats) -> tuple[Ints, Ints, Ints]:
    """Columns of cumulative service [..., 1 + n] between two curves, of its n increments, rows."""
    # Sums of fractions may cross by their rounding where the curves are one.
    arrived = np.maximum(arrived, due)
    total = program.columns(due, arrived)
    step = program.columns(0.0, np.maximum(arrived[..., 1:] - due[..., :-1], 0.0))
    row = np.arange(step.size)
    rows = program.equal(
        np.zeros(step.size),
        (row, total[..., 1:].ravel(), 1.0),
        (row, total[..., :-1].ravel(), -1.0),
        (row, step.ravel(), -1.0),
    )
    return total, step, rows.reshape(step.shape)


def _add_downlink(
    program: Program, given: BoundInput, curves: LinkCurves, parts: _Parts, block_us: int
) -> Service | None:
    """All cells together: the cost of a block is linear in its code blocks."""
    link = _Link(given, DOWNLINK, curves, parts, block_us)
    if not link.slot:
        return None
    due, arrived = (
        link.curve(curve, link.last).sum(axis=0) for curve in (curves.due, curves.arrived)
    )
    total, step, rows = _service(program, due, arrived)
    most, slope = np.zeros(len(link.slot)), np.zeros(len(link.slot))
    for i, slot in enumerate(link.slot):
        capacity = curves.capacity[:, slot]
        envelopes = [encode_envelope(given, float(value)) for value in capacity[capacity > 0]]
        most[i] = sum(envelope.most_blocks for envelope in envelopes)
        slope[i] = min(float(envelope.slope[0]) for envelope in envelopes) / given.slot_us
    cheapest = np.minimum.reduceat(slope, link.first)
    blocks = np.broadcast_to(np.arange(len(link.last)), step.shape)
    program.at_most(np.add.reduceat(most, link.first), (blocks, step, 1.0))
    runs = program.columns(0.0, most * slope)
    program.at_most(np.zeros(len(link.last)), (blocks, step, cheapest), (link.block, runs, -1.0))
    for here, column in zip(link.where, runs.tolist(), strict=True):
        for place in here:  # just one
            if place.slot in parts:
                parts[place.slot].append(_Part(place.width_us, False, column))
    every = np.ones(len(curves.budget_us), np.bool_)
    return link.service(total, rows, link.base().sum(axis=0), every)


def _add_uplink(
    program: Program, given: BoundInput, curves: LinkCurves, parts: _Parts, block_us: int
) -> Service | None:
    link = _Link(given, UPLINK, curves, parts, block_us)
    if not link.slot:
        return None
    envelope = decode_envelope(given)
    width = envelope.widths_within(curves.capacity[:, link.slot])  # [C, slots, segments]
    each = np.arange(len(link.slot))
    segments = _Segments(program, given, envelope, width.sum(axis=0))

    air = np.repeat(each, [len(here) for here in link.where])
    flat = [place for here in link.where for place in here]
    share = np.array([place.width_us for place in flat]) / given.slot_us
    runs = program.columns(0.0, _decode_sms(given) * share)
    program.at_most(np.zeros(len(each)), segments.cost(segments.row), (air, runs, -1.0))
    for place, column in zip(flat, runs.tolist(), strict=True):
        if place.slot in parts:
            parts[place.slot].append(_Part(place.width_us, True, column))

    # Service of each cell and class by blocks; all that a block serves is served in its slots.
    total, step, rows = _service(
        program, link.curve(curves.due, link.last), link.curve(curves.arrived, link.last)
    )
    cells, _, blocks = step.shape
    block = np.broadcast_to(np.arange(blocks), step.shape)
    program.equal(
        np.zeros(blocks), (block, step, 1.0), (link.block[segments.row], segments.column, -1.0)
    )
    urgent = curves.budget_us < _LONG_BLOCKS * block_us
    _add_urgent(program, link, curves, total, segments, np.flatnonzero(urgent))
    service = link.service(total, rows, link.base(), ~urgent)
    if cells == 1:
        return service
    of_block = np.add.reduceat(width, link.first, axis=1).reshape(cells * blocks, -1)
    own = _Segments(program, given, envelope, of_block)
    pair = np.arange(cells * blocks).reshape(cells, 1, blocks)
    program.equal(
        np.zeros(cells * blocks),
        (np.broadcast_to(pair, step.shape), step, 1.0),
        (own.row, own.column, -1.0),
    )
    program.at_most(np.zeros(blocks), own.cost(own.row % blocks), (link.block[air], runs, -1.0))
    return service


def _add_urgent(
    program: Program,
    link: _Link,
    curves: LinkCurves,
    total: Ints,
    segments: _Segments,
    urgent: Ints,
) -> None:
    """Service of the urgent classes, all cells together, in each air slot.

    ``total``: cumulative service [C, K, 1 + blocks] at the ends of blocks.
    """
    if not len(urgent):
        return
    each = np.arange(len(link.slot))
    due, arrived = (
        link.curve(curve, each)[:, urgent].sum(axis=0) for curve in (curves.due, curves.arrived)
    )
    fine, step, _ = _service(program, due, arrived)
    ends = fine[:, np.concatenate(([0], link.last + 1))]
    row = np.arange(ends.size).reshape(ends.shape)
    coarse = total[:, urgent]
    program.equal(
        np.zeros(ends.size), (row, ends, 1.0), (np.broadcast_to(row, coarse.shape), coarse, -1.0)
    )
    program.at_most(
        np.zeros(len(each)),
        (np.broadcast_to(each, step.shape), step, 1.0),
        (segments.row, segments.column, -1.0),
    )


_LONG_BLOCKS = 8
"""A class whose budget is this many blocks is not known within a block."""


class _Segments:
    """Columns of code blocks in the segments of an envelope, of which those of ``width`` exist.

    row: which element of the first axis of ``width`` [n, segments]. column: of the programme.
    """

    def __init__(
        self, program: Program, given: BoundInput, envelope: Envelope, width: Floats
    ) -> None:
        self.row, segment = np.nonzero(width > 0)
        self.column = program.columns(0.0, width[self.row, segment])
        self._sm_slots = envelope.slope[segment] / given.slot_us

    def cost(self, row: Ints) -> tuple[Ints, Ints, Floats]:
        """The SM-slots as a term of given rows."""
        return row, self.column, self._sm_slots
