"""The PHY's executor: each task's real work from its start on, then the hold to its end.

Holds of several tasks overlap, as tasks do on a GPU; the real work is serial, as one core is. It is
done in stages: of the tasks that have begun, the one whose hold ends first gets the next stage, so
that a small downlink slot need not wait for a large decode. Downlink of several cells that begins
together is one launch, as on a GPU.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from protocols.errors import ProtocolError
from protocols.messages import UPLINK, Message
from protocols.work import ExecutorStop, PhyTask, PhyTaskDone
from testbed.executors.config import PhyConfig
from testbed.executors.device import make_pace, open_device
from testbed.executors.host_speed import SpeedProbe
from testbed.executors.link import Port
from testbed.executors.pace import Pace
from testbed.executors.phy_work import largest_task, open_work, shortest_wall_us
from testbed.record.schema import HOST_AT_SPEED_PERMILLE

_WARM_PASSES = 5
_DONE = object()

Work = Callable[[Sequence[PhyTask]], Iterator[None]]


@dataclass(frozen=True, slots=True)
class _Due:
    """Tasks whose real work is done together, and its stages."""

    tasks: tuple[PhyTask, ...]
    woken_us: int
    stages: Iterator[None]


class PhyLoop:
    """Orders tasks and holds in emulated time; torch-free but for ``work``.

    ``woken_us`` of a task is when the loop found that its start had come; what it then waited for
    another task's real work shows in ``real_end_us``.
    """

    def __init__(
        self,
        port: Port,
        work: Work,
        pace: Pace,
        prime: Callable[[], None] | None = None,
        prime_lead_us: int = 0,
        slowdown_permille: Callable[[], int] = lambda: HOST_AT_SPEED_PERMILLE,
    ) -> None:
        """``work``: the stages of tasks' real work, done as they are asked for. ``prime``: called
        ``prime_lead_us`` before a start while nothing is to do, to bring the code into the caches:
        after idle milliseconds a first pass takes several times as long as the next ones.
        ``slowdown_permille``: how slow the core runs; asked after each task's real work."""
        self._prime = prime
        self._prime_lead_us = prime_lead_us
        self._primed_us = -1
        self._port = port
        self._work = work
        self._pace = pace
        self._slowdown_permille = slowdown_permille
        self._arrivals = 0
        self._latest: dict[int, int] = {}
        self._pending: list[tuple[int, int, PhyTask]] = []
        self._due: list[tuple[int, int, _Due]] = []
        self._holds: list[tuple[int, int, PhyTaskDone]] = []
        self._stopping = False

    def run(self) -> None:
        """Serve tasks until ExecutorStop; then those whose real work is done are held to the end.

        Tasks that have not begun by then are dropped.
        """
        while not self._stopping:
            now_us = self._port.now_us()
            self._report_ended(now_us)
            self._wake_due(now_us)
            if self._prime_next(now_us):
                continue
            self._take(self._port.receive(now_us if self._due else self._next_us()))
            if self._due and not self._stopping:
                self._advance()
        while self._holds:
            self._port.hold_until(self._holds[0][0])
            self._report_ended(self._port.now_us())

    def _next_us(self) -> int | None:
        times = [queue[0][0] for queue in (self._pending, self._holds) if queue]
        if self._prime is not None and self._pending and self._pending[0][0] != self._primed_us:
            times.append(self._pending[0][0] - self._prime_lead_us)
        return min(times, default=None)

    def _prime_next(self, now_us: int) -> bool:
        """Prime for the next start if it is near and nothing else is to do; whether it was done."""
        if self._prime is None or self._due or not self._pending:
            return False
        start_us = self._pending[0][0]
        if start_us == self._primed_us or now_us < start_us - self._prime_lead_us:
            return False
        self._primed_us = start_us
        self._prime()
        return True

    def _take(self, message: Message | None) -> None:
        """Read everything that has arrived."""
        while message is not None and not self._stopping:
            match message:
                case PhyTask():
                    self._arrivals += 1
                    # A second hand-over before the start replaces the first.
                    self._latest[message.task] = self._arrivals
                    heapq.heappush(self._pending, (message.start_us, self._arrivals, message))
                case ExecutorStop():
                    self._stopping = True
                case _:
                    name = type(message).__name__
                    raise ProtocolError("unexpected-message", f"PHY has no use for {name}")
            message = self._port.receive(self._port.now_us())

    def _wake_due(self, now_us: int) -> None:
        together: dict[int, list[PhyTask]] = {}
        while self._pending and self._pending[0][0] <= now_us:
            _, arrival, task = heapq.heappop(self._pending)
            if self._latest.get(task.task) != arrival:
                continue
            del self._latest[task.task]
            if task.direction == UPLINK:
                self._begin((task,), now_us)
            else:
                together.setdefault(task.start_us, []).append(task)
        for tasks in together.values():
            self._begin(tuple(tasks), now_us)

    def _begin(self, tasks: tuple[PhyTask, ...], now_us: int) -> None:
        due = _Due(tasks, now_us, self._work(tasks))
        first_end_us = min(task.end_us for task in tasks)
        heapq.heappush(self._due, (first_end_us, tasks[0].task, due))

    def _advance(self) -> None:
        """One stage of the task whose hold ends first."""
        due = self._due[0][2]
        if next(due.stages, _DONE) is not _DONE:
            return
        heapq.heappop(self._due)
        self._pace.settle()
        real_end_us = self._port.now_us()
        slowdown_permille = self._slowdown_permille()
        for task in due.tasks:
            end_us = max(task.end_us, real_end_us) if self._pace.held else real_end_us
            done = PhyTaskDone(task.task, due.woken_us, real_end_us, end_us, slowdown_permille)
            heapq.heappush(self._holds, (end_us, task.task, done))

    def _report_ended(self, now_us: int) -> None:
        while self._holds and self._holds[0][0] <= now_us:
            self._port.send(heapq.heappop(self._holds)[2])


class PhyExecutor:
    """PHY work of one gNB; warm when made. Raises DeviceError."""

    def __init__(self, config: PhyConfig) -> None:
        self.config = config
        self._pace = make_pace(config)
        self._work = open_work(config, open_device(config))
        self._speed = SpeedProbe()
        self._wall_us = {
            name: shortest_wall_us(
                self._work, largest_task(config, direction), self._pace.settle, _WARM_PASSES
            )
            for name, direction in (("uplink", UPLINK), ("downlink", 1 - UPLINK))
        }

    def facts(self) -> dict[str, object]:
        """Wall time of the largest task of each direction."""
        return {
            "largest_uplink_wall_us": self._wall_us["uplink"],
            "largest_downlink_wall_us": self._wall_us["downlink"],
            "kind": self.config.kind,
            "device": self.config.device,
            "pace": self.config.pace,
        }

    def run(self, link: Port) -> None:
        """Serve tasks until ExecutorStop."""
        lead_us = self.config.prime_lead_us
        prime = self._work.prime if lead_us else None
        PhyLoop(
            link,
            self._work.stages,
            self._pace,
            prime,
            lead_us,
            self._speed.slowdown_permille,
        ).run()
