"""``up`` and ``sim`` without the command line: a topology in, a run directory out."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

from testbed.host.faults import fault_entries
from testbed.host.launcher import Launcher, OnProgress
from testbed.host.live_result import LiveResult
from testbed.host.manifest import common_manifest, live_manifest, write_manifest
from testbed.host.policies import own_module_file, policy_names, resolve_policies
from testbed.host.run_dir import RunDirectory
from testbed.record.spool import SPOOL_NAME
from testbed.sim import SimResult, Simulator
from testbed.topology.resolved import dump_toml
from testbed.topology.schema import Topology
from testbed.topology.views import trace_paths


def default_run_dir(topology: Topology, mode: str) -> Path:
    """``runs/NAME-MODE-TIME``, below the current directory."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{topology.name}-{mode}-{stamp}"


def keep_inputs(topology: Topology, path: Path) -> None:
    """Copy what a run needs beside its topology (traces, own policies), so that it replays."""
    (path / "topology.toml").write_text(dump_toml(topology), encoding="utf-8")
    files = [Path(name) for name in trace_paths(topology)]
    for name in policy_names(topology).values():
        module = own_module_file(name, topology.directory)
        if module is not None:
            files.append(module.relative_to(topology.directory))
    for file in files:
        target = path / "inputs" / file.name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(topology.directory / file, target)


def _born_once(topology: Topology, time_scale: float) -> None:
    """Let all nodes be born in this process, and forget them.

    What a policy has to compile is compiled, and kept on disk, before any process is started and
    its handshake timed. Raises RanloomError for a node that cannot be born.
    """
    Simulator(topology, time_scale)


def binds_gpu(topology: Topology) -> bool:
    """Whether the MAC policy is one that is told of the GPU, and so may have to be compiled."""
    return hasattr(resolve_policies(topology)["site.mac"], "bind")


def run_live(
    topology: Topology, time_scale: float, path: Path, on_progress: OnProgress
) -> LiveResult:
    """A live run. Raises RanloomError where it cannot even begin."""
    import uvloop

    if binds_gpu(topology):  # a policy that cannot be made is a mistake, not a failed run
        _born_once(topology, time_scale)
    run_dir = RunDirectory(path, topology.name)
    keep_inputs(topology, run_dir.path)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    begun = time.monotonic()

    async def live() -> LiveResult:
        return await Launcher(topology, time_scale, run_dir, on_progress).run()

    try:
        result = uvloop.run(live())
        manifest = live_manifest(topology, time_scale, result, started, time.monotonic() - begun)
        write_manifest(run_dir.path / "manifest.json", manifest)
    finally:
        run_dir.close()
    return result


def run_simulated(
    topology: Topology, time_scale: float, path: Path, *, journals: bool
) -> SimResult:
    """A simulated run: the same files, without wall time. Raises RanloomError."""
    path.mkdir(parents=True, exist_ok=True)
    for sub in ("tables", "events"):
        (path / sub).mkdir(exist_ok=True)
    keep_inputs(topology, path)
    events = path / "events" if journals else None
    result = Simulator(topology, time_scale, journals=events).run()
    result.spool.write_to(path / SPOOL_NAME)
    manifest = common_manifest(topology, "sim", time_scale) | {
        "scheduling": {},
        "memory": {},
        "clock_source": "virtual",
        "training": {},
        "messages": {},
        "faults": fault_entries(topology, result.faults),
        "outcome": {"status": "done", "reason": ""},
        "overheads": {
            "message_overhead_wall_us": topology.host.message_overhead_wall_us,
            "quantum_overhead_wall_us": topology.host.quantum_overhead_wall_us,
        },
        "effects": result.digests,
    }
    write_manifest(path / "manifest.json", manifest)
    return result
