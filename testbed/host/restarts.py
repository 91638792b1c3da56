"""Which dead nodes are started again, how often and when. Pure: it is told the time, in seconds.

A death that is granted a restart waits for its backoff (*pending*), is spawned (*starting*), and
is *ready* or dead again. Each death counts, one during the start too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from testbed.topology.bounds import Restart, Restarts


@dataclass(frozen=True, slots=True)
class Grant:
    """A restart to come: its number among ``most`` of that node, after how long, by which key."""

    number: int
    most: int
    after_s: float
    setting: str

    def __str__(self) -> str:
        count = f"restart {self.number} of {self.most}"
        return f"it is started again in {self.after_s:g} s ({count}; {self.setting})"


@dataclass(frozen=True, slots=True)
class Return:
    """A node is ready again: how long that took from its death, and from its start."""

    away_s: float
    start_s: float


class RestartBook:
    """Restarts of one run: granted, pending, starting."""

    def __init__(self, restarts: Restarts, start_limit_s: float) -> None:
        """``start_limit_s``: for a newcomer to be ready (host.start_wall_ms)."""
        self._restarts = restarts
        self._start_limit_s = start_limit_s
        self._granted: Counter[str] = Counter()
        self._pending: dict[str, float] = {}
        self._died_s: dict[str, float] = {}
        self._starting: dict[str, float] = {}

    def left(self, node: str, kind: str) -> int:
        """How many more restarts a node of that kind has."""
        limit = self._limit(kind)
        return limit.max - self._granted[node] if limit else 0

    def used_up(self, node: str, kind: str) -> str:
        """What a cause has to add where all restarts are used up; else nothing."""
        count = self._granted[node]
        if not count or self.left(node, kind):
            return ""
        times = "once" if count == 1 else f"{count} times"
        return f"; it had been restarted {times} (host.restart.{kind}.max)"

    def grant(self, node: str, kind: str, now_s: float) -> Grant | None:
        """The node has died; its restart is pending from here on, or None: it has none left."""
        self._starting.pop(node, None)
        limit = self._limit(kind)
        if limit is None or not self.left(node, kind):
            return None
        after_s = limit.backoff_wall_ms / 1000 * 2 ** self._granted[node]
        self._granted[node] += 1
        self._pending[node] = now_s + after_s
        self._died_s.setdefault(node, now_s)
        return Grant(self._granted[node], limit.max, after_s, f"host.restart.{kind}")

    def due(self, now_s: float) -> list[str]:
        """Nodes to spawn now; they are starting from here on."""
        nodes = [node for node, at_s in self._pending.items() if at_s <= now_s]
        for node in nodes:
            del self._pending[node]
            self._starting[node] = now_s
        return nodes

    def overdue(self, now_s: float) -> list[str]:
        """Nodes that are not ready within the limit; each is told once."""
        limit_s = self._start_limit_s
        nodes = [node for node, at_s in self._starting.items() if now_s - at_s > limit_s]
        for node in nodes:
            del self._starting[node]
        return nodes

    def ready(self, node: str, now_s: float) -> Return | None:
        """A node is ready; None where it was not starting again."""
        started_s = self._starting.pop(node, None)
        if started_s is None:
            return None
        return Return(now_s - self._died_s.pop(node), now_s - started_s)

    def cancel(self) -> None:
        """The run ends: nothing is pending or awaited any more."""
        self._pending.clear()
        self._starting.clear()

    def _limit(self, kind: str) -> Restart | None:
        found = getattr(self._restarts, kind, None)
        return found if isinstance(found, Restart) else None
