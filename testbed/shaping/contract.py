"""What a MAC policy that knows of the GPU is told, and what it promises.

A policy may have ``bind``, ``promise`` and ``limit`` beside ``schedule``; a MAC node calls those
that it has. A policy without them knows nothing of the GPU, and promises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from testbed.gpu.profile import GpuProfile
from testbed.ran.config import CellConfig
from testbed.ran.schedulers import MacScheduler


@dataclass(frozen=True, slots=True)
class SiteGpu:
    """The GPU behind a MAC, and the cells that the MAC schedules.

    Attributes:
        gpu: its profile, cost model included.
        cells: the cells of this gNB, in the order in which they are scheduled.
        ul_decode_budget_us: from the end of an uplink slot to its last decode.
        fronthaul_lead_us: how long before air time downlink must be ready.
        training_bandwidth_permille: memory-bandwidth share of what may run beside a decode.
        training_sms: SMs of the GPU that are never the RAN's (a static partition).
    """

    gpu: GpuProfile
    cells: tuple[CellConfig, ...]
    ul_decode_budget_us: int
    fronthaul_lead_us: int
    training_bandwidth_permille: int
    training_sms: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """SMs that this gNB's PHY work will not exceed, by the slot in which the work *runs*.

    Attributes:
        rows: (first slot, SMs), ascending; each holds until the next row's slot.
        until_slot: the first slot for which nothing is promised.
        breaches: how often, since the start, a plan went above what had been promised.
        wanted_sms: what the backlog needs now; the site agent splits the GPU by it.
    """

    rows: Sequence[tuple[int, int]]
    until_slot: int
    breaches: int
    wanted_sms: int


@runtime_checkable
class GpuAwareScheduler(MacScheduler, Protocol):
    """A MAC policy that shapes its grants to a GPU."""

    def bind(self, site: SiteGpu) -> None:
        """Called once, before the first slot."""
        ...

    def promise(self) -> Promise:
        """Called after each slot's plans."""
        ...

    def limit(self, sms: int) -> None:
        """The site agent's share of the GPU for this gNB, from now on."""
        ...
