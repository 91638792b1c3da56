"""What is written reads back as the same topology: TOML, JSON, template, line numbers."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import TopologyError
from testbed.topology import Topology, dump_toml, init_template, load_topology
from testbed.topology.places import Place, dotted, line_numbers, quoted
from testbed.topology.resolved import toml_value

from .topology_texts import write

TOPOLOGIES = Path(__file__).parents[3] / "topologies"

names = st.sampled_from(["a", "north", "g1", "x_9", "kind", "ftp3"])
texts = st.text("ab.'\"\\#=[]\n\r\t\x00\x7fé\u2028🛰 ", min_size=1, max_size=8)
ratios = st.floats(0.001, 10, allow_nan=False)


def optional(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


traffic = st.one_of(
    st.just({"kind": "none"}),
    st.just({"kind": "full_buffer"}),
    st.builds(
        lambda load, more: {"kind": "ftp3", "load": load, **more},
        ratios,
        optional(
            {
                "fgn": optional({"cv": st.floats(0.01, 2)}),
                "diurnal": optional({"points": st.lists(ratios, max_size=2)}),
            }
        ),
    ),
    st.just({"kind": "xr", "rate_mbps": 30.0}),
    st.builds(
        lambda path, start: {"kind": "trace", "path": path, "start_s": start},
        texts,
        st.one_of(st.just("busiest"), ratios),
    ),
)
ue_classes = st.builds(
    lambda ues, ul, dl: {"ues": ues, "ul_traffic": ul, "dl_traffic": dl},
    st.integers(1, 9),
    traffic,
    traffic,
)
groups = st.builds(
    lambda own, more: {**own, **more},
    st.one_of(
        st.builds(lambda ul, dl: {"ul_traffic": ul, "dl_traffic": dl}, traffic, traffic),
        st.builds(lambda found: {"classes": found}, st.lists(ue_classes, min_size=1, max_size=2)),
    ),
    optional({"count": st.integers(1, 64), "tdd": st.sampled_from(["DDDSU", "DU"])}),
)
gnbs = st.dictionaries(
    names,
    st.builds(lambda cells: {"cells": cells}, st.lists(groups, min_size=1, max_size=2)),
    max_size=2,
)
overrides = optional(
    {
        "sms": st.integers(1, 1024),
        "speed_points": st.lists(
            st.tuples(st.integers(1, 99), ratios).map(list), min_size=1, max_size=2
        ),
        "phy": optional({"ul_fixed_us": ratios}),
    }
)
sites = st.dictionaries(
    names,
    optional({"gpu": texts, "gpu_overrides": overrides, "gnbs": gnbs}),
    min_size=1,
    max_size=3,
)
jobs = st.dictionaries(
    names,
    st.builds(
        lambda sites, model, text: {
            "kind": "pretraining",
            "sites": sites,
            "model": model,
            "proxy": {"text": text},
        },
        st.lists(names, min_size=1, max_size=2),
        texts,
        texts,
    ),
    max_size=2,
)
links = st.builds(
    lambda pairs: {
        "between": [{"sites": list(p), "bandwidth_gbps": 1.5, "latency_us": 3} for p in pairs]
    },
    st.lists(st.tuples(names, names), max_size=2),
)
faults = st.lists(
    st.builds(lambda node: {"kind": "kill", "node": node, "at_us": 5}, texts), max_size=2
)
documents = st.builds(
    lambda scale, sites, jobs, links, faults: {
        "name": "any",
        "time": {"scale": scale},
        "sites": sites,
        "jobs": jobs,
        "links": links,
        "faults": faults,
    },
    st.one_of(st.just("auto"), ratios, st.just(1e-4), st.just(1e4)),
    sites,
    jobs,
    links,
    faults,
)


@given(documents)
@settings(max_examples=60)
def test_any_topology_survives_toml_and_json(document: dict[str, Any]) -> None:
    topology = Topology.model_validate(document)
    assert Topology.model_validate(tomllib.loads(dump_toml(topology))) == topology
    assert Topology.model_validate_json(topology.model_dump_json()) == topology


@given(documents)
@settings(max_examples=40)
def test_each_key_is_found_on_the_line_that_names_it(document: dict[str, Any]) -> None:
    text = dump_toml(Topology.model_validate(document))
    lines, written = line_numbers(text), text.split("\n")
    for place, line in lines.items():
        keys = [part for part in place if isinstance(part, str)]
        assert keys[-1] in written[line - 1], (place, line)
    found = leaves(tomllib.loads(text))
    assert {place for place in found if isinstance(place[-1], str)} <= lines.keys()


def leaves(node: object, place: Place = ()) -> set[Place]:
    """Places of all values that are no tables."""
    if isinstance(node, dict):
        return {leaf for key, item in node.items() for leaf in leaves(item, (*place, key))}
    if isinstance(node, list) and node and isinstance(node[0], dict):
        return {leaf for i, item in enumerate(node) for leaf in leaves(item, (*place, i))}
    return {place}


@pytest.mark.parametrize("name", ["quickstart", "real_trace"])
def test_the_resolved_topology_loads_to_the_same(name: str, tmp_path: Path) -> None:
    topology = load_topology(TOPOLOGIES / f"{name}.toml")
    text = dump_toml(topology)
    assert str(TOPOLOGIES.parent) not in text
    assert Topology.model_validate(tomllib.loads(text)) == topology
    if name == "quickstart":
        assert load_topology(write(tmp_path, text)) == topology


def test_paths_in_the_resolved_topology_stay_relative() -> None:
    text = dump_toml(load_topology(TOPOLOGIES / "real_trace.toml"))
    assert text.count('path = "../tests/data/nr_scope_dci.csv"') == 2


def test_equality_is_of_documents_not_of_places(tmp_path: Path) -> None:
    topology = load_topology(TOPOLOGIES / "quickstart.toml")
    assert topology.placed(tmp_path) == topology
    assert topology.placed(tmp_path).directory == tmp_path
    assert topology != load_topology(TOPOLOGIES / "quickstart.toml", seed=2)
    assert topology != "quickstart"


def test_the_template_loads_and_every_key_has_a_comment(tmp_path: Path) -> None:
    text = init_template("my-run")
    topology = load_topology(write(tmp_path, text))
    assert (topology.name, topology.warnings) == ("my-run", ())
    written = text.split("\n")
    for number, line in enumerate(written):
        assert len(line) <= 100
        if "=" in line and not line.startswith("#"):
            assert written[number - 1].startswith("# "), line


def test_the_examples_in_the_template_load_once_uncommented(tmp_path: Path) -> None:
    text = init_template("my-run")
    head, marker, examples = text.partition("# Faults, at emulated times:\n")
    faults = examples.partition("\n\n")[0].replace("# ", "")
    topology = load_topology(write(tmp_path, head + marker + faults))
    assert [fault.kind for fault in topology.faults] == ["late_quantum", "kill"]


@pytest.mark.parametrize("name", ["", "My Run", "a" * 33, "a\n", 'a"'])
def test_a_template_needs_a_name(name: str) -> None:
    with pytest.raises(TopologyError, match="not a name"):
        init_template(name)


@given(texts)
def test_any_text_can_be_quoted(text: str) -> None:
    assert tomllib.loads(f"x = {quoted(text)}")["x"] == text


@given(
    st.recursive(
        st.one_of(
            st.booleans(),
            st.integers(-(2**62), 2**62),
            st.floats(allow_nan=False, allow_infinity=False),
            texts,
        ),
        lambda items: st.lists(items, max_size=3),
        max_leaves=6,
    )
)
def test_any_value_can_be_written(value: object) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value


def test_lines_in_toml_that_a_person_writes() -> None:
    text = '''\
# a comment
top = """
[not.a.table]
key = 1
"""   # [nor.this]
'quoted key' . "x\\u0041" = { inner = [1,
  2, # ] }
  "]"] }
[a.b]
c = \'\'\'
d = 2\'\'\'
[[t]]
x = 1
[[t.u]]
[[t.u]]
y = 2
[[t]]
x.z = 3
last = 1979-05-27T07:32:00Z'''
    assert line_numbers(text) == {
        ("top",): 2,
        ("quoted key",): 6,
        ("quoted key", "xA"): 6,
        ("a",): 9,
        ("a", "b"): 9,
        ("a", "b", "c"): 10,
        ("t",): 12,
        ("t", 0): 12,
        ("t", 0, "x"): 13,
        ("t", 0, "u"): 14,
        ("t", 0, "u", 0): 14,
        ("t", 0, "u", 1): 15,
        ("t", 0, "u", 1, "y"): 16,
        ("t", 1): 17,
        ("t", 1, "x"): 18,
        ("t", 1, "x", "z"): 18,
        ("t", 1, "last"): 19,
    }


def test_places_are_shown_as_they_are_written() -> None:
    place = ("sites", "north", "cells", 0, "odd key", "ues")
    assert dotted(place) == 'sites.north.cells[0]."odd key".ues'
