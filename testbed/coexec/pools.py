"""Nodes that a planner can hire: what they cost and how much host memory they lend.

Must not know jobs or groups.
"""

from __future__ import annotations

from dataclasses import dataclass

GPUS_PER_NODE = 8
HOST_GB_PER_NODE = 2048.0


@dataclass(frozen=True, slots=True)
class GpuType:
    """One GPU type. Prices and figures of H20 and H800: RollMux (arXiv 2512.11306v2), table 2."""

    name: str
    usd_per_hour: float
    hbm_tb_per_s: float


H20 = GpuType("H20", usd_per_hour=1.85, hbm_tb_per_s=4.0)
H800 = GpuType("H800", usd_per_hour=5.28, hbm_tb_per_s=3.35)
GPU_TYPES = {gpu.name: gpu for gpu in (H20, H800)}


@dataclass(frozen=True, slots=True)
class NodeType:
    """One kind of node; pinned working sets must stay strictly below ``host_gb``."""

    gpu: GpuType
    gpus: int = GPUS_PER_NODE
    host_gb: float = HOST_GB_PER_NODE

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.host_gb <= 0 or self.gpu.usd_per_hour < 0:
            raise ValueError(f"node of {self.gpu.name}: gpus >= 1, host_gb > 0, price >= 0")

    @property
    def usd_per_hour(self) -> float:
        return self.gpu.usd_per_hour * self.gpus


@dataclass(frozen=True, slots=True)
class Pools:
    """The two kinds of node: generation (rollout) and training."""

    rollout: NodeType = NodeType(H20)
    train: NodeType = NodeType(H800)

    def usd_per_hour(self, rollout_nodes: int, train_nodes: int) -> float:
        """Hourly price of a group, RollMux section 4: the sum over all GPUs that it holds."""
        return rollout_nodes * self.rollout.usd_per_hour + train_nodes * self.train.usd_per_hour


DEFAULT_POOLS = Pools()
