"""A gNB's PHY: transport blocks in, GPU work out, decoding results back to the MAC.

It must not choose its SMs: the site agent allocates them. Its executor runs the work and holds it
to the time that the cost model gives for that allocation; a block whose task ends after its
deadline is LATE, whatever its channel would have given.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodes.api import (
    CancelTimer,
    Decide,
    Effect,
    Event,
    NodeContext,
    Received,
    Record,
    Reported,
    Send,
    SetTimer,
    TimerFired,
    Work,
)
from protocols.messages import CrcIndication, PhyAllocation, PhyDone, TtiRequest
from protocols.work import PhyTask, PhyTaskDone
from testbed.gpu.cost import UPLINK, PhyDemand, Segment, decoder_iterations, finish_us, phy_demand
from testbed.gpu.phy_tasks import deadline_us, ready_us
from testbed.gpu.timeline import TaskKey
from testbed.ran.channel import crc_ok
from testbed.ran.numerology import Direction
from testbed.ran.plan import CellPlan, TransportBlock
from testbed.record.schema import LatenessSource
from testbed.topology.views import GnbView, node_name

_DIRECTIONS = (Direction.DL, Direction.UL)
_NACK, _ACK, _LATE = 0, 1, 2


@dataclass(slots=True)
class _Task:
    number: int
    plan: CellPlan
    iterations: int
    start_us: int = 0
    sms: int = 0
    modelled_end_us: int = 0
    allocated: bool = False


class GnbPhyNode:
    """State machine of one gNB's PHY."""

    def __init__(self, context: NodeContext) -> None:
        view = GnbView(context.topology, context.site, context.gnb)
        self._view = view
        self._gpu = view.gpu
        self._slot_us = view.slot_us
        self._seed = context.topology.seed
        self._mac = node_name(context.site, context.gnb, "mac")
        self._agent = node_name(context.site, "agent")
        self._cells = {cell.cell_id: cell for cell in view.cells_of_gnb}
        self._tasks: dict[TaskKey, _Task] = {}
        self._keys: dict[int, TaskKey] = {}
        self._early: dict[TaskKey, list[Segment]] = {}
        self._next_number = 1

    def step(self, now_us: int, event: Event) -> list[Effect]:
        """Blocks, then their allocation (in either order), then the executor's report."""
        match event:
            case Received(message=TtiRequest() as request):
                return self._on_request(request)
            case Received(message=PhyAllocation() as allocation):
                return self._on_allocation(now_us, allocation)
            case Reported(message=PhyTaskDone() as done):
                return self._on_done(done)
            case TimerFired(key=key):
                return self._on_unallocated(key)
        return []

    def _on_request(self, request: TtiRequest) -> list[Effect]:
        by_cell: dict[int, list[TransportBlock]] = {}
        for row in request.blocks.tolist():
            by_cell.setdefault(row[0], []).append(TransportBlock._make(row[1:]))
        direction = _DIRECTIONS[request.direction]
        effects: list[Effect] = []
        for cell, blocks in by_cell.items():
            key = TaskKey(cell, request.air_slot, request.direction)
            plan = CellPlan(cell, request.air_slot, direction, tuple(blocks))
            iterations = sum(block.code_blocks * self._iterations(block) for block in plan.blocks)
            task = _Task(self._next_number, plan, iterations)
            self._next_number += 1
            self._tasks[key] = task
            self._keys[task.number] = key
            segments = self._early.pop(key, None)
            if segments is not None:
                effects.append(self._start(key, task, segments))
            else:
                at_us = ready_us(request.direction, request.air_slot, self._slot_us)
                effects.append(SetTimer(_timer(key), at_us))
        return effects

    def _iterations(self, block: TransportBlock) -> int:
        rule = self._gpu.phy.ul_iterations
        return decoder_iterations(rule, block.spectral_efficiency_x1000 / 1000)

    def _on_allocation(self, now_us: int, allocation: PhyAllocation) -> list[Effect]:
        by_task: dict[TaskKey, list[Segment]] = {}
        for cell, air_slot, direction, from_us, sms, permille in allocation.segments:
            segments = by_task.setdefault(TaskKey(cell, air_slot, direction), [])
            segments.append(Segment(from_us, sms, permille))
        effects: list[Effect] = []
        for key, segments in by_task.items():
            task = self._tasks.get(key)
            if task is None:
                self._early[key] = segments  # the blocks are still on their way
            elif task.allocated and task.start_us <= now_us:
                effects.append(Decide(_timer(key), "allocation changed after the task began"))
            else:
                effects += [CancelTimer(_timer(key)), self._start(key, task, segments)]
        return effects

    def _on_unallocated(self, name: str) -> list[Effect]:
        """No allocation came in time: the RAN does not wait; it takes what it wants."""
        for key, task in self._tasks.items():
            if _timer(key) == name and not task.allocated:
                start_us = ready_us(key.direction, key.air_slot, self._slot_us)
                demand = self._demand(key, task)
                work = self._start(key, task, [Segment(start_us, demand.sms, 0)])
                return [Decide(name, "no allocation by the task's start; took what it wants"), work]
        return []

    def _demand(self, key: TaskKey, task: _Task) -> PhyDemand:
        return phy_demand(self._gpu, key.direction, task.plan.code_blocks, 100 * task.iterations)

    def _start(self, key: TaskKey, task: _Task, segments: list[Segment]) -> Work:
        """Hand the task to the executor; a second hand-over before its start replaces the first."""
        first = next(segment for segment in segments if segment.sms > 0)
        task.start_us, task.sms = first.from_us, first.sms
        task.modelled_end_us = finish_us(self._gpu, self._demand(key, task), segments)
        task.allocated = True
        blocks = task.plan.blocks
        return Work(
            PhyTask(
                task.number,
                key.direction,
                task.start_us,
                task.modelled_end_us,
                task.plan.n_prb,
                blocks[0].layers,
                task.plan.code_blocks,
                task.iterations,
            )
        )

    def _on_done(self, done: PhyTaskDone) -> list[Effect]:
        key = self._keys.pop(done.task, None)
        if key is None:
            return [Decide(f"task {done.task}", "reported twice: replaced too late to be stopped")]
        task = self._tasks.pop(key)
        phy = self._view.phy
        deadline = deadline_us(
            key.direction,
            key.air_slot,
            self._slot_us,
            phy.ul_decode_budget_us,
            phy.fronthaul_lead_us,
        )
        # Late by the model is late; an overrun of real work is a matter of fidelity, not of RAN.
        late = task.modelled_end_us > deadline
        cell = self._cells[key.cell]
        decoded = crc_ok(self._seed, task.plan, cell.mcs_table, cell.n_ues)
        results = tuple(
            (block.ue, block.harq_id, _LATE if late else _ACK if ok else _NACK)
            for block, ok in zip(task.plan.blocks, decoded, strict=True)
        )
        end_us = max(done.end_us, task.modelled_end_us)
        report = PhyDone(
            key.cell,
            key.air_slot,
            key.direction,
            max(done.woken_us, task.start_us),
            task.modelled_end_us,
            end_us,
            task.sms,
        )
        lateness_us = max(0, done.woken_us - task.start_us)
        overrun_us = max(0, done.real_end_us - task.modelled_end_us)
        slot = task.start_us // self._slot_us
        source, slowdown = int(LatenessSource.PHY_TASK), done.host_slowdown_permille
        effects: list[Effect] = [
            Send(
                self._mac,
                CrcIndication(key.cell, key.air_slot, key.direction, task.modelled_end_us, results),
            ),
            Send(self._agent, report),
            Record("lateness", (slot, task.start_us, lateness_us, overrun_us, source, slowdown)),
        ]
        if late:
            by_us = task.modelled_end_us - deadline
            what = "uplink" if key.direction == UPLINK else "downlink"
            effects.append(Decide(_timer(key), f"{what} task {by_us} us after its deadline"))
        return effects


def _timer(key: TaskKey) -> str:
    return f"phy {key.cell}/{key.air_slot}/{key.direction}"
