"""The simulator: all nodes of a topology in one heap, in virtual time.

The nodes are the live ones. What differs is the host: messages take the link's latency (or the
overhead that doctor measured, where that is longer), timers fire exactly, and executors take
exactly the modelled time. Same topology, seed and versions: the same bytes.
"""

from __future__ import annotations

import heapq
import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodes.api import (
    CancelTimer,
    Decide,
    Effect,
    Event,
    Fail,
    Finished,
    GrantLease,
    Injected,
    Progress,
    Received,
    Record,
    Reported,
    Send,
    SetTimer,
    Started,
    Store,
    TimerFired,
    Work,
)
from protocols.codec import Frame, decode, encode
from protocols.messages import Message
from protocols.work import PhyTask, PhyTaskDone
from testbed.errors import NodeFailed, RanloomError
from testbed.host.birth import Birth, build_node
from testbed.host.faults import injections
from testbed.host.journal import Journal, Stepper
from testbed.host.recording import RowBuffer
from testbed.record.schema import HOST_AT_SPEED_PERMILLE
from testbed.record.spool import MemorySpool
from testbed.sim_trainer import SyncBook, TrainerModel, VirtualTrainer
from testbed.topology.node_config import NodePlan, plan_nodes
from testbed.topology.profiles import effective_gpu, model_profile
from testbed.topology.schema import Topology
from testbed.topology.views import RunView

_BEFORE_EPOCH_US = -1000


@dataclass(slots=True)
class SimResult:
    """What a simulated run leaves: its spool, and how far it got."""

    spool: MemorySpool
    end_us: int
    steps: int
    digests: dict[str, str]


class Simulator:
    """One run in virtual time. ``through_codec``: every message is decoded from its bytes."""

    def __init__(
        self,
        topology: Topology,
        time_scale: float,
        *,
        journals: Path | None = None,
        through_codec: bool = False,
    ) -> None:
        self._topology = topology
        self._view = RunView(topology)
        self._through_codec = through_codec
        self.keeps_bytes = through_codec or journals is not None
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self.now_us = _BEFORE_EPOCH_US
        """Virtual time."""
        host = topology.host
        self._message_us = max(1, math.ceil(host.message_overhead_wall_us / time_scale))
        self._quantum_us = math.ceil(host.quantum_overhead_wall_us / time_scale)
        self._spool = MemorySpool()
        self._book = SyncBook()
        self._plans = {plan.node: plan for plan in plan_nodes(topology)}
        self._routes: dict[tuple[str, str], tuple[int, Callable[..., None]]] = {}
        self._unfinished = {
            name for name, plan in self._plans.items() if plan.kind in ("gnb_mac", "coordinator")
        }
        self._nodes: dict[str, _SimNode] = {
            name: _SimNode(self, plan, journals) for name, plan in self._plans.items()
        }

    def run(self) -> SimResult:
        """Run to the end of the drain. Raises NodeFailed with the first cause."""
        for node in self._nodes.values():
            self.at(_BEFORE_EPOCH_US, node.feed, Started())
        for injection in injections(self._topology):
            if injection.node not in self._nodes:
                continue
            event = Injected(injection.fault, injection.at_us, injection.numbers)
            self.at(_BEFORE_EPOCH_US, self._nodes[injection.node].feed, event)
        limit_us = self._view.end_us + 2 * self._view.drain_us + 1_000_000
        heap, unfinished, earliest = self._heap, self._unfinished, heapq.heappop
        while heap and unfinished:
            time_us, _, action, arguments = earliest(heap)
            if time_us > limit_us:
                missing = ", ".join(sorted(self._unfinished))
                raise NodeFailed(f"the drain did not end by {limit_us} us; still open: {missing}")
            self.now_us = time_us
            action(*arguments)
        for node in self._nodes.values():
            node.close()
        return SimResult(
            self._spool,
            self.now_us,
            sum(node.stepper.steps for node in self._nodes.values()),
            {name: node.stepper.digest() for name, node in self._nodes.items()},
        )

    # --- for the nodes --------------------------------------------------------------------------

    def at(self, time_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` at that time, after all that was asked for earlier for the same time."""
        self._sequence += 1
        at_us = time_us if time_us > self.now_us else self.now_us
        heapq.heappush(self._heap, (at_us, self._sequence, action, arguments))

    def deliver(self, source: str, to: str, message: Message, frames: list[Frame] | None) -> None:
        """Send a message from one node to another; ``frames`` where this run keeps bytes."""
        raw: Sequence[Frame] = ()
        if frames is not None:
            raw = [bytes(frame) for frame in frames]
            if self._through_codec:
                message = decode(raw)[0]
        route = self._routes.get((source, to))
        if route is None:
            latency_us = self._view.latency_us(self._plans[source].site, self._plans[to].site)
            delay_us = max(latency_us, self._message_us)
            route = self._routes[source, to] = (delay_us, self._nodes[to].feed)
        delay_us, feed = route
        self.at(self.now_us + delay_us, feed, Received(source, message), raw)

    def store(self, message: Message) -> None:
        """What the recorder keeps."""
        self._spool.append(message)

    def finish(self, node: str) -> None:
        """A node has nothing open any more."""
        self._unfinished.discard(node)

    def trainer_executor(self, node: _SimNode) -> VirtualTrainer:
        """The virtual executor of a trainer node."""
        plan = node.plan
        job = self._view.job(plan.job)
        model = TrainerModel(
            self._view.costs(plan.site, plan.job),
            model_profile(job.model).layers,
            job.proxy.micro_batch * job.proxy.sequence,
            self._topology.host.guard_us,
            effective_gpu(self._topology.sites[plan.site]).switch_us,
            self._quantum_us,
        )
        return VirtualTrainer(plan.job, model, self._book, node.report, node.wake)

    def birth(self, plan: NodePlan) -> Birth:
        """How a node of this run is born."""
        return Birth(plan, 1, self._topology, {}, str(self._topology.directory))


class _SimNode:
    """One node and its executor in the simulator."""

    def __init__(self, sim: Simulator, plan: NodePlan, journals: Path | None) -> None:
        self.plan = plan
        self._sim = sim
        birth = sim.birth(plan)
        journal = None
        if journals is not None:
            full = birth.topology.record.level == "full"
            file = (journals / f"{plan.node}.mp").open("wb")
            journal = Journal(file, birth.document(), full=full)
        self.stepper = Stepper(build_node(birth), journal, encodes=sim.keeps_bytes)
        self._rows = RowBuffer(plan.node)
        self._timers: dict[str, int] = {}
        self._tasks: dict[int, int] = {}
        self._wakes: set[int] = set()
        self._trainer = sim.trainer_executor(self) if plan.kind == "trainer" else None

    def feed(self, event: Event, raw: Sequence[Frame] = ()) -> None:
        """One step of the node, and what follows from it.

        Raises NodeFailed where the step itself fails: a bug of the node, or of a user's policy.
        """
        try:
            performed = self.stepper.feed(self._sim.now_us, event, raw)
        except RanloomError:
            raise
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise NodeFailed(
                f"{self.plan.node} at {self._sim.now_us} us: step failed: "
                f"{type(error).__name__}: {error} ({at.filename}:{at.lineno}, in {at.name})"
            ) from error
        for effect, frames in performed:
            if type(effect) is Record:  # most are one of these two
                batch = self._rows.add(effect)
                if batch is not None:
                    self._sim.store(batch)
            elif type(effect) is Send:
                self._sim.deliver(self.plan.node, effect.to, effect.message, frames)
            else:
                self._perform(effect)

    def report(self, message: Message) -> None:
        """The executor reports."""
        self._sim.at(self._sim.now_us, self._reported, message)

    def wake(self, at_us: int) -> None:
        """The trainer's executor wants to go on at that time."""
        if at_us not in self._wakes:
            self._wakes.add(at_us)
            self._sim.at(at_us, self._woken, at_us)

    def close(self) -> None:
        """The end of the run: rows that are left, and the journal's last hash."""
        for batch in self._rows.flush():
            self._sim.store(batch)
        self.stepper.close()

    def _perform(self, effect: Effect) -> None:
        now_us = self._sim.now_us
        match effect:  # the most frequent ones first
            case SetTimer():
                self._timers[effect.key] = effect.at_us
                self._sim.at(effect.at_us, self._fire, effect.key, effect.at_us)
            case Work(message=PhyTask() as task):
                self._tasks[task.task] = task.end_us
                self._sim.at(task.end_us, self._phy_done, task)
            case CancelTimer():
                self._timers.pop(effect.key, None)
            case Work():
                assert self._trainer is not None
                self._trainer.take(now_us, effect.message)
            case GrantLease():
                assert self._trainer is not None
                self._trainer.set_lease(now_us, effect.lease)
            case Decide():
                self._sim.store(self._rows.decision(now_us, effect))
            case Store():
                self._sim.store(effect.message)
            case Progress():
                pass
            case Finished():
                self._sim.finish(self.plan.node)
            case Fail():
                raise NodeFailed(f"{self.plan.node} at {now_us} us: {effect.reason}")

    def _fire(self, key: str, at_us: int) -> None:
        if self._timers.get(key) == at_us:
            del self._timers[key]
            self.feed(TimerFired(key, at_us))

    def _phy_done(self, task: PhyTask) -> None:
        if self._tasks.get(task.task) != task.end_us:
            return  # replaced by a later hand-over
        del self._tasks[task.task]
        start_us, end_us = task.start_us, task.end_us
        done = PhyTaskDone(task.task, start_us, start_us, end_us, HOST_AT_SPEED_PERMILLE)
        self._reported(done)

    def _reported(self, message: Message) -> None:
        self.feed(Reported(message), encode(message) if self._sim.keeps_bytes else ())

    def _woken(self, at_us: int) -> None:
        self._wakes.discard(at_us)
        assert self._trainer is not None
        self._trainer.advance(self._sim.now_us)
