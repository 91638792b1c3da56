"""Whole runs of the slot bench: what must hold in any of them, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import PolicyError, TopologyError
from testbed.gpu.sizing import Saturation
from testbed.shaping.state import SHAPED, Tuning
from testbed.slotbench import simulate, state
from testbed.slotbench.gpu_time import SATURATION
from testbed.slotbench.kernel import PROPORTIONAL_FAIR
from testbed.slotbench.results import BenchRun
from testbed.slotbench.scenario import BenchScenario, scenario_of, setup_of
from testbed.slotbench.simulate import run_bench
from testbed.topology.load import load_topology

TEXT = """
name = "bench"
seed = 5
[time]
scale = 20
warmup_us = 50_000
measured_us = 150_000
[sites.north]
gpu = "gb10"
[[sites.north.gnbs.g1.cells]]
count = 2
ues = 6
five_qi = 7
sinr_mean_db = 12.0
sinr_sd_db = 6.0
ul_traffic = { kind = "ftp3", load = 0.6, file_bytes = 30000 }
dl_traffic = { kind = "ftp3", load = 0.6, file_bytes = 30000 }
"""


def scenario(directory: Path, text: str = TEXT, *sets: str) -> BenchScenario:
    path = directory / "bench.toml"
    path.write_text(text, encoding="utf-8")
    return scenario_of(load_topology(path, sets, slot_wall_ms_min=None))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> BenchRun:
    """A run with retransmissions."""
    found = run_bench(scenario(tmp_path_factory.mktemp("bench")))
    assert (found.blocks["transmission"] > 1).any()
    return found


def same(left: BenchRun, right: BenchRun) -> bool:
    tables = ("blocks", "tasks", "pieces", "sdus", "promises", "emergencies")
    return left.end_us == right.end_us and all(
        np.array_equal(getattr(left, name).rows, getattr(right, name).rows) for name in tables
    )


def test_no_byte_is_lost(run: BenchRun):
    """Arrived = delivered + buffered + in flight, at any time."""
    for at in run.counters:
        held = at.delivered_bytes + at.buffered_bytes + at.in_flight_bytes
        assert at.arrived_bytes.tolist() == held.tolist()
    last = run.counters[-1]
    assert last.delivered_bytes.sum() >= run.sdus["bytes"].sum() > 0


def test_no_ue_has_two_blocks_in_a_slot_or_more_prbs_than_there_are(run: BenchRun):
    blocks = run.blocks
    keys = np.stack([blocks[name] for name in ("cell", "air_slot", "direction", "ue")])
    assert len(np.unique(keys, axis=1).T) == len(blocks)
    _, of_slot = np.unique(keys[:3], axis=1, return_inverse=True)
    assert np.bincount(of_slot, blocks["n_prb"]).max() <= run.setup.cells[0].n_prb


@pytest.mark.parametrize("processes", [1, 3])
def test_harq_never_has_more_processes_than_it_may(tmp_path: Path, processes: int):
    setup = setup_of(scenario(tmp_path), Saturation())
    few = tuple(replace(cell, harq_processes=processes) for cell in setup.cells)
    runner = simulate._Runner(
        replace(setup, cells=few), PROPORTIONAL_FAIR, SHAPED, SATURATION, Tuning()
    )
    assert runner.run().counters[-1].harq_busy_most.tolist() == [processes] * 4


def test_the_length_of_pieces_changes_nothing(
    run: BenchRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(simulate, "PIECE_SLOTS", 37)
    assert same(run, run_bench(scenario(tmp_path)))


def test_room_that_runs_out_is_made(run: BenchRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "FIRST_POOL", 8)
    monkeypatch.setattr(state, "FIRST_BREAKPOINTS", 4)
    monkeypatch.setattr("testbed.slotbench.rows._SLOTS", 2)
    assert same(run, run_bench(scenario(tmp_path)))


def test_a_part_of_the_gpu_is_never_left(tmp_path: Path):
    confined = run_bench(scenario(tmp_path), ran_sms=16)
    pieces = confined.pieces
    for at_us in pieces["from_us"]:
        running = (pieces["from_us"] <= at_us) & (at_us < pieces["to_us"])
        assert pieces["sms"][running].sum() <= 16
    assert confined.setup.gpu.sms == 48


def test_deadline_sizing_stretches_what_saturation_hurries(tmp_path: Path):
    quick, stretched = (
        run_bench(scenario(tmp_path), sizing=sizing) for sizing in ("saturation", "deadline")
    )
    assert stretched.tasks["sms"].mean() < quick.tasks["sms"].mean()
    missed = [int(found.blocks["missed"].sum()) for found in (quick, stretched)]
    assert missed == [0, 0]


def test_unknown_policies_are_refused(tmp_path: Path):
    with pytest.raises(PolicyError, match=r"policy = 'best'.*proportional_fair"):
        run_bench(scenario(tmp_path), "best")
    with pytest.raises(PolicyError, match=r"sizing = 'tight'.*deadline"):
        run_bench(scenario(tmp_path), sizing="tight")


def test_a_part_that_no_partition_can_have_is_refused(tmp_path: Path):
    with pytest.raises(TopologyError, match=r"ran_sms = 12.*\[8, 16, 24, 32, 40, 48\]"):
        run_bench(scenario(tmp_path), ran_sms=12)


def test_slow_messages_are_refused(tmp_path: Path):
    """400 us of wall time at scale 1: two messages and the MAC's 200 us fill the slots ahead."""
    slow = scenario(tmp_path, TEXT, "time.scale=1", "host.message_overhead_wall_us=400")
    with pytest.raises(TopologyError, match="lookahead_slots = 3"):
        run_bench(slow)


def test_a_gnb_that_shares_its_gpu_is_refused(tmp_path: Path):
    second = TEXT[TEXT.index("[[sites") :].replace("g1", "g2")
    with pytest.raises(TopologyError, match="2 gNBs match"):
        scenario(tmp_path, TEXT + second)
    topology = load_topology(tmp_path / "bench.toml", slot_wall_ms_min=None)
    with pytest.raises(TopologyError, match="g1, g2"):
        scenario_of(topology, "north", "g2")
