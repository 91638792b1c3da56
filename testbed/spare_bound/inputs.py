"""What a bound is asked for: arrivals with deadlines, radio capacity, GPU, windows, interval.

Owns the checks of these inputs and their making from cell configurations; no arithmetic of bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.gpu.cost import DOWNLINK, decoder_iterations
from testbed.gpu.profile import GpuProfile
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction, res_per_prb
from testbed.ran.qos import mac_budget_us
from testbed.ran.tables import MCS_TABLES
from testbed.ran.tbs import block_sizes
from testbed.ran.traffic import arrivals_array

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sdus:
    """SDUs of one direction, one row each, in any order; all arrays have one length.

    Attributes:
        cell: index of the cell, from 0.
        ue: UE of that cell.
        traffic_class: SDUs of one class are served in any order; of one delay budget, best. The
            5QI is the natural choice.
        n_bytes: at least 1.
        arrival_us: at the sender.
        deadline_us: when the last byte must have been received at the latest.
    """

    cell: Ints
    ue: Ints
    traffic_class: Ints
    n_bytes: Ints
    arrival_us: Ints
    deadline_us: Ints


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """One direction of all cells.

    Attributes:
        sdus: what arrives, from slot 0 on.
        known_slots: from the slot that takes an SDU to the first air slot that can carry it: the
            report's delay and how far ahead the MAC plans.
        capacity_bytes: [C, slots], the most that a cell can carry in an air slot; 0 where the slot
            does not carry this direction.
    """

    sdus: Sdus
    known_slots: int
    capacity_bytes: Ints


@dataclass(frozen=True, slots=True)
class BoundInput:
    """One GPU, the cells that it serves, and the interval of which the share is asked.

    Attributes:
        gpu: profile with the cost model.
        slot_us: length of a slot.
        ul_decode_budget_us: from the end of an uplink slot to the end of its decodes.
        fronthaul_lead_us: from the end of downlink work to its air slot; below ``slot_us``.
        training_bandwidth_permille: memory-bandwidth share of what runs beside the RAN.
        ul_work_milli: work of an uplink code block, at least: 100 times its decoder iterations.
        downlink, uplink: the load, over the same cells and slots.
        windows_us: the quantum lengths q, each at least one slot.
        from_slot, to_slot: windows that start in these slots are averaged.
        end_slot: no window reaches beyond this slot; ``to_slot`` or later.
    """

    gpu: GpuProfile
    slot_us: int
    ul_decode_budget_us: int
    fronthaul_lead_us: int
    training_bandwidth_permille: int
    ul_work_milli: int
    downlink: LinkLoad
    uplink: LinkLoad
    windows_us: tuple[int, ...]
    from_slot: int
    to_slot: int
    end_slot: int

    def __post_init__(self) -> None:
        """Raises ValueError with the field, its value and what is allowed."""
        _within("slot_us", self.slot_us, 1, 10_000)
        _within("ul_decode_budget_us", self.ul_decode_budget_us, 1, 1_000_000)
        _within("fronthaul_lead_us", self.fronthaul_lead_us, 0, self.slot_us - 1)
        _within("training_bandwidth_permille", self.training_bandwidth_permille, 0, 10_000)
        _within("ul_work_milli", self.ul_work_milli, 1, 100_000)
        for window_us in self.windows_us:
            _within("windows_us", window_us, self.slot_us, 10**9)
        shapes = [load.capacity_bytes.shape for load in (self.downlink, self.uplink)]
        if shapes[0] != shapes[1] or len(shapes[0]) != 2 or not all(shapes[0]):
            raise ValueError(f"capacity_bytes of shapes {shapes}: allowed is one [cells, slots]")
        cells, slots = shapes[0]
        _within("from_slot", self.from_slot, 0, self.to_slot - 1)
        _within("to_slot", self.to_slot, 1, self.end_slot)
        # The last downlink work of the interval is for the slot behind it.
        _within("end_slot", self.end_slot, 1, slots - 1)
        for name, load in (("downlink", self.downlink), ("uplink", self.uplink)):
            _within(f"{name}.known_slots", load.known_slots, 0, 10**6)
            _check_sdus(name, load.sdus, cells)

    def load(self, direction: int) -> LinkLoad:
        """The downlink or the uplink, by the cost model's constants."""
        return self.downlink if direction == DOWNLINK else self.uplink

    @property
    def n_cells(self) -> int:
        """Cells on the GPU."""
        return len(self.uplink.capacity_bytes)

    @property
    def n_slots(self) -> int:
        """Air slots of which the capacity is known."""
        return int(self.uplink.capacity_bytes.shape[1])


def arrived(cells: Sequence[CellConfig], direction: Direction, seed: int, n_slots: int) -> Sdus:
    """What the cells' traffic brings in ``n_slots`` slots, due at the end of the radio's budget.

    The class is the 5QI. An experiment that wants to compare with a run that could not keep all
    budgets raises ``deadline_us`` to that run's delivery times.
    """
    columns: list[list[Ints]] = [[] for _ in range(6)]
    for index, cell in enumerate(cells):
        rows = arrivals_array(
            cell.traffic(direction),
            seed=seed,
            cell=cell.cell_id,
            direction=direction,
            n_ues=cell.n_ues,
            slot_us=cell.slot_us,
            n_slots=n_slots,
        )
        five_qi = np.array([cell.ue_five_qi(ue) for ue in range(cell.n_ues)], np.int64)
        budget_us = np.array([mac_budget_us(int(value)) for value in five_qi], np.int64)
        of_sdus = (
            np.full(len(rows.ue), index, np.int64),
            rows.ue,
            five_qi[rows.ue],
            rows.n_bytes,
            rows.arrival_us,
            rows.arrival_us + budget_us[rows.ue],
        )
        for column, values in zip(columns, of_sdus, strict=True):
            column.append(values)
    return Sdus(*(np.concatenate(column) for column in columns))


def carrier_bytes(
    cells: Sequence[CellConfig],
    direction: Direction,
    n_slots: int,
    best_mcs: Ints | None = None,
) -> Ints:
    """[C, n_slots]: the transport block of the whole carrier, bytes.

    Args:
        cells: in the order of the result.
        direction: of the link.
        n_slots: from slot 0 on.
        best_mcs: [C, n_slots], the best MCS that any UE of the cell is given in that air slot; the
            table's last row if None.
    """
    slots = np.arange(n_slots)
    result = np.zeros((len(cells), n_slots), np.int64)
    for c, cell in enumerate(cells):
        rows = len(MCS_TABLES[cell.mcs_table])
        mcs = np.full(n_slots, rows - 1) if best_mcs is None else best_mcs[c]
        for phase, kind in enumerate(cell.tdd.kinds):
            re = res_per_prb(kind, direction)
            if not re:
                continue
            of_mcs = [
                block_sizes(cell.n_prb, re, cell.mcs_table, row, cell.layers(direction))[-1]
                for row in range(rows)
            ]
            # A later row of the table is not always larger: "the best" is the running maximum.
            most = np.maximum.accumulate([size.tbs_bytes for size in of_mcs])
            here = slots % len(cell.tdd.kinds) == phase
            result[c, here] = most[mcs[here]]
    return result


def least_work_milli(gpu: GpuProfile, cells: Sequence[CellConfig]) -> int:
    """Work of an uplink code block at the MCS that needs the fewest decoder iterations."""
    return min(
        100 * decoder_iterations(gpu.phy.ul_iterations, row.spectral_efficiency)
        for cell in cells
        for row in MCS_TABLES[cell.mcs_table]
    )


def known_slots(cells: Sequence[CellConfig], direction: Direction) -> int:
    """From the slot that takes an SDU to the first air slot that can carry it, at least."""
    return min(
        cell.plan_ahead_slots(direction)
        + (cell.ul_report_delay_slots if direction is Direction.UL else 0)
        for cell in cells
    )


def _check_sdus(name: str, sdus: Sdus, cells: int) -> None:
    lengths = {
        field: len(getattr(sdus, field))
        for field in ("cell", "ue", "traffic_class", "n_bytes", "arrival_us", "deadline_us")
    }
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{name}.sdus of lengths {lengths}: allowed is one length")
    if not lengths["cell"]:
        return
    for field, lowest, highest in (
        ("cell", 0, cells - 1),
        ("ue", 0, 2**31),
        ("n_bytes", 1, 2**50),
        ("arrival_us", -(2**50), 2**50),
    ):
        column = getattr(sdus, field)
        _within(f"{name}.sdus.{field}", int(column.min()), lowest, highest)
        _within(f"{name}.sdus.{field}", int(column.max()), lowest, highest)
    early = np.flatnonzero(sdus.deadline_us < sdus.arrival_us)
    if len(early):
        row = int(early[0])
        raise ValueError(
            f"{name}.sdus row {row}: deadline_us = {int(sdus.deadline_us[row])}: allowed is "
            f"arrival_us = {int(sdus.arrival_us[row])} or later"
        )


def _within(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"{name} = {value}: allowed is {lowest} to {highest}")
