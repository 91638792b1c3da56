"""The launcher: owns every process of a run, from spawn to clean-up, and its order of phases.

Phases: spawn -> handshake (HELLO, CONFIG, READY) -> START -> run -> drain -> stop. A dead node that
may be restarted goes through the first three again, while the others run on. What goes wrong beyond
that first is the run's cause; what follows from it is only logged. Every wait has a bound.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

from protocols.control import (
    Config,
    Drain,
    Drained,
    Failed,
    Heartbeat,
    Hello,
    Inject,
    PeerJoined,
    PeerStatus,
    Ready,
    Start,
    Stats,
)
from protocols.errors import ProtocolError, RanloomError
from protocols.messages import PROTOCOL_VERSION, Message
from testbed.errors import NodeFailed
from testbed.host.birth import Birth
from testbed.host.control_desk import ControlDesk
from testbed.host.executor_child import describe_exit
from testbed.host.faults import death, injections, kill, kills, restart
from testbed.host.live_result import LiveResult
from testbed.host.liveness import Liveness
from testbed.host.members import Member, Members
from testbed.host.rendezvous import Rendezvous
from testbed.host.restarts import RestartBook
from testbed.host.run_dir import RunDirectory
from testbed.host.steal import StealMeter
from testbed.topology.node_config import plan_nodes
from testbed.topology.schema import Topology

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
        self._control = ControlDesk(
            f"ipc://{run_dir.runtime}/control", run_dir.token, self._on_message
        )
        self._members = Members(self._plans, run_dir, self._control)
        self._rendezvous: Rendezvous | None = None
        self._liveness = Liveness(self._host.missing_wall_ms / 1000, self._host.dead_wall_ms / 1000)
        self._changed = asyncio.Event()
        self._failure: RanloomError | None = None
        self._failed_node = ""
        self._interrupts = 0
        self._epoch_ns = 0
        self._progress = ""
        self._kills = kills(topology)
        self._restarts = RestartBook(self._host.restart, self._host.start_wall_ms / 1000)
        self._ending = False
        self.result = LiveResult(rejected=self._control.rejected)

    # --- the phases -----------------------------------------------------------------------------

    async def run(self) -> LiveResult:
        """Run to the end, whatever it is; the result says which. Never leaves a process."""
        loop = asyncio.get_running_loop()
        self._control.open()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            self._spawn()
            await self._until(self._all_ready, self._host.start_wall_ms / 1000, self._not_ready)
            self._measure_memory()
            self._start()
            steal = StealMeter()
            await self._until_finished()
            self.result.steal_share = steal.share()
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

    def _spawn(self) -> None:
        if any(plan.kind == "trainer" for plan in self._plans.values()):
            self._rendezvous = Rendezvous(self._run_dir, self._changed.set, self._fail)
        for node in self._plans:
            self._members.spawn(node, self._on_exit)

    def _start(self) -> None:
        self._epoch_ns = time.monotonic_ns() + START_LEAD_NS
        for member in self._members:
            self._start_node(member)

    def _start_node(self, member: Member) -> None:
        """START, after the node's faults that are still to come."""
        node = member.plan.node
        now_us = self._now_us()
        for fault in injections(self._topology):
            if fault.node == node and fault.at_us > now_us:
                self._members.send(node, Inject(fault.fault, fault.at_us, fault.numbers))
        self._liveness.expect(node, time.monotonic())
        self._members.send(node, Start(self._epoch_ns))

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
        self._give_up_restarts()
        for member in self._members:
            self._members.send(member.plan.node, Drain(reason, at_once))

    def _give_up_restarts(self) -> None:
        """The run ends: nothing is started again any more."""
        self._ending = True
        self._restarts.cancel()
        self._members.drop_newcomers()

    async def _stop_all(self) -> None:
        """All nodes, then the store."""
        limit_s = self._host.stop_wall_ms / 1000
        self._give_up_restarts()
        if self.result.status == "failed":
            self._drain("the run failed", at_once=True)
            limit_s = min(limit_s, _FAILED_STOP_S)
        if self._interrupts > 1:
            limit_s = min(limit_s, _HURRIED_STOP_S)
        await self._members.stop(self.result.reason or "the run is over", limit_s)
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
        """What is due by the clock: liveness, restarts, the launcher's faults, progress."""
        now_s = time.monotonic()
        for change in self._liveness.check(now_s):
            member = self._members[change.node]
            if change.status == "lost" and self._may_restart(member):
                member.how = f": {change.reason}"
                member.child.kill()  # its exit, which follows, is its death
                continue
            self._members.report(change.node, change.status, change.reason)
            if change.status == "lost":
                self._fail(self._failed(member, f": {change.reason}"), change.node)
        for node in self._restarts.due(now_s):
            self._members.spawn(node, self._on_exit)
        for node in self._restarts.overdue(now_s):
            limit_s = self._host.start_wall_ms / 1000
            late = f", started again, was not ready after {limit_s:.0f} s (host.start_wall_ms)"
            self._fail(self._failed(self._members[node], late), node)
        now_us = self._now_us()
        while self._kills and self._kills[0][0] <= now_us and self._epoch_ns:
            at_us, node = self._kills.pop(0)
            child = self._members[node].child
            self.result.faults.append(kill(node, at_us, seen=child.code is None))
            if child.code is None:
                child.kill()
        if self._epoch_ns:
            self._on_progress(max(0, now_us), self._progress)

    def _now_us(self) -> int:
        return (time.monotonic_ns() - self._epoch_ns) // self._wall_ns_per_us

    def _all_ready(self) -> bool:
        return not self._unready()

    def _not_ready(self) -> str:
        return f"these were not ready: {', '.join(self._unready())} (host.start_wall_ms)"

    def _unready(self) -> list[str]:
        waiting = [member.plan.node for member in self._members if not member.ready]
        if self._rendezvous is not None and not self._rendezvous.ready:
            waiting.append("the collective's store")
        return waiting

    def _must_finish(self) -> list[Member]:
        kinds = ("gnb_mac", "coordinator")
        return [member for member in self._members if member.plan.kind in kinds]

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
                if self._epoch_ns:
                    self._configure([member])
                elif all(other.inbox for other in self._members):
                    self._configure(self._members)
            case Ready(detail=detail):
                facts = json.loads(detail)
                self.result.ready[node] = facts
                if facts.get("executor_pid"):
                    self._run_dir.note_process("executor", node, facts["executor_pid"])
                member.ready = True
                self._join(member)
            case Heartbeat(progress=progress, note=note):
                facts = json.loads(note)
                self._progress = facts.get("progress") or self._progress
                for change in self._liveness.beat(node, progress, time.monotonic()):
                    self._members.report(change.node, change.status, change.reason)
                return
            case Drained():
                member.finished = True
            case Stats(document=document):
                self.result.stats[node] = json.loads(document)
            case Failed() if member.child.code is not None:
                pass  # its exit has been dealt with
            case Failed(error=error, reason=reason) if self._may_restart(member):
                member.how = f": {error}: {reason}"  # its exit, which follows, is its death
                limit_s = self._host.stop_wall_ms / 1000
                asyncio.get_running_loop().call_later(limit_s, member.child.kill)
            case Failed(error=error, reason=reason):
                self._fail(self._failed(member, f": {error}: {reason}"), node)
            case _:
                raise ProtocolError("unexpected-message", f"{type(message).__name__} from {node}")
        self._changed.set()

    def _configure(self, members: Iterable[Member]) -> None:
        """All inboxes are known: these nodes get their CONFIG."""
        facts = {"store": self._rendezvous.endpoint} if self._rendezvous else {}
        for member in members:
            birth = Birth(member.plan, member.life, self._topology, facts, "")
            config = self._members.config_of(birth, self._wall_ns_per_us)
            self._members.send(member.plan.node, Config(config.model_dump_json()))

    def _join(self, member: Member) -> None:
        """A newcomer is ready: its peers are told where it is, and it joins the run."""
        node, life = member.plan.node, member.life
        back = self._restarts.ready(node, time.monotonic())
        if back is None:
            return  # before START, or where the run has given restarts up
        self._members.send_peers(node, PeerJoined(node, life, member.inbox))
        self._start_node(member)
        start_ms = round(back.start_s * 1000)
        self.result.faults.append(restart(node, life, self._now_us(), start_ms))
        print(f"{node} is back (life {life}) after {back.away_s:.1f} s", file=sys.stderr)

    # --- what goes wrong ------------------------------------------------------------------------

    def _on_exit(self, node: str, code: int) -> None:
        member = self._members[node]
        self._liveness.forget(node)
        if not member.stopping:
            self._on_death(member, member.how or f" {describe_exit(code)}")
        self._changed.set()

    def _on_death(self, member: Member, how: str) -> None:
        """A node has ended unasked: it is started again, or the run fails."""
        node, kind = member.plan.node, member.plan.kind
        reason = how.lstrip(": ")
        may = self._may_restart(member)
        if self._epoch_ns:
            fault = death(node, member.life, self._now_us(), reason, restarted=may)
            self.result.faults.append(fault)
        if not may:
            self._members.report(node, "lost", reason)
            self._fail(self._failed(member, how), node)
            return
        member.child.kill()  # what is left of its group: an executor without its host
        if member.ready:  # who has never joined is lost already
            self._members.send_peers(node, PeerStatus(node, "lost", reason))
        grant = self._restarts.grant(node, kind, time.monotonic())
        print(f"warning: {node}{how}; {grant}", file=sys.stderr)

    def _may_restart(self, member: Member) -> bool:
        """Whether that node is started again if it ends now."""
        running = self._epoch_ns and not self._ending and self._failure is None
        left = self._restarts.left(member.plan.node, member.plan.kind)
        return bool(running and not member.stopping and left)

    def _failed(self, member: Member, how: str) -> NodeFailed:
        """A node's end as the run's cause."""
        node, kind = member.plan.node, member.plan.kind
        return NodeFailed(f"{node} ({kind}){how}{self._restarts.used_up(node, kind)}")

    def _on_signal(self, number: int) -> None:
        """First: drain. Second: give back what is open, and stop in a hurry. Third: kill."""
        self._interrupts += 1
        if self._interrupts == 1:
            print("ending: what is open is finished first; again to stop at once", file=sys.stderr)
        elif self._interrupts == 2:
            self._drain("the run was interrupted twice", at_once=True)
            asyncio.get_running_loop().call_later(3 * _HURRIED_STOP_S, self._members.kill)
        elif self._interrupts > 2:
            self._members.kill()
        self._changed.set()

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
        if self._failed_node:
            child = self._members[self._failed_node].child
            self.result.tail = child.log_tail(_TAIL_LINES)
            self.result.log = str(child.log)

    def _measure_memory(self) -> None:
        pids = {"launcher": os.getpid()}
        if self._rendezvous is not None:
            pids["rendezvous"] = self._rendezvous.pid
        self.result.measure_memory(pids | self._members.process_ids(self.result.ready))
