"""How a GPU is parted between the RAN and training, and what changing the split costs.

Owns the four mechanisms as data (green contexts, MPS, MIG, a fixed split) and the one policy that
turns spare windows into what a mechanism can really lend: a split holds until a switch ends, a
switch takes its time, and no split takes what the RAN may need before training could be shrunk
again. It must not decide what the RAN needs, nor touch running quanta: none of the mechanisms
preempts them.

Green contexts are made once, one per size; a quantum that changes its size pays ``switch_us``
itself, where it is launched. So a site agent lends their spare windows as they are, and this
policy serves to compare them with the slower mechanisms.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from testbed.gpu.gate import Window
from testbed.gpu.profile import GpuProfile

PartitionName = Literal["green_context", "mps", "mig", "static"]

MPS_SWITCH_US = 300_000
"""A client is started anew with another share of the threads: about 0.3 s (Weaver, arXiv
2609.35276; YinYangRAN, INFOCOM'24, measured 0.27 s)."""

MIG_SWITCH_US = 7_000_000
"""Instances are destroyed and made anew: about 7 s (Weaver; YinYangRAN measured 6.9 s)."""


@dataclass(frozen=True, slots=True)
class MigInstances:
    """GPU instances of one GPU model: its SMs without MIG, and SMs by compute slices of seven."""

    gpu_sms: int
    by_slices: Mapping[int, int]


def _instances(gpu_sms: int, *sms: int) -> MigInstances:
    return MigInstances(gpu_sms, MappingProxyType(dict(zip((1, 2, 3, 4, 7), sms, strict=True))))


MIG_INSTANCES: Mapping[str, MigInstances] = MappingProxyType(
    {
        "a100": _instances(108, 14, 28, 42, 56, 98),
        "gh200": _instances(132, 16, 32, 60, 64, 132),
        "h200": _instances(132, 16, 32, 60, 64, 132),
        "h800": _instances(132, 16, 32, 60, 64, 132),
        "h20": _instances(78, 10, 22, 32, 44, 78),
    }
)
"""GPU profile -> its instances of 1, 2, 3, 4 and 7 slices; a profile that is left out has no MIG.

SMs as ``nvidia-smi mig -lgip`` lists them on A100, GH200 and H200. H800: assumed as H100, the same
chip. H20: assumed, sevenths of 78 SMs (the fractions of NVIDIA's MIG user guide) in whole TPCs.
"""

_RAN_SLICES = MappingProxyType({0: 7, 1: 4, 2: 4, 3: 4, 4: 3, 7: 0})
"""Slices of training's instance -> of the largest that fits beside it (7 compute and 8 memory
slices; an instance of 3 takes 4 memory slices. NVIDIA MIG user guide, supported profiles)."""


@dataclass(frozen=True, slots=True, order=True)
class Split:
    """Training has ``sms``; it may, while the RAN leaves ``spare_sms`` in partition steps."""

    sms: int
    spare_sms: int


NOTHING = Split(0, 0)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One way to part a GPU.

    Attributes:
        splits: ascending in both numbers; the first is always allowed.
        switch_us: from one split to another. Meanwhile the RAN has what both of them leave it.
        stops_training: a switch leaves training nothing, instead of the smaller split.
    """

    name: PartitionName
    splits: tuple[Split, ...]
    switch_us: int
    stops_training: bool = False

    def during(self, switch: Switch) -> Split:
        """What training has while a switch is under way."""
        return NOTHING if self.stops_training else min(switch.old, switch.new)

    def lost_sm_us(self, switch: Switch) -> int:
        """SM-time that a switch keeps from both sides."""
        held = max(switch.old.sms, switch.new.sms)
        return (held - self.during(switch).sms) * self.switch_us


@dataclass(frozen=True, slots=True)
class Switch:
    """From one split to another, in [start_us, end_us)."""

    start_us: int
    end_us: int
    old: Split
    new: Split


def mechanism(
    name: PartitionName, gpu: GpuProfile, static_training_sms: int | None = None
) -> Mechanism:
    """The mechanism ``name`` on a GPU.

    Args:
        name: as in a topology.
        gpu: gives the partition step, and the cost of changing a green context.
        static_training_sms: training's SMs for ``"static"``, which alone reads them.

    Raises:
        ValueError: MIG on a GPU without it, or static without a number of SMs.
    """
    if name == "static":
        if static_training_sms is None:
            raise ValueError("a static partition needs static_training_sms")
        return Mechanism(name, (Split(static_training_sms, 0),), 0)
    if name == "mig":
        return Mechanism(name, _mig_splits(gpu), MIG_SWITCH_US, stops_training=True)
    splits = (NOTHING, *(Split(sms, sms) for sms in gpu.sm_levels()))
    return Mechanism(name, splits, MPS_SWITCH_US if name == "mps" else gpu.switch_us)


def confined_gpu(gpu: GpuProfile, training_sms: int) -> GpuProfile:
    """The GPU on which the RAN is placed when ``training_sms`` of its SMs are never its own.

    For placing tasks only (``RanTimeline``, ``WorstCase``): what saturates a task (``phy_demand``)
    is a matter of the whole GPU, and does not shrink with what the task can get.
    """
    return replace(gpu, sms=gpu.sms - training_sms)


def mig_instances(gpu: GpuProfile) -> MigInstances | None:
    """The instances of a GPU; None without MIG, or where its SMs are not those of the model."""
    found = MIG_INSTANCES.get(gpu.name)
    return found if found is not None and found.gpu_sms == gpu.sms else None


def _mig_splits(gpu: GpuProfile) -> tuple[Split, ...]:
    found = mig_instances(gpu)
    if found is None:
        raise ValueError(f"{gpu.name} with {gpu.sms} SMs has no MIG instances")
    splits = [NOTHING]
    for slices, sms in found.by_slices.items():
        ran_sms = found.by_slices.get(_RAN_SLICES[slices], 0)
        # The RAN takes whole partition steps, and spare windows are rounded down to them.
        ran_sms -= ran_sms % gpu.sm_step
        splits.append(Split(sms, gpu.round_down(gpu.sms - ran_sms)))
    last_of = {split.spare_sms: split for split in splits}
    return tuple(last_of.values())


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known ahead of the SMs that the RAN leaves.

    Attributes:
        windows: spare SMs until ``known_until_us``, ascending in time; gaps leave none.
        beyond_sms: what it leaves after that, for ever (of the worst case); None where the run
            ends at ``known_until_us`` and nothing after it counts.
    """

    windows: Sequence[Window]
    known_until_us: int
    beyond_sms: int | None


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What can be lent, the switches begun since the plan before, and those that lie ahead."""

    windows: tuple[Window, ...]
    begun: tuple[Switch, ...]
    planned: tuple[Switch, ...]


class Partition:
    """The split of one GPU over time: keeps what has begun, and plans ahead.

    Training shrinks as late as it may. It grows at once where that pays: where the time until it
    must have shrunk again is longer than both switches, and gives more SM-time than staying. A
    switch that stops training is thus avoided unless it earns its stop; one that does not costs
    nothing to begin, and the widest split is taken.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._split: Split | None = None
        self._last: Switch | None = None
        self._planned: tuple[Switch, ...] = ()

    def plan(self, now_us: int, until_us: int, outlook: Outlook) -> PartitionPlan:
        """Plan [now_us, until_us); of the plan before, only switches that have begun by now stay.

        The first plan chooses the first split without a switch: it was made before the run.

        Args:
            now_us: not before that of the plan before.
            until_us: where what is lent ends; ``known_until_us`` where nothing lies beyond.
            outlook: what the RAN leaves.

        Returns:
            Windows of at most the split of their time. Where the RAN needs more than was known
            when the split was made, they hold at most what it leaves.
        """
        ahead = _Ahead(now_us, outlook)
        begun = tuple(switch for switch in self._planned if switch.start_us < now_us)
        if begun:
            self._last, self._split = begun[-1], begun[-1].new
        if self._split is None:
            self._split = self._first(ahead, now_us)
        pieces, self._planned = self._walk(self._split, ahead, now_us, until_us)
        return PartitionPlan(_windows(pieces, ahead), begun, self._planned)

    def _walk(
        self, split: Split, ahead: _Ahead, now_us: int, until_us: int
    ) -> tuple[list[tuple[int, int, Split]], tuple[Switch, ...]]:
        """(from_us, to_us, training's split) over [now_us, until_us), and its switches."""
        pieces: list[tuple[int, int, Split]] = []
        switches: list[Switch] = []
        time_us = now_us
        if self._last is not None and self._last.end_us > now_us:
            time_us = min(self._last.end_us, until_us)
            pieces.append((now_us, time_us, self._mechanism.during(self._last)))
        while time_us < until_us:
            wanted = self._wanted(split, ahead, time_us)
            if wanted == split:
                to_us = int(min(until_us, self._next_look_us(split, ahead, time_us)))
                pieces.append((time_us, to_us, split))
            else:
                end_us = time_us + self._mechanism.switch_us
                switches.append(Switch(time_us, end_us, split, wanted))
                to_us = min(until_us, end_us)
                pieces.append((time_us, to_us, self._mechanism.during(switches[-1])))
                split = wanted
            time_us = to_us
        return pieces, tuple(switches)

    def _next_look_us(self, split: Split, ahead: _Ahead, time_us: int) -> float:
        shrink_us = ahead.lasts_until_us(split, time_us) - self._mechanism.switch_us
        return min(shrink_us, ahead.next_change_us(time_us))

    def _wanted(self, split: Split, ahead: _Ahead, time_us: int) -> Split:
        """The split to go to now; ``split`` itself where it should stay."""
        cost_us = self._mechanism.switch_us
        # Whatever is begun now must last until another switch could have ended.
        lasting = [
            other
            for other in self._mechanism.splits
            if ahead.lasts_until_us(other, time_us) > time_us + 2 * cost_us
        ]
        if ahead.lasts_until_us(split, time_us) <= time_us + cost_us:
            return lasting[-1]
        gains = [(self._gain(split, other, ahead, time_us), other) for other in lasting]
        return self._best(split, [gain for gain in gains if gain[1].sms > split.sms])

    def _gain(self, old: Split, new: Split, ahead: _Ahead, time_us: int) -> float:
        """SM-time won by going to ``new``, and back before it must, over staying at ``old``."""
        span_us = ahead.lasts_until_us(new, time_us) - time_us
        cost_us = 2 * self._mechanism.switch_us
        if span_us == math.inf:
            if ahead.end_us == math.inf:
                return math.inf
            span_us, cost_us = ahead.end_us - time_us, self._mechanism.switch_us
        during_sms = 0 if self._mechanism.stops_training else old.sms
        return (span_us - cost_us) * new.sms + cost_us * during_sms - span_us * old.sms

    def _first(self, ahead: _Ahead, now_us: int) -> Split:
        def stays_us(split: Split) -> float:
            lasts_us = ahead.lasts_until_us(split, now_us)
            if lasts_us == math.inf:
                return ahead.end_us - now_us
            return lasts_us - self._mechanism.switch_us - now_us

        smallest, *larger = self._mechanism.splits
        return self._best(smallest, [(split.sms * stays_us(split), split) for split in larger])

    def _best(self, default: Split, gains: Sequence[tuple[float, Split]]) -> Split:
        paying = [(gain, split) for gain, split in gains if gain > 0]
        if not paying:
            return default
        return (max(paying) if self._mechanism.stops_training else paying[-1])[1]


class _Ahead:
    """An outlook from ``now_us`` on, as steps; remembers how long each split lasts."""

    def __init__(self, now_us: int, outlook: Outlook) -> None:
        self._at: list[int] = [now_us]
        self._sms: list[float] = [0]
        known_until_us = max(now_us, outlook.known_until_us)
        for window in outlook.windows:
            if window.end_us > now_us and window.start_us < known_until_us:
                self._step(max(now_us, window.start_us), window.sms)
                self._step(min(window.end_us, known_until_us), 0)
        ends = outlook.beyond_sms is None
        self.end_us: float = known_until_us if ends else math.inf
        self._step(known_until_us, math.inf if outlook.beyond_sms is None else outlook.beyond_sms)
        self._lasts: dict[Split, tuple[int, float]] = {}

    def _step(self, at_us: int, sms: float) -> None:
        if self._at[-1] == at_us:
            self._sms[-1] = sms
        else:
            self._at.append(at_us)
            self._sms.append(sms)

    def next_change_us(self, time_us: int) -> float:
        """When what is left changes next."""
        index = bisect_right(self._at, time_us)
        return self._at[index] if index < len(self._at) else math.inf

    def lasts_until_us(self, split: Split, time_us: int) -> float:
        """The first moment from ``time_us`` on at which the RAN leaves too little for a split."""
        since_us, until_us = self._lasts.get(split, (0, -1))
        if since_us <= time_us <= until_us:
            return until_us
        index = bisect_right(self._at, time_us) - 1
        while index < len(self._at) and self._sms[index] >= split.spare_sms:
            index += 1
        until_us = max(time_us, self._at[index]) if index < len(self._at) else math.inf
        self._lasts[split] = (time_us, until_us)
        return until_us

    def pieces(self, from_us: int, to_us: int) -> Iterator[tuple[int, int, float]]:
        """(from_us, to_us, SMs left) over [from_us, to_us)."""
        index = bisect_right(self._at, from_us) - 1
        while from_us < to_us:
            index += 1
            end_us = min(to_us, self._at[index]) if index < len(self._at) else to_us
            yield from_us, end_us, self._sms[index - 1]
            from_us = end_us


def _windows(pieces: Iterable[tuple[int, int, Split]], ahead: _Ahead) -> tuple[Window, ...]:
    """As windows, joined, and cut to what the RAN leaves where it leaves a split too little."""
    windows: list[Window] = []
    for first_us, last_us, split in pieces:
        for from_us, to_us, left_sms in ahead.pieces(first_us, last_us):
            sms = split.sms if left_sms >= split.spare_sms else int(min(left_sms, split.sms))
            if sms == 0:
                continue
            if windows and windows[-1].end_us == from_us and windows[-1].sms == sms:
                windows[-1] = Window(windows[-1].start_us, to_us, sms)
            else:
                windows.append(Window(from_us, to_us, sms))
    return tuple(windows)
