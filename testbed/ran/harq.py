"""HARQ processes, and the ledger that ties results to the slot in which they are used.

The result of air slot m takes effect in slot m + k, whenever it came before that; what has not come
by then counts as late and as a NACK, and what comes afterwards is ignored. So the MAC's decisions
depend on the results, never on when a message happened to arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.ran.plan import BlockResult, TransportBlock
from testbed.ran.rlc import Segment


@dataclass(slots=True)
class HarqProcess:
    """A transport block from its first transmission until it is acknowledged or given up.

    ``carried_bytes`` is the sum of its segments; the rest of the block is padding.

    ``res_per_prb`` is that of the first transmission's slot. A retransmission needs the same: with
    the same PRBs and MCS, another number of RE would make it a block of another size.
    """

    block: TransportBlock
    segments: tuple[Segment, ...]
    carried_bytes: int
    res_per_prb: int


class HarqPool:
    """The free process numbers of one UE and direction, used in turn."""

    __slots__ = ("_processes", "free")

    def __init__(self, processes: int) -> None:
        self.free = deque(range(processes))
        """Process numbers that hold no block, the one free for longest first."""
        self._processes = processes

    @property
    def busy(self) -> int:
        """Processes that hold a block."""
        return self._processes - len(self.free)

    def acquire(self) -> int:
        """The process free for longest; there must be one."""
        return self.free.popleft()

    def release(self, harq_id: int) -> None:
        """The process is free again."""
        self.free.append(harq_id)


class FeedbackLedger:
    """Blocks in the air, by air slot, with the results that have come for them."""

    def __init__(self) -> None:
        self._sent: dict[int, list[HarqProcess]] = {}
        self._results: dict[int, dict[tuple[int, int], BlockResult]] = {}

    def sent(self, slot: int, processes: list[HarqProcess]) -> None:
        """These processes transmit in that air slot."""
        if processes:
            self._sent[slot] = processes
            self._results[slot] = {}

    def offer(self, slot: int, results: Iterable[BlockResult]) -> int:
        """Store results of an air slot until they are due.

        Returns:
            How many were ignored: their slot is settled, or no block of it waits for them (not
            sent, or answered before; the first answer counts).
        """
        stored = self._results.get(slot)
        ignored = 0
        for result in results:
            key = (result.ue, result.harq_id)
            if stored is None or key in stored or not self._awaits(slot, key):
                ignored += 1
            else:
                stored[key] = result
        return ignored

    def settle(self, slot: int) -> list[tuple[HarqProcess, BlockResult | None]]:
        """All blocks of an air slot with their results; None where none has come."""
        processes = self._sent.pop(slot, None)
        if processes is None:
            return []
        results = self._results.pop(slot)
        return [(p, results.get((p.block.ue, p.block.harq_id))) for p in processes]

    def _awaits(self, slot: int, key: tuple[int, int]) -> bool:
        return any((p.block.ue, p.block.harq_id) == key for p in self._sent[slot])
