"""The slot bench gives what the nodes give in virtual time: every row, every byte.

The expected values are the node simulator's: message by message, in Python objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from sim_topologies import FULL, cell, ftp3, head, loaded, rows, simulate

from testbed.record.from_topology import scope_of
from testbed.record.measure.ran import ran
from testbed.record.measure.spare import spare_section
from testbed.record.recording import Recording
from testbed.record.tables import build_tables
from testbed.sim import SimResult
from testbed.slotbench.results import BenchRun, Table
from testbed.slotbench.scenario import BenchScenario, scenario_of
from testbed.slotbench.simulate import run_bench
from testbed.weaver_cli.grid_recording import recording_of

MIXED = """
[[sites.north.gnbs.g1.cells]]
count = 3
mcs_table = 2
ul_layers = 2
dl_layers = 4
sinr_mean_db = 18.0
sinr_sd_db = 6.0

[[sites.north.gnbs.g1.cells.classes]]
ues = 5
five_qi = 7
ul_traffic = {{ kind = "ftp3", load = {load}, file_bytes = 60000 }}
dl_traffic = {{ kind = "ftp3", load = {load}, file_bytes = 60000 }}

[[sites.north.gnbs.g1.cells.classes]]
ues = 3
five_qi = 80
ul_traffic = {{ kind = "periodic", bytes_min = 250, bytes_max = 1500, period_us = 10000 }}
dl_traffic = {{ kind = "periodic", bytes_min = 250, bytes_max = 1500, period_us = 10000 }}
"""


@dataclass(frozen=True)
class Point:
    """One point of the grid, and what must have happened there for it to be worth comparing."""

    name: str
    cells: str
    policy: str
    sizing: str
    sets: tuple[str, ...] = ()
    results: frozenset[int] = frozenset({1})
    transmissions: int = 1


NACK, ACK, LATE, NO_FEEDBACK = range(4)
SLOW = "sites.north.gpu_overrides.phy.ul_code_block_us=60.0"
SHARE = ("sites.north.partition=static", "sites.north.static_training_sms=24")
PF_SATURATED = ("proportional_fair", "saturation")
POINTS = (
    Point(
        "one cell, proportional fair",
        cell("north", "g1", ftp3(0.5, 20_000), ftp3(0.4, 50_000), sinr_sd_db=6).replace(
            "five_qi = 80", "five_qi = 7"
        ),
        "proportional_fair",
        "saturation",
        results=frozenset({NACK, ACK}),
        transmissions=2,
    ),
    Point(
        "two cells, round robin",
        cell("north", "g1", ftp3(0.6, 20_000), ftp3(0.4, 50_000), count=2, sinr_sd_db=6),
        "round_robin",
        "deadline",
    ),
    Point(
        "three cells, two classes of UEs, more work than the GPU can do",
        MIXED.format(load=0.5),
        "proportional_fair",
        "saturation",
        (SLOW,),
        frozenset({NACK, ACK, LATE, NO_FEEDBACK}),
        4,
    ),
    Point(
        "full buffers",
        cell("north", "g1", FULL, FULL, count=2, sinr_db=10, sinr_sd_db=6),
        "proportional_fair",
        "deadline",
        (SLOW,),
        frozenset({ACK, LATE}),
    ),
    Point("shaped", MIXED.format(load=0.3), "spare_compute", "deadline"),
    Point("unshaped beside a fixed share", MIXED.format(load=0.1), *PF_SATURATED, SHARE),
    Point(
        "shaped beside a fixed share", MIXED.format(load=0.3), "spare_compute", "deadline", SHARE
    ),
    Point("smoothed", MIXED.format(load=0.3), "load_smoother", "deadline"),
)


@dataclass(frozen=True)
class Pair:
    nodes: SimResult
    bench: BenchRun
    scenario: BenchScenario


@cache
def pair_at(point: Point, directory: Path) -> Pair:
    text = head("pair", 200_000) + '\n[sites.north]\ngpu = "gb10"\n' + point.cells
    policies = (f"site.mac={point.policy}", f"site.phy={point.sizing}")
    topology = loaded(directory, text, point.sets, policies)
    scenario = scenario_of(topology)
    return Pair(simulate(topology), run_bench(scenario, point.policy, point.sizing), scenario)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(params=POINTS, ids=lambda point: point.name)
def point(request: pytest.FixtureRequest) -> Point:
    found: Point = request.param
    return found


@pytest.fixture
def pair(point: Point, directory: Path) -> Pair:
    return pair_at(point, directory)


def of_nodes(pair: Pair, table: str, columns: Sequence[str]) -> list[tuple[int, ...]]:
    return [tuple(row[name] for name in columns) for row in rows(pair.nodes, table)]


def of_bench(table: Table, columns: Sequence[str]) -> list[tuple[int, ...]]:
    return list(zip(*(table[name].tolist() for name in columns), strict=True))


def test_the_point_shows_what_it_is_for(point: Point, pair: Pair):
    assert point.results <= set(pair.bench.blocks["result"].tolist())
    assert pair.bench.blocks["transmission"].max() >= point.transmissions
    assert pair.bench.end_us == pair.nodes.end_us


def test_blocks(pair: Pair):
    columns = pair.bench.blocks.columns[:-1]
    expected = of_nodes(pair, "blocks", columns)
    assert len(expected) > 200
    assert sorted(of_bench(pair.bench.blocks, columns)) == sorted(expected)


def test_reservations(pair: Pair):
    tasks, key = pair.bench.tasks, ("cell", "air_slot", "direction", "n_prb", "code_blocks")
    node_columns = (*key, "planned_start_us", "planned_end_us", "deadline_us", "wanted_sms")
    found = of_bench(tasks, (*key, "start_us", "end_us", "deadline_us", "sms"))
    assert sorted(found) == sorted(of_nodes(pair, "ran_tasks", node_columns))
    run_columns = (*key, "start_us", "modelled_end_us", "deadline_us", "sms")
    assert sorted(found) == sorted(of_nodes(pair, "ran_tasks", run_columns))


def test_sms_over_time(pair: Pair):
    tasks, pieces = pair.bench.tasks, pair.bench.pieces
    keys = of_bench(tasks, ("cell", "air_slot", "direction"))
    found = [
        (*keys[task], *rest)
        for task, *rest in of_bench(pieces, ("task", "from_us", "to_us", "sms"))
    ]
    columns = ("planned", "cell", "air_slot", "direction", "from_us", "to_us", "sms")
    expected = of_nodes(pair, "ran_pieces", columns)
    for planned in (0, 1):
        assert sorted(found) == sorted(row[1:] for row in expected if row[0] == planned)


def test_sdus_in_the_order_of_their_delivery(pair: Pair):
    columns = pair.bench.sdus.columns
    assert of_bench(pair.bench.sdus, columns) == of_nodes(pair, "sdus", columns)


def test_promises_and_emergencies(pair: Pair):
    promises, broken = pair.bench.promises, pair.bench.emergencies
    assert of_bench(promises, promises.columns) == of_nodes(pair, "promises", promises.columns)
    columns = ("slot", "at_us", "until_us", "promised_sms", "taken_sms")
    assert of_bench(broken, broken.columns) == of_nodes(pair, "ran_emergencies", columns)


def test_byte_counters_and_late_feedback(pair: Pair):
    ids = [cell.cell_id for cell in pair.bench.setup.cells]
    found = [
        (ids[link // 2], link % 2, at.at_us, *(int(column[link]) for column in columns))
        for at in pair.bench.counters
        for columns in [
            (
                *(at.arrived_bytes, at.delivered_bytes, at.buffered_bytes),
                *(at.in_flight_bytes, at.rlc_retx_bytes, at.late_feedback),
            )
        ]
        for link in range(len(at.arrived_bytes))
    ]
    columns = ("cell", "direction", "at_us", "arrived_bytes", "delivered_bytes", "buffered_bytes")
    more = ("in_flight_bytes", "rlc_retx_bytes", "late_feedback")
    assert found == of_nodes(pair, "ran_counters", (*columns, *more))


def test_figures_are_those_of_the_summary(pair: Pair):
    """Both through the same code; the bench's rows stand for the nodes'."""
    done = {"outcome": {"status": "done"}}
    tables = build_tables(pair.nodes.spool.contents().batches)
    nodes = Recording(scope_of(pair.scenario.topology, done), done, tables)
    bench = recording_of(pair.scenario, pair.bench)
    assert ran(bench) == ran(nodes)
    assert spare_section(bench, 0, {}) == spare_section(nodes, 0, {})
