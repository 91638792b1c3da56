"""Files that are no topology, and what the command line changes."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from testbed.errors import TopologyError
from testbed.topology import load_topology

from .topology_texts import GOOD, edited, write


def refusal(path: Path, **options: object) -> list[str]:
    with pytest.raises(TopologyError) as caught:
        load_topology(path, **options)  # type: ignore[arg-type]
    return [line.replace(f"{path.parent}/", "") for line in caught.value.mistakes]


def test_the_topology_carries_its_directory(tmp_path: Path) -> None:
    topology = load_topology(write(tmp_path))
    assert topology.directory == tmp_path
    assert topology.time.total_us == 500_000
    assert topology.warnings == ()


def test_a_missing_file(tmp_path: Path) -> None:
    expected = ["no.toml: cannot be read: no such file or directory"]
    assert refusal(tmp_path / "no.toml") == expected


def test_a_directory_and_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "d") == ["d: a directory; a topology is a TOML file"]
    assert refusal(tmp_path / "pipe") == ["pipe: not a regular file; a topology is a TOML file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.chmod(0)
    assert refusal(path) == ["base.toml: cannot be read: permission denied"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "base.toml: empty; `init` writes a topology to start from"),
        (b"# only this\n", "base.toml: empty; `init` writes a topology to start from"),
        (b'name = "a"\nx = "\xff"\n', "base.toml:2: not UTF-8 text (byte 16)"),
        (b'name = "a"\nseed = \n', "base.toml:2: not valid TOML: Invalid value (column 8)"),
        (b'name = "a"\nname = "b"\n', "base.toml:2: not valid TOML: Cannot overwrite a value"),
        (b"[sites.a]\n[sites.a]\n", "base.toml:2: not valid TOML: Cannot declare"),
        (b'a = 1\nname = "a', "base.toml:2: not valid TOML: Unterminated string"),
        (b"x = " + b"[" * 100_000, "base.toml: nested too deeply"),
        (b"#" * (1 << 20) + b"#", "base.toml: larger than 1 MiB; that is no topology"),
    ],
)
def test_text_that_is_no_topology(tmp_path: Path, raw: bytes, expected: str) -> None:
    path = tmp_path / "base.toml"
    path.write_bytes(raw)
    (line,) = refusal(path)
    assert line.startswith(expected)


def test_our_other_toml_files_are_known_for_what_they_are() -> None:
    root = Path(__file__).parents[3]
    laws = root / "topologies" / "weave_replay.toml"
    profile = root / "testbed" / "topology" / "profiles" / "gpus" / "gb10.toml"
    assert refusal(laws) == [
        "weave_replay.toml: laws of job traces, for `reproduce weave-replay --laws`; "
        "a topology has [sites]"
    ]
    assert refusal(profile) == [
        'gb10.toml: a GPU profile, for `gpu = "FILE"` in a topology; a topology has [sites]'
    ]


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "base.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_topology(path) == load_topology(write(tmp_path, name="unix.toml"))
    path.write_bytes(edited("seed = 7", "sed = 7").replace("\n", "\r\n").encode())
    assert refusal(path)[0].startswith("base.toml:2: sed = 7")


def test_options_change_values_before_they_are_checked(tmp_path: Path) -> None:
    topology = load_topology(
        write(tmp_path),
        sets=[
            "sites.north.gpu=h200",
            "sites.north.gnbs.g1.cells[0].ues = 4",
            "sites.north.gnbs.g1.cells.0.count=3",
            'jobs.pretrain.sites=["south"]',
        ],
        policies=["site.mac=round_robin"],
        seed=9,
        duration_s=0.25,
    )
    (group,) = topology.sites["north"].gnbs["g1"].cells
    assert (topology.sites["north"].gpu, group.ues, group.count) == ("h200", 4, 3)
    assert topology.jobs["pretrain"].sites == ("south",)
    assert topology.policies.site.mac == "round_robin"
    assert (topology.seed, topology.time.measured_us) == (9, 250_000)


def test_a_policy_beside_the_topology_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine: ...\n")
    topology = load_topology(write(tmp_path), policies=["site.mac=mine:Mine"])
    assert topology.policies.site.mac == "mine:Mine"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"sets": ["sites.north.gpu=gb11"]},
            '--set: sites.north.gpu = "gb11": not a GPU profile; did you mean "gb10"?',
        ),
        (
            {"sets": ["sites.nroth.gpu=gb10", "tmie.scale=3"]},
            "--set: tmie: unknown key; did you mean time?",
        ),
        ({"sets": ["time.scale"]}, "--set time.scale: needs the form key.key=value"),
        ({"sets": ["time.scale="]}, "--set time.scale=: needs the form key.key=value"),
        ({"sets": ["name=a b"]}, "--set name=a b: a b is not a TOML value (text needs quotes)"),
        ({"sets": ["seed=1\nname='x'"]}, "--set seed=1\nname='x': needs exactly one value"),
        ({"sets": ["name.x=1"]}, "--set name.x=1: name has no entry 'x'"),
        ({"sets": [".a=1"]}, "--set .a=1: '.a' is not a key such as "),
        (
            {"sets": ["sites.north.gnbs.g1.cells[7].ues=1"]},
            "--set sites.north.gnbs.g1.cells[7].ues=1: sites.north.gnbs.g1.cells has 1 entries, ",
        ),
        (
            {"policies": ["site.mac=round_robbin"]},
            '--policy: policies.site.mac = "round_robbin": no such policy; did you mean ',
        ),
        (
            {"policies": ["site.mc=round_robin"]},
            '--policy: policies.site.mc = "round_robin": unknown key; did you mean mac?',
        ),
        ({"policies": ["round_robin"]}, "--policy round_robin: needs the form site.mac=NAME"),
        ({"seed": -1}, "--seed: seed = -1: too small"),
        ({"duration_s": 0.001}, "--duration: time.measured_us = 1000: shorter than one TDD period"),
        ({"duration_s": math.nan}, "--duration: time.measured_us = nan: not an integer"),
    ],
)
def test_a_mistaken_option_is_named_as_the_place(
    tmp_path: Path, options: dict[str, object], expected: str
) -> None:
    assert any(line.startswith(expected) for line in refusal(write(tmp_path), **options))
