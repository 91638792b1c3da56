"""What a live run leaves for its manifest and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.host.memory import pss_bytes


@dataclass(slots=True)
class LiveResult:
    """What a live run leaves for the manifest.

    ``rejected``: refused control messages by code. ``steal_share``: of the CPUs' time between START
    and the end of the drain; None where the run did not get so far, or it is not known.
    """

    status: str = "done"
    reason: str = ""
    tail: list[str] = field(default_factory=list)
    log: str = ""
    stats: dict[str, dict[str, Any]] = field(default_factory=dict)
    ready: dict[str, dict[str, Any]] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    steal_share: float | None = None
    pss_bytes: int = 0
    pss_by_node: dict[str, int] = field(default_factory=dict)

    def measure_memory(self, pids: Mapping[str, int]) -> None:
        """Keep the largest sum over these processes. Between phases: reading disturbs the slots."""
        by_process = {name: pss_bytes(pid) for name, pid in pids.items()}
        if sum(by_process.values()) > self.pss_bytes:
            self.pss_bytes = sum(by_process.values())
            self.pss_by_node = by_process
