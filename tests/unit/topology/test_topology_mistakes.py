"""Each kind of mistake: its line, its key, its value, what is allowed, what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import TopologyError
from testbed.topology import load_topology

from .topology_texts import GOOD, edited, write


def mistakes(directory: Path, text: str, **options: object) -> list[str]:
    """The lines of the error, without the directory."""
    path = write(directory, text)
    with pytest.raises(TopologyError) as caught:
        load_topology(path, **options)  # type: ignore[arg-type]
    return [line.replace(f"{directory}/", "") for line in caught.value.mistakes]


def _blocks() -> Iterator[object]:
    text = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8")
    for block in text.split("\n\n")[1:]:
        name, *rest = block.strip("\n").split("\n")
        marked = {mark: [line[2:] for line in rest if line[0] == mark] for mark in "-+="}
        yield pytest.param("\n".join(marked["-"]), "\n".join(marked["+"]), marked["="], id=name)


@pytest.mark.parametrize(("old", "new", "expected"), list(_blocks()))
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, expected: list[str]
) -> None:
    found = mistakes(tmp_path, edited(old, new))
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start), line


SECOND_GROUP = """
[[sites.north.gnbs.{gnb}.cells]]
{keys}
[sites.north.gnbs.{gnb}.cells.ul_traffic]
kind = "none"
[sites.north.gnbs.{gnb}.cells.dl_traffic]
kind = "none"
"""


@pytest.mark.parametrize(
    ("gnb", "keys", "expected"),
    [
        ("g1", "scs_khz = 15\nbandwidth_mhz = 20", "scs_khz = 15: differs from 30 at sites.north."),
        ("g2", "scs_khz = 15\nbandwidth_mhz = 20", "scs_khz = 15: differs from 30 at sites.north."),
        ("g1", "k2_slots = 4", "k2_slots = 4: differs from 3 at sites.north.gnbs.g1.cells[0]"),
    ],
)
def test_cells_of_a_site_share_one_slot_and_those_of_a_gnb_one_horizon(
    tmp_path: Path, gnb: str, keys: str, expected: str
) -> None:
    (line,) = mistakes(tmp_path, GOOD + SECOND_GROUP.format(gnb=gnb, keys=keys))
    assert expected in line


def test_gnbs_of_one_site_may_plan_with_different_horizons(tmp_path: Path) -> None:
    text = GOOD + SECOND_GROUP.format(gnb="g2", keys="k2_slots = 4")
    assert len(load_topology(write(tmp_path, text)).sites["north"].gnbs) == 2


def test_a_block_longer_than_the_quantum_is_refused_with_the_number(tmp_path: Path) -> None:
    # By hand, gb10: a backward pass is 2 (2 * 7,077,888 * 512 + 4 * 512^2 * 768) = 16.1 GFLOP, at
    # 0.35 * 125 TFLOP/s 368.1 us, and 20 us of launch: 389 us.
    (line,) = mistakes(tmp_path, edited("quantum_us = 5000", "quantum_us = 388"))
    assert "p99 389 us on north's whole gb10 (allowed: at least 389)" in line


def test_pinned_bytes_of_all_jobs_must_fit_the_host(tmp_path: Path) -> None:
    # opt-1.3b: 1,315,758,080 parameters x 14 bytes = 17.16 GiB each; four of them are 68.6 GiB.
    job = (
        '\n[jobs.j{0}]\nkind = "pretraining"\nsites = ["north"]\nmodel = "opt-1.3b"\n'
        "quantum_us = 50000\n[jobs.j{0}.proxy]\nlayers = 4\n"
    )
    three = GOOD + "".join(job.format(number) for number in range(3))
    assert load_topology(write(tmp_path, three)).jobs_at("north")[-1] == "j2"
    (line,) = mistakes(tmp_path, three + job.format(3))
    assert line.startswith("base.toml:9: sites.north: its jobs pin 70.3 GiB")
    assert "host memory of gb10 is 59.6 GiB" in line


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("sms = 40", "speed_points: not a speed curve of 40 SMs"),
        ("min_sms = 12", "sm_step: the smallest partition, 12 SMs, is not a multiple of it"),
        ("min_sms = 64", "min_sms = 64: more than the GPU's 48 SMs"),
        ("speed_points = [[8, 0.5], [16, 0.4], [48, 1.0]]", "not a speed curve of 48 SMs"),
        ("phy = { ran_sm_cap = 56 }", "phy.ran_sm_cap = 56: 56 SMs on a GPU of 48"),
    ],
)
def test_overrides_that_make_no_gpu(tmp_path: Path, overrides: str, expected: str) -> None:
    text = edited("[sites.south]", f"[sites.north.gpu_overrides]\n{overrides}\n[sites.south]")
    found = mistakes(tmp_path, text)
    assert any(expected in line for line in found), found


def test_ten_different_mistakes_are_all_named_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
name = "Ten Mistakes"
sed = 1
[time]
scale = "20"
[policies.site]
mac = "round_robbin"
[sites.north]
gpu = "gb11"
[[sites.north.gnbs.g1.cells]]
bandwidth_mhz = 95
ul_traffic = { kind = "ftp4" }
dl_traffic = { kind = "trace", path = "no.csv" }
[jobs.pretrain]
kind = "pretraining"
sites = ["nroth"]
model = "opt-125"
global_batch = 0
"""
    found = mistakes(tmp_path, text)
    starts = [
        'base.toml:1: name = "Ten Mistakes":',
        "base.toml:2: sed = 1: unknown key; did you mean seed?",
        'base.toml:4: time.scale = "20": text, not a number',
        'base.toml:6: policies.site.mac = "round_robbin": no such policy',
        'base.toml:8: sites.north.gpu = "gb11": not a GPU profile',
        "base.toml:10: sites.north.gnbs.g1.cells[0].bandwidth_mhz = 95: no such carrier",
        'base.toml:11: sites.north.gnbs.g1.cells[0].ul_traffic.kind = "ftp4": no such kind',
        'base.toml:12: sites.north.gnbs.g1.cells[0].dl_traffic.path = "no.csv": cannot be read',
        'base.toml:15: jobs.pretrain.sites[0] = "nroth": no such site; did you mean "north"?',
        'base.toml:16: jobs.pretrain.model = "opt-125": not a model profile',
        "base.toml:17: jobs.pretrain.global_batch = 0: too small",
    ]
    assert [
        start for start, line in zip(starts, found, strict=True) if line.startswith(start)
    ] == starts


def test_no_verdict_rests_on_a_value_that_was_mistaken_itself(tmp_path: Path) -> None:
    # 100 MHz exists at 30 kHz, and whether it does at "15 kHz" is not for the checker to guess.
    (line,) = mistakes(tmp_path, edited("scs_khz = 30", 'scs_khz = "15"'))
    assert "scs_khz" in line


def test_doubts_are_warnings_and_do_not_stop_a_run(tmp_path: Path) -> None:
    text = edited("load = 0.2", "load = 1.5")
    text += '[sites.idle]\n[[faults]]\nkind = "kill"\nnode = "recorder"\nat_us = 500_000\n'
    warnings = load_topology(write(tmp_path, text)).warnings
    assert [line.replace(f"{tmp_path}/", "") for line in warnings] == [
        "base.toml:19: sites.north.gnbs.g1.cells[0].ul_traffic.load = 1.5: more than the cell "
        "carries: queues grow without end",
        "base.toml:36: sites.idle: does nothing: no cells, and no job may run there",
        "base.toml:40: faults[0].at_us = 500000: after the end of the run (500000 us): "
        "it will not happen",
    ]


def test_virtual_time_keeps_any_slot(tmp_path: Path) -> None:
    path = write(tmp_path, edited("scale = 20", "scale = 0.01"))
    assert load_topology(path, slot_wall_ms_min=None).time.scale == 0.01
