"""What the bench is given, as arrays: constants of the run, arrivals, the channel, CRC draws.

All of it comes from the sources of ``testbed.ran``, so that the bench sees what the MAC sees. Owns
the cutting of a long run into pieces, to bound memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, cast

import numpy as np

from testbed.errors import TopologyError
from testbed.ran.channel import BLOCK_SLOTS, crc_draws_array, half_bler_sinr_db
from testbed.ran.config import CellConfig
from testbed.ran.mac import channel_of
from testbed.ran.numerology import Direction
from testbed.ran.qos import mac_budget_us
from testbed.ran.tables import MCS_TABLES
from testbed.ran.traffic import FullBuffer, arrivals_array
from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.shaping.arrays import Floats, Ints
from testbed.shaping.compiled import new_record
from testbed.shaping.packing import GPU_RECORD, GpuNumbers, gpu_numbers
from testbed.shaping.state import MAX_CELLS, MAX_GRANTS, MAX_PERIOD_SLOTS, MAX_UES
from testbed.slotbench.scenario import DIRECTIONS, Setup
from testbed.slotbench.state import AIR_SLOTS, MAX_LINKS

_MAX_MCS = 32
_MAX_TRANSMISSIONS = 32


class Numbers(Protocol):
    """Constants of a run, as a record; times in emulated microseconds (see ``scenario.Setup``).

    Attributes:
        policy, sizing: codes of ``kernel`` and ``gpu_time``.
        n_cells, n_ues: how many there are, and UEs of a cell at most.
        finish_us: when the drain ends at the latest.
        gpu: what the RAN may use of the GPU.
        cell_ues: [C], UEs of each cell.
        processes, most_transmissions, most_blocks, feedback_slots: [L].
        beta: [L], weight of the past in the average rate.
        budget_us: [C, U], delay budget of the radio.
        refill_bytes: [L, U]; such a UE gets one SDU more whenever less than that waits (0: none).
        half_bler_db: [C, M], SINR at which half of the blocks of an MCS fail.
        combining_db: by transmission, gain of chase combining.
        windows_us: the windows of a promise.
        worst_period, worst_sms: SMs that full cells take, by slot of the TDD period.
    """

    policy: int
    sizing: int
    n_cells: int
    n_ues: int
    slot_us: int
    mac_phase_us: int
    message_us: int
    lookahead_slots: int
    k2_slots: int
    ul_decode_budget_us: int
    fronthaul_lead_us: int
    drain_slot: int
    finish_us: int
    worst_period: int
    gpu: GpuNumbers
    cell_ues: Ints
    processes: Ints
    most_transmissions: Ints
    most_blocks: Ints
    feedback_slots: Ints
    beta: Floats
    budget_us: Ints
    refill_bytes: Ints
    half_bler_db: Floats
    combining_db: Floats
    windows_us: Ints
    worst_sms: Ints


_RECORD = np.dtype(
    [
        *((name, np.int64) for name, kind in Numbers.__annotations__.items() if kind == "int"),
        ("gpu", GPU_RECORD),
        ("cell_ues", np.int64, (MAX_CELLS,)),
        ("processes", np.int64, (MAX_LINKS,)),
        ("most_transmissions", np.int64, (MAX_LINKS,)),
        ("most_blocks", np.int64, (MAX_LINKS,)),
        ("feedback_slots", np.int64, (MAX_LINKS,)),
        ("beta", np.float64, (MAX_LINKS,)),
        ("budget_us", np.int64, (MAX_CELLS, MAX_UES)),
        ("refill_bytes", np.int64, (MAX_LINKS, MAX_UES)),
        ("half_bler_db", np.float64, (MAX_CELLS, _MAX_MCS)),
        ("combining_db", np.float64, (_MAX_TRANSMISSIONS + 1,)),
        ("windows_us", np.int64, (len(PROMISE_WINDOWS_US),)),
        ("worst_sms", np.int64, (MAX_PERIOD_SLOTS,)),
    ]
)


def new_numbers(setup: Setup, policy: int, sizing: int) -> Numbers:
    """The constants of a run.

    Raises:
        TopologyError: more cells, UEs or slots than the bench has room for.
    """
    _check_sizes(setup)
    numbers = cast(Numbers, new_record(_RECORD))
    cells = setup.cells
    numbers.policy, numbers.sizing = policy, sizing
    numbers.n_cells, numbers.n_ues = len(cells), max(cell.n_ues for cell in cells)
    for name in (
        *("slot_us", "mac_phase_us", "message_us", "lookahead_slots", "k2_slots"),
        *("ul_decode_budget_us", "fronthaul_lead_us", "drain_slot"),
    ):
        setattr(numbers, name, getattr(setup, name))
    numbers.finish_us = setup.drain_slot * setup.slot_us + setup.drain_us
    numbers.gpu = gpu_numbers(
        setup.gpu, setup.training_bandwidth_permille, setup.gpu.sms - setup.ran_gpu.sms
    )
    numbers.windows_us[:] = PROMISE_WINDOWS_US
    numbers.worst_period = len(setup.worst_sms)
    numbers.worst_sms[: len(setup.worst_sms)] = setup.worst_sms
    for n in range(1, _MAX_TRANSMISSIONS + 1):
        numbers.combining_db[n] = 10 * math.log10(n)
    for c, cell in enumerate(cells):
        numbers.cell_ues[c] = cell.n_ues
        numbers.budget_us[c, : cell.n_ues] = [
            mac_budget_us(cell.ue_five_qi(ue)) for ue in range(cell.n_ues)
        ]
        for row in MCS_TABLES[cell.mcs_table]:
            numbers.half_bler_db[c, row.index] = half_bler_sinr_db(row.spectral_efficiency)
        for number, direction in enumerate(DIRECTIONS):
            _set_link(numbers, 2 * c + number, cell, direction)
    return numbers


def _set_link(numbers: Numbers, link: int, cell: CellConfig, direction: Direction) -> None:
    numbers.processes[link] = cell.harq_processes
    numbers.most_transmissions[link] = cell.max_transmissions
    numbers.most_blocks[link] = cell.max_ues_per_slot
    numbers.feedback_slots[link] = cell.feedback_slots(direction)
    numbers.beta[link] = cell.average_rate_beta
    traffic = cell.traffic(direction)
    if isinstance(traffic, FullBuffer):
        numbers.refill_bytes[link, : cell.n_ues] = traffic.backlog_bytes


def _check_sizes(setup: Setup) -> None:
    cells = setup.cells
    open_slots = setup.lookahead_slots + setup.k2_slots + 1
    for name, value, most in (
        ("cells of a gNB", len(cells), MAX_CELLS),
        ("UEs of a cell", max(cell.n_ues for cell in cells), MAX_UES),
        ("blocks of a slot", max(cell.max_ues_per_slot for cell in cells), MAX_GRANTS),
        (
            "slots from plan to feedback",
            open_slots + max(max(c.dl_feedback_slots, c.ul_feedback_slots) for c in cells),
            AIR_SLOTS,
        ),
        ("slots of the TDD period", len(setup.worst_sms), MAX_PERIOD_SLOTS),
    ):
        if value > most:
            raise TopologyError([f"{name}: {value}, the bench has room for {most}"])


class Arrivals(NamedTuple):
    """SDUs in the order in which they enter the buffers.

    Attributes:
        first: [L, slots + 1]; those of link l in slot n are first[l, n] to first[l, n + 1] - 1.
        sdus: [SDUs, 3], (UE, bytes, arrival in microseconds).
    """

    first: Ints
    sdus: Ints


def arrivals(setup: Setup) -> Arrivals:
    """Everything that enters the buffers in the whole run, but for full buffers."""
    cells, n_slots = setup.cells, setup.most_slots
    counts = np.zeros((2 * len(cells), n_slots), np.int64)
    columns: list[Ints] = []
    for c, cell in enumerate(cells):
        for number, direction in enumerate(DIRECTIONS):
            delay = cell.ul_report_delay_slots if direction is Direction.UL else 0
            rows = arrivals_array(
                cell.traffic(direction),
                seed=setup.seed,
                cell=cell.cell_id,
                direction=direction,
                n_ues=cell.n_ues,
                slot_us=setup.slot_us,
                n_slots=min(setup.drain_slot, n_slots - delay),
            )
            counts[2 * c + number] = np.bincount(rows.slot + delay, minlength=n_slots)
            columns.append(np.stack(rows[1:], axis=1))
    ends = np.concatenate(([0], np.cumsum(counts)))
    first = np.stack([ends[n * n_slots : (n + 1) * n_slots + 1] for n in range(len(counts))])
    return Arrivals(first, np.concatenate(columns))


class RadioPiece(NamedTuple):
    """The radio from slot ``first_slot`` on.

    Attributes:
        first_slot: the first slot in which is planned.
        sinr_cdb: [slots + ahead, C, U], SINR by air slot.
        mcs: [slots, C, U], what link adaptation picks in that slot.
        crc: [2, slots + ahead, C, U], uniform draws by direction and air slot.
    """

    first_slot: int
    sinr_cdb: Ints
    mcs: Ints
    crc: Floats


class RadioSource:
    """The channel and the draws of all cells, piece by piece."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._n_ues = max(cell.n_ues for cell in setup.cells)
        self._ahead = setup.lookahead_slots + setup.k2_slots
        self._channels = [channel_of(cell, setup.seed) for cell in setup.cells]

    def piece(self, first_slot: int, n_slots: int) -> RadioPiece:
        """What is needed to plan in the slots from ``first_slot`` on."""
        cells, wide = self._setup.cells, n_slots + self._ahead
        sinr_cdb = np.zeros((wide, len(cells), self._n_ues), np.int64)
        mcs = np.zeros((n_slots, len(cells), self._n_ues), np.int64)
        crc = np.zeros((2, wide, len(cells), self._n_ues))
        for c, (cell, channel) in enumerate(zip(cells, self._channels, strict=True)):
            ues = slice(0, cell.n_ues)
            # Block by block, so that what the channel has drawn serves both.
            for index in range(0, wide, BLOCK_SLOTS):
                n, now = min(BLOCK_SLOTS, wide - index), min(BLOCK_SLOTS, n_slots - index)
                sinr_cdb[index : index + n, c, ues] = channel.sinr_array(first_slot + index, n)
                if now > 0:
                    mcs[index : index + now, c, ues] = channel.mcs_array(first_slot + index, now)
            for number, direction in enumerate(DIRECTIONS):
                crc[number, :, c, ues] = crc_draws_array(
                    self._setup.seed, cell.cell_id, direction, first_slot, wide, cell.n_ues
                )
        return RadioPiece(first_slot, sinr_cdb, mcs, crc)
