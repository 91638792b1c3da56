"""How much of the CPUs' time the hypervisor gave to others; no process here has had it."""

from __future__ import annotations

import psutil


class StealMeter:
    """Counts from its making on."""

    def __init__(self) -> None:
        self._stolen_s, self._all_s = _times_s()

    def share(self) -> float | None:
        """Stolen time / time of all CPUs; None where the system does not count it."""
        stolen_s, all_s = _times_s()
        spent_s = all_s - self._all_s
        if stolen_s is None or self._stolen_s is None or spent_s <= 0:
            return None
        return (stolen_s - self._stolen_s) / spent_s


def _times_s() -> tuple[float | None, float]:
    """(stolen, all) seconds since the machine was started; a guest's own are in the user's."""
    times = psutil.cpu_times()._asdict()
    counted = sum(value for name, value in times.items() if not name.startswith("guest"))
    return times.get("steal"), counted
