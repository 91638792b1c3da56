"""What trainers do together: torchft's reconfigurable gloo group, and an exact count.

Owns the group and its timeouts. It never decides who is a member or when: the host opens the
barrier, and every change of membership comes with a store prefix of its own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import BroadcastOptions, ReduceOp

from protocols.errors import RanloomError

COUNT_DIGITS = 4
"""Slots behind the gradients that carry the token count, in base 4096.

A sum of digits stays below 2**24, and so exact in float32, among up to 4096 members.
"""
_BASE = 1 << 12


class SyncFailed(RanloomError):
    """The collective did not happen: a member is gone, or did not come in time."""


class SiteGroup:
    """Collectives of host tensors among the members of the current group.

    ``store``: ``host:port/prefix``, the prefix new with each membership epoch. A world of one needs
    no group. Collectives raise SyncFailed; the tensor then holds nothing of use, and the group is
    given up.
    """

    def __init__(self, timeout_s: float, replica: str) -> None:
        for name in ("torchft", "torchft.process_group", "torchft_errors", "torch.distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        # torchft is slow to import: at start-up, not at the first barrier.
        from torchft.process_group import ProcessGroupGloo

        self._group = ProcessGroupGloo(timeout=timedelta(seconds=timeout_s))
        self._timeout_s = timeout_s
        self._replica = replica
        self._configured: tuple[str, int, int] | None = None

    def meet(self, rank: int, world: int, store: str, pause: Callable[[], None]) -> None:
        """Return once all members of a new group are there; ``pause`` is called while they are not.

        Without it, a collective with one that died before it came would hold the others for the
        whole timeout, deaf to what they are told meanwhile: what ``pause`` raises ends the wait.
        Raises SyncFailed at the timeout.
        """
        if world == 1 or self._configured == (store, rank, world):
            return
        from torchft.process_group import create_store_client

        deadline_s = time.monotonic() + self._timeout_s
        names = [f"here{member}" for member in range(world)]
        try:
            client = create_store_client(store, timedelta(seconds=self._timeout_s))
            client.set(names[rank], "")
            while not client.check(names):
                if time.monotonic() > deadline_s:
                    away = [name.removeprefix("here") for name in names if not client.check([name])]
                    raise SyncFailed(
                        f"ranks {', '.join(away)} of {world} did not come to {store} within "
                        f"{self._timeout_s:g} s"
                    )
                pause()
        except (RuntimeError, ValueError, OSError) as error:
            raise SyncFailed(f"the store at {store}: {error}") from error

    def all_reduce(
        self,
        buffer: Tensor,
        rank: int,
        world: int,
        store: str,
        operation: ReduceOp.RedOpType = ReduceOp.SUM,
    ) -> None:
        """Sum ``buffer`` in place over all members, or what ``operation`` says."""
        self._perform(
            "allreduce", rank, world, store, lambda: self._group.allreduce([buffer], operation)
        )

    def broadcast(self, buffer: Tensor, rank: int, world: int, store: str) -> None:
        """Rank 0's ``buffer`` replaces that of the others."""
        options = BroadcastOptions()
        options.rootRank = 0
        self._perform(
            "broadcast", rank, world, store, lambda: self._group.broadcast([buffer], options)
        )

    def _perform(
        self, what: str, rank: int, world: int, store: str, begin: Callable[[], Any]
    ) -> None:
        if world == 1:
            return
        try:
            if self._configured != (store, rank, world):
                self._configure(store, rank, world)
            begin().wait(timedelta(seconds=self._timeout_s))
        except (RuntimeError, ValueError, OSError) as error:  # torch's DistError is a RuntimeError
            self.close()
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise SyncFailed(f"{what} of {world} at {store}, rank {rank}: {lines[0]}") from error

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
