"""``manifest.json``: how a run came about. The only file of a run with wall time and host facts."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.host.faults import fault_entries
from testbed.topology.node_config import plan_nodes
from testbed.topology.schema import Topology

if TYPE_CHECKING:
    from testbed.host.live_result import LiveResult

SCHEMA_VERSION = 1
_PACKAGES = ("ranloom", "torch", "torchft", "pyzmq", "msgpack", "numpy", "uvloop", "pydantic")


def common_manifest(topology: Topology, mode: str, time_scale: float) -> dict[str, Any]:
    """What live and simulated runs share; deterministic for a topology and an installation."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": topology.name,
        "mode": mode,
        "seed": topology.seed,
        "time_scale": time_scale,
        "warmup_us": topology.time.warmup_us,
        "measured_us": topology.time.measured_us,
        "nodes": {
            plan.node: {"kind": plan.kind, "site": plan.site, "gnb": plan.gnb, "job": plan.job}
            for plan in plan_nodes(topology)
        },
        "versions": package_versions(),
    }


def package_versions() -> dict[str, str]:
    """Versions of what decides a run's figures."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def live_manifest(
    topology: Topology, time_scale: float, result: LiveResult, started: str, wall_s: float
) -> dict[str, Any]:
    """The manifest of a live run, from what its processes told at their start and end."""
    executors = {node: facts.get("executor") or {} for node, facts in result.ready.items()}
    kinds = {plan.node: plan for plan in plan_nodes(topology)}
    training: dict[str, Any] = {}
    for node, facts in executors.items():
        if kinds[node].kind == "trainer":
            training[kinds[node].job] = facts
    scheduling = {node: facts.get("scheduling", "") for node, facts in result.ready.items()}
    scheduling |= {
        f"{node}/executor": facts["scheduling"] for node, facts in executors.items() if facts
    }
    return common_manifest(topology, "live", time_scale) | {
        "started": started,
        "wall_s": round(wall_s, 2),
        "host": {
            "system": platform.system(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "python": sys.implementation.name,
            "steal_share": result.steal_share,
        },
        "clock_source": "CLOCK_MONOTONIC, timerfd",
        "scheduling": scheduling,
        "memory": {"pss_bytes": result.pss_bytes, "pss_by_process": result.pss_by_node},
        "training": training,
        "messages": _messages(result, wall_s, {node: plan.kind for node, plan in kinds.items()}),
        "faults": fault_entries(topology, result.faults),
        "outcome": {"status": result.status, "reason": result.reason},
        "replay": "events/*.mp: python run.py replay RUN_DIR",
    }


def _messages(result: LiveResult, wall_s: float, kinds: dict[str, str]) -> dict[str, Any]:
    """Latency per pair of kinds (the worst node of each), rate, refused messages."""
    one_way: dict[str, list[int]] = {}
    rejected = dict(result.rejected)
    sent = 0
    for node, stats in result.stats.items():
        sent += stats["sent"]
        for code, count in stats["rejected"].items():
            rejected[code] = rejected.get(code, 0) + count
        for source, (p50, p99, count) in stats["one_way_wall_us"].items():
            pair = f"{kinds[source]}->{kinds[node]}"
            known = one_way.get(pair, [0, 0, 0])
            one_way[pair] = [max(known[0], p50), max(known[1], p99), known[2] + count]
    trips = {
        "<->".join(pair.split("->")): {
            "p50": ahead[0] + one_way[back][0],
            "p99": ahead[1] + one_way[back][1],
            "n": min(ahead[2], one_way[back][2]),
        }
        for pair, ahead in sorted(one_way.items())
        if (back := "->".join(reversed(pair.split("->")))) in one_way and pair <= back
    }
    return {
        "one_way_wall_us": {
            pair: {"p50": p50, "p99": p99, "n": n} for pair, (p50, p99, n) in one_way.items()
        },
        "rtt_us": trips,
        "per_s": round(sent / wall_s, 1) if wall_s else 0.0,
        "rejected": rejected,
    }


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write it whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)
