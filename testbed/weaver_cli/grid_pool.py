"""Runs tasks of a grid in worker processes, and tells how far it is.

Owns processes and progress; a task is a module-level function of plain values, so that any worker
can run it. No worker outlives the experiment, whatever ends that.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

from testbed.experiments.experiment import progress

T = TypeVar("T")
R = TypeVar("R")

WORKERS = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Task:
    """``function(*arguments)``; ``weight``: how long it takes beside others, roughly."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    weight: float
    label: str


class Ending:
    """Makes SIGINT and SIGTERM raise SystemExit, with 128 + the signal's number as its status.

    A second signal ends the process at once. For the main thread alone.
    """

    def __init__(self) -> None:
        self._before = {number: signal.signal(number, self._came) for number in SIGNALS}
        self._held = False
        self._number = 0

    def restore(self) -> None:
        """The handlers that there were before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is done in the block is done whole; a signal meanwhile raises at its end.

        A process that was half started would be nobody's.
        """
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._number:
            raise SystemExit(128 + self._number)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self._number = number
        if not self._held:
            raise SystemExit(128 + number)


class Pool:
    """Worker processes, spawned once for all batches of an experiment.

    ``starting``: what stands around the start of workers.
    """

    def __init__(
        self,
        executor: Executor,
        starting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._executor = executor
        self._starting = starting

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """The results in the order of the tasks; the heaviest begin first.

        Raises whatever a task raises; the others are then given up.
        """
        begun, weight, done = time.monotonic(), sum(task.weight for task in tasks), 0.0
        order = sorted(range(len(tasks)), key=lambda i: -tasks[i].weight)
        submit = self._executor.submit
        with self._starting():
            futures = {submit(tasks[i].function, *tasks[i].arguments): i for i in order}
        results: list[Any] = [None] * len(tasks)
        for n, future in enumerate(as_completed(futures), start=1):
            index = futures[future]
            results[index] = future.result()
            done += tasks[index].weight
            spent_s = time.monotonic() - begun
            left_s = spent_s * (weight - done) / done
            progress(f"{n} of {len(tasks)}, {left_s:.0f} s left: {tasks[index].label}")
        return results

    def in_order(self, function: Callable[[T], R], arguments: Iterable[T]) -> Iterator[R]:
        """The results in the order of the arguments, each as soon as it is there."""
        with self._starting():
            results = self._executor.map(function, arguments)
        yield from results


@contextmanager
def pool(workers: int = WORKERS) -> Iterator[Pool]:
    """Workers that are gone when the block is left, by an error or a signal as well.

    Within the block SIGINT and SIGTERM raise SystemExit (130, 143): see ``Ending``.
    """
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin_worker, initargs=(os.getpid(),)
    )
    ending = Ending()
    try:
        yield Pool(executor, ending.held)
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        ending.restore()


def _begin_worker(experiment_pid: int) -> None:
    """Ctrl-C at a terminal reaches workers too: it is the experiment's matter."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":  # else a worker ends with its task where the experiment was killed
        from testbed.host.lifeline import tie_to_launcher

        tie_to_launcher(experiment_pid, None)
