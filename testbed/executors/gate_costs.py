"""What the gate reckons a quantum with: its modelled time, and what past ones took beyond it.

Pure and torch-free, so that the simulator can reckon alike.
"""

from __future__ import annotations

import math
from collections import deque

from testbed.gpu.quanta import QuantumCosts, QuantumKind

_REMEMBERED = 128
_QUANTILE = 0.99


class GateCosts:
    """Modelled and p99 durations, in us, of the quanta of one executor.

    ``modelled`` is the cost on that SM count, and ``switch_us`` where the count differs from the
    last quantum's (the first quantum has to make its partition too). ``p99`` adds ``guard_us`` and
    the p99 of the overruns of the last 128 quanta of that kind and block.
    """

    def __init__(self, costs: QuantumCosts, guard_us: int, switch_us: int) -> None:
        self.guard_us = guard_us
        self._by_level = {
            kind: costs.by_level(kind) for kind in QuantumKind if kind < len(costs.cost_us)
        }
        self._switch_us = switch_us
        self._last_sms = 0
        self._overruns: dict[tuple[QuantumKind, int], deque[int]] = {}
        self._margin_us: dict[tuple[QuantumKind, int], int] = {}

    def modelled_us(self, kind: QuantumKind, sms: int) -> int:
        """How long a quantum of that kind holds ``sms`` SMs if it starts next."""
        return self._by_level[kind][sms] + self._switch(sms)

    def p99_us(self, kind: QuantumKind, block: int) -> dict[int, int]:
        """SM count -> what the lease must hold for a quantum to start next."""
        return self._needed_us(kind, self._margin_us.get((kind, block), 0))

    def smooth_us(self, kind: QuantumKind) -> dict[int, int]:
        """The same as if nothing had ever overrun."""
        return self._needed_us(kind, 0)

    def started(self, sms: int) -> None:
        """A quantum has started: the partition is now ``sms`` SMs."""
        self._last_sms = sms

    def observe(self, kind: QuantumKind, block: int, overrun_us: int) -> None:
        """A quantum's real work ended ``overrun_us`` after its modelled end (0: within it)."""
        seen = self._overruns.setdefault((kind, block), deque(maxlen=_REMEMBERED))
        seen.append(overrun_us)
        self._recompute((kind, block))

    def forget_largest(self, kind: QuantumKind, block: int) -> None:
        """Drop the largest overrun seen.

        Called when no window is large enough for it: a margin that keeps every quantum out would
        never see another observation, and one stall of the machine would starve the job for ever.
        """
        seen = self._overruns.get((kind, block))
        if seen and self._margin_us[kind, block]:
            seen.remove(max(seen))
            self._recompute((kind, block))

    def _needed_us(self, kind: QuantumKind, margin_us: int) -> dict[int, int]:
        return {
            sms: cost_us + self._switch(sms) + self.guard_us + margin_us
            for sms, cost_us in self._by_level[kind].items()
        }

    def _switch(self, sms: int) -> int:
        return self._switch_us if sms != self._last_sms else 0

    def _recompute(self, key: tuple[QuantumKind, int]) -> None:
        ranked = sorted(self._overruns[key])
        self._margin_us[key] = ranked[math.ceil(_QUANTILE * len(ranked)) - 1] if ranked else 0
