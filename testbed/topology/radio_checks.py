"""Checks of the radio tables that need two values or a standard's table."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.ran.numerology import TddPattern, n_prb, slot_us
from testbed.ran.qos import five_qis
from testbed.topology.mistakes import Mistake
from testbed.topology.places import Place, dotted
from testbed.topology.radio import CellGroup
from testbed.topology.schema import Topology
from testbed.topology.traffic_checks import traffic_doubts, traffic_mistakes

_TDD_HYPERPERIOD_US = 20_000
"""TS 38.331, TDD-UL-DL-Pattern: periods fit 20 ms a whole number of times."""


def radio_mistakes(topology: Topology) -> Iterator[Mistake]:
    """Mistakes of cells and of what arrives at them, files included."""
    for place, group in cell_groups(topology):
        yield from _carrier(place, group)
        yield from _pattern(place, group)
        yield from _five_qis(place, group)
        yield from traffic_mistakes(place, group, topology)
    yield from _slots(topology)
    yield from _too_short(topology)


def radio_doubts(topology: Topology) -> Iterator[Mistake]:
    """What is allowed, and probably not meant."""
    for place, group in cell_groups(topology):
        yield from traffic_doubts(place, group, topology)


def cell_groups(topology: Topology) -> Iterator[tuple[Place, CellGroup]]:
    """Every group of cells with its place."""
    for site_name, site in topology.sites.items():
        for gnb_name, gnb in site.gnbs.items():
            for index, group in enumerate(gnb.cells):
                yield ("sites", site_name, "gnbs", gnb_name, "cells", index), group


def _five_qis(place: Place, group: CellGroup) -> Iterator[Mistake]:
    values = [((*place, "five_qi"), group.five_qi)]
    for index, of_class in enumerate(group.classes):
        values.append(((*place, "classes", index, "five_qi"), of_class.five_qi))
    for at, value in values:
        if value is not None and value not in five_qis():
            known = ", ".join(str(five_qi) for five_qi in five_qis())
            yield Mistake(at, "not a 5QI with a known delay budget", None, known)


def _carrier(place: Place, group: CellGroup) -> Iterator[Mistake]:
    try:
        n_prb(group.bandwidth_mhz, group.scs_khz)
    except ValueError as error:
        allowed = str(error).partition(" are ")[2]
        yield Mistake(
            (*place, "bandwidth_mhz"),
            f"no such carrier at {group.scs_khz} kHz",
            allowed=allowed or None,
            depends=((*place, "scs_khz"),),
        )


def _pattern(place: Place, group: CellGroup) -> Iterator[Mistake]:
    at = (*place, "tdd")
    try:
        period_us = TddPattern.parse(group.tdd).period_us(group.scs_khz)
    except ValueError as error:
        yield Mistake(at, str(error).partition(": ")[2])
        return
    if _TDD_HYPERPERIOD_US % period_us:
        yield Mistake(
            at,
            f"a period of {period_us} us",
            allowed="periods that divide 20 ms (TS 38.331)",
            depends=((*place, "scs_khz"),),
        )


def _slots(topology: Topology) -> Iterator[Mistake]:
    """One slot length per site (its agent plans in slots), one planning horizon per gNB."""
    firsts: dict[tuple[str, ...], tuple[Place, CellGroup]] = {}
    for place, group in cell_groups(topology):
        site, gnb = str(place[1]), str(place[3])
        for owner, keys in (
            ((site,), ("scs_khz",)),
            ((site, gnb), ("lookahead_slots", "k2_slots")),
        ):
            first_place, first = firsts.setdefault(owner, (place, group))
            for key in keys:
                if getattr(group, key) != getattr(first, key):
                    kind, name = ("site", site) if len(owner) == 1 else ("gNB", gnb)
                    yield Mistake(
                        (*place, key),
                        f"differs from {getattr(first, key)} at {dotted(first_place)}",
                        allowed=f"one {key} for all cells of {kind} {name}",
                        depends=((*first_place, key),),
                    )


def _too_short(topology: Topology) -> Iterator[Mistake]:
    periods = [
        (len(group.tdd) * slot_us(group.scs_khz), place) for place, group in cell_groups(topology)
    ]
    if not periods:
        return
    longest_us, place = max(periods, key=lambda item: item[0])
    for key in ("warmup_us", "measured_us"):
        if getattr(topology.time, key) < longest_us:
            yield Mistake(
                ("time", key),
                f"shorter than one TDD period ({longest_us} us)",
                allowed=f"at least {longest_us}",
                depends=((*place, "tdd"), (*place, "scs_khz")),
            )
