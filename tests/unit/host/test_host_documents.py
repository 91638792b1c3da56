"""Documents that hosts exchange or leave behind: CONFIG, a node's birth, the manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from testbed.host.birth import Birth, build_node, read_birth
from testbed.host.config_document import NodeConfig, PeerEntry
from testbed.host.manifest import SCHEMA_VERSION, common_manifest, package_versions, write_manifest
from testbed.topology import load_topology
from testbed.topology.node_config import plan_nodes

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def topology():
    return load_topology(ROOT / "topologies" / "quickstart.toml", slot_wall_ms_min=None)


def births(topology):
    return [Birth(plan, 1, topology, {"store": "x:1"}, "/work") for plan in plan_nodes(topology)]


def test_birth_survives_json_for_every_node(topology, tmp_path):
    for birth in births(topology):
        document = json.loads(json.dumps(birth.document()))
        again = read_birth(document, tmp_path)
        assert again.document() == birth.document()
        assert again.topology == topology
        assert again.topology.directory == tmp_path
        assert (again.life, again.facts) == (1, {"store": "x:1"})
        assert type(build_node(again)) is type(build_node(birth))


def test_birth_says_nothing_of_where_files_are(topology):
    for birth in births(topology):
        assert "/work" not in json.dumps(birth.document())


def test_node_config_survives_json(topology):
    config = NodeConfig(
        birth=births(topology)[0].document(),
        directory="/somewhere",
        run_dir="/run",
        wall_ns_per_us=20_000,
        peers={
            "north.agent": PeerEntry(
                inbox="ipc:///tmp/ranloom-x/2.1",
                site="north",
                life=1,
                sends_to=True,
                receives_from=False,
            )
        },
    )
    assert NodeConfig.model_validate_json(config.model_dump_json()) == config
    assert len(config.model_dump_json()) < 60_000, "a CONFIG holds that much"


@pytest.mark.parametrize(
    "change",
    [{"unknown": 1}, {"wall_ns_per_us": "soon"}, {"peers": {"a": {"inbox": "x"}}}, {"birth": 3}],
)
def test_config_with_something_wrong_is_refused(change):
    good = {"birth": {}, "directory": "d", "run_dir": "r", "wall_ns_per_us": 1, "peers": {}}
    NodeConfig.model_validate(good)
    with pytest.raises(ValidationError):
        NodeConfig.model_validate(good | change)


def test_manifest_of_a_simulated_run_is_the_same_every_time(topology, tmp_path):
    manifest = common_manifest(topology, "sim", 20.0)
    for name in ("a", "b"):
        write_manifest(tmp_path / f"{name}.json", common_manifest(topology, "sim", 20.0))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert json.loads((tmp_path / "a.json").read_text()) == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_manifest_tells_what_decides_a_run(topology):
    manifest = common_manifest(topology, "sim", 20.0)
    assert manifest["schema_version"] == SCHEMA_VERSION
    assert (manifest["name"], manifest["mode"], manifest["seed"]) == ("quickstart", "sim", 1)
    assert (manifest["warmup_us"], manifest["measured_us"]) == (200_000, 1_800_000)
    assert manifest["nodes"]["north.g1.mac"] == {
        "kind": "gnb_mac",
        "site": "north",
        "gnb": "g1",
        "job": "",
    }
    assert {"python", "torch", "pyzmq", "msgpack", "numpy"} <= package_versions().keys()


def test_manifest_that_cannot_be_written_leaves_the_old_one(topology, tmp_path):
    path = tmp_path / "manifest.json"
    write_manifest(path, {"old": 1})
    with pytest.raises(TypeError):
        write_manifest(path, {"new": object()})
    assert json.loads(path.read_text()) == {"old": 1}
