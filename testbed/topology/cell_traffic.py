"""From the traffic tables of a cell group to what its cells draw from.

Pure. Owns what a load means where several classes share a cell; the arithmetic of a cell's capacity
is the radio's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from testbed.ran.capacity import ftp3_at_load, imix_at_load, offered_load
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction
from testbed.ran.traffic import (
    Diurnal,
    Fgn,
    Ftp3,
    FullBuffer,
    Imix,
    Mixed,
    NoTraffic,
    Part,
    Periodic,
    Replay,
    TrafficSpec,
    Xr,
)
from testbed.ran.traffic.specs import COMMAG, OneSpec, mean_bytes_per_s
from testbed.topology.radio import CellGroup, UeClass
from testbed.topology.traffic import (
    CommagTraffic,
    DiurnalTable,
    FgnTable,
    Ftp3Traffic,
    FullBufferTraffic,
    ImixTraffic,
    PeriodicTraffic,
    PoissonTraffic,
    TraceTraffic,
    Traffic,
    XrTraffic,
)


class LoadError(ValueError):
    """A load of the whole cell that no class can make up."""


Player = Callable[[TraceTraffic], Replay]


def table_of(of_class: UeClass, direction: Direction) -> Traffic:
    """The traffic table of one direction."""
    return of_class.dl_traffic if direction is Direction.DL else of_class.ul_traffic


def cell_traffic(
    group: CellGroup, cell: CellConfig, direction: Direction, play: Player
) -> TrafficSpec:
    """What arrives at a cell of a group: one description, or one per class of its UEs.

    Args:
        group: the tables.
        cell: the cell, for its capacity; its own traffic is not read.
        direction: which of the tables.
        play: makes a replay of a trace table.

    Raises:
        LoadError: a load of the whole cell that cannot be kept.
        ValueError: a description out of its range, or a full buffer in a class.
    """
    if not group.classes:
        (one,) = group.ue_classes
        return _spec(table_of(one, direction), cell, direction, cell.n_ues, play)
    parts: list[Part] = []
    first_ue = 0
    for of_class in group.classes:
        table = table_of(of_class, direction)
        if isinstance(table, PoissonTraffic) and table.load_of == "cell":
            table = table.model_copy(update={"load": remaining_load(group, cell, direction)})
        spec = _spec(table, cell, direction, of_class.ues, play)
        parts.append(Part(first_ue, of_class.ues, spec))
        first_ue += of_class.ues
    return Mixed(tuple(parts))


def remaining_load(group: CellGroup, cell: CellConfig, direction: Direction) -> float:
    """What the one class whose load is the whole cell's has to offer itself.

    Raises:
        LoadError: no such class or several, a class beside it of unknown load, or nothing left.
    """
    tables = [(of_class.ues, table_of(of_class, direction)) for of_class in group.ue_classes]
    whole = [t for _, t in tables if isinstance(t, PoissonTraffic) and t.load_of == "cell"]
    if len(whole) != 1:
        raise LoadError(f"{len(whole)} classes make up the load of the cell; one can")
    others = [_known_load(t, cell, direction, n) for n, t in tables if t is not whole[0]]
    remaining = whole[0].load - sum(others)
    if remaining < 0:
        raise LoadError(f"the other classes alone offer {sum(others):.4f}")
    return remaining


def _known_load(table: Traffic, cell: CellConfig, direction: Direction, n_ues: int) -> float:
    if isinstance(table, TraceTraffic | FullBufferTraffic):
        raise LoadError(f"another class has {table.kind}, whose load is not known beforehand")
    spec = _spec(table, cell, direction, n_ues, _no_trace)
    return offered_load(cell, direction, mean_bytes_per_s(spec, n_ues) or 0.0)


def _no_trace(table: TraceTraffic) -> Replay:
    raise LoadError(f"{table.path}: a trace has no load")


def _spec(
    table: Traffic, cell: CellConfig, direction: Direction, n_ues: int, play: Player
) -> OneSpec:
    match table:
        case Ftp3Traffic():
            files = ftp3_at_load(cell, direction, table.load, table.file_bytes, n_ues)
            return _modulated(files, table)
        case ImixTraffic():
            return _modulated(imix_at_load(cell, direction, table.load, n_ues), table)
        case PeriodicTraffic():
            return Periodic(table.bytes_min, table.bytes_max, table.period_us)
        case XrTraffic():
            return Xr(table.rate_mbps, table.fps, table.jitter)
        case CommagTraffic():
            return COMMAG[table.service]
        case FullBufferTraffic():
            return FullBuffer()
        case TraceTraffic():
            return play(table)
        case _:
            return NoTraffic()


def _modulated(spec: Ftp3 | Imix, table: PoissonTraffic) -> OneSpec:
    return replace(spec, fgn=_fgn(table.fgn), diurnal=_diurnal(table.diurnal))


def _fgn(table: FgnTable | None) -> Fgn | None:
    return None if table is None else Fgn(table.hurst, table.cv, table.step_us)


def _diurnal(table: DiurnalTable | None) -> Diurnal | None:
    if table is None:
        return None
    return Diurnal(table.period_s, table.phase, table.peak_to_trough, table.points)
