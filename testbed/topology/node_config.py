"""Which processes a topology needs, and whom each of them talks to. Pure.

Documents hold what is known from the topology alone; the launcher adds the topology itself, the
endpoints and the measured costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from testbed.topology.schema import Topology

COORDINATOR = "coordinator"
RECORDER = "recorder"
NODE_KINDS = ("coordinator", "recorder", "site_agent", "gnb_mac", "gnb_phy", "trainer")


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node of a run.

    Attributes:
        node: its name, unique in the run.
        kind: one of ``NODE_KINDS``.
        site, gnb, job: what it belongs to; empty where that does not apply.
        cells: numbers of the cells that it serves.
        peers: the nodes that it sends to.
        document: the same as plain JSON, with ``directory``: the kind of each peer.
    """

    node: str
    kind: str
    site: str = ""
    gnb: str = ""
    job: str = ""
    cells: tuple[int, ...] = ()
    peers: tuple[str, ...] = ()
    document: dict[str, Any] = field(default_factory=dict, compare=False)


def plan_nodes(topology: Topology) -> tuple[NodePlan, ...]:
    """All nodes: coordinator, recorder, then site by site in the order of the file."""
    bare = tuple(_nodes(topology))
    kinds = {plan.node: plan.kind for plan in bare}
    return tuple(_with_document(plan, kinds) for plan in bare)


def node_names(topology: Topology) -> tuple[str, ...]:
    """Names of all nodes, in the order of ``plan_nodes``."""
    return tuple(plan.node for plan in _nodes(topology))


def agent_name(site: str) -> str:
    """The node that owns a site's GPU."""
    return f"{site}.agent"


def trainer_name(site: str, job: str) -> str:
    """The node that trains a job at a site."""
    return f"{site}.{job}.trainer"


def _nodes(topology: Topology) -> Iterator[NodePlan]:
    jobs_at = {site: topology.jobs_at(site) for site in topology.sites}
    agents = tuple(agent_name(site) for site in topology.sites)
    trainers = tuple(trainer_name(site, job) for site in topology.sites for job in jobs_at[site])
    yield NodePlan(COORDINATOR, "coordinator", peers=(*trainers, *agents, RECORDER))
    yield NodePlan(RECORDER, "recorder")
    for site, spec in topology.sites.items():
        agent = agent_name(site)
        phys = tuple(f"{site}.{gnb}.phy" for gnb in spec.gnbs)
        sharing = spec.gnbs if len(spec.gnbs) > 1 else ()  # they are told their part of the GPU
        macs = tuple(f"{site}.{gnb}.mac" for gnb in sharing)
        local = tuple(trainer_name(site, job) for job in jobs_at[site])
        cells = tuple(ref.cell for ref in topology.cells() if ref.site == site)
        peers = (*phys, *macs, *local, COORDINATOR, RECORDER)
        yield NodePlan(agent, "site_agent", site, cells=cells, peers=peers)
        for gnb in spec.gnbs:
            mac, phy = f"{site}.{gnb}.mac", f"{site}.{gnb}.phy"
            served = tuple(
                ref.cell for ref in topology.cells() if (ref.site, ref.gnb) == (site, gnb)
            )
            yield NodePlan(mac, "gnb_mac", site, gnb, "", served, (phy, agent, RECORDER))
            yield NodePlan(phy, "gnb_phy", site, gnb, "", served, (agent, mac, RECORDER))
        for job in jobs_at[site]:
            name = trainer_name(site, job)
            yield NodePlan(name, "trainer", site, "", job, (), (agent, COORDINATOR, RECORDER))


def _with_document(plan: NodePlan, kinds: dict[str, str]) -> NodePlan:
    document: dict[str, Any] = {
        "node": plan.node,
        "kind": plan.kind,
        "site": plan.site,
        "gnb": plan.gnb,
        "job": plan.job,
        "cells": list(plan.cells),
        "peers": list(plan.peers),
        "directory": {peer: kinds[peer] for peer in plan.peers},
    }
    return NodePlan(
        plan.node, plan.kind, plan.site, plan.gnb, plan.job, plan.cells, plan.peers, document
    )
