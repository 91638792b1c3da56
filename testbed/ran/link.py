"""One direction of one cell: buffers, HARQ, the view for the policy, and the plan of a slot."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.ran.channel import Channel
from testbed.ran.config import CellConfig
from testbed.ran.harq import FeedbackLedger, HarqPool, HarqProcess
from testbed.ran.numerology import Direction, res_per_prb
from testbed.ran.plan import BlockResult, CellPlan, Outcome, SduDelivered, TransportBlock
from testbed.ran.qos import mac_budget_us
from testbed.ran.rlc import RlcBuffer, acknowledge
from testbed.ran.schedulers import CellView, Grant, UeView
from testbed.ran.tables import MCS_TABLES
from testbed.ran.tbs import block_sizes
from testbed.ran.traffic import Arrival


@dataclass(slots=True)
class LinkCounters:
    """Totals since the start. At any time arrived = backlog + in flight + acknowledged bytes.

    ``late_feedback`` counts blocks whose result was missing when it was due, ``ignored_feedback``
    results that came after that, twice, or for no block. ``padding_bytes`` is the part of new
    blocks that carried nothing.
    """

    arrived_bytes: int = 0
    in_flight_bytes: int = 0
    acknowledged_bytes: int = 0
    padding_bytes: int = 0
    rlc_retx_bytes: int = 0
    new_blocks: int = 0
    retransmissions: int = 0
    acks: int = 0
    nacks: int = 0
    late_blocks: int = 0
    late_feedback: int = 0
    ignored_feedback: int = 0
    given_up_blocks: int = 0


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Block sizes of one (RE per PRB, MCS), by number of PRBs, ready for look-up."""

    tbs_bytes: tuple[int, ...]
    code_blocks: tuple[int, ...]
    bytes_per_prb: float


@dataclass(slots=True)
class _OpenSlot:
    """An air slot between the view and the grants."""

    slot: int
    res_per_prb: int
    sinr_cdb: list[int]
    mcs: list[int]
    retransmitted: list[HarqProcess]


class Link:
    """State of one direction of one cell. Order of calls per slot: see ``mac.GnbMac.step``."""

    def __init__(self, config: CellConfig, direction: Direction, channel: Channel) -> None:
        self.counters = LinkCounters()
        self.direction = direction
        self._config = config
        self._channel = channel
        self._n_prb = config.n_prb
        self._slot_us = config.slot_us
        self._layers = config.layers(direction)
        ues = range(config.n_ues)
        self._buffers = [RlcBuffer() for _ in ues]
        self._pools = [HarqPool(config.harq_processes) for _ in ues]
        self._average_rate = [0.0 for _ in ues]
        self._five_qi = [config.ue_five_qi(ue) for ue in ues]
        self._budget_us = [mac_budget_us(five_qi) for five_qi in self._five_qi]
        self._ledger = FeedbackLedger()
        self._to_retransmit: list[HarqProcess] = []
        self._open: _OpenSlot | None = None
        self._efficiency_x1000 = [
            round(1000 * row.spectral_efficiency) for row in MCS_TABLES[config.mcs_table]
        ]
        # All sizes now: a look-up table that fills up during the run would stall single slots.
        self._res_of_kind = [res_per_prb(kind, direction) for kind in config.tdd.kinds]
        self._sizes = {re: self._size_tables(re) for re in self._res_of_kind if re}

    def _size_tables(self, re: int) -> list[_Sizes]:
        tables = []
        for row in MCS_TABLES[self._config.mcs_table]:
            sizes = block_sizes(self._n_prb, re, self._config.mcs_table, row.index, self._layers)
            tables.append(
                _Sizes(
                    tuple(size.tbs_bytes for size in sizes),
                    tuple(size.code_blocks for size in sizes),
                    sizes[-1].tbs_bytes / self._n_prb,
                )
            )
        return tables

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait for a grant, all UEs."""
        return sum(buffer.backlog_bytes for buffer in self._buffers)

    def ue_backlog_bytes(self, ue: int) -> int:
        """Bytes of one UE that wait for a grant."""
        return self._buffers[ue].backlog_bytes

    def busy_processes(self, ue: int) -> int:
        """HARQ processes of one UE that hold a block."""
        return self._pools[ue].busy

    def average_rate(self, ue: int) -> float:
        """The UE's average rate T, bytes per slot of this direction."""
        return self._average_rate[ue]

    def oldest_retransmission_blocks(self, air_slot: int) -> int:
        """Code blocks of the retransmission that waits longest for a slot of this size; 0: none."""
        re = self._res_of_kind[air_slot % len(self._res_of_kind)]
        for process in self._to_retransmit:
            if process.res_per_prb == re:
                return process.block.code_blocks
        return 0

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is in the air."""
        return self.backlog_bytes == 0 and self.counters.in_flight_bytes == 0

    def arrive(self, arrivals: Iterable[Arrival]) -> None:
        """SDUs enter the buffers."""
        for arrival in arrivals:
            self._buffers[arrival.ue].push(arrival.n_bytes, arrival.arrival_us)
            self.counters.arrived_bytes += arrival.n_bytes

    def top_up(self, backlog_bytes: int, now_us: int) -> None:
        """Full buffer: one SDU more for each UE with less than that waiting."""
        for buffer in self._buffers:
            if buffer.backlog_bytes < backlog_bytes:
                buffer.push(backlog_bytes, now_us)
                self.counters.arrived_bytes += backlog_bytes

    def feedback(self, slot: int, results: Iterable[BlockResult]) -> None:
        """Results of an air slot, kept until they are due."""
        self.counters.ignored_feedback += self._ledger.offer(slot, results)

    def settle(self, slot: int) -> list[SduDelivered]:
        """Use the results of an air slot; returns the SDUs that they complete."""
        delivered: list[SduDelivered] = []
        for process, result in self._ledger.settle(slot):
            if result is not None and result.outcome is Outcome.ACK:
                self.counters.acks += 1
                delivered += self._acknowledged(process, self._received_us(slot, result))
            else:
                self._failed(process, result)
        return delivered

    def open_slot(
        self, now_slot: int, air_slot: int, most_retx_blocks: int | None = None
    ) -> CellView | None:
        """Place the retransmissions of an air slot and show the rest to the policy.

        ``most_retx_blocks``: code blocks that the retransmissions may have; what is beyond waits.
        Returns None where the slot does not carry this direction. ``commit`` must follow a view.
        """
        re = self._res_of_kind[air_slot % len(self._res_of_kind)]
        if not re:
            return None
        sinr_cdb = self._channel.sinr_cdb(air_slot)
        mcs = self._channel.reported_mcs(now_slot)
        repeated, taken = self._place_retransmissions(re, sinr_cdb, most_retx_blocks)
        self._open = _OpenSlot(air_slot, re, sinr_cdb, mcs, repeated)
        blocks = tuple([process.block for process in repeated])
        config = self._config
        return CellView(
            config.cell_id,
            self._n_prb,
            self._n_prb - sum([block.n_prb for block in blocks]),
            config.max_ues_per_slot - len(blocks),
            re,
            config.mcs_table,
            self._layers,
            blocks,
            self._ue_views(re, mcs, taken),
        )

    def commit(self, grants: Sequence[Grant]) -> CellPlan:
        """Turn checked grants into new blocks; returns the plan of the slot that is open."""
        opened = self._open
        if opened is None:
            raise RuntimeError("commit without an open slot")
        self._open = None
        processes = opened.retransmitted
        beta = self._config.average_rate_beta
        rates = self._average_rate = [beta * average for average in self._average_rate]
        for grant in grants:
            process = self._new_block(opened, grant)
            processes.append(process)
            rates[grant.ue] += (1 - beta) * process.block.tbs_bytes
        self._ledger.sent(opened.slot, processes)
        return CellPlan(
            self._config.cell_id,
            opened.slot,
            self.direction,
            tuple([process.block for process in processes]),
        )

    def _place_retransmissions(
        self, re: int, sinr_cdb: list[int], most_blocks: int | None
    ) -> tuple[list[HarqProcess], list[int]]:
        """Oldest failure first; what does not fit this slot waits, and lets later ones pass."""
        placed: list[HarqProcess] = []
        taken: list[int] = []
        if not self._to_retransmit:
            return placed, taken
        waiting: list[HarqProcess] = []
        free_prb = self._n_prb
        free_blocks = float("inf") if most_blocks is None else most_blocks
        for process in self._to_retransmit:
            old = process.block
            if (
                process.res_per_prb != re
                or old.n_prb > free_prb
                or old.code_blocks > free_blocks
                or old.ue in taken
                or len(placed) == self._config.max_ues_per_slot
            ):
                waiting.append(process)
                continue
            process.block = TransportBlock(
                old.ue,
                old.harq_id,
                old.transmission + 1,
                old.n_prb,
                old.layers,
                old.mcs_index,
                old.tbs_bytes,
                old.code_blocks,
                old.spectral_efficiency_x1000,
                sinr_cdb[old.ue],
            )
            free_prb -= old.n_prb
            free_blocks -= old.code_blocks
            placed.append(process)
            taken.append(old.ue)
        self._to_retransmit = waiting
        self.counters.retransmissions += len(placed)
        return placed, taken

    def _ue_views(self, re: int, mcs: list[int], taken: list[int]) -> tuple[UeView, ...]:
        counters = self.counters
        if counters.arrived_bytes == counters.in_flight_bytes + counters.acknowledged_bytes:
            return ()  # nothing waits, by what the counters promise
        return tuple(
            [
                self._ue_view(ue, re, mcs[ue])
                for ue, buffer in enumerate(self._buffers)
                if buffer.backlog_bytes and self._pools[ue].free and ue not in taken
            ]
        )

    def _ue_view(self, ue: int, re: int, mcs: int) -> UeView:
        buffer = self._buffers[ue]
        sizes = self._sizes[re][mcs]
        head_us = buffer.head_arrival_us
        budget_us = self._budget_us[ue]
        return UeView(
            ue,
            buffer.backlog_bytes,
            mcs,
            sizes.bytes_per_prb,
            min(self._n_prb, bisect_left(sizes.tbs_bytes, buffer.backlog_bytes)),
            self._average_rate[ue],
            head_us,
            head_us + budget_us,
            self._five_qi[ue],
            buffer.head_bytes,
            buffer.tail_arrival_us + budget_us,
        )

    def _new_block(self, opened: _OpenSlot, grant: Grant) -> HarqProcess:
        ue = grant.ue
        mcs = opened.mcs[ue]
        sizes = self._sizes[opened.res_per_prb][mcs]
        tbs_bytes = sizes.tbs_bytes[grant.n_prb]
        carried = min(tbs_bytes, self._buffers[ue].backlog_bytes)
        segments = self._buffers[ue].take(carried)
        self.counters.new_blocks += 1
        self.counters.in_flight_bytes += carried
        self.counters.padding_bytes += tbs_bytes - carried
        block = TransportBlock(
            ue,
            self._pools[ue].acquire(),
            1,
            grant.n_prb,
            self._layers,
            mcs,
            tbs_bytes,
            sizes.code_blocks[grant.n_prb],
            self._efficiency_x1000[mcs],
            opened.sinr_cdb[ue],
        )
        return HarqProcess(block, segments, carried, opened.res_per_prb)

    def _received_us(self, slot: int, result: BlockResult) -> int:
        # A UE's decoding is not emulated; downlink bytes count as received when the slot ends.
        if self.direction is Direction.UL and result.decoded_us is not None:
            return result.decoded_us
        return (slot + 1) * self._slot_us

    def _acknowledged(self, process: HarqProcess, received_us: int) -> list[SduDelivered]:
        ue = process.block.ue
        carried = process.carried_bytes
        self.counters.in_flight_bytes -= carried
        self.counters.acknowledged_bytes += carried
        self._pools[ue].release(process.block.harq_id)
        return [
            SduDelivered(
                self._config.cell_id,
                ue,
                self.direction,
                self._five_qi[ue],
                sdu.arrival_us,
                sdu.last_byte_us,
                sdu.n_bytes,
            )
            for sdu in acknowledge(process.segments, received_us)
        ]

    def _failed(self, process: HarqProcess, result: BlockResult | None) -> None:
        if result is None:
            self.counters.late_feedback += 1
        elif result.outcome is Outcome.LATE:
            self.counters.late_blocks += 1
        else:
            self.counters.nacks += 1
        block = process.block
        if block.transmission < self._config.max_transmissions:
            self._to_retransmit.append(process)
            return
        carried = process.carried_bytes
        self.counters.given_up_blocks += 1
        self.counters.rlc_retx_bytes += carried
        self.counters.in_flight_bytes -= carried
        self._buffers[block.ue].put_back(process.segments)
        self._pools[block.ue].release(block.harq_id)
