"""What the characterisation runs: cells of the scenario of record, full cells, replayed real logs.

Owns topologies and what is changed in them. Runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.host.birth import load_traces
from testbed.host.traces import import_files, import_options
from testbed.ran.traces import Trace
from testbed.slotbench.scenario import BenchScenario, scenario_of
from testbed.topology.load import load_topology

_ROOT = Path(__file__).resolve().parents[2]
USABLE = _ROOT / "topologies" / "weaver_usable.toml"
REAL_TRACE = _ROOT / "topologies" / "real_trace.toml"
COMMAG_LOG = _ROOT / "tests" / "data" / "commag_bs.csv"

COMMAG_S = 4.25
"""The slice of the log without a gap."""

COMMAG_SCALE = 100
"""Chosen, as the 200 of ``real_trace.toml``: the recorded cells were nearly idle."""

FGN, FGN_LONG, ALL_PEAK = "fgn files", "fgn files, long", "all peak"
NR_SCOPE, COMMAG = "NR-Scope", "COMMAG"
"""What a case calls its traffic."""

_CELLS = "sites.site.gnbs.g1.cells[0]."
_ONE_CLASS = "sites.cell.gnbs.g1.cells[0]."


@dataclass(frozen=True, slots=True)
class Case:
    """One run to make. ``load`` is None where the load is not set but recorded or endless."""

    traffic: str
    cells: int
    ul_layers: int
    load: float | None
    seed: int
    measured_s: float

    @property
    def named(self) -> str:
        """For people."""
        load = "" if self.load is None else f", load {self.load:g}"
        return f"{self.traffic}, {self.cells} cell{'s' if self.cells > 1 else ''}{load}"


def fgn_case(cells: int, ul_layers: int, load: float, seed: int, measured_s: float) -> Case:
    """The scenario of record at some load of both directions."""
    return Case(FGN, cells, ul_layers, load, seed, measured_s)


def long_case(load: float, measured_s: float) -> Case:
    """One cell of it, run for long, for the memory of its demand."""
    return Case(FGN_LONG, 1, 1, load, 1, measured_s)


def full_case(cells: int, measured_s: float) -> Case:
    """Uplink cells that are full at MCS 28 of table 1, one layer: the decoder's all-peak load."""
    return Case(ALL_PEAK, cells, 1, None, 1, measured_s)


def nr_scope_case() -> Case:
    """The replay of ``real_trace.toml``, unchanged but for its length, which is the file's own."""
    return Case(NR_SCOPE, 1, 1, None, 1, 1.8)


def commag_case() -> Case:
    """A log of base-station rates, spread as Poisson packets and scaled."""
    return Case(COMMAG, 1, 1, None, 1, COMMAG_S - 0.2)


def scenario(case: Case) -> BenchScenario:
    """The scenario of a case.

    Raises:
        TopologyError: a topology that cannot be read.
        TraceError: a log that cannot be read.
    """
    if case.traffic == NR_SCOPE:
        return _scenario(REAL_TRACE, case, {})
    if case.traffic == COMMAG:
        return _commag(case)
    if case.traffic == ALL_PEAK:
        return _scenario(REAL_TRACE, case, _full(case))
    return _scenario(USABLE, case, _synthetic(case))


def _synthetic(case: Case) -> dict[str, object]:
    return {
        f"{_CELLS}count": case.cells,
        f"{_CELLS}ul_layers": case.ul_layers,
        f"{_CELLS}classes[0].ul_traffic.load": case.load,
        f"{_CELLS}classes[0].dl_traffic.load": case.load,
    }


def _full(case: Case) -> dict[str, object]:
    """UEs that all reach the highest MCS, full uplink buffers, no downlink."""
    return {
        f"{_ONE_CLASS}count": case.cells,
        f"{_ONE_CLASS}ul_layers": case.ul_layers,
        f"{_ONE_CLASS}mcs_table": 1,
        f"{_ONE_CLASS}sinr_mean_db": 40.0,
        f"{_ONE_CLASS}sinr_sd_db": 0.0,
        f"{_ONE_CLASS}ul_traffic": '{kind = "full_buffer"}',
        f"{_ONE_CLASS}dl_traffic": '{kind = "none"}',
    }


def _commag(case: Case) -> BenchScenario:
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "commag.csv"
        options = import_options(
            clock="timestamp", scs_khz=30, spread="poisson", length_s=COMMAG_S, seed=case.seed
        )
        import_files([COMMAG_LOG], "commag-bs", trace, options)
        sets: dict[str, object] = {}
        for direction in ("ul", "dl"):
            sets |= {
                f"{_ONE_CLASS}{direction}_traffic.path": f'"{trace}"',
                f"{_ONE_CLASS}{direction}_traffic.format": '"ranloom"',
                f"{_ONE_CLASS}{direction}_traffic.start_s": 0.0,
                f"{_ONE_CLASS}{direction}_traffic.bytes_scale": COMMAG_SCALE,
            }
        return _scenario(REAL_TRACE, case, sets)


def _scenario(path: Path, case: Case, sets: Mapping[str, object]) -> BenchScenario:
    topology = load_topology(
        path,
        [f"{key}={value}" for key, value in sets.items()],
        seed=case.seed,
        duration_s=case.measured_s,
        slot_wall_ms_min=None,
    )
    traces: Mapping[str, Trace] = load_traces(topology)
    return scenario_of(topology, traces=traces)
