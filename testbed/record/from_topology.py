"""The report's view of a run from its topology and manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.gpu.quanta import micro_batch_quanta, optimiser_quanta
from testbed.ran.numerology import slot_us
from testbed.record.scope import CellScope, JobScope, RunScope, SiteScope
from testbed.topology.profiles import model_profile
from testbed.topology.radio import CellGroup
from testbed.topology.schema import CellRef, Topology
from testbed.topology.views import RunView, SiteView, node_name


def scope_of(topology: Topology, manifest: Mapping[str, Any]) -> RunScope:
    """The view of a run that its topology and manifest give.

    ``manifest`` may be empty (a run that died before it was written): then the topology says what
    was planned.
    """
    run = RunView(topology)
    views = {name: SiteView(topology, name) for name in topology.sites}
    nodes = _nodes(topology, manifest)
    jobs = tuple(_job_scope(run, index, name) for index, name in enumerate(topology.jobs))
    scale = manifest.get("time_scale", topology.time.scale)
    return RunScope(
        name=str(manifest.get("name", topology.name)),
        mode=str(manifest.get("mode", "unknown")),
        seed=int(manifest.get("seed", topology.seed)),
        time_scale=float(scale) if isinstance(scale, int | float) else 1.0,
        warmup_us=int(manifest.get("warmup_us", topology.time.warmup_us)),
        measured_us=int(manifest.get("measured_us", topology.time.measured_us)),
        sites=tuple(
            SiteScope(
                name=name,
                gpu=view.gpu,
                cells=tuple(_cell_scope(ref) for ref in view.cells),
                nodes=tuple(sorted(node for node, (site, _) in nodes.items() if site == name)),
            )
            for name, view in views.items()
        ),
        jobs=jobs,
        trainers={node: job for node, (_, job) in sorted(nodes.items()) if job is not None},
        traffic={f"cell {ref.cell}": _traffic(ref.spec) for ref in topology.cells()},
        slots_on_time_min=topology.fidelity.slots_on_time_min,
        lateness_p99_max_permille=topology.fidelity.lateness_p99_max_permille,
    )


def _nodes(topology: Topology, manifest: Mapping[str, Any]) -> dict[str, tuple[str, int | None]]:
    """node -> (site, index of its job where it is a trainer), by the names that nodes have."""
    index = {name: number for number, name in enumerate(topology.jobs)}
    nodes: dict[str, tuple[str, int | None]] = {}
    for site, spec in topology.sites.items():
        nodes[node_name(site, "agent")] = (site, None)
        for gnb in spec.gnbs:
            nodes[node_name(site, gnb, "mac")] = (site, None)
            nodes[node_name(site, gnb, "phy")] = (site, None)
        for job in topology.jobs_at(site):
            nodes[node_name(site, job, "trainer")] = (site, index[job])
    for node, facts in (manifest.get("nodes") or {}).items():
        place = str(facts.get("site") or "")
        if node not in nodes and place in topology.sites:
            trains = facts.get("kind") == "trainer"
            nodes[node] = (place, index.get(str(facts.get("job"))) if trains else None)
    return nodes


def _traffic(spec: CellGroup) -> dict[str, Any]:
    """What arrives at a cell, as the topology says it: by direction, or by class of UEs."""
    if spec.classes:
        return {"ues": spec.n_ues, "classes": [c.model_dump(mode="json") for c in spec.classes]}
    (one,) = spec.ue_classes
    dl, ul = (table.model_dump(mode="json") for table in (one.dl_traffic, one.ul_traffic))
    return {"ues": one.ues, "dl": dl, "ul": ul}


def _cell_scope(ref: CellRef) -> CellScope:
    spec = ref.spec
    return CellScope(ref.cell, f"cell {ref.cell}", spec.tdd, slot_us(spec.scs_khz), spec.n_ues)


def _job_scope(run: RunView, index: int, name: str) -> JobScope:
    job = run.job(name)
    layers = model_profile(job.model).layers
    dedicated = {}
    for site in job.sites:
        costs = run.costs(site, name)
        sms = costs.levels[-1]
        quanta = micro_batch_quanta(layers, costs.head_chunks)
        micro_batch_us = sum(costs.by_level(kind)[sms] for kind, _ in quanta)
        optimiser_us = sum(costs.by_level(kind)[sms] for kind, _ in optimiser_quanta(layers))
        samples = max(1, job.global_batch // len(job.sites))
        step_us = samples * micro_batch_us + optimiser_us
        dedicated[site] = samples * job.tokens * 1e6 / step_us
    return JobScope(name, index, tuple(job.sites), job.tokens, job.quantum_us, dedicated)
