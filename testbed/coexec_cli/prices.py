"""GPU types and prices named on the command line."""

from __future__ import annotations

import math
from dataclasses import replace

from testbed.coexec.pools import GPU_TYPES, H20, H800, GpuType, NodeType, Pools
from testbed.errors import TraceError

UNPRICED = {
    gpu.name: gpu
    for gpu in (
        GpuType("A100", float("nan"), 2.04),
        GpuType("H100", float("nan"), 3.35),
        GpuType("H200", float("nan"), 4.8),
        GpuType("L40S", float("nan"), 0.864),
    )
}
"""Vendor data sheets (HBM, TB/s); no price is implied."""

GPUS = {**GPU_TYPES, **UNPRICED}


def read_prices(text: str | None) -> dict[str, float]:
    """``H20=1.85,H800=5.28``: dollars per GPU-hour.

    Raises:
        TraceError: every entry that is not NAME=NUMBER.
    """
    prices: dict[str, float] = {}
    mistakes: list[str] = []
    for entry in (text or "").split(","):
        if not entry.strip():
            continue
        name, _, value = (part.strip() for part in entry.partition("="))
        try:
            usd = float(value)
        except ValueError:
            usd = -1.0
        if not 0 < usd < float("inf"):
            mistakes.append(f"--prices {entry.strip()!r}; allowed: GPU=DOLLARS_PER_HOUR above 0")
        elif name not in GPUS:
            mistakes.append(f"--prices: unknown GPU {name!r}; allowed: {', '.join(sorted(GPUS))}")
        else:
            prices[name] = usd
    if mistakes:
        raise TraceError("\n".join(mistakes))
    return prices


def pools_of(gpus: tuple[str | None, str | None], prices: dict[str, float]) -> Pools:
    """The two pools for the GPU names of a table (None: H20 and H800).

    Raises:
        TraceError: a GPU without a price.
    """
    nodes: list[NodeType] = []
    mistakes: list[str] = []
    for column, name in (("rollout_gpu", gpus[0] or H20.name), ("train_gpu", gpus[1] or H800.name)):
        gpu = GPUS[name]
        if name in prices:
            gpu = replace(gpu, usd_per_hour=prices[name])
        if math.isnan(gpu.usd_per_hour):
            mistakes.append(f"column {column}: no price for {name}; give --prices {name}=DOLLARS")
        nodes.append(NodeType(gpu))
    if mistakes:
        raise TraceError("\n".join(mistakes))
    return Pools(nodes[0], nodes[1])
