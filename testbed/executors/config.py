"""The JSON documents that configure executors, checked where they arrive. Torch-free.

The host builds them with the same classes: ``TrainerConfig(...).model_dump_json()``.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.gpu.quanta import QuantumCosts, QuantumKind

_QUANTUM_ROWS = tuple(kind for kind in QuantumKind if kind is not QuantumKind.FAULT)
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Scheduling(_Strict):
    """The scheduling class that the executor asks for once it is warm."""

    policy: Literal["fifo", "idle", "normal"] = "normal"
    priority: Annotated[int, Field(ge=1, le=99)] = 10
    """Of SCHED_FIFO; without meaning for the others."""


class ExecutorBase(_Strict):
    """What every executor takes."""

    scheduling: Scheduling = Scheduling()
    nice: Annotated[int, Field(ge=-20, le=19)] | None = None


class StoreConfig(ExecutorBase):
    """``store``: one loopback TCPStore. ``listener_fd``: a bound, inherited socket to listen on."""

    timeout_wall_ms: PositiveInt = 60_000
    listener_fd: NonNegativeInt | None = None


class ComputeConfig(ExecutorBase):
    """What every executor that computes takes."""

    seed: NonNegativeInt = 0
    device: Literal["cpu", "cuda"] = "cpu"
    pace: Literal["emulated", "native"] = "emulated"
    """``native``: nothing is held, and the measured time stands (needs a CUDA device)."""

    @model_validator(mode="after")
    def _native_needs_cuda(self) -> Self:
        if self.pace == "native" and self.device != "cuda":
            raise ValueError('pace = "native" needs device = "cuda"')
        return self


class PhyConfig(ComputeConfig):
    """``phy``: sizes of the largest task, for which buffers are allocated and kernels warmed."""

    kind: Literal["kernels", "sionna"] = "kernels"
    """What the real work is (see ``testbed.executors.phy_work``)."""
    antennas: Annotated[int, Field(ge=1, le=64)] = 4
    n_prb: Annotated[int, Field(ge=1, le=275)] = 273
    layers: Annotated[int, Field(ge=1, le=12)] = 2
    layer_counts: tuple[PositiveInt, ...] = ()
    """The layers that tasks can have, for what must be built for each; none: 1 and ``layers``."""
    code_blocks: PositiveInt = 60
    prime_lead_us: NonNegativeInt = 0
    """How long before a start a pass of little work warms the caches; 0: never."""
    stride: PositiveInt = 1
    """Real work is done for one of so many PRBs and decoder passes: a CPU core is no GPU, and has
    the same time."""


class ProxyConfig(_Strict):
    """The own decoder that is trained where no module is named."""

    layers: PositiveInt = 4
    hidden: PositiveInt = 128
    heads: PositiveInt = 4
    tied: bool = True

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        return self


class Schedule(_Strict):
    """Learning-rate schedule and clipping: linear warm-up, then constant."""

    warmup_steps: NonNegativeInt = 5
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


class TrainerConfig(ComputeConfig):
    """``trainer``: the declared model's quanta, the proxy or module, the text, the optimiser."""

    job: Annotated[str, Field(pattern=r"^[\w.-]*$")] = ""
    """Keeps the jobs apart in the one store."""
    declared_layers: PositiveInt
    levels: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    """Grantable SM counts, ascending."""
    cost_us: tuple[tuple[PositiveInt, ...], ...]
    """One row per QuantumKind (forward, head, backward, optimiser), one column per level."""
    head_chunks: PositiveInt = 1
    """Quanta into which the head is cut (see ``testbed.gpu.quanta``); the real head, whole, runs
    in the first, the others are holds."""
    optimiser_chunks: NonNegativeInt = 0
    """Quanta of the optimiser, and buckets of the collective; 0: one per declared layer."""
    guard_us: NonNegativeInt = 0
    switch_us: NonNegativeInt = 0
    micro_batch: PositiveInt = 4
    sequence: PositiveInt = 128
    proxy: ProxyConfig = ProxyConfig()
    module: str | None = None
    """``module:factory``; ``factory(vocab, sequence)`` maps int64 [B, T] to logits [B, T, V]."""
    module_path: str | None = None
    blocks: str | None = None
    """Dotted path of the ModuleList or Sequential whose children are the blocks."""
    text: str = "stdlib"
    """``stdlib``, or the path of a file or directory."""
    text_bytes: PositiveInt = 4_000_000
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    schedule: Schedule = Schedule()
    sync_timeout_wall_ms: PositiveInt = 20_000

    @model_validator(mode="after")
    def _costs_are_whole(self) -> Self:
        if list(self.levels) != sorted(set(self.levels)):
            raise ValueError(f"levels {self.levels} do not ascend")
        if len(self.cost_us) != len(_QUANTUM_ROWS):
            raise ValueError(f"cost_us has {len(self.cost_us)} rows, not {len(_QUANTUM_ROWS)}")
        if any(len(row) != len(self.levels) for row in self.cost_us):
            raise ValueError(f"each row of cost_us must have {len(self.levels)} values")
        return self

    def costs(self) -> QuantumCosts:
        """The modelled duration of each kind of quantum."""
        return QuantumCosts(self.levels, self.cost_us, self.head_chunks)
