"""The MAC of a cell and of a gNB: slot by slot, arrivals in, plans out, results back in.

In slot n the MAC plans the downlink of air slot n + lookahead and the uplink of air slot
n + lookahead + K2, where those slots carry that direction, and uses the results of the air slots
that are due. A plan, once returned, never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.ran import qos
from testbed.ran.channel import Channel, mcs_margin_db
from testbed.ran.config import CellConfig
from testbed.ran.link import Link
from testbed.ran.numerology import Direction
from testbed.ran.plan import BlockResult, CellPlan, SduDelivered
from testbed.ran.schedulers import (
    CellView,
    MacScheduler,
    RetransmissionShaper,
    SlotView,
    check_grants,
)
from testbed.ran.traffic import ArrivalSource, FullBuffer, arrival_source


@dataclass(frozen=True, slots=True)
class _Inflow:
    """What arrives at a link: a source's SDUs or, without one, a refill of every buffer."""

    link: Link
    source: ArrivalSource | None
    refill_bytes: int
    report_delay_slots: int


LEAST_ERROR_RATE = 1e-5
"""Link adaptation aims no lower for the first block: the margin would cost more than it saves."""


def channel_of(config: CellConfig, seed: int) -> Channel:
    """The channel of a cell, with link adaptation by 5QI.

    UEs whose delay budget has no room for a retransmission get an MCS whose *first* block meets
    their 5QI's packet error rate; the others the usual target, HARQ doing the rest.
    """
    age_slots = config.cqi_delay_slots + config.plan_ahead_slots(Direction.UL)
    margins = []
    for ue in range(config.n_ues):
        margin_db = 0.0
        if config.needs_first_block(ue):
            rate = max(LEAST_ERROR_RATE, qos.packet_error_rate(config.ue_five_qi(ue)))
            margin_db = mcs_margin_db(
                rate, config.fading_sd_db, config.sinr_correlation_per_slot, age_slots
            )
        margins.append(round(100 * margin_db))
    return Channel(
        seed=seed,
        cell=config.cell_id,
        n_ues=config.n_ues,
        mcs_table=config.mcs_table,
        mean_db=config.sinr_mean_db,
        ue_sd_db=config.sinr_sd_db,
        fading_sd_db=config.fading_sd_db,
        correlation_per_slot=config.sinr_correlation_per_slot,
        cqi_delay_slots=config.cqi_delay_slots,
        mcs_margin_cdb=margins,
    )


class CellMac:
    """State of one cell: its channel, and a downlink and an uplink."""

    def __init__(self, config: CellConfig, seed: int) -> None:
        self.config = config
        self.channel = channel_of(config, seed)
        self.dl = Link(config, Direction.DL, self.channel)
        self.ul = Link(config, Direction.UL, self.channel)
        self._slot_us = config.slot_us
        self._inflows = [_inflow(config, seed, link) for link in (self.dl, self.ul)]
        self._feedback = [
            (link, config.feedback_slots(link.direction)) for link in (self.dl, self.ul)
        ]
        self._last_arrival_slot: int | None = None

    def link(self, direction: Direction) -> Link:
        """The downlink or the uplink."""
        return self.dl if direction is Direction.DL else self.ul

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is in the air, in either direction."""
        return self.dl.idle and self.ul.idle

    def stop_arrivals(self, slot: int) -> None:
        """Nothing arrives after that slot (the drain at the end of a run)."""
        self._last_arrival_slot = slot

    def advance(self, slot: int) -> None:
        """Arrivals of a slot enter the buffers; uplink ones when the gNB learns of them."""
        last = self._last_arrival_slot
        for inflow in self._inflows:
            arrived = slot - inflow.report_delay_slots
            if arrived < 0 or (last is not None and arrived > last):
                continue
            if inflow.source is None:
                inflow.link.top_up(inflow.refill_bytes, slot * self._slot_us)
            elif arrivals := inflow.source.arrivals(arrived):
                inflow.link.arrive(arrivals)

    def settle(self, slot: int) -> list[SduDelivered]:
        """Use the results that are due in a slot."""
        delivered: list[SduDelivered] = []
        for link, feedback_slots in self._feedback:
            delivered += link.settle(slot - feedback_slots)
        return delivered


def _inflow(config: CellConfig, seed: int, link: Link) -> _Inflow:
    spec = config.traffic(link.direction)
    delay_slots = config.ul_report_delay_slots if link.direction is Direction.UL else 0
    if isinstance(spec, FullBuffer):
        return _Inflow(link, None, spec.backlog_bytes, delay_slots)
    source = arrival_source(
        spec,
        seed=seed,
        cell=config.cell_id,
        direction=link.direction,
        n_ues=config.n_ues,
        slot_us=config.slot_us,
    )
    return _Inflow(link, source, 0, delay_slots)


@dataclass(frozen=True, slots=True)
class _Side:
    """One direction of a gNB: its policy, and each cell's number and link."""

    direction: Direction
    policy: MacScheduler
    shaper: RetransmissionShaper | None
    links: list[tuple[int, Link]]


class GnbMac:
    """All cells of one gNB, scheduled jointly by one policy per direction."""

    def __init__(
        self,
        cells: Sequence[CellConfig],
        *,
        seed: int,
        dl_policy: MacScheduler,
        ul_policy: MacScheduler,
    ) -> None:
        """The two policies may be one object.

        Raises:
            ValueError: no cell, an identifier twice, or cells that differ in slot length, lookahead
                or K2 and so cannot be scheduled together.
        """
        if not cells:
            raise ValueError("a gNB needs at least one cell")
        for key in ("scs_khz", "lookahead_slots", "k2_slots"):
            values = [getattr(cell, key) for cell in cells]
            if len(set(values)) > 1:
                raise ValueError(f"cells of one gNB must agree in {key}, got {values}")
        self._cells = {config.cell_id: CellMac(config, seed) for config in cells}
        if len(self._cells) < len(cells):
            raise ValueError(f"cell_id used twice: {[cell.cell_id for cell in cells]}")
        self._slot_us = cells[0].slot_us
        self._ahead = [
            (
                cells[0].plan_ahead_slots(direction),
                _Side(
                    direction,
                    policy,
                    policy if isinstance(policy, RetransmissionShaper) else None,
                    [(cell.config.cell_id, cell.link(direction)) for cell in self.cells],
                ),
            )
            for direction, policy in ((Direction.DL, dl_policy), (Direction.UL, ul_policy))
        ]
        self._next_slot = 0
        self._delivered: list[SduDelivered] = []

    @property
    def cells(self) -> tuple[CellMac, ...]:
        """The cells, in the order given."""
        return tuple(self._cells.values())

    def cell(self, cell: int) -> CellMac:
        """A cell by its identifier (KeyError if it is not of this gNB)."""
        return self._cells[cell]

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is in the air, in any cell."""
        return all(cell.idle for cell in self._cells.values())

    def stop_arrivals(self) -> None:
        """Nothing arrives from the next step on."""
        for cell in self._cells.values():
            cell.stop_arrivals(self._next_slot - 1)

    def feedback(
        self, slot: int, direction: Direction, cell: int, results: Iterable[BlockResult]
    ) -> None:
        """Results of an air slot. They are used in slot + k, and ignored after that."""
        self._cells[cell].link(direction).feedback(slot, results)

    def step(self, slot: int) -> list[CellPlan]:
        """One slot: arrivals, due results, then the plans of the slots ahead.

        Args:
            slot: 0 in the first call, then one more in each.

        Returns:
            One plan per cell for each air slot that is planned now, empty ones included: downlink
            first, cells in the order given.

        Raises:
            PolicyError: the policy granted what it may not.
            ValueError: a slot left out or repeated.
        """
        if slot != self._next_slot:
            raise ValueError(f"step({slot}): the next slot is {self._next_slot}")
        self._next_slot += 1
        for cell in self._cells.values():
            cell.advance(slot)
            self._delivered += cell.settle(slot)
        plans: list[CellPlan] = []
        for ahead, side in self._ahead:
            plans += self._plan(slot, slot + ahead, side)
        return plans

    def take_delivered(self) -> list[SduDelivered]:
        """SDUs completed since the last call, in the order in which that became known."""
        delivered, self._delivered = self._delivered, []
        return delivered

    def _plan(self, now_slot: int, air_slot: int, side: _Side) -> list[CellPlan]:
        direction, policy, shaper = side.direction, side.policy, side.shaper
        links: list[Link] = []
        views: list[CellView] = []
        for number, link in side.links:
            oldest = 0 if shaper is None else link.oldest_retransmission_blocks(air_slot)
            if shaper is None or oldest == 0:
                view = link.open_slot(now_slot, air_slot)
            else:
                most = shaper.retransmission_limit(direction, air_slot, number, oldest)
                view = link.open_slot(now_slot, air_slot, most)
                if view is not None:
                    blocks = sum(block.code_blocks for block in view.retransmissions)
                    shaper.note_retransmissions(direction, air_slot, blocks)
            if view is not None:
                links.append(link)
                views.append(view)
        if not links:
            return []
        slot_view = SlotView(air_slot, air_slot * self._slot_us, direction, tuple(views), now_slot)
        grants = check_grants(policy, slot_view, policy.schedule(slot_view))
        return [link.commit(granted) for link, granted in zip(links, grants, strict=True)]
