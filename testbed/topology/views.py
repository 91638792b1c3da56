"""What a node reads of the topology: one site, one gNB, or the whole run, in the domain's types.

Pure. Owns the names of nodes and the translation of a cell group into the radio's configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from testbed.gpu.cost import DOWNLINK, UPLINK, phy_demand
from testbed.gpu.partitions import Mechanism, confined_gpu, mechanism
from testbed.gpu.phy_tasks import PhyBudgetUs
from testbed.gpu.profile import GpuProfile
from testbed.gpu.promise import CellWorst, WorstCase
from testbed.gpu.quanta import QuantumCosts, quantum_costs
from testbed.gpu.sizing import PhySizing
from testbed.ran import qos
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction, SlotKind, TddPattern, n_prb, res_per_prb, slot_us
from testbed.ran.tables import MCS_TABLES
from testbed.ran.tbs import block_sizes
from testbed.ran.traces import Trace, busiest_window
from testbed.ran.traffic import Replay
from testbed.topology.bounds import Link
from testbed.topology.cell_traffic import cell_traffic
from testbed.topology.jobs import Job
from testbed.topology.profiles import effective_gpu, model_profile
from testbed.topology.radio import CellGroup
from testbed.topology.schema import CellRef, Topology
from testbed.topology.site import PhyBudget
from testbed.topology.sizes import DTYPE_BYTES, state_bytes
from testbed.topology.traffic import TraceTraffic

COORDINATOR = "coordinator"
RECORDER = "recorder"


def node_name(*parts: str) -> str:
    """``site.agent``, ``site.gnb.mac``, ``site.gnb.phy``, ``site.job.trainer``."""
    return ".".join(parts)


@dataclass(frozen=True, slots=True)
class RunView:
    """What concerns the whole run."""

    topology: Topology

    @property
    def end_us(self) -> int:
        """End of the measured interval, when arrivals and new steps end."""
        return self.topology.time.total_us

    @property
    def warmup_us(self) -> int:
        """What is left out of every figure."""
        return self.topology.time.warmup_us

    @property
    def drain_us(self) -> int:
        """At most so long may open work take after the end: the longest delay budget."""
        five_qis = {five_qi for ref in self.topology.cells() for five_qi in ref.spec.five_qis}
        budgets = [qos.mac_budget_us(five_qi) for five_qi in five_qis]
        return max(budgets, default=300_000)

    def job(self, name: str) -> Job:
        """A job by name."""
        return self.topology.jobs[name]

    def gradient_bytes(self, name: str) -> int:
        """What one member sends into the allreduce: the declared model's gradients."""
        job = self.job(name)
        return model_profile(job.model).parameters * DTYPE_BYTES[job.dtype]

    def shared_state_bytes(self, name: str) -> int:
        """What a trainer without state has to be given: the declared model's weights, master copy
        and optimiser moments."""
        job = self.job(name)
        return state_bytes(job, model_profile(job.model)).pinned

    def link(self, one: str, other: str) -> Link:
        """The link between two sites."""
        for between in self.topology.links.between:
            if {one, other} == set(between.sites):
                return Link(bandwidth_gbps=between.bandwidth_gbps, latency_us=between.latency_us)
        return self.topology.links.default

    def slowest_link(self, sites: Iterable[str]) -> Link:
        """Lowest bandwidth and highest latency on the ring through the sites, in their order."""
        ring = list(sites)
        links = [
            self.link(one, other)
            for one, other in zip(ring, [*ring[1:], ring[0]], strict=True)
            if one != other
        ]
        if not links:
            return self.topology.links.default
        return Link(
            bandwidth_gbps=min(link.bandwidth_gbps for link in links),
            latency_us=max(link.latency_us for link in links),
        )

    def latency_us(self, one_site: str, other_site: str) -> int:
        """One-way latency between the places of two nodes; "" is the mobile core."""
        if one_site == other_site:
            return 0
        if one_site and other_site:
            return self.link(one_site, other_site).latency_us
        return self.topology.links.default.latency_us

    def costs(self, site: str, job: str) -> QuantumCosts:
        """Cost of the job's quanta on the site's GPU."""
        spec = self.job(job)
        return quantum_costs(
            effective_gpu(self.topology.sites[site]),
            model_profile(spec.model),
            spec.tokens,
            DTYPE_BYTES[spec.dtype],
        )


class SiteView:
    """One site: its GPU, gNBs, cells and jobs."""

    def __init__(self, topology: Topology, site: str) -> None:
        self.run = RunView(topology)
        self.site = site
        self.spec = topology.sites[site]
        self.gpu: GpuProfile = effective_gpu(self.spec)
        self.gnbs = tuple(self.spec.gnbs)
        self.cells: tuple[CellRef, ...] = tuple(ref for ref in topology.cells() if ref.site == site)
        self.jobs = topology.jobs_at(site)
        self.slot_us = slot_us(self.cells[0].spec.scs_khz) if self.cells else 1000

    @property
    def partition(self) -> Mechanism:
        """How the GPU is parted between the RAN and training."""
        return mechanism(self.spec.partition, self.gpu, self.spec.static_training_sms)

    @property
    def ran_gpu(self) -> GpuProfile:
        """The part of the GPU that the RAN can have: all but a static partition of training."""
        if self.spec.partition == "static" and self.spec.static_training_sms is not None:
            return confined_gpu(self.gpu, self.spec.static_training_sms)
        return self.gpu

    @property
    def phy(self) -> PhyBudget:
        """Deadlines of the PHY."""
        return self.spec.phy

    @cached_property
    def training_bandwidth_permille(self) -> int:
        """The largest memory-bandwidth share that a running quantum may have."""
        return max((self.run.job(job).bandwidth_permille for job in self.jobs), default=0)

    def job(self, name: str) -> Job:
        """A job by name."""
        return self.run.job(name)

    def worst_case(self, sizing: PhySizing | None = None) -> WorstCase:
        """What all cells of the site could ask for at most, sized by a policy (None: to
        saturation)."""
        worst = [self._cell_worst(ref) for ref in self.cells]
        budget = PhyBudgetUs(self.phy.ul_decode_budget_us, self.phy.fronthaul_lead_us)
        permille = self.training_bandwidth_permille
        return WorstCase(self.ran_gpu, self.slot_us, worst, permille, sizing, budget)

    def _cell_worst(self, ref: CellRef) -> CellWorst:
        spec = ref.spec
        pattern = TddPattern.parse(spec.tdd)
        slots = range(len(pattern.kinds))
        demands = []
        for number, direction, kind, layers in (
            (DOWNLINK, Direction.DL, SlotKind.D, spec.dl_layers),
            (UPLINK, Direction.UL, SlotKind.U, spec.ul_layers),
        ):
            blocks = _most_code_blocks(
                spec.bandwidth_mhz,
                spec.scs_khz,
                spec.mcs_table,
                layers,
                res_per_prb(kind, direction),
            )
            demands.append(phy_demand(self.gpu, number, max(1, blocks), 1000 * blocks))
        return CellWorst(
            ref.cell,
            len(pattern.kinds),
            tuple(slot for slot in slots if pattern.carries(slot, Direction.DL)),
            tuple(slot for slot in slots if pattern.carries(slot, Direction.UL)),
            demands[0],
            demands[1],
        )


class GnbView(SiteView):
    """One gNB of a site, with what its MAC and PHY need."""

    def __init__(self, topology: Topology, site: str, gnb: str) -> None:
        super().__init__(topology, site)
        self.gnb = gnb
        self._refs = tuple(ref for ref in topology.cells() if (ref.site, ref.gnb) == (site, gnb))
        self.cells_of_gnb = tuple(cell_config(ref.cell, ref.spec) for ref in self._refs)
        self.lookahead_slots = self._refs[0].spec.lookahead_slots
        self.k2_slots = self._refs[0].spec.k2_slots
        self.mac_phase_us = self.slot_us * self.spec.gnbs[gnb].mac_phase_permille // 1000
        self.end_us = self.run.end_us
        self.warmup_us = self.run.warmup_us
        self.drain_us = self.run.drain_us

    def cell_configs(self, traces: Mapping[str, Trace]) -> tuple[CellConfig, ...]:
        """The radio's configuration of each cell, with its traffic."""

        def play(table: TraceTraffic) -> Replay:
            return self._replay(table, traces[table.path])

        return tuple(
            replace(
                bare,
                dl_traffic=cell_traffic(ref.spec, bare, Direction.DL, play),
                ul_traffic=cell_traffic(ref.spec, bare, Direction.UL, play),
            )
            for ref, bare in zip(self._refs, self.cells_of_gnb, strict=True)
        )

    def _replay(self, spec: TraceTraffic, trace: Trace) -> Replay:
        length_us = round(self.run.topology.time.total_us * spec.time_compress)
        start_s = (
            busiest_window(trace, length_us) / 1e6
            if isinstance(spec.start_s, str)
            else spec.start_s
        )
        return Replay(
            trace,
            start_s=start_s,
            loop=spec.loop,
            bytes_scale=spec.bytes_scale,
            time_compress=spec.time_compress,
        )


def trace_paths(topology: Topology) -> dict[str, TraceTraffic]:
    """Every trace file that the topology names, by its path as written."""
    found: dict[str, TraceTraffic] = {}
    for ref in topology.cells():
        for of_class in ref.spec.ue_classes:
            for spec in (of_class.ul_traffic, of_class.dl_traffic):
                if isinstance(spec, TraceTraffic):
                    found[spec.path] = spec
    return found


def cell_config(cell_id: int, spec: CellGroup) -> CellConfig:
    """The radio's configuration of one cell of a group, without its traffic."""
    return CellConfig(
        cell_id=cell_id,
        n_ues=spec.n_ues,
        scs_khz=spec.scs_khz,
        bandwidth_mhz=spec.bandwidth_mhz,
        tdd=TddPattern.parse(spec.tdd),
        mcs_table=spec.mcs_table,
        dl_layers=spec.dl_layers,
        ul_layers=spec.ul_layers,
        sinr_mean_db=spec.sinr_mean_db,
        sinr_sd_db=spec.sinr_sd_db,
        lookahead_slots=spec.lookahead_slots,
        k2_slots=spec.k2_slots,
        five_qi=spec.five_qis,
    )


def _most_code_blocks(
    bandwidth_mhz: int, scs_khz: int, mcs_table: int, layers: int, re_per_prb: int
) -> int:
    """Code blocks of one block over the whole carrier at the highest MCS."""
    if re_per_prb == 0:
        return 0
    prbs = n_prb(bandwidth_mhz, scs_khz)
    highest = MCS_TABLES[mcs_table][-1].index
    return block_sizes(prbs, re_per_prb, mcs_table, highest, layers)[prbs].code_blocks
