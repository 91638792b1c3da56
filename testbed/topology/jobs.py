"""The job tables of a topology: what is declared (and timed), and the proxy that really trains."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from testbed.topology.base import MAX_EMULATED_US, Loose, Section, Text


class Proxy(Section):
    """The small model whose training is real; sizes describe the built-in decoder."""

    layers: int = Field(
        default=4, ge=1, le=96, description="blocks; must divide the declared model's"
    )
    hidden: int = Field(default=128, ge=8, le=8192, description="width of the residual stream")
    heads: int = Field(default=4, ge=1, le=128, description="attention heads; must divide hidden")
    micro_batch: int = Field(default=4, ge=1, le=1024, description="sequences per micro-batch")
    sequence: int = Field(default=128, ge=2, le=8192, description="bytes per sequence")
    learning_rate: float = Field(default=0.003, gt=0, le=1, description="of AdamW")
    text: Text = Field(
        default="stdlib", description="stdlib: Python's own sources; or a path to a text"
    )
    module: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        examples=["mymodule:factory"],
        description="an own nn.Module: module:factory, resolved beside the topology file",
    )


class PretrainingJob(Section):
    """Data-parallel pretraining of one declared model on the spare time of its sites."""

    kind: Literal["pretraining"] = Field(
        examples=["pretraining"], description="data-parallel pretraining"
    )
    sites: Annotated[tuple[Text, ...], Loose] = Field(
        min_length=1, max_length=256, examples=[["north"]], description="where it may run"
    )
    model: str = Field(examples=["opt-125m"], description="declared model (see `profiles`)")
    tokens: int = Field(
        default=512, ge=1, le=1_048_576, description="declared tokens per micro-batch"
    )
    dtype: Literal["bf16", "fp16", "fp32"] = Field(
        default="bf16", description="of declared weights"
    )
    global_batch: int = Field(
        default=8, ge=1, le=4096, description="micro-batches per step, all sites"
    )
    quantum_us: int = Field(
        default=1000,
        ge=1,
        le=MAX_EMULATED_US,
        description="window that spare figures ask for; at least the longest block's p99",
    )
    bandwidth_permille: int = Field(
        default=300, ge=0, le=1000, description="memory bandwidth of a running quantum (assumed)"
    )
    proxy: Proxy = Field(default_factory=Proxy, description="the model that really trains")


Job = PretrainingJob
