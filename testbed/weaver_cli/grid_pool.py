"""Runs tasks of a grid in worker processes, and tells how far it is.

Owns processes and progress; a task is a module-level function of plain values, so that any worker
can run it.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from testbed.coexec_cli.experiment import progress

R = TypeVar("R")

WORKERS = 2


@dataclass(frozen=True, slots=True)
class Task:
    """``function(*arguments)``; ``weight``: how long it takes beside others, roughly."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    weight: float
    label: str


class Pool:
    """Worker processes, spawned once for all batches of an experiment."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """The results in the order of the tasks; the heaviest begin first.

        Raises whatever a task raises; the others are then given up.
        """
        begun, weight, done = time.monotonic(), sum(task.weight for task in tasks), 0.0
        order = sorted(range(len(tasks)), key=lambda i: -tasks[i].weight)
        futures = {self._executor.submit(tasks[i].function, *tasks[i].arguments): i for i in order}
        results: list[Any] = [None] * len(tasks)
        for n, future in enumerate(as_completed(futures), start=1):
            index = futures[future]
            results[index] = future.result()
            done += tasks[index].weight
            spent_s = time.monotonic() - begun
            left_s = spent_s * (weight - done) / done
            progress(f"{n} of {len(tasks)}, {left_s:.0f} s left: {tasks[index].label}")
        return results


@contextmanager
def pool(workers: int = WORKERS) -> Iterator[Pool]:
    """Workers that are gone when the block is left, by an error as well."""
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, mp_context=context)
    try:
        yield Pool(executor)
    finally:
        executor.shutdown(cancel_futures=True)
