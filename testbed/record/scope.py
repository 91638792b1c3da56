"""What a report needs to know of a run that its tables do not say: sites, cells, jobs, intervals.

Owns the narrow view that the figures are computed from, so that they depend neither on the form of
a topology file nor on names of nodes (``from_topology.py`` builds it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.gpu.profile import GpuProfile
from testbed.ran.qos import mac_budget_us


@dataclass(frozen=True, slots=True)
class CellScope:
    """A cell: ``cell`` is its number in the tables; ``tdd`` such as "DDDSU"."""

    cell: int
    name: str
    tdd: str
    slot_us: int
    ues: int


@dataclass(frozen=True, slots=True)
class SiteScope:
    """A site with one GPU; ``nodes`` are the names of all its nodes."""

    name: str
    gpu: GpuProfile
    cells: tuple[CellScope, ...]
    nodes: tuple[str, ...]

    @property
    def sms(self) -> int:
        return self.gpu.sms

    @property
    def slot_us(self) -> int:
        """The shortest slot of the site's cells; 500 where it has no cell."""
        return min((cell.slot_us for cell in self.cells), default=500)


@dataclass(frozen=True, slots=True)
class JobScope:
    """A training job: ``index`` is its number in the tables; an owner is a place in ``sites``.

    ``dedicated_tokens_per_s``: declared tokens/s of one whole, otherwise idle GPU of each site.
    """

    name: str
    index: int
    sites: tuple[str, ...]
    tokens_per_sample: int
    quantum_us: int
    dedicated_tokens_per_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunScope:
    """A run. Figures are over [warmup_us, warmup_us + measured_us).

    ``ran_delay_budget_us``: 5QI -> budget where the topology sets its own. ``traffic``: the part
    of the topology that decides what arrives, as JSON values by cell name. ``trainers``: node ->
    index of its job.
    """

    name: str
    mode: str
    seed: int
    time_scale: float
    warmup_us: int
    measured_us: int
    sites: tuple[SiteScope, ...]
    jobs: tuple[JobScope, ...] = ()
    trainers: Mapping[str, int] = field(default_factory=dict)
    ran_delay_budget_us: Mapping[int, int] = field(default_factory=dict)
    traffic: Mapping[str, Any] = field(default_factory=dict)
    slots_on_time_min: float = 0.995
    lateness_p99_max_permille: int = 100

    @property
    def simulated(self) -> bool:
        return self.mode == "sim"

    def budget_us(self, five_qi: int) -> int:
        """What the radio may use of a 5QI's packet delay budget."""
        own = self.ran_delay_budget_us.get(five_qi)
        return mac_budget_us(five_qi) if own is None else own

    def headline_window_us(self, site: str) -> int | None:
        """The longest ``quantum_us`` of the jobs at a site: the window that spare is judged at."""
        return max((job.quantum_us for job in self.jobs if site in job.sites), default=None)
