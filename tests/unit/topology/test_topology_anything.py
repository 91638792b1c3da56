"""Whatever stands anywhere in a topology: it loads, or it is refused by name. Nothing else."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import TopologyError
from testbed.topology import Topology, describe_check, dump_toml, load_topology, plan_nodes
from testbed.topology.places import Place, dotted

from .topology_texts import GOOD, write

EVERYTHING = (
    GOOD
    + """
[links.default]
latency_us = 10
[[links.between]]
sites = ["north", "south"]
bandwidth_gbps = 1.0
latency_us = 1
[[faults]]
kind = "late_quantum"
site = "north"
at_us = 1
duration_us = 9
sms = 8
[[faults]]
kind = "kill"
node = "recorder"
at_us = 1
[sites.north.gpu_overrides]
sms = 48
sm_step = 8
min_sms = 8
speed_points = [[24, 0.6], [48, 1.0]]
bf16_tflops = 100.0
training_mfu = 0.5
launch_us = 1.0
memory_gb_per_s = 100.0
hbm_gib = 50.0
phy = { ul_code_block_us = 1.0, dl_sms = 4 }
[[sites.north.gnbs.g1.cells]]
[[sites.north.gnbs.g1.cells.classes]]
ues = 2
five_qi = 80
[sites.north.gnbs.g1.cells.classes.ul_traffic]
kind = "ftp3"
load = 0.1
load_of = "cell"
fgn = { cv = 0.3 }
[sites.north.gnbs.g1.cells.classes.dl_traffic]
kind = "periodic"
bytes_min = 10
bytes_max = 10
period_us = 1000
"""
)


def _places(node: object, place: Place = ()) -> list[Place]:
    """Every place of a document, tables and items of arrays included."""
    found = [place] if place else []
    if isinstance(node, dict):
        pairs: list[tuple[Any, Any]] = list(node.items())
    else:
        pairs = list(enumerate(node)) if isinstance(node, list) else []
    return found + [inner for key, item in pairs for inner in _places(item, (*place, key))]


PLACES = _places(tomllib.loads(EVERYTHING))
VALUES = [
    "true", "0", "-1", "7", str(2**70), "0.5", "-0.0", "1e300", "1e-300", "5e-324", "nan", "inf",
    '""', '"x"', '"20"',
    '"north"', '"kind"', '"../../etc"', '"\\u0000"', "[]", "[1]", '["north"]', "[[1, 2.0]]", "{}",
    "{ kind = 3 }", '{ kind = "ftp3" }', "[{}]", "[{ kind = 1 }]", "1979-05-27", "{ north = {} }",
]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("anything"), EVERYTHING)


def test_the_whole_of_it_is_good(path: Path) -> None:
    assert load_topology(path).warnings == ()


@settings(max_examples=150)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(VALUES)), min_size=1, max_size=4
    )
)
def test_any_value_anywhere_is_taken_or_refused_by_name(
    path: Path, changes: list[tuple[Place, str]]
) -> None:
    outcome = loaded(path, [f"{dotted(place)}={value}" for place, value in changes])
    if isinstance(outcome, Topology):
        assert describe_check(outcome)
        assert plan_nodes(outcome)
        assert dump_toml(outcome)


def test_each_place_takes_its_turn(path: Path) -> None:
    """Five of the values at each place, so that all of them are tried at every sixth."""
    outcomes = [
        loaded(path, [f"{dotted(place)}={VALUES[(5 * index + step) % len(VALUES)]}"])
        for index, place in enumerate(PLACES)
        for step in range(5)
    ]
    assert sum(isinstance(outcome, list) for outcome in outcomes) > len(PLACES)


def loaded(path: Path, sets: list[str]) -> Topology | list[str]:
    """The topology, or the lines of its error, each of which names its place."""
    try:
        return load_topology(path, sets=sets)
    except TopologyError as error:
        mistakes = error.mistakes
    assert mistakes
    assert all(line.startswith(("--set", str(path))) for line in mistakes)
    return mistakes


@pytest.mark.parametrize("name", ["kind", "ftp3", "word", "table", "cells"])
def test_a_site_may_have_the_name_of_anything(tmp_path: Path, name: str) -> None:
    text = GOOD.replace("north", name)
    assert name in load_topology(write(tmp_path, text)).sites
    with pytest.raises(TopologyError) as caught:
        load_topology(write(tmp_path, text.replace("load = 0.2", "load = -1")))
    (line,) = caught.value.mistakes
    assert f"base.toml:19: sites.{name}.gnbs.g1.cells[0].ul_traffic.load = -1: too small" in line
