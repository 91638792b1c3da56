"""Walks the gate through the fixed order of a micro-batch's quanta as the proxy's blocks run.

A declared model of L blocks is trained as a proxy of l blocks: proxy block i does its real work in
the first of its L/l declared blocks' quanta that comes in running order, the others are holds.
Torch-free.
"""

from __future__ import annotations

from typing import Protocol

from testbed.gpu.quanta import QuantumKind, micro_batch_quanta


class Gate(Protocol):
    """What the cursor needs of a gate."""

    def open(self, kind: QuantumKind, block: int) -> None:
        """Close the open quantum, wait, begin the next one."""

    def close(self) -> None:
        """Close the open quantum."""


class QuantumCursor:
    """Hooks tell it where the real work is; it only ever moves forward through the quanta.

    Whatever runs between two marks (an embedding, a residual between blocks, a block that runs
    again in recomputation) belongs to the quantum that is open, so no work escapes the account,
    and a hook that does not fire (no gradient reaches the input of the first block) delays nothing.
    """

    def __init__(
        self, gate: Gate, declared_layers: int, proxy_blocks: int, head_chunks: int = 1
    ) -> None:
        self._gate = gate
        self._per_block = declared_layers // proxy_blocks
        self._order = tuple(micro_batch_quanta(declared_layers, head_chunks))
        self._index = {quantum: index for index, quantum in enumerate(self._order)}
        self._head = self._index[QuantumKind.HEAD, declared_layers]
        self._next = len(self._order)

    def begin(self) -> None:
        """A micro-batch starts: the first forward quantum opens (the embedding is part of it)."""
        self._next = 0
        self._reach(0)

    def forward(self, block: int) -> None:
        """Proxy block ``block`` is about to run forward."""
        self._reach(self._index[QuantumKind.FORWARD, block * self._per_block])

    def head(self) -> None:
        """The last block's forward has ended; what follows is projection and loss."""
        self._reach(self._head)

    def backward(self, block: int) -> None:
        """The gradient of proxy block ``block``'s output is there; its backward is about to run."""
        last = (block + 1) * self._per_block - 1
        self._reach(self._index[QuantumKind.BACKWARD, last])

    def end(self) -> None:
        """The backward pass has returned: the remaining quanta run, and the last one is closed."""
        self._reach(len(self._order) - 1)
        self._gate.close()

    def abort(self) -> None:
        """The micro-batch was unwound; marks have no effect until the next ``begin``."""
        self._next = len(self._order)

    def _reach(self, target: int) -> None:
        while self._next <= target:
            kind, block = self._order[self._next]
            self._next += 1
            self._gate.open(kind, block)
