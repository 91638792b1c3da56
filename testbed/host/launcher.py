"""The launcher: owns every process of a run, from spawn to clean-up, and its order of phases.

Phases: spawn -> handshake (HELLO, CONFIG, READY) -> START -> run -> drain -> stop. The first thing
that goes wrong is the run's cause; what follows from it is only logged. Every wait has a bound.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable

from protocols.control import (
    Config,
    Drain,
    Drained,
    Failed,
    Heartbeat,
    Hello,
    Inject,
    PeerStatus,
    Ready,
    Start,
    Stats,
    Stop,
)
from protocols.errors import ProtocolError, RanloomError
from protocols.messages import PROTOCOL_VERSION, Message
from testbed.errors import NodeFailed
from testbed.host.birth import Birth
from testbed.host.children import Child
from testbed.host.control_desk import ControlDesk
from testbed.host.executor_child import describe_exit
from testbed.host.faults import injections, kills
from testbed.host.live_result import LiveResult
from testbed.host.liveness import Liveness
from testbed.host.members import Member, config_of
from testbed.host.rendezvous import Rendezvous
from testbed.host.run_dir import RunDirectory
from testbed.topology.node_config import NodePlan, plan_nodes
from testbed.topology.schema import Topology
from testbed.topology.views import RECORDER

START_LEAD_NS = 500_000_000
_POLL_S = 0.1
_FAILED_STOP_S = 1.5
_HURRIED_STOP_S = 0.3
"""After a second Ctrl-C, for the nodes and then for the recorder."""
_TAIL_LINES = 8

OnProgress = Callable[[int, str], None]


class Interrupted(RanloomError):
    """The user, or ``down``, ended the run."""


class Launcher:
    """One live run."""

    def __init__(
        self,
        topology: Topology,
        time_scale: float,
        run_dir: RunDirectory,
        on_progress: OnProgress,
    ) -> None:
        self._topology = topology
        self._host = topology.host
        self._wall_ns_per_us = round(time_scale * 1000)
        self._run_dir = run_dir
        self._on_progress = on_progress
        self._plans = {plan.node: plan for plan in plan_nodes(topology)}
        self._members: dict[str, Member] = {}
        self._control = ControlDesk(
            f"ipc://{run_dir.runtime}/control", run_dir.token, self._on_message
        )
        self._rendezvous: Rendezvous | None = None
        self._liveness = Liveness(self._host.missing_wall_ms / 1000, self._host.dead_wall_ms / 1000)
        self._changed = asyncio.Event()
        self._failure: RanloomError | None = None
        self._failed_node = ""
        self._interrupts = 0
        self._epoch_ns = 0
        self._progress = ""
        self._kills = kills(topology)
        self.result = LiveResult(rejected=self._control.rejected)

    # --- the phases -----------------------------------------------------------------------------

    async def run(self) -> LiveResult:
        """Run to the end, whatever it is; the result says which. Never leaves a process."""
        loop = asyncio.get_running_loop()
        self._control.open()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            await self._spawn()
            await self._until(self._all_ready, self._host.start_wall_ms / 1000, self._not_ready)
            self._measure_memory()
            self._start()
            await self._until_finished()
            self._measure_memory()
        except Interrupted as error:
            self.result.status, self.result.reason = "interrupted", str(error)
            await self._drain_after_interrupt()
        except RanloomError as error:
            self.result.status, self.result.reason = "failed", str(error)
        finally:
            await self._stop_all()
            self._describe_end()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            self._control.close()
        return self.result

    async def _spawn(self) -> None:
        if any(plan.kind == "trainer" for plan in self._plans.values()):
            self._rendezvous = Rendezvous(self._run_dir, self._fail)
            await self._rendezvous.start(self._host.start_wall_ms / 1000)
        for plan in self._plans.values():
            self._spawn_node(plan, 1)

    def _spawn_node(self, plan: NodePlan, life: int) -> None:
        runtime = self._run_dir.runtime
        index = list(self._plans).index(plan.node)
        command = [sys.executable, "-m", "nodes", plan.kind, "--node", plan.node]
        command += ["--life", str(life), "--control", f"ipc://{runtime}/control"]
        command += ["--inbox", f"ipc://{runtime}/{index}.{life}"]
        command += ["--run-token", self._run_dir.token, "--runtime-dir", str(runtime)]
        command += ["--launcher-pid", str(os.getpid())]
        log = self._run_dir.path / "logs" / f"{plan.node}.log"
        child = Child(plan.node, command, log, self._on_exit)
        self._run_dir.note_process("node", plan.node, child.pid)
        self._members[plan.node] = Member(plan, child, life)
        self._control.expect(plan.node, life)

    def _start(self) -> None:
        self._epoch_ns = time.monotonic_ns() + START_LEAD_NS
        for injection in injections(self._topology):
            inject = Inject(injection.fault, injection.at_us, injection.numbers)
            self._send(injection.node, inject)
        for member in self._members.values():
            self._liveness.expect(member.plan.node, time.monotonic())
            self._send(member.plan.node, Start(self._epoch_ns))

    async def _until_finished(self) -> None:
        """Until the MACs and the coordinator have nothing open, or something fails."""
        time_us = self._topology.time.total_us
        wall_s = time_us * self._wall_ns_per_us / 1e9 + START_LEAD_NS / 1e9
        limit_s = wall_s + self._host.drain_wall_ms / 1000
        await self._until(self._all_finished, limit_s, self._not_finished)

    async def _drain_after_interrupt(self) -> None:
        """First Ctrl-C: open work is ended and flushed, within the drain's bound."""
        if not self._epoch_ns or self._interrupts > 1:
            return
        self._drain("the run was interrupted", at_once=False)
        try:
            limit_s = self._host.drain_wall_ms / 1000
            await self._until(self._all_finished, limit_s, self._not_finished, interruptible=False)
        except Interrupted:
            return  # again: there is no more time
        except RanloomError as error:
            self.result.reason += f"; {error}"

    def _drain(self, reason: str, *, at_once: bool) -> None:
        for member in self._members.values():
            self._send(member.plan.node, Drain(reason, at_once))

    async def _stop_all(self) -> None:
        """Nodes first, so that their last rows reach the recorder; then it; then the store."""
        limit_s = self._host.stop_wall_ms / 1000
        if self.result.status == "failed":
            self._drain("the run failed", at_once=True)
            limit_s = min(limit_s, _FAILED_STOP_S)
        if self._interrupts > 1:
            limit_s = min(limit_s, _HURRIED_STOP_S)
        others = [m for m in self._members.values() if m.plan.node != RECORDER]
        last = [m for m in self._members.values() if m.plan.node == RECORDER]
        for group in (others, last):
            for member in group:
                member.stopping = True
                if member.child.code is None:
                    self._send(member.plan.node, Stop(self.result.reason or "the run is over"))
            deadline = time.monotonic() + limit_s
            for member in group:
                left_s = max(0.0, deadline - time.monotonic())
                if not await member.child.wait(left_s):
                    member.child.kill()
                    await member.child.wait(2.0)
                member.child.kill()  # what is left of its group: an executor without its host
        if self._rendezvous is not None:
            await self._rendezvous.stop()

    # --- waiting --------------------------------------------------------------------------------

    async def _until(
        self,
        condition: Callable[[], bool],
        limit_s: float,
        missing: Callable[[], str],
        *,
        interruptible: bool = True,
    ) -> None:
        """Wait for ``condition``. Raises the run's failure, Interrupted, or NodeFailed (bound)."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if self._failure is not None:
                raise self._failure
            if self._interrupts and (interruptible or self._interrupts > 1):
                raise Interrupted("interrupted by the user")
            now = time.monotonic()
            if now > deadline:
                raise NodeFailed(f"after {limit_s:.0f} s {missing()}")
            self._changed.clear()
            try:
                async with asyncio.timeout(_POLL_S):
                    await self._changed.wait()
            except TimeoutError:
                self._tick()

    def _tick(self) -> None:
        """What is due by the clock: liveness, the launcher's faults, progress."""
        for change in self._liveness.check(time.monotonic()):
            self._broadcast_status(change.node, change.status, change.reason)
            if change.status == "lost":
                self._fail(NodeFailed(f"{change.node}: {change.reason}"), change.node)
        now_us = self._now_us()
        while self._kills and self._kills[0][0] <= now_us and self._epoch_ns:
            at_us, node = self._kills.pop(0)
            self.result.faults.append({"kind": "kill", "node": node, "at_us": at_us, "seen": True})
            self._members[node].child.kill()
        if self._epoch_ns:
            self._on_progress(max(0, now_us), self._progress)

    def _now_us(self) -> int:
        return (time.monotonic_ns() - self._epoch_ns) // self._wall_ns_per_us

    def _all_ready(self) -> bool:
        return all(member.ready for member in self._members.values())

    def _not_ready(self) -> str:
        waiting = [name for name, member in self._members.items() if not member.ready]
        return f"these nodes were not ready: {', '.join(waiting)} (host.start_wall_ms)"

    def _must_finish(self) -> list[Member]:
        kinds = ("gnb_mac", "coordinator")
        return [member for member in self._members.values() if member.plan.kind in kinds]

    def _all_finished(self) -> bool:
        return all(member.finished for member in self._must_finish())

    def _not_finished(self) -> str:
        waiting = [member.plan.node for member in self._must_finish() if not member.finished]
        return f"these nodes still had work open: {', '.join(waiting)} (host.drain_wall_ms)"

    # --- messages -------------------------------------------------------------------------------

    def _on_message(self, node: str, message: Message) -> None:
        member = self._members[node]
        match message:
            case Hello(version=version) if version != PROTOCOL_VERSION:
                raise ProtocolError("wrong-version", f"{node} speaks version {version}")
            case Hello(inbox=inbox, life=life) if life == member.life:
                member.inbox = inbox
                if all(other.inbox for other in self._members.values()):
                    self._configure()
            case Ready(detail=detail):
                facts = json.loads(detail)
                self.result.ready[node] = facts
                if facts.get("executor_pid"):
                    self._run_dir.note_process("executor", node, facts["executor_pid"])
                member.ready = True
            case Heartbeat(progress=progress, note=note):
                facts = json.loads(note)
                self._progress = facts.get("progress") or self._progress
                for change in self._liveness.beat(node, progress, time.monotonic()):
                    self._broadcast_status(change.node, change.status, change.reason)
                return
            case Drained():
                member.finished = True
            case Stats(document=document):
                self.result.stats[node] = json.loads(document)
            case Failed(error=error, reason=reason):
                self._fail(NodeFailed(f"{node} ({member.plan.kind}): {error}: {reason}"), node)
            case _:
                raise ProtocolError("unexpected-message", f"{type(message).__name__} from {node}")
        self._changed.set()

    def _configure(self) -> None:
        """All inboxes are known: every node gets its CONFIG."""
        facts = {"store": self._rendezvous.endpoint} if self._rendezvous else {}
        for member in self._members.values():
            birth = Birth(member.plan, member.life, self._topology, facts, "")
            config = config_of(birth, self._members, self._run_dir.path, self._wall_ns_per_us)
            self._send(member.plan.node, Config(config.model_dump_json()))

    def _send(self, node: str, message: Message) -> None:
        self._control.send(node, self._members[node].life, message)

    def _broadcast_status(self, node: str, status: str, reason: str) -> None:
        for member in self._members.values():
            if node in member.plan.peers or member.plan.node in self._plans[node].peers:
                self._send(member.plan.node, PeerStatus(node, status, reason))
        print(f"warning: {node} is {status}: {reason}", file=sys.stderr)

    # --- what goes wrong ------------------------------------------------------------------------

    def _on_exit(self, node: str, code: int) -> None:
        member = self._members[node]
        self._liveness.forget(node)
        if not member.stopping:
            kind = member.plan.kind
            self._broadcast_status(node, "lost", describe_exit(code))
            self._fail(NodeFailed(f"{node} ({kind}) {describe_exit(code)}"), node)
        self._changed.set()

    def _on_signal(self, number: int) -> None:
        """First: drain. Second: give back what is open, and stop in a hurry. Third: kill."""
        self._interrupts += 1
        if self._interrupts == 1:
            print("ending: what is open is finished first; again to stop at once", file=sys.stderr)
        elif self._interrupts == 2:
            self._drain("the run was interrupted twice", at_once=True)
            asyncio.get_running_loop().call_later(3 * _HURRIED_STOP_S, self._kill_all)
        elif self._interrupts > 2:
            self._kill_all()
        self._changed.set()

    def _kill_all(self) -> None:
        for member in self._members.values():
            member.stopping = True
            member.child.kill()

    def _fail(self, error: RanloomError, node: str = "") -> None:
        if self._failure is None:
            self._failure = error
            self._failed_node = node
        self._changed.set()

    def _describe_end(self) -> None:
        if self.result.status == "interrupted" and self._interrupts > 1:
            self.result.reason += ", twice"
        if self.result.status != "failed":
            return
        if self._epoch_ns:
            now_s = max(0.0, self._now_us() / 1e6)
            self.result.reason += f" (about {now_s:.2f} s emulated)"
        member = self._members.get(self._failed_node)
        if member is not None:
            self.result.tail = member.child.log_tail(_TAIL_LINES)
            self.result.log = str(member.child.log)

    def _measure_memory(self) -> None:
        pids = {"launcher": os.getpid()}
        if self._rendezvous is not None:
            pids["rendezvous"] = self._rendezvous.pid
        for name, member in self._members.items():
            pids[name] = member.child.pid
            executor = self.result.ready.get(name, {}).get("executor_pid")
            if executor:
                pids[f"{name}/executor"] = executor
        self.result.measure_memory(pids)
