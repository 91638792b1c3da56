"""What the PHY's real work looks like to those who have it done, and its two kinds.

``kernels``: the arithmetic of a slot with a stand-in code, small enough for a CPU core.
``sionna``: an NR PUSCH receiver and PDSCH transmitter with the standard's code. Must not order
tasks or hold them: that is the loop's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch

from protocols.errors import ProtocolError
from protocols.work import PhyTask
from testbed.executors.config import PhyConfig

_DECODE_ITERATIONS = 10


class PhyWork(Protocol):
    """The real work of a gNB's PHY, on buffers made beforehand."""

    def stages(self, tasks: Sequence[PhyTask]) -> Iterator[None]:
        """The work of tasks that begin together, in stages that are done as they are asked for.

        Raises ProtocolError where a task is larger than configured.
        """

    def prime(self) -> None:
        """A pass of little work, so that the code is in the caches."""


def open_work(config: PhyConfig, device: torch.device) -> PhyWork:
    """The kind of work that ``config`` names. Raises DeviceError where its library is missing."""
    if config.kind == "sionna":
        from testbed.executors.sionna_phy import SionnaWork

        return SionnaWork(config, device)
    from testbed.executors.phy_slot import SlotWork

    return SlotWork(config, device)


def check_size(config: PhyConfig, task: PhyTask) -> None:
    """Raises ProtocolError where a task is larger than configured."""
    if task.n_prb > config.n_prb or task.layers > config.layers:
        raise ProtocolError(
            "task-too-large",
            f"{task.n_prb} PRBs x {task.layers} layers; this PHY was configured for "
            f"{config.n_prb} x {config.layers}",
        )


def run_tasks(work: PhyWork, *tasks: PhyTask) -> None:
    """All stages of ``tasks``."""
    for _ in work.stages(tasks):
        pass


def largest_task(config: PhyConfig, direction: int) -> PhyTask:
    """The largest task of a direction that a PHY of this configuration takes."""
    blocks = config.code_blocks
    iterations = blocks * _DECODE_ITERATIONS
    return PhyTask(0, direction, 0, 0, config.n_prb, config.layers, blocks, iterations)


def shortest_wall_us(work: PhyWork, task: PhyTask, settle: Callable[[], None], passes: int) -> int:
    """The shortest wall time of a task in so many passes, which also warm it up."""
    shortest_ns = 1 << 62
    for _ in range(passes):
        start_ns = time.monotonic_ns()
        run_tasks(work, task)
        settle()
        shortest_ns = min(shortest_ns, time.monotonic_ns() - start_ns)
    return shortest_ns // 1000
