"""Which nodes a topology needs, what check prints, derived numbers, and what an import costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.topology import describe_check, load_topology, plan_nodes, time_scale
from testbed.topology.node_config import NODE_KINDS
from testbed.topology.profiles import effective_gpu, gpu_profile, model_profile
from testbed.topology.sizes import grantable_sms, notice_us, state_bytes, worst_ran_sms

from .topology_texts import edited, write

QUICKSTART = Path(__file__).parents[3] / "topologies" / "quickstart.toml"


def test_the_nodes_of_the_quickstart() -> None:
    plans = {plan.node: plan for plan in plan_nodes(load_topology(QUICKSTART))}
    assert {node: plan.kind for node, plan in plans.items()} == {
        "coordinator": "coordinator",
        "recorder": "recorder",
        "north.agent": "site_agent",
        "north.g1.mac": "gnb_mac",
        "north.g1.phy": "gnb_phy",
        "north.pretrain.trainer": "trainer",
        "south.agent": "site_agent",
        "south.g1.mac": "gnb_mac",
        "south.g1.phy": "gnb_phy",
        "south.pretrain.trainer": "trainer",
    }
    north = "north.g1.phy", "north.pretrain.trainer", "coordinator", "recorder"
    assert plans["north.agent"].peers == north
    assert plans["south.g1.mac"].peers == ("south.g1.phy", "south.agent", "recorder")
    assert plans["south.g1.phy"].peers == ("south.agent", "south.g1.mac", "recorder")
    assert plans["north.pretrain.trainer"].peers == ("north.agent", "coordinator", "recorder")
    assert plans["coordinator"].peers == (
        "north.pretrain.trainer",
        "south.pretrain.trainer",
        "north.agent",
        "south.agent",
        "recorder",
    )
    assert plans["recorder"].peers == ()
    assert plans["north.g1.mac"].cells == (0, 1)
    assert plans["south.agent"].cells == (2, 3)


def test_documents_are_small_json_and_name_known_peers() -> None:
    plans = plan_nodes(load_topology(QUICKSTART))
    kinds = {plan.node: plan.kind for plan in plans}
    for plan in plans:
        assert plan.kind in NODE_KINDS
        assert len(plan.node) <= 64
        document = json.loads(json.dumps(plan.document))
        assert document["directory"] == {peer: kinds[peer] for peer in plan.peers}
        assert len(json.dumps(document)) < 60_000


def test_a_pool_has_no_gnb(tmp_path: Path) -> None:
    topology = load_topology(write(tmp_path, edited("quantum_us = 5000", "quantum_us = 4000")))
    south = [plan.node for plan in plan_nodes(topology) if plan.site == "south"]
    assert south == ["south.agent", "south.pretrain.trainer"]


@pytest.mark.parametrize(
    ("scale", "slot_wall_ms_min", "expected"),
    [("20", 4.0, 20.0), ('"auto"', 4.0, 8.0), ('"auto"', 5.3, 10.6), ('"auto"', 0.001, 0.01)],
)
def test_the_scale(tmp_path: Path, scale: str, slot_wall_ms_min: float, expected: float) -> None:
    topology = load_topology(write(tmp_path, edited("scale = 20", f"scale = {scale}")))
    assert time_scale(topology, slot_wall_ms_min) == expected


def test_notice_and_worst_case_by_hand() -> None:
    site = load_topology(QUICKSTART).sites["north"]
    # Plans are out 0.4 slots into a slot of 500 us. DL: 3 slots ahead, and the work begins one slot
    # before the air. UL: 3 + 3 slots ahead, and the work begins after the slot.
    assert notice_us(site) == (2 * 500 - 200, 7 * 500 - 200)
    # Two cells at their peak ask for 2 x 24 SMs of decoding, capped at 40, and 2 x 8 of downlink.
    assert worst_ran_sms(site, gpu_profile("gb10")) == 48


@pytest.mark.parametrize(
    ("keys", "always", "most"),
    [
        # Four cells ask a GH200 for 96 SMs of decoding (4 x 24) and 4 x 8 of downlink: 4 are left.
        (('gpu="gh200"',), 0, 128),
        (('gpu="gh200"', "partition=mps"), 0, 128),
        (('gpu="gh200"', "partition=mig"), 0, 132),
        # One cell asks for 24 + 8. Beside an instance of 60 SMs the RAN has 64; beside 64 it has
        # 60, of which it can use 56. All seven slices leave it none.
        (('gpu="gh200"', "partition=mig", "gnbs.g1.cells[0].count=1"), 64, 132),
        (("gnbs.g1.cells[0].count=1",), 16, 48),
        (("partition=static", "static_training_sms=40"), 40, 40),
    ],
)
def test_what_a_partition_can_lend_by_hand(keys: tuple[str, ...], always: int, most: int) -> None:
    path = QUICKSTART.parent / "weaver_usable.toml"
    topology = load_topology(path, sets=[f"sites.site.{key}" for key in keys])
    site = topology.sites["site"]
    assert grantable_sms(site, effective_gpu(site)) == (always, most)


def test_check_says_what_a_fixed_share_grants() -> None:
    sets = [
        f"sites.{name}.{key}"
        for name in ("north", "south")
        for key in ("partition=static", "static_training_sms=16")
    ]
    text = "\n".join(describe_check(load_topology(QUICKSTART, sets)))
    assert "SMs that can be granted: 16\n    partition: static, never switches" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(" " * 10)]
    granted = {cells[0]: cells[-1] for cells in rows}
    assert (granted["16"], granted["24"]) == ("always", "never")


@pytest.mark.parametrize(("dtype", "pinned", "device"), [("bf16", 14, 16), ("fp32", 12, 16)])
def test_state_of_adamw(dtype: str, pinned: int, device: int) -> None:
    # ZeRO, section 3.1: 16 bytes per parameter in mixed precision, and 16 in single precision.
    job = load_topology(QUICKSTART, sets=[f"jobs.pretrain.dtype={dtype}"]).jobs["pretrain"]
    size = state_bytes(job, model_profile("opt-125m"))
    assert (size.pinned, size.device) == (pinned * 125_239_296, device * 125_239_296)


def test_check_says_what_would_run_where_and_what_it_needs() -> None:
    lines = describe_check(load_topology(QUICKSTART))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 100
    assert lines[0] == "quickstart: 2 sites, 2 gNBs, 4 cells, 32 UEs, 1 job"
    assert "2.0 s of emulated time at scale 20: 40 s" in lines[1]
    assert "2 gnb_mac, 2 gnb_phy, 2 trainer; 4 executors" in lines[2]
    assert "notice of RAN work: DL 800 us, UL 3300 us; SMs that can be granted: 0 to 48" in text
    assert "1.63 GiB of host, 1.87 GiB of device memory" in text
    assert str(QUICKSTART.parent) not in text


def test_check_describes_pools_idle_sites_overrides_and_other_traffic(tmp_path: Path) -> None:
    text = edited('kind = "ftp3"\nload = 0.2', 'kind = "full_buffer"')
    text += "[sites.idle]\n[sites.south.gpu_overrides]\nusd_per_hour = 2.0\n"
    topology = load_topology(write(tmp_path, text.replace("scale = 20", 'scale = "auto"')))
    lines = "\n".join(describe_check(topology))
    assert "at scale 8 (auto)" in lines
    assert "UL full buffer, DL none" in lines
    assert "south: l40s with overrides" in lines
    assert "no RAN: all 142 SMs can be granted at any time" in lines
    assert "idle: no GPU, nothing runs here" in lines


def test_loading_imports_nothing_heavy() -> None:
    script = (
        "import sys; from testbed.topology import load_topology;"
        f"load_topology({str(QUICKSTART)!r});"
        "heavy = {'torch', 'numpy', 'scipy', 'matplotlib', 'polars', 'zmq', 'asyncio'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"
