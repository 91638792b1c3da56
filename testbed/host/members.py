"""A run's nodes as the launcher sees them, and what it tells each of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.host.birth import Birth
from testbed.host.children import Child
from testbed.host.config_document import NodeConfig, PeerEntry
from testbed.topology.node_config import NodePlan


@dataclass(slots=True)
class Member:
    """One node: its process, and how far it has come."""

    plan: NodePlan
    child: Child
    life: int = 1
    inbox: str = ""
    ready: bool = False
    finished: bool = False
    stopping: bool = False


def config_of(
    birth: Birth, members: Mapping[str, Member], run_dir: Path, wall_ns_per_us: int
) -> NodeConfig:
    """CONFIG of one node: its birth, and the nodes that it sends to or hears from."""
    own = birth.plan
    peers = {
        name: PeerEntry(
            inbox=other.inbox,
            site=other.plan.site,
            life=other.life,
            sends_to=name in own.peers,
            receives_from=own.node in other.plan.peers,
        )
        for name, other in members.items()
        if name in own.peers or own.node in other.plan.peers
    }
    return NodeConfig(
        birth=birth.document(),
        directory=str(birth.topology.directory.absolute()),
        run_dir=str(run_dir),
        wall_ns_per_us=wall_ns_per_us,
        peers=peers,
    )
