"""How a node comes into being, the same way live, simulated and replayed.

A birth is a JSON document: what the launcher sends as CONFIG, and the first entry of the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodes.api import Node, NodeContext
from nodes.kinds import KINDS
from testbed.host.policies import resolve_policies
from testbed.ran.nr_scope import parse_nr_scope
from testbed.ran.traces import Trace, load_trace
from testbed.topology.node_config import NodePlan
from testbed.topology.schema import Topology
from testbed.topology.traffic import TraceTraffic
from testbed.topology.views import trace_paths


@dataclass(frozen=True, slots=True)
class Birth:
    """All that a node is told: its plan, its life, the topology, facts, where files are."""

    plan: NodePlan
    life: int
    topology: Topology
    facts: Mapping[str, str]
    directory: str

    def document(self) -> dict[str, Any]:
        """The birth as JSON-able values; without the directory, which is a matter of the host."""
        plan = self.plan
        return {
            "node": plan.node,
            "kind": plan.kind,
            "site": plan.site,
            "gnb": plan.gnb,
            "job": plan.job,
            "life": self.life,
            "facts": dict(self.facts),
            "topology": self.topology.model_dump(mode="json", exclude_defaults=True),
        }


def read_birth(document: Mapping[str, Any], directory: Path) -> Birth:
    """The inverse of ``Birth.document``; files are resolved beside ``directory``."""
    plan = NodePlan(*(document[key] for key in ("node", "kind", "site", "gnb", "job")))
    topology = Topology.model_validate(document["topology"], strict=False).placed(directory)
    return Birth(plan, document["life"], topology, document["facts"], str(directory))


def build_node(birth: Birth) -> Node:
    """The node's state machine, with its traces and policies loaded."""
    plan = birth.plan
    traces = load_traces(birth.topology) if plan.kind == "gnb_mac" else {}
    context = NodeContext(
        plan.node,
        plan.kind,
        birth.life,
        plan.site,
        plan.gnb,
        plan.job,
        birth.topology,
        birth.facts,
        traces,
        resolve_policies(birth.topology),
    )
    return KINDS[plan.kind](context)


def load_traces(topology: Topology) -> dict[str, Trace]:
    """The trace files that the topology names. Raises TraceError or OSError."""
    return {
        path: _load_trace(topology.directory / path, spec)
        for path, spec in trace_paths(topology).items()
    }


def _load_trace(path: Path, spec: TraceTraffic) -> Trace:
    with path.open(encoding="utf-8", newline="") as lines:
        if spec.format == "nr-scope":
            return parse_nr_scope(lines, spec.path).trace
        return load_trace(lines, spec.path)
