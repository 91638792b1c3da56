"""Same topology and seed: the same bytes, whatever the hash seed, the codec or the process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sim_topologies import loaded, reasons, rows, simulate, two_sites

from testbed.host.live_run import run_simulated
from testbed.host.replay import replay_run
from testbed.topology.node_config import plan_nodes

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {here!r}]
from sim_topologies import loaded
from testbed.host.live_run import run_simulated
from testbed.record.run_dir import summarise_run
from testbed.record.summary import dump_summary
path = Path(sys.argv[1])
topology = loaded(path.parent, Path(sys.argv[2]).read_text())
run_simulated(topology, 20.0, path, journals=True)
(path / "summary.json").write_text(dump_summary(summarise_run(path)))
"""


def elsewhere(text: str, directory: Path, hash_seed: str) -> Path:
    """The run and its summary in another process, under its own PYTHONHASHSEED and directory."""
    directory.mkdir()
    (directory / "text.toml").write_text(text)
    script = SCRIPT.format(root=str(ROOT), here=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory / "run"), str(directory / "text.toml")],
        cwd=directory,
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return directory / "run"


def digests(run_dir: Path) -> dict[str, str]:
    """SHA-256 of every file whose bytes the contract covers."""
    kept = ["spool.bin", "summary.json", "manifest.json", "topology.toml"]
    files = [run_dir / name for name in kept]
    files += sorted((run_dir / "tables").iterdir()) + sorted((run_dir / "events").iterdir())
    return {
        str(file.relative_to(run_dir)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


@pytest.fixture(scope="module")
def text() -> str:
    return two_sites(40_000)


@pytest.fixture(scope="module")
def run_dir(text, tmp_path_factory) -> Path:
    """One simulated run with journals."""
    directory = tmp_path_factory.mktemp("one")
    run_simulated(loaded(directory, text), 20.0, directory / "run", journals=True)
    return directory / "run"


def test_files_are_the_same_bytes_in_other_processes(text, tmp_path):
    first = digests(elsewhere(text, tmp_path / "a", "0"))
    second = digests(elsewhere(text, tmp_path / "b", "4711"))
    assert len(first) > 15
    assert first == second


def test_spool_holds_nothing_of_the_host(run_dir, tmp_path):
    """No path, host name, user or process id in what is compared byte by byte."""
    data = (run_dir / "spool.bin").read_bytes()
    for secret in (str(run_dir), str(Path.home()), os.uname().nodename):
        assert secret.encode() not in data


def test_two_runs_in_one_process_are_the_same(text, tmp_path, run_dir):
    again = run_simulated(loaded(tmp_path, text), 20.0, tmp_path / "run", journals=False)
    assert (tmp_path / "run" / "spool.bin").read_bytes() == (run_dir / "spool.bin").read_bytes()
    assert json.loads((run_dir / "manifest.json").read_text())["effects"] == again.digests


def test_another_seed_is_another_run(text, tmp_path):
    one = simulate(loaded(tmp_path, text))
    other = simulate(loaded(tmp_path, text, seed=4))
    assert one.digests["north.g1.mac"] != other.digests["north.g1.mac"]
    assert rows(one, "sdus") != rows(other, "sdus")


def test_messages_that_went_through_the_codec_change_nothing(text, tmp_path):
    plain = simulate(loaded(tmp_path, text))
    coded = simulate(loaded(tmp_path, text), through_codec=True)
    assert coded.digests == plain.digests
    assert reasons(coded) == reasons(plain)


def test_journals_replay_to_the_same_effects(text, tmp_path, run_dir):
    results = {result.node: result for result in replay_run(run_dir)}
    assert results.keys() == {plan.node for plan in plan_nodes(loaded(tmp_path, text))}
    for result in results.values():
        assert result.same, result
        assert result.steps > 0


def test_journals_in_full_hold_every_effect_and_replay_too(text, tmp_path):
    topology = loaded(tmp_path, text, sets=["record.level=full", "time.measured_us=10_000"])
    run_simulated(topology, 20.0, tmp_path / "run", journals=True)
    assert all(result.same for result in replay_run(tmp_path / "run"))
