"""Profiles against their sources, and overrides."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest

from testbed.errors import TopologyError
from testbed.topology import effective_gpu, gpu_profile, list_gpus, list_models, model_profile
from testbed.topology.site import GpuOverrides, PhyOverrides, Site


def test_the_built_in_profiles() -> None:
    assert list_gpus() == ("a100", "gb10", "gh200", "h20", "h200", "h800", "l40s")
    assert {"opt-125m", "opt-1.3b", "gpt2-small"} <= set(list_models())


@pytest.mark.parametrize("name", list_gpus())
def test_every_number_of_a_gpu_has_a_source(name: str) -> None:
    gpu = gpu_profile(name)
    numbers = {f.name for f in dataclasses.fields(gpu)} - {"name", "phy", "sources"}
    numbers |= {f"phy.{f.name}" for f in dataclasses.fields(gpu.phy)}
    sources = dict(gpu.sources)
    assert set(sources) == numbers
    assert all(isinstance(text, str) and text for text in sources.values())


@pytest.mark.parametrize("name", list_gpus())
def test_a_gpu_is_consistent(name: str) -> None:
    gpu = gpu_profile(name)
    assert hash(gpu) == hash(gpu_profile(name))
    assert gpu.min_sms % gpu.sm_step == 0
    assert gpu.speed_points[-1] == (gpu.sms, 1.0)
    points = ((0, 0.0), *gpu.speed_points)
    slopes = [(high - low) / (right - left) for (left, low), (right, high) in pairwise(points)]
    assert all(slope > 0 for slope in slopes)
    assert all(later <= earlier * 1.01 for earlier, later in pairwise(slopes)), "concave"
    assert gpu.phy.ran_sm_cap <= gpu.sms
    assert gpu.phy.ran_sm_cap % gpu.sm_step == 0


@pytest.mark.parametrize(
    ("name", "sms", "step", "smallest", "tflops", "gb_per_s", "gib"),
    [
        # Data sheets; memory in GB / 2**30 (for gb10 half of the unified 128 GB).
        ("gb10", 48, 8, 8, 125, 273, 64e9 / 2**30),
        ("l40s", 142, 2, 4, 362, 864, 48e9 / 2**30),
        ("h200", 132, 8, 8, 989, 4800, 141e9 / 2**30),
        ("h800", 132, 8, 8, 989, 3350, 80e9 / 2**30),
        ("h20", 78, 8, 8, 148, 4000, 96e9 / 2**30),
        ("gh200", 132, 8, 8, 990, 4000, 96e9 / 2**30),
        ("a100", 108, 2, 4, 312, 2039, 80e9 / 2**30),
    ],
)
def test_a_gpu_agrees_with_its_data_sheet(
    name: str, sms: int, step: int, smallest: int, tflops: float, gb_per_s: float, gib: float
) -> None:
    gpu = gpu_profile(name)
    assert (gpu.sms, gpu.sm_step, gpu.min_sms) == (sms, step, smallest)
    assert (gpu.bf16_tflops, gpu.memory_gb_per_s) == (tflops, gb_per_s)
    assert gpu.hbm_gib == pytest.approx(gib, rel=0.001)


def test_gb10_decodes_weavers_worst_case_in_700_us_on_24_sms() -> None:
    phy = gpu_profile("gb10").phy
    assert phy.ul_fixed_us + phy.ul_peak_code_blocks * phy.ul_code_block_us == pytest.approx(
        700, abs=5
    )
    assert phy.ul_sms_per_10_code_blocks * -(-phy.ul_peak_code_blocks // 10) == 24


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # As counted by transformers' num_parameters() for the published weights.
        ("opt-125m", 125_239_296),
        ("opt-1.3b", 1_315_758_080),
        ("opt-2.7b", 2_651_596_800),
        ("gpt2-small", 124_439_808),
        ("gpt2-medium", 354_823_168),
    ],
)
def test_a_model_has_as_many_parameters_as_its_published_weights(
    name: str, parameters: int
) -> None:
    model = model_profile(name)
    assert model.parameters == parameters
    assert 0 < model.layers * model.block_parameters < parameters
    assert model.source


def test_unknown_profiles_are_named_with_what_there_is() -> None:
    with pytest.raises(TopologyError, match=r"'gb11': not a GPU profile; did you mean \"gb10\"\?"):
        gpu_profile("gb11")
    with pytest.raises(TopologyError, match=r"'../gpus/gb10': not a model profile"):
        model_profile("../gpus/gb10")


def test_overrides_replace_numbers_and_name_themselves_as_the_source() -> None:
    phy = PhyOverrides(ul_fixed_us=50.0)
    site = Site(gpu="gb10", gpu_overrides=GpuOverrides(usd_per_hour=0.5, phy=phy))
    gpu = effective_gpu(site)
    assert (gpu.usd_per_hour, gpu.phy.ul_fixed_us, gpu.sms) == (0.5, 50.0, 48)
    assert gpu.sources[-2:] == (
        ("usd_per_hour (override)", "the topology"),
        ("ul_fixed_us (override)", "the topology"),
    )
    with pytest.raises(TopologyError, match="without a GPU"):
        effective_gpu(Site())


def test_the_keys_of_the_overrides_are_those_of_the_profile() -> None:
    gpu = gpu_profile("gb10")
    fields = {field.name for field in dataclasses.fields(gpu)} - {"name", "sources"}
    assert set(GpuOverrides.model_fields) == fields
    assert set(PhyOverrides.model_fields) == {f.name for f in dataclasses.fields(gpu.phy)}


def test_gh200_decodes_aerials_twenty_peak_cells_by_its_deadline() -> None:
    """Aerial, GH200: 20 peak cells are done 2345 us after the slot's start, so 1845 after its end.

    By hand: 491,750 bits per slot are 59 code blocks, which saturate at 48 SMs; 20 cells share 96,
    so that each has a tenth of what it wants.
    """
    phy = gpu_profile("gh200").phy
    assert phy.ran_sm_cap / (20 * phy.ul_sms_per_10_code_blocks * 6) == 0.1
    end_us = phy.ul_fixed_us + 59 * phy.ul_code_block_us * 10
    assert 0.95 * 1845 < end_us <= 1845


def test_a100_decodes_aerials_four_peak_cells_but_not_five() -> None:
    """Aerial: A100 carries four peak cells; PUSCH has 1500 us. As above, on all 108 SMs."""
    phy = gpu_profile("a100").phy

    def end_us(cells: int) -> float:
        wanted = cells * phy.ul_sms_per_10_code_blocks * 6
        return phy.ul_fixed_us + 59 * phy.ul_code_block_us * max(1, wanted / phy.ran_sm_cap)

    assert end_us(4) <= 1500 < end_us(5)
