"""The committed envelope: SMs that the RAN of one GPU has promised not to exceed, slot by slot.

Owns what the MACs have promised together, what of it has been broken, what may be leased beyond
the known plans, and how the GPU is split between gNBs that want more than there is. A promise
that was given stands: a MAC may lower it, but raising it, or a plan above it, is an emergency.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from testbed.errors import PolicyError
from testbed.gpu.gate import Window
from testbed.gpu.profile import GpuProfile

MAX_ROWS = 32
"""Rows of a promise that a message holds."""

MAX_LEASE_WINDOWS = 64
"""Windows that a lease holds."""

_MAX_BEYOND = MAX_LEASE_WINDOWS * 3 // 4
"""Of them, those beyond the known plans: the others are kept for the plans' finer steps."""


@dataclass(frozen=True, slots=True)
class GnbPromise:
    """One gNB's promise: ``rows`` (first slot, SMs), each until the next; nothing from
    ``until_slot`` on."""

    rows: tuple[tuple[int, int], ...] = ()
    until_slot: int = 0

    def by_slot(self, first_slot: int) -> list[int]:
        """SMs that its work of each slot will not exceed, from ``first_slot`` on; empty where
        nothing is promised for that slot."""
        sms: list[int] = []
        bounds = [*self.rows, (self.until_slot, 0)]
        for (first, row_sms), (until, _) in pairwise(bounds):
            if first <= first_slot or sms:
                sms += [row_sms] * (min(until, self.until_slot) - max(first, first_slot))
        return sms

    def most_sms(self, slot: int) -> int:
        """The largest SM count promised for any slot from this one on."""
        later = [sms for first, sms in self.rows if slot < first < self.until_slot]
        return max([*self.by_slot(slot)[:1], *later], default=0)


@dataclass(frozen=True, slots=True)
class Emergency:
    """The RAN takes more than was promised somewhere in [from_slot, until_slot).

    ``promised_sms`` and ``taken_sms`` are of the slot with the largest excess, the first of equals.
    """

    from_slot: int
    until_slot: int
    promised_sms: int
    taken_sms: int


class Envelope:
    """What one GPU's gNBs have promised together; leases are cut from what it leaves."""

    def __init__(self, gnbs: Iterable[str], gpu: GpuProfile, slot_us: int) -> None:
        self._gpu = gpu
        self._slot_us = slot_us
        self._promises = dict.fromkeys(gnbs, GnbPromise())
        self._committed: dict[int, int] = {}

    def promise(self, gnb: str, promise: GnbPromise) -> None:
        """What a gNB promises from now on; ``commit`` makes it count."""
        self._promises[gnb] = promise

    @property
    def idle(self) -> bool:
        """Nothing is committed and nobody promises anything."""
        for promise in self._promises.values():
            if promise.rows:
                return False
        return not self._committed

    def promised_ahead(self, slot: int) -> dict[str, int] | None:
        """The largest SM count that each gNB promises from a slot on; None where one does not."""
        if any(promise.until_slot <= slot for promise in self._promises.values()):
            return None
        return {gnb: promise.most_sms(slot) for gnb, promise in self._promises.items()}

    def commit(self, now_slot: int, known_slot: int, ran_sms: Sequence[int]) -> Emergency | None:
        """Take the promises over for the slots whose work is not all known yet.

        Args:
            now_slot: the present slot; what was committed before it is forgotten.
            known_slot: the first slot of which later plans may still bring work.
            ran_sms: the RAN's SMs by the plans so far, per slot from ``now_slot`` on.

        Returns:
            Where plans or promises are above what was committed before, if anywhere.
        """
        before = {slot: sms for slot, sms in self._committed.items() if slot >= now_slot}
        self._committed = dict(before)
        together = zip(*(p.by_slot(known_slot) for p in self._promises.values()), strict=False)
        for slot, parts in enumerate(together, start=known_slot):
            self._committed[slot] = min(self._gpu.sms, sum(parts))
        for index, sms in enumerate(ran_sms):
            if self._committed.get(now_slot + index, sms) < sms:
                self._committed[now_slot + index] = sms
        broken = [(slot, sms) for slot, sms in before.items() if self._committed[slot] > sms]
        if not broken:
            return None
        worst, promised_sms = max(broken, key=lambda at: (self._committed[at[0]] - at[1], -at[0]))
        slots = [slot for slot, _ in broken]
        return Emergency(min(slots), max(slots) + 1, promised_sms, self._committed[worst])

    def committed_until(self, slot: int) -> int:
        """The first slot from ``slot`` on for which nothing is committed."""
        while slot in self._committed:
            slot += 1
        return slot

    def most_ahead(self, slot: int) -> list[int]:
        """The largest SM count committed in the first 0, 1, 2, ... slots from ``slot`` on, as far
        as something is committed for each of them."""
        ahead = range(slot, self.committed_until(slot))
        return list(accumulate([self._committed[later] for later in ahead], max, initial=0))

    def lease(self, known: Sequence[Window], now_us: int, known_slot: int) -> tuple[Window, ...]:
        """What may be leased: ``known``, the spare windows from now to ``known_slot``, and beyond
        them what the envelope leaves, in partition steps.

        At most ``MAX_LEASE_WINDOWS``. Where a promise would make more, the known part has one SM
        count per slot, and the part beyond it ends earlier, at a change of the promise.
        """
        slots = range(known_slot, self.committed_until(known_slot))
        if not slots:
            return tuple(known[:MAX_LEASE_WINDOWS])
        beyond = self._joined((slot, self._committed[slot]) for slot in slots)[:_MAX_BEYOND]
        if beyond and len(known) + len(beyond) > MAX_LEASE_WINDOWS:
            known = _by_slot(known, now_us, known_slot, self._slot_us)
        whole = [*known]
        for window in beyond:
            _append(whole, window)
        return tuple(whole[:MAX_LEASE_WINDOWS])

    def _joined(self, slots: Iterable[tuple[int, int]]) -> list[Window]:
        windows: list[Window] = []
        for slot, ran_sms in slots:
            sms = self._gpu.round_down(max(0, self._gpu.sms - ran_sms))
            if sms:
                _append(windows, Window(slot * self._slot_us, (slot + 1) * self._slot_us, sms))
        return windows


def split_sms(
    gpu: GpuProfile, wanted: Mapping[str, int], promised: Mapping[str, int]
) -> dict[str, int]:
    """SMs that each gNB of a GPU may use, in partition steps, at least ``gpu.min_sms`` each.

    What the gNBs want fits: each may have all but what the others have promised to stay within
    at most. It does not: in proportion to what they want; a step that remains goes to who is
    furthest below its part, the first of equals.

    Args:
        gpu: the profile.
        wanted: SMs that each gNB's backlog needs.
        promised: the largest SM count that each has promised ahead.
    """
    total = sum(wanted.values())
    if total <= gpu.sms:
        taken = sum(promised.values())
        return {
            gnb: max(gpu.min_sms, gpu.round_down(max(0, gpu.sms - (taken - promised[gnb]))))
            for gnb in wanted
        }
    shares = {
        gnb: max(gpu.min_sms, gpu.round_down(gpu.sms * sms // total)) for gnb, sms in wanted.items()
    }

    def excess(gnb: str) -> int:
        """How far a share is above its exact part, times ``total``."""
        return shares[gnb] * total - gpu.sms * wanted[gnb]

    while sum(shares.values()) + gpu.sm_step <= gpu.sms:
        shares[min(shares, key=excess)] += gpu.sm_step
    while sum(shares.values()) > gpu.sms:
        larger = [gnb for gnb, sms in shares.items() if sms - gpu.sm_step >= gpu.min_sms]
        if not larger:
            break  # more gNBs than smallest partitions: their work follows one another
        shares[max(larger, key=excess)] -= gpu.sm_step
    return shares


def checked_promise(
    policy: object, sms: int, rows: Sequence[tuple[int, int]], numbers: Sequence[int]
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """A policy's promise as plain integers: (rows, numbers).

    Args:
        policy: who made it, for the error.
        sms: of the GPU.
        rows: (first slot, SMs).
        numbers: until_slot, breaches and wanted SMs.

    Raises:
        PolicyError: not integers, negative, not ascending, more SMs than the GPU has, or too many
            rows.
    """
    place = f"policy {type(policy).__name__}: promise"
    try:
        plain = tuple((operator.index(slot), operator.index(row)) for slot, row in rows)
        others = tuple(operator.index(number) for number in numbers)
    except (TypeError, ValueError):
        shown = f"{rows!r}, {numbers!r}"
        raise PolicyError(f"{place} {shown}: allowed are rows of (slot, SMs), integers") from None
    slots = [slot for slot, _ in plain]
    if len(plain) > MAX_ROWS or slots != sorted(set(slots)):
        allowed = f"at most {MAX_ROWS} rows, slots ascending"
        raise PolicyError(f"{place}: {len(plain)} rows, slots {slots}: allowed are {allowed}")
    if any(not 0 <= row <= sms for _, row in plain) or min([0, *slots, *others]) < 0:
        allowed = f"0 to {sms} SMs and no negative number"
        raise PolicyError(f"{place} {plain}, {others}: allowed are {allowed}")
    return plain, others


def _by_slot(
    windows: Sequence[Window], from_us: int, until_slot: int, slot_us: int
) -> list[Window]:
    """The least SM count in each slot; none for a slot that the windows do not fill."""
    coarse: list[Window] = []
    for slot in range(from_us // slot_us, until_slot):
        start_us, end_us = max(from_us, slot * slot_us), (slot + 1) * slot_us
        inside = [
            (min(window.end_us, end_us) - max(window.start_us, start_us), window.sms)
            for window in windows
            if window.start_us < end_us and window.end_us > start_us
        ]
        if sum(length_us for length_us, _ in inside) == end_us - start_us:
            _append(coarse, Window(start_us, end_us, min(sms for _, sms in inside)))
    return coarse


def _append(windows: list[Window], window: Window) -> None:
    """Add a window, or lengthen the last one where it goes on."""
    last = windows[-1] if windows else None
    if last is not None and last.end_us == window.start_us and last.sms == window.sms:
        windows[-1] = Window(last.start_us, window.end_us, last.sms)
    else:
        windows.append(window)
