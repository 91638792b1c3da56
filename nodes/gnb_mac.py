"""A gNB's MAC: slot by slot, plans to PHY and site agent, results of PHY back into HARQ.

It must not know what the GPU does with the plans: only results (ACK, NACK, LATE) come back. A
policy that shapes its grants to the GPU (``testbed.shaping.contract``) is told of the GPU and of
this gNB's share; what it promises goes to the site agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from nodes.api import (
    Decide,
    DrainRequested,
    Effect,
    Event,
    Finished,
    NodeContext,
    Received,
    Record,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from protocols.messages import (
    DOWNLINK,
    UPLINK,
    CrcIndication,
    EnvelopeShare,
    SlotDemand,
    TtiRequest,
)
from testbed.gpu.cost import decoder_iterations
from testbed.gpu.envelope import checked_promise
from testbed.ran.config import CellConfig
from testbed.ran.mac import GnbMac
from testbed.ran.numerology import Direction
from testbed.ran.plan import BlockResult, CellPlan, Outcome, TransportBlock
from testbed.ran.schedulers import MacScheduler
from testbed.record.schema import LatenessSource
from testbed.shaping.contract import Promise, SiteGpu
from testbed.topology.views import GnbView, node_name

_SLOT = "slot"
_MOST_SMS = 0xFFFF
"""What a message can say of wanted SMs: more than any GPU has."""
_RESULTS = (Outcome.NACK, Outcome.ACK, Outcome.LATE)
_NO_FEEDBACK = 3
_DIRECTIONS = {DOWNLINK: Direction.DL, UPLINK: Direction.UL}


class GnbMacNode:
    """State machine of one gNB's MAC."""

    def __init__(self, context: NodeContext) -> None:
        view = GnbView(context.topology, context.site, context.gnb)
        self._gnb = context.gnb
        self._view = view
        self._slot_us = view.slot_us
        self._phy = node_name(context.site, context.gnb, "phy")
        self._agent = node_name(context.site, "agent")
        cells = view.cell_configs(context.traces)
        policy = cast(MacScheduler, context.policies["site.mac"])
        self._mac = GnbMac(cells, seed=context.topology.seed, dl_policy=policy, ul_policy=policy)
        self._cells = {cell.cell_id: cell for cell in cells}
        self._iteration_rule = view.gpu.phy.ul_iterations
        self._policy = policy
        self._promise: Callable[[], Promise] | None = getattr(policy, "promise", None)
        self._share: EnvelopeShare | None = None
        if (bind := getattr(policy, "bind", None)) is not None:
            bind(self._site_gpu(cells))
        # By cell, air slot and direction: the slot that uses the results, and the blocks.
        self._pending: dict[tuple[int, int, int], tuple[int, tuple[TransportBlock, ...]]] = {}
        self._slot = 0
        self._draining = False
        self._drain_until_us = 0
        self._finished = False

    def step(self, now_us: int, event: Event) -> list[Effect]:
        """One slot per timer, at the gNB's phase in it; results whenever they come."""
        match event:
            case Started():
                return [SetTimer(_SLOT, self._view.mac_phase_us)]
            case TimerFired(key="slot", at_us=at_us):
                return self._on_slot(now_us, at_us)
            case Received(message=CrcIndication() as crc):
                return self._on_results(crc)
            case Received(message=EnvelopeShare() as share):
                return self._on_share(share)
            case DrainRequested(reason=reason):
                return [*self._begin_drain(now_us), Decide("traffic", f"stopped: {reason}")]
        return []

    def _on_slot(self, now_us: int, at_us: int) -> list[Effect]:
        slot = self._slot
        self._slot += 1
        next_us = self._slot * self._slot_us + self._view.mac_phase_us
        effects: list[Effect] = [SetTimer(_SLOT, next_us)]
        slot_start_us = slot * self._slot_us
        if not self._draining and slot_start_us >= self._view.end_us:
            effects += self._begin_drain(slot_start_us)
        self._apply_share(slot)
        plans = self._mac.step(slot)
        effects += self._overdue(slot)
        effects += self._requests(slot, plans)
        for sdu in self._mac.take_delivered():
            row = (
                sdu.cell,
                sdu.ue,
                _number(sdu.direction),
                sdu.five_qi,
                sdu.arrival_us,
                sdu.delivered_us,
                sdu.n_bytes,
            )
            effects.append(Record("sdus", row))
        lateness = (slot, at_us, max(0, now_us - at_us), 0, int(LatenessSource.SLOT_TIMER), 0)
        effects.append(Record("lateness", lateness))
        if slot_start_us <= self._view.warmup_us < slot_start_us + self._slot_us:
            effects += self._counters(self._view.warmup_us)
        return effects + self._finish_if_idle(at_us)

    def _requests(self, slot: int, plans: list[CellPlan]) -> list[Effect]:
        """TtiRequest per air slot and direction; one SlotDemand with all tasks."""
        effects: list[Effect] = []
        tasks: list[tuple[int, ...]] = []
        rows: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for plan in plans:
            if not plan.blocks:
                continue
            cell, air_slot, _, blocks = plan
            direction = _number(plan.direction)
            due_slot = air_slot + self._cells[cell].feedback_slots(plan.direction)
            self._pending[cell, air_slot, direction] = due_slot, blocks
            rows.setdefault((air_slot, direction), []).extend([(cell, *block) for block in blocks])
            task = (
                cell,
                air_slot,
                direction,
                plan.n_prb,
                blocks[0].layers,
                plan.code_blocks,
                self._work_milli(plan),
            )
            tasks.append(task)
        for (air_slot, direction), of_slot in rows.items():
            request = TtiRequest(self._gnb, air_slot, direction, np.array(of_slot, dtype="<i4"))
            effects.append(Send(self._phy, request))
        demand = SlotDemand(
            self._gnb,
            slot,
            slot + self._view.lookahead_slots,
            slot + self._view.lookahead_slots + self._view.k2_slots,
            tuple(tasks),
            *self._promised(),
        )
        return [*effects, Send(self._agent, demand)]

    # --- the GPU behind the plans -----------------------------------------------------------------

    def _site_gpu(self, cells: tuple[CellConfig, ...]) -> SiteGpu:
        phy = self._view.phy
        return SiteGpu(
            self._view.gpu,
            cells,
            phy.ul_decode_budget_us,
            phy.fronthaul_lead_us,
            self._view.training_bandwidth_permille,
            self._view.gpu.sms - self._view.ran_gpu.sms,
        )

    def _promised(self) -> tuple[tuple[tuple[int, int], ...], int, int, int]:
        """The last fields of SlotDemand. Raises PolicyError: the policy promises what it may
        not."""
        if self._promise is None:
            return (), 0, 0, 0
        promise = self._promise()
        numbers = (promise.until_slot, promise.breaches, promise.wanted_sms)
        rows, (until_slot, breaches, wanted_sms) = checked_promise(
            self._policy, self._view.gpu.sms, promise.rows, numbers
        )
        return rows, until_slot, breaches, min(wanted_sms, _MOST_SMS)

    def _on_share(self, share: EnvelopeShare) -> list[Effect]:
        if share.gnb != self._gnb:
            return [Decide(f"share {share.gnb}", "a share for a gNB that is not this one")]
        self._share = share
        return [Decide("share", f"{share.sms} SMs from slot {share.from_slot} on")]

    def _apply_share(self, slot: int) -> None:
        """A share that comes later than its slot counts from the next slot on."""
        if self._share is None or slot < self._share.from_slot:
            return
        if (limit := getattr(self._policy, "limit", None)) is not None:
            limit(self._share.sms)
        self._share = None

    def _work_milli(self, plan: CellPlan) -> int:
        """Code blocks weighted by decoder iterations / 10, in thousandths."""
        rule = self._iteration_rule
        return sum(
            [
                100
                * block.code_blocks
                * decoder_iterations(rule, block.spectral_efficiency_x1000 / 1000)
                for block in plan.blocks
            ]
        )

    def _on_results(self, crc: CrcIndication) -> list[Effect]:
        if crc.cell not in self._cells:
            return [Decide(f"crc {crc.cell}", "results for a cell that is not of this gNB")]
        outcomes = {(ue, harq): result for ue, harq, result in crc.results}
        self._mac.feedback(
            crc.air_slot,
            _DIRECTIONS[crc.direction],
            crc.cell,
            [
                BlockResult(ue, harq, _RESULTS[result], crc.end_us)
                for (ue, harq), result in outcomes.items()
            ],
        )
        key = (crc.cell, crc.air_slot, crc.direction)
        _, blocks = self._pending.pop(key, (0, ()))
        return [
            _block_row(key, block, outcomes.get((block.ue, block.harq_id), _NO_FEEDBACK))
            for block in blocks
        ]

    def _overdue(self, slot: int) -> list[Effect]:
        """Plans whose results should have been used by now, and never came."""
        late = [key for key, (due_slot, _) in self._pending.items() if due_slot <= slot]
        return [
            _block_row(key, block, _NO_FEEDBACK)
            for key in late
            for block in self._pending.pop(key)[1]
        ]

    # --- the end --------------------------------------------------------------------------------

    def _begin_drain(self, now_us: int) -> list[Effect]:
        if self._draining:
            return []
        self._draining = True
        self._mac.stop_arrivals()
        self._drain_until_us = now_us + self._view.drain_us
        return []

    def _finish_if_idle(self, at_us: int) -> list[Effect]:
        """All bytes delivered, or the longest delay budget over: the radio has nothing open.

        The slots go on: training may still need to know what the RAN leaves.
        """
        if self._finished or not self._draining:
            return []
        if not self._mac.idle and at_us < self._drain_until_us:
            return []
        self._finished = True
        detail = "drained" if self._mac.idle else "bytes left at the end of the drain"
        return [*self._counters(at_us), *self._backlogs(at_us), Finished(detail)]

    def _counters(self, at_us: int) -> list[Effect]:
        effects: list[Effect] = []
        for cell in self._mac.cells:
            for link in (cell.dl, cell.ul):
                counters = link.counters
                row = (
                    cell.config.cell_id,
                    _number(link.direction),
                    at_us,
                    counters.arrived_bytes,
                    counters.acknowledged_bytes,
                    link.backlog_bytes,
                    counters.in_flight_bytes,
                    counters.rlc_retx_bytes,
                    counters.late_feedback,
                )
                effects.append(Record("ran_counters", row))
        return effects

    def _backlogs(self, at_us: int) -> list[Effect]:
        return [
            Record(
                "ue_backlogs",
                (
                    cell.config.cell_id,
                    ue,
                    _number(link.direction),
                    cell.config.ue_five_qi(ue),
                    at_us,
                    waiting,
                ),
            )
            for cell in self._mac.cells
            for link in (cell.dl, cell.ul)
            for ue in range(cell.config.n_ues)
            if (waiting := link.ue_backlog_bytes(ue))
        ]


def _number(direction: Direction) -> int:
    return DOWNLINK if direction is Direction.DL else UPLINK


def _block_row(key: tuple[int, int, int], block: TransportBlock, result: int) -> Record:
    """Row of a block; ``key``: cell, air slot and direction."""
    row = (
        *key,
        block.ue,
        block.transmission,
        result,
        block.tbs_bytes,
        block.n_prb,
        block.mcs_index,
    )
    return Record("blocks", row)
