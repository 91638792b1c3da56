"""What the bench runs: one gNB of a topology, resolved to numbers.

Owns the limits within which messages need not be played out one by one, since none of them can
change the order of what happens (``_check_timing``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from testbed.errors import TopologyError
from testbed.gpu.profile import GpuProfile
from testbed.gpu.sizing import PhySizing
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction
from testbed.ran.traces import Trace
from testbed.topology.profiles import effective_gpu
from testbed.topology.schema import Topology
from testbed.topology.views import GnbView

DIRECTIONS = (Direction.DL, Direction.UL)
"""By their numbers in tables."""


@dataclass(frozen=True, slots=True)
class BenchScenario:
    """One gNB, which has its site's GPU to itself.

    Attributes:
        topology: the resolved topology.
        site, gnb: which gNB of it.
        traces: the traces that its traffic names, by path as written.
        time_scale: wall seconds per emulated second, which the message overhead depends on.
    """

    topology: Topology
    site: str
    gnb: str
    time_scale: float
    traces: Mapping[str, Trace] = field(default_factory=lambda: MappingProxyType({}))


def scenario_of(
    topology: Topology,
    site: str | None = None,
    gnb: str | None = None,
    *,
    traces: Mapping[str, Trace] = MappingProxyType({}),
    time_scale: float | None = None,
) -> BenchScenario:
    """The scenario of one gNB; without ``site`` and ``gnb``, of the only one.

    Raises:
        TopologyError: no such gNB, more than one to choose from, or one that shares its GPU.
    """
    places = [(name, own) for name, spec in topology.sites.items() for own in spec.gnbs]
    chosen = [place for place in places if site in (None, place[0]) and gnb in (None, place[1])]
    if len(chosen) != 1:
        listed = ", ".join(f"{name}.{own}" for name, own in places) or "none"
        wanted = f"site = {site!r}, gnb = {gnb!r}"
        raise TopologyError([f"{wanted}: {len(chosen)} gNBs match, needs one of: {listed}"])
    name, own = chosen[0]
    if len(topology.sites[name].gnbs) > 1:
        raise TopologyError(
            [
                f"sites.{name}: the bench runs a gNB alone on its GPU, here share it "
                f"{', '.join(topology.sites[name].gnbs)}"
            ]
        )
    scale = topology.time.scale if time_scale is None else time_scale
    if not isinstance(scale, float):
        raise TopologyError([f"time.scale = {scale!r}: the bench needs a number"])
    return BenchScenario(topology, name, own, scale, traces)


@dataclass(frozen=True, slots=True)
class Setup:
    """The scenario in numbers; times in emulated microseconds.

    ``worst_sms``: SMs that full cells take in each slot of their common TDD period.
    ``ran_gpu``: what the RAN may use of ``gpu``.
    """

    cells: tuple[CellConfig, ...]
    gpu: GpuProfile
    ran_gpu: GpuProfile
    seed: int
    slot_us: int
    mac_phase_us: int
    message_us: int
    lookahead_slots: int
    k2_slots: int
    warmup_us: int
    end_us: int
    drain_us: int
    ul_decode_budget_us: int
    fronthaul_lead_us: int
    training_bandwidth_permille: int
    worst_sms: tuple[int, ...]

    @property
    def warmup_slot(self) -> int:
        """The slot in which the warm-up ends."""
        return self.warmup_us // self.slot_us

    @property
    def drain_slot(self) -> int:
        """The first slot in which nothing arrives any more."""
        return -(-self.end_us // self.slot_us)

    @property
    def most_slots(self) -> int:
        """Slots until the end of the longest drain."""
        return self.drain_slot + 2 + -(-self.drain_us // self.slot_us)


def setup_of(scenario: BenchScenario, sizing: PhySizing, ran_sms: int | None = None) -> Setup:
    """Resolve a scenario.

    Args:
        scenario: what to run.
        sizing: of PHY tasks, which the worst case depends on.
        ran_sms: a part of the GPU to which the RAN is confined.

    Raises:
        TopologyError: a part of the GPU that no partition can have, or messages so slow that their
            order would matter.
    """
    topology = scenario.topology
    if ran_sms is not None:
        topology = _confined(topology, scenario.site, ran_sms)
    view = GnbView(topology, scenario.site, scenario.gnb)
    message_us = max(1, math.ceil(topology.host.message_overhead_wall_us / scenario.time_scale))
    cells = view.cell_configs(scenario.traces)
    slot_us = view.slot_us
    worst, period = view.worst_case(sizing), math.lcm(*(len(cell.tdd.kinds) for cell in cells))
    setup = Setup(
        cells=cells,
        gpu=view.gpu,
        ran_gpu=view.ran_gpu,
        seed=topology.seed,
        slot_us=slot_us,
        mac_phase_us=view.mac_phase_us,
        message_us=message_us,
        lookahead_slots=view.lookahead_slots,
        k2_slots=view.k2_slots,
        warmup_us=view.warmup_us,
        end_us=view.end_us,
        drain_us=view.drain_us,
        ul_decode_budget_us=view.phy.ul_decode_budget_us,
        fronthaul_lead_us=view.phy.fronthaul_lead_us,
        training_bandwidth_permille=view.training_bandwidth_permille,
        worst_sms=tuple(worst.within(s * slot_us, (s + 1) * slot_us) for s in range(period)),
    )
    _check_timing(setup)
    return setup


def _confined(topology: Topology, site: str, ran_sms: int) -> Topology:
    """The same with a static partition that leaves the RAN ``ran_sms``."""
    spec = topology.sites[site]
    gpu = effective_gpu(spec)
    shares = (0, *gpu.sm_levels())
    allowed = [gpu.sms - share for share in reversed(shares) if gpu.sms - share >= gpu.min_sms]
    if ran_sms not in allowed:
        raise TopologyError([f"ran_sms = {ran_sms}: allowed on {gpu.name} are {allowed}"])
    static = {"partition": "static", "static_training_sms": gpu.sms - ran_sms}
    sites = dict(topology.sites)
    sites[site] = spec.model_copy(update=static)
    return topology.model_copy(update={"sites": sites})


def _check_timing(setup: Setup) -> None:
    """Allocations are there before their work begins, results before the slot after they are due.

    Then what is known when depends on slot numbers and ends of tasks alone.
    """
    latest_us = (setup.lookahead_slots - 1) * setup.slot_us
    planned_us = setup.mac_phase_us + 2 * setup.message_us
    if setup.message_us >= setup.slot_us or planned_us >= latest_us:
        raise TopologyError(
            [
                f"host.message_overhead_wall_us and time.scale give {setup.message_us} us per "
                f"message, so that a plan takes {planned_us} us of its slot to reach the PHY; "
                f"the bench needs less than {min(latest_us, setup.slot_us)} us of emulated time "
                f"(lookahead_slots = {setup.lookahead_slots}): raise either"
            ]
        )
