"""Measures a device: how long PHY tasks take on it, and what it is.

The same work as the PHY executor's, whole (stride 1), on a machine that should be idle. Tasks are
timed in rounds over all of them, so that what disturbs the machine for a while disturbs no single
task. Must not interpret the times: ``testbed.host.calibrate`` does.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from protocols.work import PhyTask
from testbed.executors.config import PhyConfig
from testbed.executors.device import open_device
from testbed.executors.phy_work import PhyWork, open_work, run_tasks
from testbed.executors.process import keep_freed_memory

_MATRIX = 1024
_COPY_BYTES = 1 << 27
_RATE_PASSES = 5
_GIB = float(2**30)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device is, and two rates that were measured on it.

    ``units``: SMs of a GPU, cores of a CPU. ``capability``: CUDA compute capability; None on a CPU.
    ``matrix_tflops``: bf16 products on a GPU, float32 on all cores of a CPU. ``copy_gb_per_s``:
    bytes read and written by a copy within its memory.
    """

    name: str
    units: int
    capability: tuple[int, int] | None
    memory_gib: float
    matrix_tflops: float
    copy_gb_per_s: float


def best_device() -> Literal["cpu", "cuda"]:
    """CUDA where torch sees a device, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


class PhyBench:
    """One device (``cpu`` or ``cuda``) with the buffers of the largest task. Raises DeviceError."""

    def __init__(self, config: PhyConfig) -> None:
        keep_freed_memory()
        torch.set_num_threads(1)
        self._device = open_device(config)
        self._work = open_work(config, self._device)
        self._clock = _cuda_us if config.device == "cuda" else _cpu_us

    def facts(self) -> DeviceFacts:
        """What the device is; takes about a second."""
        if self._device.type == "cuda":
            found = torch.cuda.get_device_properties(self._device)
            return DeviceFacts(
                found.name,
                found.multi_processor_count,
                (found.major, found.minor),
                found.total_memory / _GIB,
                self._matrix_tflops(torch.bfloat16),
                self._copy_gb_per_s(),
            )
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
        torch.set_num_threads(cores or 1)
        tflops, copied = self._matrix_tflops(torch.float32), self._copy_gb_per_s()
        torch.set_num_threads(1)
        return DeviceFacts(_cpu_name(), cores or 1, None, memory, tflops, copied)

    def measure_us(
        self, tasks: Sequence[PhyTask], seconds: float, min_rounds: int
    ) -> list[list[float]]:
        """Durations of each task, microseconds: whole rounds for about ``seconds``.

        A round that warms up comes first and is not counted.
        """
        times: list[list[float]] = [[] for _ in tasks]
        for task in tasks:
            self._clock(self._work, task)
        end_ns = time.monotonic_ns() + int(seconds * 1e9)
        while len(times[0]) < min_rounds or time.monotonic_ns() < end_ns:
            for task, taken in zip(tasks, times, strict=True):
                taken.append(self._clock(self._work, task))
        return times

    def _matrix_tflops(self, dtype: torch.dtype) -> float:
        size = _MATRIX * (8 if self._device.type == "cuda" else 1)
        matrix = torch.ones(size, size, dtype=dtype, device=self._device)
        seconds = self._shortest_s(lambda: torch.matmul(matrix, matrix))
        return 2 * size**3 / seconds / 1e12

    def _copy_gb_per_s(self) -> float:
        source = torch.ones(_COPY_BYTES, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        seconds = self._shortest_s(lambda: target.copy_(source))
        return 2 * _COPY_BYTES / seconds / 1e9

    def _shortest_s(self, work: Callable[[], object]) -> float:
        shortest_ns = 1 << 62
        for _ in range(_RATE_PASSES):
            self._settle()
            start_ns = time.monotonic_ns()
            work()
            self._settle()
            shortest_ns = min(shortest_ns, time.monotonic_ns() - start_ns)
        return shortest_ns / 1e9

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _cpu_us(work: PhyWork, task: PhyTask) -> float:
    start_ns = time.monotonic_ns()
    run_tasks(work, task)
    return (time.monotonic_ns() - start_ns) / 1000


def _cuda_us(work: PhyWork, task: PhyTask) -> float:
    """From the first kernel's start to the last one's end, by the device's own clock."""
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    run_tasks(work, task)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
