"""How long messages take between two nodes, and whether any was lost."""

from __future__ import annotations

from dataclasses import dataclass, field

_KEPT = 4096


@dataclass(slots=True)
class _Way:
    """Latencies from one source: a bounded, evenly thinned sample."""

    stride: int = 1
    seen: int = 0
    next_sequence: int = 0
    sample_us: list[int] = field(default_factory=list)

    def add(self, latency_us: int) -> None:
        if self.seen % self.stride == 0:
            self.sample_us.append(latency_us)
            if len(self.sample_us) > _KEPT:
                self.sample_us = self.sample_us[::2]
                self.stride *= 2
        self.seen += 1


class LatencyMeter:
    """One-way latencies by source: from the step that sent a message to its delivery."""

    def __init__(self) -> None:
        self._ways: dict[str, _Way] = {}

    def received(self, source: str, latency_us: int, sequence: int) -> int:
        """Note a message; returns how many messages of that source are missing before it."""
        way = self._ways.setdefault(source, _Way())
        way.add(max(0, latency_us))
        missing = sequence - way.next_sequence
        way.next_sequence = sequence + 1
        return max(0, missing)

    def passed(self, source: str, sequence: int) -> None:
        """Note a message whose latency says nothing."""
        self._ways.setdefault(source, _Way()).next_sequence = sequence + 1

    def restart(self, source: str) -> None:
        """A new life of that source counts its messages from 0; latencies of all are kept."""
        self._ways.setdefault(source, _Way()).next_sequence = 0

    def summary(self, factor: float) -> dict[str, list[int]]:
        """Source -> [p50, p99, count], latencies times ``factor``."""
        found = {}
        for source, way in self._ways.items():
            ordered = sorted(way.sample_us)
            if ordered:
                p50 = ordered[len(ordered) // 2]
                p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
                found[source] = [round(p50 * factor), round(p99 * factor), way.seen]
        return found
