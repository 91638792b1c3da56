"""A gNB, a GPU's timeline and nothing between them: what a policy's grants do to the GPU.

Results come back when they are due, blocks fail as the channel says, PHY tasks are stretched to
their deadlines, as the site agent does it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from testbed.gpu.cost import UPLINK, decoder_iterations, phy_demand
from testbed.gpu.phy_tasks import deadline_us, ready_us
from testbed.gpu.profile import GpuProfile
from testbed.gpu.sizing import Deadline
from testbed.gpu.timeline import RanTimeline, Reservation, TaskKey, TaskRequest
from testbed.ran.channel import crc_ok
from testbed.ran.config import CellConfig
from testbed.ran.mac import GnbMac
from testbed.ran.numerology import Direction
from testbed.ran.plan import BlockResult, CellPlan, Outcome, SduDelivered
from testbed.ran.qos import mac_budget_us
from testbed.shaping.compiled import new_record
from testbed.shaping.contract import Promise, SiteGpu
from testbed.shaping.packing import PACKING_RECORD, Packing
from testbed.shaping.policy import SpareCompute
from testbed.topology.profiles import gpu_profile

GB10 = gpu_profile("gb10")
SLOT_US = 500
UL_BUDGET_US = 1500
LEAD_US = 125
TRAINING_PERMILLE = 300


def site(cells: tuple[CellConfig, ...], gpu: GpuProfile = GB10) -> SiteGpu:
    """The GPU behind these cells, with the budgets of this loop."""
    return SiteGpu(gpu, cells, UL_BUDGET_US, LEAD_US, TRAINING_PERMILLE)


def new_packing() -> Packing:
    """Room for placing tasks without a controller."""
    return new_record(PACKING_RECORD)


def by_slot(promise: Promise) -> dict[int, int]:
    """SMs promised, by the slot in which work runs."""
    bounds = [*promise.rows, (promise.until_slot, 0)]
    return {slot: sms for (first, sms), (end, _) in pairwise(bounds) for slot in range(first, end)}


@dataclass
class Step:
    """One slot: what was planned and placed, and the promise before and after."""

    slot: int
    plans: list[CellPlan]
    placed: list[Reservation]
    ran_sms: dict[int, int]
    before: dict[int, int]
    after: dict[int, int]
    new_breaches: int


@dataclass
class Gnb:
    """One gNB with its policy, and what it delivered; several may share a timeline."""

    cells: tuple[CellConfig, ...]
    policy: SpareCompute
    seed: int = 1
    gpu: GpuProfile = GB10
    timeline: RanTimeline | None = None
    delivered: list[SduDelivered] = field(default_factory=list)
    missed: int = 0

    def __post_init__(self) -> None:
        self.policy.bind(site(self.cells, self.gpu))
        self.mac = GnbMac(self.cells, seed=self.seed, dl_policy=self.policy, ul_policy=self.policy)
        if self.timeline is None:
            self.timeline = RanTimeline(self.gpu, TRAINING_PERMILLE, Deadline())
        self._configs = {cell.cell_id: cell for cell in self.cells}
        self._due: dict[int, list[tuple[CellPlan, list[BlockResult]]]] = defaultdict(list)
        self._promised: dict[int, int] = {}
        self._breaches = 0
        self.slot = 0

    def step(self) -> Step:
        """One slot. Reservations that are over are forgotten."""
        slot = self.slot
        self.slot += 1
        for plan, results in self._due.pop(slot, ()):
            self.mac.feedback(plan.slot, plan.direction, plan.cell, results)
        plans = [plan for plan in self.mac.step(slot) if plan.blocks]
        self.delivered += self.mac.take_delivered()
        timeline = self.timeline
        timeline.drop_before((slot - 1) * SLOT_US)
        requests = {self._request(plan): plan for plan in plans}
        placed = timeline.reserve(requests)
        for reservation in placed:
            self._answer(requests[reservation.request], reservation)
        promise = self.policy.promise()
        before, self._promised = self._promised, by_slot(promise)
        breaches, self._breaches = self._breaches, promise.breaches
        ran_sms = dict(enumerate(timeline.sms_by_slot(slot, SLOT_US), start=slot))
        return Step(
            slot, plans, placed, ran_sms, before, self._promised, promise.breaches - breaches
        )

    def run(self, slots: int, check: Callable[[Step], None] = lambda step: None) -> None:
        """Many steps, each of them checked."""
        for _ in range(slots):
            check(self.step())

    def drain(self, most_slots: int, check: Callable[[Step], None] = lambda step: None) -> None:
        """No arrivals any more, until all is delivered."""
        self.mac.stop_arrivals()
        last = self.slot + most_slots
        while not self.mac.idle:
            assert self.slot < last, "the drain does not end: somebody starves"
            check(self.step())

    def late_bytes(self) -> int:
        """Bytes of SDUs that were delivered after their delay budget."""
        return sum(
            sdu.n_bytes
            for sdu in self.delivered
            if sdu.delivered_us - sdu.arrival_us > mac_budget_us(sdu.five_qi)
        )

    def _request(self, plan: CellPlan) -> TaskRequest:
        way = int(plan.direction is Direction.UL)
        rule = self.gpu.phy.ul_iterations
        milli = sum(
            100 * b.code_blocks * decoder_iterations(rule, b.spectral_efficiency_x1000 / 1000)
            for b in plan.blocks
        )
        return TaskRequest(
            TaskKey(plan.cell, plan.slot, way),
            ready_us(way, plan.slot, SLOT_US),
            deadline_us(way, plan.slot, SLOT_US, UL_BUDGET_US, LEAD_US),
            phy_demand(self.gpu, way, plan.code_blocks, milli),
        )

    def _answer(self, plan: CellPlan, placed: Reservation) -> None:
        config = self._configs[plan.cell]
        late = placed.end_us > placed.request.deadline_us
        self.missed += late
        decoded_us = placed.end_us if placed.request.key.direction == UPLINK else None
        fine = crc_ok(self.seed, plan, config.mcs_table, config.n_ues)
        results = [
            BlockResult(
                block.ue,
                block.harq_id,
                Outcome.LATE if late else Outcome.ACK if ok else Outcome.NACK,
                decoded_us,
            )
            for block, ok in zip(plan.blocks, fine, strict=True)
        ]
        due = plan.slot + config.feedback_slots(plan.direction)
        self._due[due].append((plan, results))
