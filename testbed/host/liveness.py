"""Who is missing, and who is lost: from heartbeats and their progress counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """A node's new status: ``missing``, ``back`` or ``lost``."""

    node: str
    status: str
    reason: str


@dataclass(slots=True)
class _Pulse:
    last_s: float
    progress: int = -1
    missing: bool = False


class Liveness:
    """*Missing* after ``missing_s`` without a heartbeat, healed by the next one; *lost* after
    ``lost_s``, for good, unless its next life is expected."""

    def __init__(self, missing_s: float, lost_s: float) -> None:
        self._missing_s = missing_s
        self._lost_s = lost_s
        self._pulses: dict[str, _Pulse] = {}

    def expect(self, node: str, now_s: float) -> None:
        """Heartbeats of this node are due from now on."""
        self._pulses[node] = _Pulse(now_s)

    def forget(self, node: str) -> None:
        """The node has ended; its end is known otherwise."""
        self._pulses.pop(node, None)

    def beat(self, node: str, progress: int, now_s: float) -> list[Change]:
        """A heartbeat has come; returns a ``back`` where the node was missing."""
        pulse = self._pulses.get(node)
        if pulse is None:
            return []
        silent_s = now_s - pulse.last_s
        pulse.last_s, pulse.progress = now_s, progress
        if not pulse.missing:
            return []
        pulse.missing = False
        return [Change(node, "back", f"after {silent_s:.1f} s without a heartbeat")]

    def check(self, now_s: float) -> list[Change]:
        """Changes that have come about by silence."""
        changes = []
        for node, pulse in list(self._pulses.items()):
            silent_s = now_s - pulse.last_s
            if silent_s > self._lost_s:
                del self._pulses[node]
                reason = (
                    f"no heartbeat for {silent_s:.1f} s (host.dead_wall_ms sets the limit); "
                    f"its last progress was step {pulse.progress}"
                )
                changes.append(Change(node, "lost", reason))
            elif silent_s > self._missing_s and not pulse.missing:
                pulse.missing = True
                reason = f"no heartbeat for {silent_s:.1f} s (host.missing_wall_ms sets the limit)"
                changes.append(Change(node, "missing", reason))
        return changes
