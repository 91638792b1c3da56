"""The sum of gradients among sites: torchft's reconfigurable gloo group, and an exact count.

Owns the group and its timeouts. It never decides who is a member or when: the host opens the
barrier, and every change of membership comes with a store prefix of its own.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from protocols.errors import RanloomError

COUNT_DIGITS = 4
"""Slots behind the gradients that carry the token count, in base 4096.

A sum of digits stays below 2**24, and so exact in float32, among up to 4096 members.
"""
_BASE = 1 << 12


class SyncFailed(RanloomError):
    """The collective did not happen: a member is gone, or did not come in time."""


class GradientSync:
    """Sums a float32 buffer among the members of the current group."""

    def __init__(self, timeout_s: float, replica: str) -> None:
        for name in ("torchft", "torchft.process_group", "torchft_errors", "torch.distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        # torchft is slow to import: at start-up, not at the first barrier.
        from torchft.process_group import ProcessGroupGloo

        self._group = ProcessGroupGloo(timeout=timedelta(seconds=timeout_s))
        self._timeout_s = timeout_s
        self._replica = replica
        self._configured: tuple[str, int, int] | None = None

    def all_reduce(self, buffer: Tensor, rank: int, world: int, store: str) -> None:
        """Sum ``buffer`` in place over all members; a world of one needs no group.

        ``store``: ``host:port/prefix``, the prefix new with each membership epoch. Raises
        SyncFailed; the buffer then holds nothing of use, and the group is given up.
        """
        if world == 1:
            return
        try:
            if self._configured != (store, rank, world):
                self._configure(store, rank, world)
            self._group.allreduce([buffer], ReduceOp.SUM).wait(timedelta(seconds=self._timeout_s))
        except (RuntimeError, ValueError, OSError) as error:  # torch's DistError is a RuntimeError
            self.close()
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise SyncFailed(f"allreduce of {world} at {store}, rank {rank}: {lines[0]}") from error

    def close(self) -> None:
        """Give the group up; its connections close, so that waiting members notice."""
        self._configured = None
        self._group.abort(errored=False)

    def _configure(self, store: str, rank: int, world: int) -> None:
        if store.startswith(("127.", "localhost:")):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._configured = None
        self._group.configure(store, self._replica, rank, world)
        self._configured = (store, rank, world)


def write_count(slots: Tensor, count: int) -> None:
    """Put ``count`` (below 2**48) into the last COUNT_DIGITS slots, as digits in base 4096."""
    digits = [(count // _BASE**place) % _BASE for place in range(COUNT_DIGITS)]
    slots.copy_(torch.tensor(digits, dtype=torch.float32))


def read_count(slots: Tensor) -> int:
    """The (summed) count in COUNT_DIGITS slots."""
    return sum(int(digit) * _BASE**place for place, digit in enumerate(slots.tolist()))
