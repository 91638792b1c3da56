"""The topology's fault list, as what each node or the launcher has to do."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.topology.bounds import KillNode, LateQuantum
from testbed.topology.schema import Topology
from testbed.topology.views import node_name


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault for one node: its name, when, and its numbers (see ``nodes.trainer``)."""

    node: str
    fault: str
    at_us: int
    numbers: tuple[int, ...]


def injections(topology: Topology) -> list[Injection]:
    """Faults that nodes perform themselves."""
    found = []
    for fault in topology.faults:
        if isinstance(fault, LateQuantum):
            job = topology.jobs_at(fault.site)[0]
            numbers = (fault.duration_us, fault.sms)
            node = node_name(fault.site, job, "trainer")
            found.append(Injection(node, "late_quantum", fault.at_us, numbers))
    return found


def kills(topology: Topology) -> list[tuple[int, str]]:
    """(at_us, node) of the processes that the launcher kills."""
    return sorted((f.at_us, f.node) for f in topology.faults if isinstance(f, KillNode))
