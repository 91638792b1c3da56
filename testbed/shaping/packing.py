"""Placing PHY tasks on a GPU, compiled: the twin of ``testbed.gpu.sharing`` and ``.cost``.

Bit for bit what ``RanTimeline.reserve`` gives for one group of tasks that become ready together
(a test holds this). The controller asks it what fits, before the site agent places it.
"""

from __future__ import annotations

import math
from typing import Protocol, cast

import numpy as np

from testbed.gpu.profile import GpuProfile
from testbed.shaping.arrays import Floats, Ints
from testbed.shaping.compiled import compiled, new_record, typed

MAX_TASKS = 64
"""Tasks of one group: the cells of a gNB, at most."""

MAX_STEPS = 64
"""SM counts that one task can have one after the other."""

NOW = typed(0)

NEVER_US = 1 << 60
"""The end of tasks that have no SMs."""

_ROUNDING_US = 1e-6


class GpuNumbers(Protocol):
    """What the cost model reads of a GPU profile, as a record.

    ``sms`` are those that the RAN may have, ``whole_sms`` all that there are: what saturates a task
    does not shrink with what it can get.
    """

    sms: int
    whole_sms: int
    sm_step: int
    min_sms: int
    ran_sm_cap: int
    ul_fixed_us: float
    ul_code_block_us: float
    ul_sms_per_10_code_blocks: int
    ul_bandwidth_permille_peak: int
    ul_peak_code_blocks: int
    contention_slope: float
    dl_fixed_us: float
    dl_code_block_us: float
    dl_sms: int
    other_permille: int


class Packing(Protocol):
    """Room for the result of ``place``, and for its work, as a record.

    Attributes:
        n_steps: [MAX_TASKS], how many SM counts each task has one after the other.
        steps: [MAX_TASKS, MAX_STEPS, 2], (from_us, SMs).
        end_us: [MAX_TASKS], when each task ends.
        demand: [MAX_TASKS, 3], SMs at saturation, memory bandwidth (permille), SMs now.
        left: [MAX_TASKS, 3], fixed_us and work_us still to do, and the present speed.
    """

    n_steps: Ints
    steps: Ints
    end_us: Ints
    demand: Ints
    left: Floats


GPU_RECORD = np.dtype(
    [
        (name, np.float64 if kind == "float" else np.int64)
        for name, kind in GpuNumbers.__annotations__.items()
    ]
)
PACKING_RECORD = np.dtype(
    [
        ("n_steps", np.int64, (MAX_TASKS,)),
        ("steps", np.int64, (MAX_TASKS, MAX_STEPS, 2)),
        ("end_us", np.int64, (MAX_TASKS,)),
        ("demand", np.int64, (MAX_TASKS, 3)),
        ("left", np.float64, (MAX_TASKS, 3)),
    ]
)


def gpu_numbers(gpu: GpuProfile, other_permille: int, training_sms: int = 0) -> GpuNumbers:
    """The numbers of a profile.

    Args:
        gpu: all of the GPU.
        other_permille: bandwidth of what runs beside the RAN.
        training_sms: SMs that are never the RAN's (a static partition).
    """
    numbers = new_record(GPU_RECORD)
    for name in GpuNumbers.__annotations__:
        if name not in ("whole_sms", "other_permille"):
            setattr(numbers, name, getattr(gpu if hasattr(gpu, name) else gpu.phy, name))
    numbers.sms, numbers.whole_sms = gpu.sms - training_sms, gpu.sms
    numbers.other_permille = other_permille
    return cast(GpuNumbers, numbers)


@compiled
def round_up(gpu: GpuNumbers, sms: int) -> int:
    """The smallest partition of at least ``sms`` SMs, or the largest that there is."""
    steps = math.ceil(max(sms, gpu.min_sms) / gpu.sm_step) * gpu.sm_step
    return min(steps, gpu.whole_sms - gpu.whole_sms % gpu.sm_step)


@compiled
def _set_demand(
    gpu: GpuNumbers, packing: Packing, task: int, uplink: bool, blocks: int, milli: int
) -> None:
    if uplink:
        sms = round_up(gpu, gpu.ul_sms_per_10_code_blocks * math.ceil(blocks / 10))
        share = gpu.ul_bandwidth_permille_peak * min(1.0, blocks / gpu.ul_peak_code_blocks)
        packing.demand[task, 1] = int(np.rint(share))
        packing.left[task, 0] = gpu.ul_fixed_us
        packing.left[task, 1] = gpu.ul_code_block_us * milli / 1000
    else:
        sms = round_up(gpu, gpu.dl_sms)
        packing.demand[task, 1] = 0
        packing.left[task, 0] = gpu.dl_fixed_us
        packing.left[task, 1] = gpu.dl_code_block_us * blocks
    packing.demand[task, 0] = sms


@compiled
def _speed(gpu: GpuNumbers, packing: Packing, task: int, sms: int) -> float:
    crowded = (packing.demand[task, 1] + gpu.other_permille) / 1000 - 1
    slower = 1 + gpu.contention_slope * max(0.0, crowded)
    return float(min(1.0, sms / packing.demand[task, 0]) / slower)


@compiled
def _row_of(steps: Ints, n_steps: int, time_us: int) -> int:
    """The first row that ends after a time; bisected, since a RAN that is far behind has many."""
    low, high = 0, n_steps
    while low < high:
        middle = (low + high) // 2
        if steps[middle, 1] > time_us:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def _at(steps: Ints, n_steps: int, time_us: int) -> int:
    index = _row_of(steps, n_steps, time_us)
    if index < n_steps and steps[index, 0] <= time_us:
        return int(steps[index, 2])
    return 0


@compiled
def _next_edge(steps: Ints, n_steps: int, now_us: int, beyond: int) -> int:
    """The first edge after ``now_us`` (the steps ascend), or ``beyond``."""
    index = _row_of(steps, n_steps, now_us)
    if index == n_steps:
        return beyond
    if steps[index, 0] > now_us:
        return int(min(beyond, steps[index, 0]))
    return int(min(beyond, steps[index, 1]))


@compiled
def _done(packing: Packing, task: int) -> bool:
    return bool(packing.left[task, 0] <= 0 and packing.left[task, 1] <= _ROUNDING_US)


@compiled
def _distribute(gpu: GpuNumbers, packing: Packing, n: int, free: int, decode_free: int) -> None:
    """SMs now of each unfinished task: a partition step each, then to who has least of its own."""
    for task in range(n):
        packing.demand[task, 2] = 0
        if not _done(packing, task) and gpu.min_sms <= min(free, decode_free):
            packing.demand[task, 2] = gpu.min_sms
            free -= gpu.min_sms
            decode_free -= gpu.min_sms
    while gpu.sm_step <= min(free, decode_free):
        best, least = -1, 1.0
        for task in range(n):
            now, wanted = packing.demand[task, 2], packing.demand[task, 0]
            if 0 < now < wanted and now / wanted < least:
                best, least = task, now / wanted
        if best < 0:
            return
        packing.demand[best, 2] += gpu.sm_step
        free -= gpu.sm_step
        decode_free -= gpu.sm_step


@compiled
def _finish_us(
    gpu: GpuNumbers, packing: Packing, task: int, fixed_us: float, work_us: float
) -> int:
    """When the task ends with its steps, as ``testbed.gpu.cost.finish_us``."""
    n_steps = packing.n_steps[task]
    for index in range(n_steps):
        from_us, sms = packing.steps[task, index, 0], packing.steps[task, index, 1]
        last = index == n_steps - 1
        room_us = np.inf if last else float(packing.steps[task, index + 1, 0] - from_us)
        if sms <= 0:
            continue
        spent_us = min(fixed_us, room_us)
        fixed_us -= spent_us
        room_us -= spent_us
        speed = _speed(gpu, packing, task, sms)
        needed_us = work_us / speed
        if fixed_us == 0 and needed_us <= room_us + _ROUNDING_US:
            return int(math.ceil(from_us + spent_us + needed_us - _ROUNDING_US))  # noqa: RUF046
        work_us -= room_us * speed
    raise ValueError("a task needs SMs in its last step")


@compiled
def place(
    gpu: GpuNumbers,
    level: int,
    uplink: bool,
    ready_us: int,
    n: int,
    code_blocks: Ints,
    work_milli: Ints,
    used: Ints,
    n_used: int,
    decoding: Ints,
    n_decoding: int,
    packing: Packing,
) -> None:
    """Place ``n`` tasks of one direction that become ready together; all together on at most
    ``level`` SMs.

    Args:
        gpu: numbers of the GPU.
        level: the most SMs that the group may have together.
        uplink: decodes, which together with others stay within ``ran_sm_cap``.
        ready_us: when they may begin.
        n: how many.
        code_blocks, work_milli: [n] or longer, in the order of placing.
        used, n_used: earlier reservations of all kinds over time, rows (from_us, to_us, SMs),
            ascending, without gaps, neighbours different.
        decoding, n_decoding: the same of decodes.
        packing: receives steps and ends.
    """
    for task in range(n):
        _set_demand(gpu, packing, task, uplink, code_blocks[task], work_milli[task])
        packing.n_steps[task] = 0
    cap = max(gpu.ran_sm_cap, gpu.min_sms)
    far_us = 1 << 62
    now_us, active = ready_us, n
    while active > 0:
        free = min(gpu.sms - _at(used, n_used, now_us), level)
        decode_free = cap - _at(decoding, n_decoding, now_us) if uplink else free
        _distribute(gpu, packing, n, free, decode_free)
        first_us = np.inf
        for task in range(n):
            if _done(packing, task):
                continue
            sms = packing.demand[task, 2]
            speed = _speed(gpu, packing, task, sms) if sms else 0.0
            packing.left[task, 2] = speed
            if speed > 0:
                needed_us = packing.left[task, 0] + packing.left[task, 1] / speed
                first_us = min(first_us, needed_us)
        next_us = _next_edge(decoding, n_decoding, now_us, far_us)
        next_us = _next_edge(used, n_used, now_us, next_us)
        if first_us < np.inf:
            next_us = min(next_us, now_us + max(1, math.ceil(first_us - _ROUNDING_US)))
        if next_us == far_us:
            raise ValueError("no SMs are left for the tasks, now or later")
        for task in range(n):
            if _done(packing, task):
                continue
            sms, count = packing.demand[task, 2], packing.n_steps[task]
            if count == 0 or packing.steps[task, count - 1, 1] != sms:
                if count == MAX_STEPS:
                    raise ValueError("a task changes its SMs too often")
                packing.steps[task, count, 0] = now_us
                packing.steps[task, count, 1] = sms
                packing.n_steps[task] = count + 1
            speed = packing.left[task, 2]
            if speed > 0:
                elapsed_us = float(next_us - now_us)
                fixed_us = min(packing.left[task, 0], elapsed_us)
                packing.left[task, 0] -= fixed_us
                packing.left[task, 1] -= (elapsed_us - fixed_us) * speed
            if _done(packing, task):
                active -= 1
        now_us = next_us
    for task in range(n):
        _set_demand(gpu, packing, task, uplink, code_blocks[task], work_milli[task])
        fixed_us, work_us = packing.left[task, 0], packing.left[task, 1]
        end_us = _finish_us(gpu, packing, task, fixed_us, work_us)
        packing.end_us[task] = end_us
        while packing.steps[task, packing.n_steps[task] - 1, 0] >= end_us:
            packing.n_steps[task] -= 1


@compiled
def latest_end_us(
    gpu: GpuNumbers,
    level: int,
    uplink: bool,
    n: int,
    code_blocks: Ints,
    work_milli: Ints,
    packing: Packing,
) -> int:
    """When the last of ``n`` tasks ends that all begin at 0 on an idle GPU, on ``level`` SMs."""
    if n == 0:
        return 0
    if level < gpu.min_sms:
        return NEVER_US
    nothing = np.zeros((0, 3), np.int64)
    place(gpu, level, uplink, NOW, n, code_blocks, work_milli, nothing, NOW, nothing, NOW, packing)
    latest = 0
    for task in range(n):
        latest = max(latest, packing.end_us[task])
    return latest
