"""One point of a grid: a scenario file at some load, number of cells and seed, and runs of it.

Owns which keys of the file a grid may change. The figures of a run are ``grid_figures``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from testbed.errors import TopologyError
from testbed.shaping.state import Tuning
from testbed.slotbench.results import BenchRun
from testbed.slotbench.scenario import BenchScenario, scenario_of
from testbed.slotbench.simulate import run_bench
from testbed.topology.load import load_topology
from testbed.topology.schema import Topology
from testbed.weaver_cli.arms import Arm

SCENARIOS = Path(__file__).resolve().parents[2] / "topologies"
OF_RECORD = "weaver_usable"

LOADS = (0.1, 0.2, 0.3, 0.5, 0.7)
CELLS = (1, 2, 4, 8)
SEEDS = (1, 2, 3)
MEASURED_S = 10.0
HEADLINE_US = 5_000
"""The quantum of the scenario of record."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a grid.

    Attributes:
        scenario: a file of ``SCENARIOS`` without its suffix, or the path of any topology.
        cells: of the GPU.
        load: offered bytes over what the radio carries at the mean MCS, in both directions.
        seed: of every random draw.
        measured_s: emulated seconds, without the warm-up.
        variant: what else is changed, in words, and ``sets``: how (``key=value``).
    """

    scenario: str
    cells: int
    load: float
    seed: int
    measured_s: float = MEASURED_S
    variant: str = ""
    sets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The scenario's name in rows, which hold no paths."""
        return scenario_name(self.scenario)

    def __str__(self) -> str:
        changed = f", {self.variant}" if self.variant else ""
        return f"{self.name}{changed}: {self.cells} cells, load {self.load:g}, seed {self.seed}"


def scenario_name(scenario: str) -> str:
    """The name of a scenario's file."""
    return Path(scenario).stem


def scenario_path(scenario: str) -> Path:
    """The topology file of a scenario's name."""
    own = SCENARIOS / f"{scenario}.toml"
    return own if own.is_file() else Path(scenario)


def grid_topology(point: Point, policies: Sequence[str] = ()) -> Topology:
    """The topology of a point; ``policies`` as ``site.mac=name``.

    Raises:
        TopologyError: a file that is no topology, or not one gNB with one group of cells, of which
            ``load`` is set for the class (or the cells) that comes first.
    """
    return load_topology(
        scenario_path(point.scenario),
        [*grid_sets(point), *point.sets],
        policies,
        seed=point.seed,
        duration_s=point.measured_s,
        slot_wall_ms_min=None,
    )


def grid_sets(point: Point) -> list[str]:
    """What the grid itself changes in the file, as ``key=value``."""
    group, traffic = _places(scenario_path(point.scenario))
    loads = [f"{traffic}.{way}_traffic.load={point.load!r}" for way in ("ul", "dl")]
    return [f"{group}.count={point.cells}", *loads]


@lru_cache(maxsize=16)
def _places(path: Path) -> tuple[str, str]:
    """Keys of the group of cells, and of the table that holds its first class's traffic."""
    topology = load_topology(path, slot_wall_ms_min=None)
    groups = [
        (f"sites.{site}.gnbs.{gnb}.cells[{index}]", group)
        for site, spec in topology.sites.items()
        for gnb, own in spec.gnbs.items()
        for index, group in enumerate(own.cells)
    ]
    if len(groups) != 1:
        listed = ", ".join(key for key, _ in groups) or "none"
        raise TopologyError([f"{path}: groups of cells: {listed}; a grid needs exactly one"])
    key, group = groups[0]
    return key, f"{key}.classes[0]" if group.classes else key


def scenario_at(point: Point) -> BenchScenario:
    """The same as a scenario of the bench. Raises TopologyError."""
    return scenario_of(grid_topology(point))


def run_arm(
    scenario: BenchScenario, arm: Arm, ran_sms: int | None = None, tuning: Tuning | None = None
) -> BenchRun:
    """One arm; with ``ran_sms`` the RAN is confined to that many SMs. Raises TopologyError."""
    return run_bench(scenario, arm.policy, arm.sizing, ran_sms, tuning)
