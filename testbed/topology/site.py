"""The site table of a topology: its GPU, its PHY budgets and its gNBs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from testbed.gpu.partitions import PartitionName
from testbed.topology.base import Loose, Name, Section
from testbed.topology.radio import Gnb


class PhyOverrides(Section):
    """Constants of the PHY cost model that replace the profile's."""

    ul_fixed_us: float | None = Field(
        default=None, ge=0, le=1e5, description="fixed time of a decode"
    )
    ul_code_block_us: float | None = Field(
        default=None, ge=0.001, le=1e5, description="time per UL code block"
    )
    ul_sms_per_10_code_blocks: int | None = Field(
        default=None, ge=1, le=1024, description="SMs at saturation"
    )
    ul_iterations: Literal["fixed", "efficiency"] | None = Field(
        default=None, description="LDPC iterations: ten for every block, or by spectral efficiency"
    )
    ran_sm_cap: int | None = Field(
        default=None, ge=1, le=1024, description="SMs that decodes can use together"
    )
    ul_bandwidth_permille_peak: int | None = Field(
        default=None, ge=0, le=1000, description="memory bandwidth of a decode at its peak"
    )
    ul_peak_code_blocks: int | None = Field(
        default=None, ge=1, le=1024, description="code blocks at that peak"
    )
    contention_slope: float | None = Field(
        default=None, ge=0, le=1000, description="slow-down per excess of 1.0"
    )
    dl_fixed_us: float | None = Field(
        default=None, ge=0, le=1e5, description="fixed time of a DL slot"
    )
    dl_code_block_us: float | None = Field(
        default=None, ge=0, le=1e5, description="time per DL code block"
    )
    dl_sms: int | None = Field(
        default=None, ge=1, le=1024, description="SMs of the DL chain of one cell"
    )


class GpuOverrides(Section):
    """Numbers that replace those of the GPU profile, by the profile's own keys."""

    sms: int | None = Field(default=None, ge=1, le=1024, description="streaming multiprocessors")
    sm_step: int | None = Field(
        default=None, ge=1, le=64, description="granularity of a partition, SMs"
    )
    min_sms: int | None = Field(default=None, ge=1, le=1024, description="smallest partition, SMs")
    speed_points: (
        Annotated[
            tuple[Annotated[tuple[int, float], Loose], ...], Field(strict=False, min_length=1)
        ]
        | None
    ) = Field(default=None, description="[SMs, speed relative to all SMs], increasing in both")
    bf16_tflops: float | None = Field(
        default=None, ge=0.01, le=1e6, description="dense bf16 peak, TFLOP/s"
    )
    training_mfu: float | None = Field(
        default=None, ge=0.001, le=1, description="share of it reached"
    )
    launch_us: float | None = Field(
        default=None, ge=0, le=1e6, description="launch overhead of a quantum"
    )
    memory_gb_per_s: float | None = Field(
        default=None, ge=0.001, le=1e6, description="memory bandwidth, GB/s"
    )
    hbm_gib: float | None = Field(default=None, ge=0.001, le=1e6, description="device memory, GiB")
    host_gib: float | None = Field(
        default=None, ge=0.001, le=1e6, description="host memory for pinned state, GiB"
    )
    pcie_gb_per_s: float | None = Field(
        default=None, ge=0.001, le=1e6, description="host link per direction, GB/s"
    )
    usd_per_hour: float | None = Field(
        default=None, ge=0, le=1e6, description="price of the GPU, USD per hour"
    )
    switch_us: int | None = Field(
        default=None, ge=0, le=10_000_000, description="cost of a partition switch"
    )
    phy: PhyOverrides = Field(default_factory=PhyOverrides, description="PHY cost model")


class PhyBudget(Section):
    """How long the PHY may take, and what it really computes."""

    executor: Literal["kernels", "sionna"] = Field(
        default="kernels",
        description="real work of a slot: small torch kernels, or sionna's NR receiver and "
        "transmitter (extra `sionna`; slow on a CPU: raise time.scale)",
    )
    ul_decode_budget_us: int = Field(
        default=1500,
        ge=1,
        le=100_000,
        description="from the end of an uplink slot to its last decode",
    )
    fronthaul_lead_us: int = Field(
        default=125, ge=0, le=10_000, description="how long before air time downlink must be ready"
    )


class Site(Section):
    """One GPU and the gNBs that have the first call on it; a pool is a site without a gNB."""

    gpu: str | None = Field(
        default=None,
        examples=["gb10"],
        description="GPU profile (see `profiles`), or a file of one (see `calibrate`)",
    )
    partition: PartitionName = Field(
        default="green_context",
        description="how the GPU is parted between the RAN and training: green contexts follow "
        "the RAN in microseconds, mps in 0.3 s, mig in 7 s, static never",
    )
    static_training_sms: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        examples=[16],
        description="SMs that are always training's where the partition is static",
    )
    gpu_overrides: GpuOverrides = Field(
        default_factory=GpuOverrides, description="numbers of the profile to replace"
    )
    phy: PhyBudget = Field(default_factory=PhyBudget, description="deadlines of the PHY")
    gnbs: Mapping[Name, Gnb] = Field(default={}, description="gNBs whose PHY runs on this GPU")
