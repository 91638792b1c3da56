"""A run's nodes as the launcher sees them: spawned, addressed, stopped; and what each is told of
the others."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from protocols.control import PeerStatus, Stop
from protocols.messages import Message
from testbed.host.birth import Birth
from testbed.host.children import Child, OnExit
from testbed.host.config_document import NodeConfig, PeerEntry
from testbed.host.control_desk import ControlDesk
from testbed.host.run_dir import RunDirectory
from testbed.topology.node_config import NodePlan
from testbed.topology.views import RECORDER

_KILLED_S = 2.0
"""For a killed process to be gone."""


@dataclass(slots=True)
class Member:
    """One node: the process of its present life, and how far it has come.

    ``how``: what the node, or its silence, said of its end before it exited, as the end of a
    sentence that begins with its name.
    """

    plan: NodePlan
    child: Child
    life: int = 1
    inbox: str = ""
    ready: bool = False
    finished: bool = False
    stopping: bool = False
    how: str = ""


class Members:
    """The nodes of one run, by name, each in its present life."""

    def __init__(
        self, plans: Mapping[str, NodePlan], run_dir: RunDirectory, control: ControlDesk
    ) -> None:
        self._plans = plans
        self._run_dir = run_dir
        self._control = control
        self._members: dict[str, Member] = {}

    def __getitem__(self, node: str) -> Member:
        return self._members[node]

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def spawn(self, node: str, on_exit: OnExit) -> Member:
        """Start the process of the node's next life; from here on that life alone is heard."""
        life = self._members[node].life + 1 if node in self._members else 1
        plan = self._plans[node]
        runtime = self._run_dir.runtime
        index = list(self._plans).index(node)
        command = [sys.executable, "-P", "-m", "nodes", plan.kind, "--node", node]
        command += ["--life", str(life), "--control", f"ipc://{runtime}/control"]
        command += ["--inbox", f"ipc://{runtime}/{index}.{life}"]
        command += ["--run-token", self._run_dir.token, "--runtime-dir", str(runtime)]
        command += ["--launcher-pid", str(os.getpid())]
        child = Child(node, command, self._run_dir.path / "logs" / f"{node}.log", on_exit)
        self._run_dir.note_process("node", node, child.pid)
        self._members[node] = Member(plan, child, life)
        self._control.expect(node, life)
        return self._members[node]

    def config_of(self, birth: Birth, wall_ns_per_us: int) -> NodeConfig:
        """CONFIG of one node: its birth, and the nodes that it sends to or hears from."""
        own = birth.plan
        peers = {
            name: PeerEntry(
                inbox=self._members[name].inbox,
                site=self._plans[name].site,
                life=self._members[name].life,
                sends_to=name in own.peers,
                receives_from=own.node in self._plans[name].peers,
            )
            for name in self._peers_of(own.node)
        }
        return NodeConfig(
            birth=birth.document(),
            directory=str(birth.topology.directory.absolute()),
            run_dir=str(self._run_dir.path),
            wall_ns_per_us=wall_ns_per_us,
            peers=peers,
        )

    def send(self, node: str, message: Message) -> None:
        """To a node's present life; lost where it is not connected."""
        self._control.send(node, self._members[node].life, message)

    def send_peers(self, node: str, message: Message) -> None:
        """To all nodes that ``node`` sends to or hears from."""
        for peer in self._peers_of(node):
            self.send(peer, message)

    def report(self, node: str, status: str, reason: str) -> None:
        """A node's new status, for its peers and for the user."""
        self.send_peers(node, PeerStatus(node, status, reason))
        print(f"warning: {node} is {status}: {reason}", file=sys.stderr)

    def drop_newcomers(self) -> None:
        """Kill every later life that is not ready: the run ends, and it has nothing to lose."""
        for member in self:
            if member.life > 1 and not member.ready:
                member.stopping = True
                member.child.kill()

    async def stop(self, reason: str, limit_s: float) -> None:
        """Nodes first, so that their last rows reach the recorder; then it. ``limit_s``: for each
        of the two; what has not exited then is killed."""
        others = [member for member in self if member.plan.node != RECORDER]
        last = [member for member in self if member.plan.node == RECORDER]
        for group in (others, last):
            for member in group:
                member.stopping = True
                if member.child.code is None:
                    self.send(member.plan.node, Stop(reason))
            deadline = time.monotonic() + limit_s
            for member in group:
                left_s = max(0.0, deadline - time.monotonic())
                if not await member.child.wait(left_s):
                    member.child.kill()
                    await member.child.wait(_KILLED_S)
                member.child.kill()  # what is left of its group: an executor without its host

    def kill(self) -> None:
        """All, at once."""
        for member in self:
            member.stopping = True
            member.child.kill()

    def process_ids(self, ready: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Pids of nodes that are there, and of their executors, as NODE/executor.

        ``ready``: by node, the facts that it told with READY.
        """
        pids = {}
        for member in self:
            node = member.plan.node
            if member.child.code is None:
                pids[node] = member.child.pid
                executor = ready.get(node, {}).get("executor_pid") if member.ready else None
                if executor:
                    pids[f"{node}/executor"] = executor
        return pids

    def _peers_of(self, node: str) -> list[str]:
        own = self._plans[node].peers
        return [name for name, plan in self._plans.items() if node in plan.peers or name in own]
