"""A RAN that is confined to a part of the GPU, as beside a fixed share of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import TopologyError
from testbed.gpu.sizing import Saturation
from testbed.slotbench.scenario import BenchScenario, scenario_of, setup_of
from testbed.topology.load import load_topology

FILE = Path(__file__).parents[3] / "topologies" / "weaver_usable.toml"


def scenario(*sets: str) -> BenchScenario:
    return scenario_of(load_topology(FILE, sets, slot_wall_ms_min=None))


def test_confined_is_beside_a_static_partition():
    """48 SMs, of which training has 24 for good."""
    found = setup_of(scenario(), Saturation(), ran_sms=24)
    static = ("sites.site.partition=static", "sites.site.static_training_sms=24")
    assert found == setup_of(scenario(*static), Saturation())
    assert (found.gpu.sms, found.ran_gpu.sms) == (48, 24)
    assert max(found.worst_sms) <= 24


@pytest.mark.parametrize(
    ("gpu", "wrong", "allowed"),
    [
        ("gb10", 20, r"ran_sms = 20: allowed on gb10 are \[8, 16, 24, 32, 40, 48\]"),
        # Training has multiples of 8, and the RAN at least 8 SMs.
        ("gh200", 16, r"\[12, 20, 28, .*, 124, 132\]"),
    ],
)
def test_only_what_a_partition_leaves_is_allowed(gpu, wrong, allowed):
    with pytest.raises(TopologyError, match=allowed):
        setup_of(scenario(f'sites.site.gpu="{gpu}"'), Saturation(), ran_sms=wrong)
