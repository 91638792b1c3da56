"""What the testbed knows of a GPU and of a declared model: plain numbers with their sources.

Owns the types that the cost model reads. The numbers themselves are TOML files of
``testbed/topology/profiles``; each of them carries its source, or the word "assumed".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class PhyCost:
    """Constants of the PHY's time on a GPU (see ``testbed.gpu.cost``).

    ``ul_*`` describe an uplink decode at saturation, ``dl_*`` the downlink chain of one cell.
    """

    ul_fixed_us: float
    ul_code_block_us: float
    ul_sms_per_10_code_blocks: int
    ul_iterations: str
    """``"fixed"``: ten for every block; ``"efficiency"``: 7, 10 or 20 by spectral efficiency."""
    ran_sm_cap: int
    """SMs that uplink decodes of all cells together can use; beyond it time grows instead."""
    ul_bandwidth_permille_peak: int
    ul_peak_code_blocks: int
    contention_slope: float
    dl_fixed_us: float
    dl_code_block_us: float
    dl_sms: int


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """One GPU model. ``speed_points``: (SMs, speed relative to all SMs), increasing in both."""

    name: str
    sms: int
    sm_step: int
    min_sms: int
    speed_points: tuple[tuple[int, float], ...]
    bf16_tflops: float
    training_mfu: float
    launch_us: float
    memory_gb_per_s: float
    hbm_gib: float
    host_gib: float
    pcie_gb_per_s: float
    usd_per_hour: float
    switch_us: int
    phy: PhyCost
    sources: tuple[tuple[str, str], ...] = ()

    def speed(self, sms: int) -> float:
        """Training speed on ``sms`` SMs relative to the whole GPU, by linear interpolation."""
        if sms <= 0:
            return 0.0
        points = ((0, 0.0), *self.speed_points)
        for (left, low), (right, high) in pairwise(points):
            if sms <= right:
                return low + (high - low) * (sms - left) / (right - left)
        return 1.0

    def sm_levels(self) -> tuple[int, ...]:
        """The SM counts that a partition can have, ascending."""
        return tuple(range(self.min_sms, self.sms + 1, self.sm_step))

    def round_down(self, sms: int) -> int:
        """The largest grantable SM count of at most ``sms``; 0 where there is none."""
        return 0 if sms < self.min_sms else sms - sms % self.sm_step


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A declared decoder-only transformer: what is timed, while a small proxy is trained."""

    name: str
    layers: int
    hidden: int
    ffn: int
    vocab: int
    parameters: int
    source: str

    @property
    def block_parameters(self) -> int:
        """Weights of one block: four attention matrices and two of the feed-forward layer."""
        return 4 * self.hidden * self.hidden + 2 * self.hidden * self.ffn
