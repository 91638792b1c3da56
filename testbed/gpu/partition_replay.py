"""What each partition mechanism could have lent to training on one recorded RAN run.

Owns the offline replay: the RAN's SMs over time, or the envelope as it was promised, go through
``testbed.gpu.partitions``. The RAN of the recorded run was not held to any partition, so this says
what a mechanism can lend while it never takes an SM that the RAN had (or might have had); a fixed
split needs a RAN run of its own on ``confined_gpu``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from testbed.gpu.gate import Window
from testbed.gpu.partitions import Mechanism, Outlook, Partition, Switch
from testbed.gpu.spare import Ints, Steps, edges, slots_within, stack, window_max


@dataclass(frozen=True, slots=True)
class Promises:
    """The envelope that stood at the start of each slot.

    Attributes:
        at_us: [n], slot starts, ascending.
        windows_us: [w], ascending.
        within_sms: [n, w], at most so many SMs for the RAN in [at_us, at_us + windows_us).
        worst_sms: at most so many, whenever.
    """

    at_us: Ints
    windows_us: tuple[int, ...]
    within_sms: Ints
    worst_sms: int


@dataclass(frozen=True, slots=True)
class Lent:
    """What could be lent for whole quanta.

    Attributes:
        usable: by the quantum's length, us: at each slot start, the SMs on which a quantum that
            starts there stays to its end.
        switches: how often the partition changed.
        lost_sm_us: SM-time that the switches kept from both sides.
    """

    usable: Mapping[int, Steps]
    switches: int
    lost_sm_us: int

    def fraction(self, quantum_us: int, gpu_sms: int) -> float | None:
        """Mean over the slots of the usable share of the GPU; None without slots."""
        usable_sms = self.usable[quantum_us].values
        slots = len(usable_sms)
        return int(usable_sms.sum()) / (gpu_sms * slots) if slots else None


def lent_with_foresight(
    ran: Steps,
    gpu_sms: int,
    mechanism: Mechanism,
    from_us: int,
    to_us: int,
    *,
    slot_us: int,
    quanta_us: Sequence[int],
) -> Lent:
    """Lent if the RAN's SMs of all of [from_us, to_us) were known from the start.

    This is what a perfect forecast would give to the policy of ``Partition``. Slots count whose
    quantum ends by ``to_us``.
    """
    points = edges(from_us, to_us, ran)
    spare = np.maximum(gpu_sms - ran.at(points[:-1]), 0)
    windows = [
        Window(start_us, end_us, sms)
        for (start_us, end_us), sms in zip(pairwise(points.tolist()), spare.tolist(), strict=True)
    ]
    plan = Partition(mechanism).plan(from_us, to_us, Outlook(windows, to_us, None))
    usable: dict[int, Steps] = {}
    for quantum_us in quanta_us:
        starts = slots_within(slot_us, from_us, to_us, quantum_us)
        usable[quantum_us] = Steps(starts, _least(plan.windows, starts, quantum_us))
    return _lent(mechanism, usable, plan.planned)


def lent_as_promised(
    promises: Promises, gpu_sms: int, mechanism: Mechanism, *, quanta_us: Sequence[int]
) -> Lent:
    """Lent if each slot's plan rests on what had been promised at its start, and no more."""
    partition = Partition(mechanism)
    begun: list[Switch] = []
    usable: list[list[int]] = []
    bounds_us = (0, *promises.windows_us)
    beyond_sms = max(0, gpu_sms - promises.worst_sms)
    for at_us, row in zip(promises.at_us.tolist(), promises.within_sms.tolist(), strict=True):
        windows = [
            Window(at_us + left_us, at_us + right_us, max(0, gpu_sms - sms))
            for (left_us, right_us), sms in zip(pairwise(bounds_us), row, strict=True)
        ]
        outlook = Outlook(windows, at_us + bounds_us[-1], beyond_sms)
        plan = partition.plan(at_us, at_us + max([*quanta_us, bounds_us[-1]]), outlook)
        begun += plan.begun
        usable.append([_throughout(plan.windows, at_us, at_us + q) for q in quanta_us])
    columns = np.array(usable, dtype=np.int64).reshape(-1, len(quanta_us)).T
    steps = {q: Steps(promises.at_us, sms) for q, sms in zip(quanta_us, columns, strict=True)}
    return _lent(mechanism, steps, begun)


def _throughout(windows: Sequence[Window], from_us: int, to_us: int) -> int:
    """The least SMs of the windows within [from_us, to_us); gaps are 0."""
    least, reached_us = 0, from_us
    for window in windows:
        if window.end_us <= from_us:
            continue
        if window.start_us > reached_us:
            return 0
        least = window.sms if reached_us == from_us else min(least, window.sms)
        if window.end_us >= to_us:
            return least
        reached_us = window.end_us
    return 0


def _least(windows: Sequence[Window], starts_us: Ints, length_us: int) -> Ints:
    """``_throughout`` [t, t + length_us) for each start t."""
    if not len(starts_us):
        return np.zeros(0, dtype=np.int64)
    columns = [(w.start_us, w.end_us, w.sms) for w in windows]
    held = stack(*(np.array(columns, dtype=np.int64).reshape(-1, 3).T))
    points = edges(int(starts_us[0]), int(starts_us[-1]) + length_us, held)
    most = max((w.sms for w in windows), default=0)
    missing = Steps(points, most - held.at(points))
    return most - window_max(missing, starts_us, length_us)


def _lent(mechanism: Mechanism, usable: Mapping[int, Steps], switches: Sequence[Switch]) -> Lent:
    lost = sum(mechanism.lost_sm_us(switch) for switch in switches)
    return Lent(usable, len(switches), lost)
