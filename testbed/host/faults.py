"""The topology's fault list, as what each node or the launcher has to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


# --- what a run notes of them in its manifest ---------------------------------------------------


def fault_entries(topology: Topology, seen: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was ``seen``, and the topology's faults that nodes perform themselves."""
    performed = [f.model_dump() for f in topology.faults if not isinstance(f, KillNode)]
    return [*seen, *performed]


def kill(node: str, at_us: int, *, seen: bool) -> dict[str, Any]:
    """A node was to be killed; ``seen``: there was a process."""
    return {"kind": "kill", "node": node, "at_us": at_us, "seen": seen}


def death(node: str, life: int, at_us: int, reason: str, *, restarted: bool) -> dict[str, Any]:
    """A node's process has ended before the run has; ``restarted``: another life follows."""
    return {
        "kind": "death",
        "node": node,
        "life": life,
        "at_us": at_us,
        "reason": reason,
        "restarted": restarted,
    }


def restart(node: str, life: int, at_us: int, start_wall_ms: int) -> dict[str, Any]:
    """A node's next life was ready at ``at_us``, so long after its process was started."""
    return {
        "kind": "restart",
        "node": node,
        "life": life,
        "at_us": at_us,
        "start_wall_ms": start_wall_ms,
    }
