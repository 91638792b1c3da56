"""A GPU profile in a file of the user's: taken in, overridden, refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed.topology.profiles as profiles
from testbed.errors import TopologyError
from testbed.topology import Topology, describe_check, dump_toml, effective_gpu, load_topology

from .topology_texts import edited, write

GB10 = (Path(profiles.__file__).parent / "gpus" / "gb10.toml").read_text(encoding="utf-8")
WITH_FILE = edited('gpu = "gb10"', 'gpu = "mine.toml"')


def mistakes(directory: Path, profile: str | None) -> list[str]:
    if profile is not None:
        write(directory, profile, "mine.toml")
    with pytest.raises(TopologyError) as caught:
        load_topology(write(directory, WITH_FILE))
    return caught.value.mistakes


def test_a_file_of_the_same_numbers_is_the_same_gpu(tmp_path: Path) -> None:
    write(tmp_path, GB10, "mine.toml")
    topology = load_topology(write(tmp_path, WITH_FILE))
    gpu, built_in = effective_gpu(topology.sites["north"]), profiles.gpu_profile("gb10")
    assert (gpu.name, gpu.phy, gpu.speed_points) == ("mine", built_in.phy, built_in.speed_points)
    assert (gpu.sms, gpu.hbm_gib) == (built_in.sms, built_in.hbm_gib)
    assert any("mine of mine.toml" in line for line in describe_check(topology))
    by_path = profiles.file_profile(tmp_path / "mine.toml")
    assert by_path.sources == built_in.sources


def test_an_option_may_name_a_file_and_the_topology_overrides_it(tmp_path: Path) -> None:
    write(tmp_path, GB10.replace("usd_per_hour = 0.19", "usd_per_hour = 3"), "mine.toml")
    sets = [
        "sites.north.gpu=./mine.toml",
        "sites.north.gpu_overrides.phy.ul_fixed_us=1.5",
        "sites.north.gpu_overrides.launch_us=7.0",
    ]
    gpu = effective_gpu(load_topology(write(tmp_path), sets).sites["north"])
    assert (gpu.usd_per_hour, gpu.phy.ul_fixed_us, gpu.launch_us) == (3.0, 1.5, 7.0)
    assert gpu.phy.ul_code_block_us == 22.0


def test_the_resolved_topology_needs_the_file_no_more(tmp_path: Path) -> None:
    profile = write(tmp_path, GB10, "mine.toml")
    topology = load_topology(write(tmp_path, WITH_FILE))
    resolved = dump_toml(topology)
    profile.unlink()
    again = load_topology(write(tmp_path, resolved, "resolved.toml"))
    assert again == topology
    sent = Topology.model_validate(topology.model_dump(mode="json"), strict=False)
    assert effective_gpu(sent.sites["north"]) == effective_gpu(topology.sites["north"])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("sms = 48", "sms = 0", "sms = 0: input should be greater than or equal to 1"),
        ("dl_sms = 8", "dl_sms = 1.5", "phy.dl_sms = 1.5: input should be a valid integer"),
        ("switch_us = 5", "", "a GPU profile without switch_us"),
        ("ul_fixed_us = 60.0", "", "a GPU profile without phy.ul_fixed_us"),
        ("min_sms = 8", "most_sms = 8", "most_sms = 8: extra inputs are not permitted"),
        ("sms = 48", "sms = ", "not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    (found,) = mistakes(tmp_path, GB10.replace(f"\n{old}\n", f"\n{new}\n", 1))
    assert f'base.toml:10: sites.north.gpu = "mine.toml": mine.toml: {expected}' in found


def test_numbers_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    found = mistakes(tmp_path, GB10.replace("\nran_sm_cap = 40\n", "\nran_sm_cap = 56\n"))
    assert ["phy.ran_sm_cap: 56 SMs on a GPU of 48" in line for line in found] == [True]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, None)
    assert found.endswith(
        'sites.north.gpu = "mine.toml": cannot be read: no such file or directory'
    )


def test_a_topology_that_was_not_loaded_says_so(tmp_path: Path) -> None:
    topology = load_topology(write(tmp_path))
    site = topology.sites["north"].model_copy(update={"gpu": "mine.toml"})
    with pytest.raises(TopologyError, match=r"mine.toml: a GPU profile of which sms, .* not read"):
        effective_gpu(site)
