"""What the compiled controller is given, and what it keeps between slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from testbed.ran import numerology, qos
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction
from testbed.shaping.arrays import Floats, Ints
from testbed.shaping.compiled import new_record, typed
from testbed.shaping.contract import SiteGpu
from testbed.shaping.packing import (
    GPU_RECORD,
    MAX_TASKS,
    PACKING_RECORD,
    GpuNumbers,
    Packing,
    gpu_numbers,
)

DOWNLINK = typed(0)
UPLINK = typed(1)
YES, NO = cast(bool, np.bool_(True)), cast(bool, np.bool_(False))
AS_IS_PERMILLE = typed(1000)

SHAPED = 0
SMOOTHED = 1

PAYLOAD_BYTES = (8448 - 24) // 8
"""Most bytes of a code block of base graph 1 (TS 38.212 5.2.2)."""

# Places in ControllerState.marks.
PROMISED_UNTIL = 0
BREACHES = 1
WANTED_SMS = 2
PERIOD_SEEN = 3
LEVEL_SMS = 4
CALM_PERIODS = 5
LIMIT_SMS = 6
RETX_DIRECTION = 7
RETX_SLOT = 8
SPLIT_SMS = 9
SPLIT_SLOTS = 10
DECODES_UNTIL = 11
N_MARKS = 12


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the controller trades delay for steadiness.

    Attributes:
        drain_permille: backlog is to be drained in this share of its delay budget.
        urgent_permille: with less than this share of its budget left, a UE is served by deadline,
            not by channel.
        horizon_us: how far ahead, at least, the envelope is promised.
        hold_us: how long a lower level must have sufficed before the promise comes down by a step.
        down_permille: the level comes down only if the lower one would carry this much of the load.
    """

    drain_permille: int = 350
    urgent_permille: int = 500
    horizon_us: int = 20_000
    hold_us: int = 50_000
    down_permille: int = 1150

    def __post_init__(self) -> None:
        """Check the ranges; ValueError names the value and what is allowed."""
        for key, low, high in (
            ("drain_permille", 1, 1000),
            ("urgent_permille", 0, 1000),
            ("horizon_us", 0, 50_000),
            ("hold_us", 0, 10_000_000),
            ("down_permille", 1000, 10_000),
        ):
            value = getattr(self, key)
            if not low <= value <= high:
                raise ValueError(f"{key} = {value!r}: allowed is {low} to {high}")


MAX_CELLS = MAX_TASKS
MAX_UES = 256
MAX_GRANTS = 64
MAX_PERIOD_SLOTS = 80
MAX_KINDS = 4
RING_SLOTS = 512
"""Sizes of the records: what a topology may ask for at most."""


class ControllerParams(Protocol):
    """What does not change, as a record. ``carries``: [2, slots of the TDD period];
    ``budget_us``: [C, U]; ``margin_us``: [C, U], time to be kept for retransmissions; the rest as
    in ``Tuning`` and ``SiteGpu``."""

    mode: int
    n_cells: int
    n_ues: int
    slot_us: int
    period_slots: int
    ul_budget_us: int
    dl_budget_us: int
    lookahead_slots: int
    horizon_slots: int
    hold_periods: int
    drain_permille: int
    urgent_permille: int
    down_permille: int
    gpu: GpuNumbers
    carries: Ints
    budget_us: Ints
    margin_us: Ints


class ControllerState(Protocol):
    """What changes, as a record; slots are those in which work runs, modulo ``RING_SLOTS``.

    Attributes:
        marks: single numbers, by the names above.
        promised: SMs that the RAN will not exceed in that slot.
        decoding: SMs of the decodes that are planned for that slot.
        rate: [2, C], code blocks per TDD period that the backlog asks for, by direction.
        pressing: [2, C], the same of what is due within the horizon.
        carrier: [2, C], code blocks that the whole carrier has in a slot, as the backlog is.
        held_since: [2, C, K], air slot since which the oldest retransmission for slots of a kind
            waits for room; 0: none does.
        smooth: the smoothed load (the load smoother's only state).
        full, full_milli: [C], code blocks that drain a cell now, and the heaviest of their work.
        must, budget: [C], code blocks that must go now, and that may.
        cell_order, cell_key: [C]; ue_order, ue_key: [C, U]; ue_count: [C].
        task_blocks, task_milli: [C], a set of tasks to be tried.
        chunk_due, chunk_blocks: [2 U], what is due when.
        retx_us: SM time that retransmissions have taken of the slot that is open.
        granted, grant_ue, grant_prb: [C], [C, G], [C, G], the grants.
        packing: room for placing.

    The others are a copy of the ``SlotArrays`` of the slot that is planned.
    """

    marks: Ints
    promised: Ints
    decoding: Ints
    rate: Floats
    pressing: Floats
    carrier: Floats
    held_since: Ints
    smooth: float
    full: Ints
    full_milli: Ints
    must: Ints
    budget: Ints
    cell_order: Ints
    cell_key: Floats
    ue_order: Ints
    ue_key: Floats
    ue_count: Ints
    task_blocks: Ints
    task_milli: Ints
    chunk_due: Ints
    chunk_blocks: Floats
    retx_us: float
    granted: Ints
    grant_ue: Ints
    grant_prb: Ints
    kind: Ints
    free_prb: Ints
    max_grants: Ints
    retx_blocks: Ints
    retx_milli: Ints
    backlog: Ints
    mcs: Ints
    head_bytes: Ints
    head_deadline_us: Ints
    tail_deadline_us: Ints
    average_rate: Floats
    packing: Packing


_PARAMS_RECORD = np.dtype(
    [
        *(
            (name, np.int64)
            for name, kind in ControllerParams.__annotations__.items()
            if kind == "int"
        ),
        ("gpu", GPU_RECORD),
        ("carries", np.int64, (2, MAX_PERIOD_SLOTS)),
        ("budget_us", np.int64, (MAX_CELLS, MAX_UES)),
        ("margin_us", np.int64, (MAX_CELLS, MAX_UES)),
    ]
)
_SHAPES: dict[str, tuple[int, ...]] = {
    "marks": (N_MARKS,),
    "promised": (RING_SLOTS,),
    "decoding": (RING_SLOTS,),
    "rate": (2, MAX_CELLS),
    "pressing": (2, MAX_CELLS),
    "carrier": (2, MAX_CELLS),
    "held_since": (2, MAX_CELLS, MAX_KINDS),
    "chunk_due": (2 * MAX_UES,),
    "chunk_blocks": (2 * MAX_UES,),
    "grant_ue": (MAX_CELLS, MAX_GRANTS),
    "grant_prb": (MAX_CELLS, MAX_GRANTS),
} | dict.fromkeys(
    (
        *("ue_order", "ue_key", "backlog", "mcs", "head_bytes"),
        *("head_deadline_us", "tail_deadline_us", "average_rate"),
    ),
    (MAX_CELLS, MAX_UES),
)
_STATE_RECORD = np.dtype(
    [
        *(
            (
                name,
                np.int64 if kind == "Ints" else np.float64,
                () if kind == "float" else _SHAPES.get(name, (MAX_CELLS,)),
            )
            for name, kind in ControllerState.__annotations__.items()
            if name != "packing"
        ),
        ("packing", PACKING_RECORD),
    ]
)


def new_controller(
    site: SiteGpu, mode: int, tuning: Tuning
) -> tuple[ControllerParams, ControllerState]:
    """Parameters and the state before the first slot, for one gNB.

    Raises:
        ValueError: more cells, UEs, grants or slots than the records hold.
    """
    cells = site.cells
    slot_us = cells[0].slot_us
    period = len(cells[0].tdd.kinds)
    n_ues = max(cell.n_ues for cell in cells)
    carries = np.zeros((2, period), np.int64)
    for cell in cells:
        for phase, kind in enumerate(cell.tdd.kinds):
            for row, direction in ((DOWNLINK, Direction.DL), (UPLINK, Direction.UL)):
                carries[row, phase] |= numerology.res_per_prb(kind, direction) > 0
    budget = np.full((len(cells), n_ues), 1, np.int64)
    margin = np.zeros((len(cells), n_ues), np.int64)
    for c, cell in enumerate(cells):
        for ue in range(cell.n_ues):
            budget[c, ue] = qos.mac_budget_us(cell.ue_five_qi(ue))
            if not cell.needs_first_block(ue):
                margin[c, ue] = (cell.max_transmissions - 1) * _retransmission_us(cell)
    plan_ahead = max(cell.plan_ahead_slots(Direction.UL) for cell in cells)
    decode_slots = -(-site.ul_decode_budget_us // slot_us)
    # What is planned now runs within the promise, and so does its first retransmission.
    horizon = max(-(-tuning.horizon_us // slot_us), plan_ahead + decode_slots + 1) + period
    _check_sizes(site, n_ues, period, horizon)
    params = cast(ControllerParams, new_record(_PARAMS_RECORD))
    params.mode = mode
    params.n_cells, params.n_ues = len(cells), n_ues
    params.slot_us, params.period_slots = slot_us, period
    params.ul_budget_us = site.ul_decode_budget_us
    params.dl_budget_us = slot_us - site.fronthaul_lead_us
    params.lookahead_slots = min(cell.lookahead_slots for cell in cells)
    params.horizon_slots = horizon
    params.hold_periods = max(1, tuning.hold_us // (period * slot_us))
    params.drain_permille = tuning.drain_permille
    params.urgent_permille = tuning.urgent_permille
    params.down_permille = tuning.down_permille
    params.gpu = gpu_numbers(site.gpu, site.training_bandwidth_permille, site.training_sms)
    params.carries[:, :period] = carries
    params.budget_us[: len(cells), :n_ues] = budget
    params.margin_us[: len(cells), :n_ues] = np.minimum(margin, budget // 4)
    state = cast(ControllerState, new_record(_STATE_RECORD))
    state.marks[PERIOD_SEEN] = -1
    state.marks[LEVEL_SMS] = site.gpu.min_sms
    state.marks[LIMIT_SMS] = params.gpu.sms
    state.marks[RETX_SLOT] = -1
    return params, state


def _retransmission_us(cell: CellConfig) -> int:
    """From an uplink slot to that of the retransmission, a full wait for such a slot included."""
    slots = cell.ul_feedback_slots + cell.plan_ahead_slots(Direction.UL)
    return slots * cell.slot_us + cell.tdd.period_us(cell.scs_khz)


def _check_sizes(site: SiteGpu, n_ues: int, period: int, horizon: int) -> None:
    most_grants = max(cell.max_ues_per_slot for cell in site.cells)
    for name, value, most in (
        ("cells of a gNB", len(site.cells), MAX_CELLS),
        ("UEs of a cell", n_ues, MAX_UES),
        ("blocks of a slot", most_grants, MAX_GRANTS),
        ("slots of the TDD period", period, MAX_PERIOD_SLOTS),
        ("slots of the horizon", horizon + 2 * period, RING_SLOTS // 2),
    ):
        if value > most:
            raise ValueError(f"{name}: {value}, allowed are at most {most}")
