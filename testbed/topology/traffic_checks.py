"""Checks of the traffic of cells: classes of UEs, loads that have to add up, files.

What needs the radio's arithmetic is imported where a topology asks for it: most do not.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from testbed.ran.numerology import Direction, slot_us
from testbed.topology.mistakes import Mistake
from testbed.topology.places import Place
from testbed.topology.radio import MAX_UES, CellGroup
from testbed.topology.schema import Topology
from testbed.topology.traffic import (
    DiurnalTable,
    FgnTable,
    FullBufferTraffic,
    PeriodicTraffic,
    PoissonTraffic,
    TraceTraffic,
    Traffic,
)

_DIRECTIONS = (("ul_traffic", Direction.UL), ("dl_traffic", Direction.DL))
_OF_A_CLASS = ("ues", "five_qi", "ul_traffic", "dl_traffic")


def traffic_mistakes(place: Place, group: CellGroup, topology: Topology) -> Iterator[Mistake]:
    """Mistakes in the classes and the traffic of one group of cells."""
    yield from _classes(place, group)
    for at, traffic in traffic_tables(place, group):
        if isinstance(traffic, TraceTraffic):
            yield from file_mistakes((*at, "path"), traffic.path, topology.directory)
        if isinstance(traffic, PeriodicTraffic) and traffic.bytes_max < traffic.bytes_min:
            yield Mistake(
                (*at, "bytes_max"),
                f"below bytes_min = {traffic.bytes_min}",
                depends=((*at, "bytes_min"),),
            )
        if isinstance(traffic, FullBufferTraffic) and group.classes:
            yield Mistake((*at, "kind"), "is for all UEs of a cell, not for a class of them")
        if isinstance(traffic, PoissonTraffic):
            yield from _noise((*at, "fgn"), traffic.fgn, place, group)
            yield from _profile((*at, "diurnal"), traffic.diurnal)
    yield from _whole_cell(place, group)


def traffic_doubts(place: Place, group: CellGroup, topology: Topology) -> Iterator[Mistake]:
    """What is allowed, and probably not meant."""
    for at, traffic in traffic_tables(place, group):
        if isinstance(traffic, TraceTraffic) and Path(traffic.path).is_absolute():
            problem = "an absolute path: the run directory will not work on another machine"
            yield Mistake((*at, "path"), problem)
        if isinstance(traffic, PoissonTraffic):
            if traffic.load > 1:
                yield Mistake((*at, "load"), "more than the cell carries: queues grow without end")
            if traffic.fgn is not None:
                yield from _beyond_the_noise((*at, "fgn", "step_us"), traffic.fgn, topology)
    for key, loads in _loads(group).items():
        if len(loads) > 1 and sum(loads) > 1 >= max(loads):
            problem = f"loads of {key} add up to {sum(loads):g}: queues grow without end"
            yield Mistake((*place, "classes"), problem)


def traffic_tables(place: Place, group: CellGroup) -> Iterator[tuple[Place, Traffic]]:
    """Every traffic table of a group, with its place."""
    for key, _ in _DIRECTIONS:
        own = getattr(group, key)
        if own is not None:
            yield (*place, key), own
    for index, of_class in enumerate(group.classes):
        for key, _ in _DIRECTIONS:
            yield (*place, "classes", index, key), getattr(of_class, key)


def file_mistakes(place: Place, path: str, directory: Path) -> Iterator[Mistake]:
    """A file that is not there, or is no regular file."""
    full = directory / path
    try:
        mode = full.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        where = "" if full.is_absolute() and not directory.is_absolute() else f" ({full})"
        yield Mistake(place, f"cannot be read: {reason.lower()}{where}")
        return
    if not stat.S_ISREG(mode):
        yield Mistake(place, "not a regular file")


def _classes(place: Place, group: CellGroup) -> Iterator[Mistake]:
    """A group says for all UEs what they are, or for each class; never both, never neither."""
    classes = (*place, "classes")
    if not group.classes:
        for key, _ in _DIRECTIONS:
            if getattr(group, key) is None:
                yield Mistake(
                    (*place, key),
                    "missing",
                    allowed="a table with a kind, or classes",
                    depends=(classes,),
                )
        return
    for key in _OF_A_CLASS:
        if getattr(group, key) is not None:
            yield Mistake(
                (*place, key),
                "beside classes, each of which has its own",
                allowed=f"{key} in the classes alone",
                depends=(classes,),
            )
    if group.n_ues > MAX_UES:
        yield Mistake(classes, f"{group.n_ues} UEs in all", allowed=f"at most {MAX_UES}")


def _noise(place: Place, fgn: FgnTable | None, cell: Place, group: CellGroup) -> Iterator[Mistake]:
    shortest_us = slot_us(group.scs_khz)
    if fgn is not None and fgn.step_us < shortest_us:
        yield Mistake(
            (*place, "step_us"),
            "shorter than a slot",
            allowed=f"at least {shortest_us}",
            depends=((*cell, "scs_khz"),),
        )


def _profile(place: Place, diurnal: DiurnalTable | None) -> Iterator[Mistake]:
    if diurnal is None:
        return
    if (diurnal.peak_to_trough is None) is (not diurnal.points):
        given = "both peak_to_trough and points" if diurnal.points else "no profile"
        yield Mistake(
            place,
            given,
            allowed="peak_to_trough or points",
            depends=((*place, "peak_to_trough"), (*place, "points")),
        )
    elif diurnal.points and max(diurnal.points) == 0:
        yield Mistake((*place, "points"), "all are 0")


def _whole_cell(place: Place, group: CellGroup) -> Iterator[Mistake]:
    """A load of the whole cell, which one class makes up, given the others'."""
    for key, direction in _DIRECTIONS:
        at, tables = (*place, "classes"), [getattr(c, key) for c in group.classes]
        whole = [
            (*at, index, key)
            for index, table in enumerate(tables)
            if isinstance(table, PoissonTraffic) and table.load_of == "cell"
        ]
        for other in whole[1:]:
            problem = f"only one class can make up the {key} of the cell"
            yield Mistake((*other, "load_of"), problem, depends=(at,))
        if len(whole) == 1:
            from testbed.topology.cell_traffic import LoadError, remaining_load
            from testbed.topology.views import cell_config

            try:
                remaining_load(group, cell_config(0, group), direction)
            except LoadError as error:
                yield Mistake((*whole[0], "load"), str(error), depends=(place,))
            except ValueError:
                pass  # no such carrier, pattern or packet: said in its own place


def _loads(group: CellGroup) -> dict[str, list[float]]:
    """Loads by traffic key; one of a whole cell has those of the other classes in it."""
    found: dict[str, list[float]] = {}
    for key, _ in _DIRECTIONS:
        tables = [getattr(of_class, key) for of_class in group.ue_classes]
        asked = [table for table in tables if isinstance(table, PoissonTraffic)]
        found[key] = [t.load for t in asked if all(o.load_of == "own" for o in asked)]
    return found


def _beyond_the_noise(place: Place, fgn: FgnTable, topology: Topology) -> Iterator[Mistake]:
    from testbed.ran.traffic.modulation import NOISE_STEPS

    if topology.time.total_us > fgn.step_us * NOISE_STEPS:
        held_s = fgn.step_us * NOISE_STEPS / 1e6
        problem = f"the noise keeps its correlation for {held_s:g} s; the run is longer"
        yield Mistake(place, problem)
