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
from testbed.ran.traffic import specs
from testbed.topology import traffic as tables
from testbed.topology.radio import CellGroup, UeClass


class LoadError(ValueError):
    """A load of the whole cell that no class can make up."""


Player = Callable[[tables.TraceTraffic], specs.Replay]


def table_of(of_class: UeClass, direction: Direction) -> tables.Traffic:
    """The traffic table of one direction."""
    return of_class.dl_traffic if direction is Direction.DL else of_class.ul_traffic


def cell_traffic(
    group: CellGroup, cell: CellConfig, direction: Direction, play: Player
) -> specs.TrafficSpec:
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
    parts: list[specs.Part] = []
    first_ue = 0
    for of_class in group.classes:
        table = table_of(of_class, direction)
        if isinstance(table, tables.PoissonTraffic) and table.load_of == "cell":
            table = table.model_copy(update={"load": remaining_load(group, cell, direction)})
        spec = _spec(table, cell, direction, of_class.ues, play)
        parts.append(specs.Part(first_ue, of_class.ues, spec))
        first_ue += of_class.ues
    return specs.Mixed(tuple(parts))


def remaining_load(group: CellGroup, cell: CellConfig, direction: Direction) -> float:
    """What the one class whose load is the whole cell's has to offer itself.

    Raises:
        LoadError: no such class or several, a class beside it of unknown load, or nothing left.
    """
    all_of_cell = [(of_class.ues, table_of(of_class, direction)) for of_class in group.ue_classes]
    whole = [
        t for _, t in all_of_cell if isinstance(t, tables.PoissonTraffic) and t.load_of == "cell"
    ]
    if len(whole) != 1:
        raise LoadError(f"{len(whole)} classes make up the load of the cell; one can")
    others = [_known_load(t, cell, direction, n) for n, t in all_of_cell if t is not whole[0]]
    remaining = whole[0].load - sum(others)
    if remaining < 0:
        raise LoadError(f"the other classes alone offer {sum(others):.4f}")
    return remaining


def _known_load(table: tables.Traffic, cell: CellConfig, direction: Direction, n_ues: int) -> float:
    if isinstance(table, tables.TraceTraffic | tables.FullBufferTraffic):
        raise LoadError(f"another class has {table.kind}, whose load is not known beforehand")
    spec = _spec(table, cell, direction, n_ues, _no_trace)
    return offered_load(cell, direction, specs.mean_bytes_per_s(spec, n_ues) or 0.0)


def _no_trace(table: tables.TraceTraffic) -> specs.Replay:
    raise LoadError(f"{table.path}: a trace has no load")


def _spec(
    table: tables.Traffic, cell: CellConfig, direction: Direction, n_ues: int, play: Player
) -> specs.OneSpec:
    match table:
        case tables.Ftp3Traffic():
            files = ftp3_at_load(cell, direction, table.load, table.file_bytes, n_ues)
            return _modulated(files, table)
        case tables.ImixTraffic():
            return _modulated(imix_at_load(cell, direction, table.load, n_ues), table)
        case tables.PeriodicTraffic():
            return specs.Periodic(table.bytes_min, table.bytes_max, table.period_us)
        case tables.XrTraffic():
            return specs.Xr(table.rate_mbps, table.fps, table.jitter)
        case tables.CommagTraffic():
            return specs.COMMAG[table.service]
        case tables.FullBufferTraffic():
            return specs.FullBuffer()
        case tables.TraceTraffic():
            return play(table)
        case tables.NoTraffic():
            return specs.NoTraffic()


def _modulated(spec: specs.Ftp3 | specs.Imix, table: tables.PoissonTraffic) -> specs.OneSpec:
    return replace(spec, fgn=_fgn(table.fgn), diurnal=_diurnal(table.diurnal))


def _fgn(table: tables.FgnTable | None) -> specs.Fgn | None:
    return None if table is None else specs.Fgn(table.hurst, table.cv, table.step_us)


def _diurnal(table: tables.DiurnalTable | None) -> specs.Diurnal | None:
    if table is None:
        return None
    return specs.Diurnal(table.period_s, table.phase, table.peak_to_trough, table.points)
