"""The quanta of training: which non-preemptible pieces a step consists of, and what each costs.

A quantum is one block of the declared model: its forward or backward pass, one chunk of the head
(output projection and loss, both directions; chunked over tokens, as fused implementations do, so
that no chunk computes more than a block's backward pass), or one chunk of the optimiser, which
works element by element and so can be cut as finely.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from testbed.gpu.profile import GpuProfile, ModelProfile


class QuantumKind(IntEnum):
    """What a quantum computes; the number travels in messages."""

    FORWARD = 0
    HEAD = 1
    BACKWARD = 2
    OPTIMISER = 3
    FAULT = 9
    """A deliberately misplaced quantum, injected by a topology's fault list."""


@dataclass(frozen=True, slots=True)
class QuantumCosts:
    """Duration in us of each kind of quantum on each grantable SM count; numbers of chunks.

    ``levels``: SM counts, ascending. ``cost_us[kind][i]``: on ``levels[i]`` SMs.
    """

    levels: tuple[int, ...]
    cost_us: tuple[tuple[int, ...], ...]
    head_chunks: int = 1
    optimiser_chunks: int = 1

    def by_level(self, kind: QuantumKind) -> dict[int, int]:
        """SM count -> duration in us."""
        return dict(zip(self.levels, self.cost_us[kind], strict=True))

    def longest_us(self, sms: int) -> int:
        """The longest quantum of any kind on ``sms`` SMs."""
        index = self.levels.index(sms)
        return max(row[index] for row in self.cost_us)


def quantum_costs(
    gpu: GpuProfile, model: ModelProfile, tokens: int, bytes_per_parameter: int
) -> QuantumCosts:
    """Cost of every quantum of one micro-batch of ``tokens`` tokens.

    Forward of a block: 2 FLOPs per weight and token, and 4 T^2 h for attention scores and values
    (the count of Megatron-LM); backward twice that; head: three times 2 V h T
    in equal chunks. Time is the larger
    of compute at ``training_mfu`` of the peak and memory traffic of the weights, plus one launch
    overhead. The optimiser (AdamW, mixed precision) is bound by memory: 30 bytes per weight (read
    fp32 master, two moments and the gradient; write the first three and the bf16 copy), in equal
    chunks, a multiple of the blocks, none of them longer than a block's backward pass on the whole
    GPU. Memory bandwidth is reached with half of the SMs (assumed).
    """
    block_flops = 2.0 * model.block_parameters * tokens + 4.0 * tokens * tokens * model.hidden
    head_flops = 6.0 * model.vocab * model.hidden * tokens
    block_bytes = float(model.block_parameters * bytes_per_parameter)
    chunks = max(1, math.ceil(head_flops / (2 * block_flops)))
    head_bytes = 3.0 * model.vocab * model.hidden * bytes_per_parameter / chunks

    def duration_us(flops: float, read_bytes: float, sms: int) -> int:
        compute = flops / (gpu.bf16_tflops * gpu.training_mfu * gpu.speed(sms) * 1e6)
        bandwidth = gpu.memory_gb_per_s * min(1.0, 2.0 * sms / gpu.sms)
        memory = read_bytes / (bandwidth * 1e3)
        return math.ceil(gpu.launch_us + max(compute, memory))

    levels = gpu.sm_levels()
    backward_us = duration_us(2 * block_flops, 2 * block_bytes, levels[-1]) - gpu.launch_us
    share_us = duration_us(0.0, 30.0 * model.parameters / model.layers, levels[-1]) - gpu.launch_us
    optimiser_chunks = model.layers * max(1, math.ceil(share_us / backward_us))
    optimiser_bytes = 30.0 * model.parameters / optimiser_chunks
    work = {
        QuantumKind.FORWARD: (block_flops, block_bytes),
        QuantumKind.HEAD: (head_flops / chunks, head_bytes),
        QuantumKind.BACKWARD: (2 * block_flops, 2 * block_bytes),
        QuantumKind.OPTIMISER: (0.0, optimiser_bytes),
    }
    return QuantumCosts(
        levels,
        tuple(tuple(duration_us(*work[kind], sms) for sms in levels) for kind in work),
        chunks,
        optimiser_chunks,
    )


def micro_batch_quanta(layers: int, head_chunks: int) -> Iterator[tuple[QuantumKind, int]]:
    """(kind, declared block) of one micro-batch, in the order in which they run.

    Chunk i of the head has the block number ``layers + i``.
    """
    for block in range(layers):
        yield QuantumKind.FORWARD, block
    for chunk in range(head_chunks):
        yield QuantumKind.HEAD, layers + chunk
    for block in reversed(range(layers)):
        yield QuantumKind.BACKWARD, block


def optimiser_quanta(chunks: int) -> Iterator[tuple[QuantumKind, int]]:
    """(kind, chunk) of the optimiser's step."""
    for chunk in range(chunks):
        yield QuantumKind.OPTIMISER, chunk
