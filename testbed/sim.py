"""The simulator: all nodes of a topology in one heap, in virtual time.

The nodes are the live ones. What differs is the host: messages take the link's latency (or the
overhead that doctor measured, where that is longer), timers fire exactly, and executors take
exactly the modelled time. Same topology, seed and versions: the same bytes.

A node that is killed (``[[faults]]``) is gone with all that it waited for; a trainer is born again
as its next life where ``host.restart`` allows it. Unlike in a live run, the rows that it had not
sent yet are kept.
"""

from __future__ import annotations

import heapq
import math
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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
    PeerChanged,
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
from testbed.host.faults import death, injections, kill, kills, restart
from testbed.host.journal import Journal, Stepper
from testbed.host.recording import RowBuffer
from testbed.host.restarts import RestartBook
from testbed.record.schema import HOST_AT_SPEED_PERMILLE
from testbed.record.spool import MemorySpool
from testbed.sim_trainer import SyncBook, TrainerModel, VirtualTrainer
from testbed.topology.node_config import NodePlan, plan_nodes
from testbed.topology.profiles import effective_gpu, model_profile
from testbed.topology.schema import Topology
from testbed.topology.views import RunView

KILLED = "was killed by signal 9 (SIGKILL)"
"""The end of a process as the live host words it."""

_BEFORE_EPOCH_US = -1000


@dataclass(slots=True)
class SimResult:
    """What a simulated run leaves: its spool, and how far it got.

    ``digests``: of the effects of every life, by the name of its journal. ``faults``: each kill,
    death and restart, as a live run notes them.
    """

    spool: MemorySpool
    end_us: int
    steps: int
    digests: dict[str, str]
    faults: list[dict[str, Any]] = field(default_factory=list)


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
        self._time_scale = time_scale
        self._journals = journals
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
        self._nodes = {name: _SimNode(self, plan, 1) for name, plan in self._plans.items()}
        """The present life of each; a dead one until the next is born."""
        self._lives = list(self._nodes.values())
        self._restarts = RestartBook(host.restart, host.start_wall_ms / 1000)
        self._starting: dict[str, int] = {}
        """The life of each process that is there, but not born yet."""
        self._faults: list[dict[str, Any]] = []

    def run(self) -> SimResult:
        """Run to the end of the drain. Raises NodeFailed with the first cause."""
        for node in self._nodes.values():
            self.at(_BEFORE_EPOCH_US, node.feed, Started())
        for name, event in self._injected():
            if name in self._nodes:
                self.at(_BEFORE_EPOCH_US, self._nodes[name].feed, event)
        for at_us, name in kills(self._topology):
            self.at(at_us, self._kill, name)
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
            sum(life.stepper.steps for life in self._lives),
            {life.name: life.stepper.digest() for life in self._lives},
            self._faults,
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
            route = self._connect(source, to)
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
        return VirtualTrainer(plan.node, plan.job, model, self._book, node.report, node.wake)

    def stepper(self, node: _SimNode) -> Stepper:
        """What runs a life of a node, with its journal where this run keeps any."""
        birth = Birth(node.plan, node.life, self._topology, {}, str(self._topology.directory))
        journal = None
        if self._journals is not None:
            full = self._topology.record.level == "full"
            file = (self._journals / f"{node.name}.mp").open("wb")
            journal = Journal(file, birth.document(), full=full)
        return Stepper(build_node(birth), journal, encodes=self.keeps_bytes)

    # --- death and rebirth ----------------------------------------------------------------------

    def _kill(self, name: str) -> None:
        """SIGKILL to a node's process, where there is one. Raises NodeFailed for its last one."""
        node = self._nodes[name]
        starting = self._starting.pop(name, None)
        self._faults.append(kill(name, self.now_us, seen=not node.dead or starting is not None))
        if starting is not None:
            self._again(node.plan, starting)
        elif not node.dead:
            node.die()
            self._book.forget(name)
            self._again(node.plan, node.life)
            self._tell_peers(node.plan, "lost", KILLED)

    def _again(self, plan: NodePlan, life: int) -> None:
        """Have a dead node's next process started after its backoff. Raises NodeFailed."""
        granted = self._restarts.grant(plan.node, plan.kind, 0.0)
        restarted = granted is not None
        self._faults.append(death(plan.node, life, self.now_us, KILLED, restarted=restarted))
        if granted is None:
            used_up = self._restarts.used_up(plan.node, plan.kind)
            raise NodeFailed(f"{plan.node} ({plan.kind}) {KILLED}{used_up}")
        backoff_us = self._emulated_us(round(granted.after_s * 1000))
        self.at(self.now_us + backoff_us, self._spawn, plan, life + 1)

    def _spawn(self, plan: NodePlan, life: int) -> None:
        self._starting[plan.node] = life
        start_us = self._emulated_us(self._topology.host.trainer_start_wall_ms)
        self.at(self.now_us + start_us, self._bear, plan, life)

    def _bear(self, plan: NodePlan, life: int) -> None:
        if self._starting.get(plan.node) != life:
            return  # killed while it was starting
        del self._starting[plan.node]
        node = self._nodes[plan.node] = _SimNode(self, plan, life)
        self._lives.append(node)
        node.feed(Started())
        for name, event in self._injected():
            if name == plan.node and event.at_us > self.now_us:
                node.feed(event)
        took_ms = self._topology.host.trainer_start_wall_ms
        self._faults.append(restart(plan.node, life, self.now_us, took_ms))
        self._tell_peers(plan, "joined", f"life {life}")

    def _tell_peers(self, plan: NodePlan, status: str, reason: str) -> None:
        changed = PeerChanged(plan.node, status, reason)
        for other in self._plans.values():
            if plan.node in other.peers or other.node in plan.peers:
                self.at(self.now_us + self._message_us, self._peer_changed, other.node, changed)

    def _peer_changed(self, name: str, changed: PeerChanged) -> None:
        """A node hears of a peer: what it sends from now on goes to the peer's present life."""
        node = self._nodes[name]
        if changed.status == "joined":
            node.stepper.restart_sequence(changed.node)
        self._connect(name, changed.node)
        node.feed(changed)

    def _connect(self, source: str, to: str) -> tuple[int, Callable[..., None]]:
        """The route of messages from one node to the present life of another."""
        latency_us = self._view.latency_us(self._plans[source].site, self._plans[to].site)
        delay_us = max(latency_us, self._message_us)
        route = self._routes[source, to] = (delay_us, self._nodes[to].feed)
        return route

    def _injected(self) -> Iterable[tuple[str, Injected]]:
        """(node, event) of the faults that nodes perform themselves."""
        for item in injections(self._topology):
            yield item.node, Injected(item.fault, item.at_us, item.numbers)

    def _emulated_us(self, wall_ms: int) -> int:
        return math.ceil(wall_ms * 1000 / self._time_scale)


class _Ended:
    """Stands for the stepper of a node that is dead: takes every event, and does nothing."""

    def __init__(self, stepper: Stepper) -> None:
        self.steps = stepper.steps
        self._digest = stepper.digest()

    def feed(
        self, now_us: int, event: Event, raw: Sequence[Frame] = ()
    ) -> Iterable[tuple[Effect, list[Frame] | None]]:
        """No effects."""
        return ()

    def restart_sequence(self, peer: str) -> None:
        """It sends nothing."""

    def close(self) -> None:
        """Nothing is open."""

    def digest(self) -> str:
        """Hash of all effects of the node's life."""
        return self._digest


class _SimNode:
    """One life of a node, and its executor, in the simulator. ``name``: that of its journal."""

    def __init__(self, sim: Simulator, plan: NodePlan, life: int) -> None:
        self.plan = plan
        self.life = life
        self.name = plan.node if life == 1 else f"{plan.node}.{life}"
        self.dead = False
        self._sim = sim
        self.stepper: Stepper | _Ended = sim.stepper(self)
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

    def die(self) -> None:
        """Its process is gone: what it waited for, and what still comes, has no effect."""
        self.close()
        assert isinstance(self.stepper, Stepper)
        self.stepper = _Ended(self.stepper)
        self._timers.clear()
        self._tasks.clear()
        self._trainer = None
        self.dead = True

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
        if self._trainer is not None:  # else it is dead
            self._trainer.advance(self._sim.now_us)
