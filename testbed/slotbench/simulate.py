"""Runs the bench: a scenario under a policy, from the first slot to the end of the drain.

Owns the loop around the compiled slots: pieces of the radio, room that runs out, the end.
"""

from __future__ import annotations

import numpy as np

from testbed.errors import PolicyError
from testbed.gpu.sizing import Deadline, PhySizing, Saturation
from testbed.ran.numerology import Direction
from testbed.shaping.arrays import empty_grants, empty_slot, radio_tables
from testbed.shaping.contract import SiteGpu
from testbed.shaping.state import SHAPED, SMOOTHED, Tuning, new_controller
from testbed.slotbench.gpu_time import DEADLINE, SATURATION
from testbed.slotbench.inputs import RadioSource, arrivals, new_numbers
from testbed.slotbench.kernel import (
    CONTROLLER,
    FINISHED,
    GOES_ON,
    POOL_FULL,
    PROPORTIONAL_FAIR,
    ROUND_ROBIN,
    ROWS_FULL,
    TIMELINE_FULL,
    Bench,
    run_slots,
)
from testbed.slotbench.radio import NO_FEEDBACK, write_block
from testbed.slotbench.results import BenchRun, Counters, bench_run
from testbed.slotbench.rows import TASKS_BEFORE, Rows, joined, new_rows, taken_out, with_more_sdus
from testbed.slotbench.scenario import BenchScenario, Setup, setup_of
from testbed.slotbench.state import (
    N_SENT,
    SENT_END_US,
    SENT_PROCESS,
    SENT_RESULT,
    SENT_SLOT,
    SENT_UE,
    Pools,
    new_state,
)

POLICIES = {
    "proportional_fair": (PROPORTIONAL_FAIR, SHAPED),
    "round_robin": (ROUND_ROBIN, SHAPED),
    "spare_compute": (CONTROLLER, SHAPED),
    "load_smoother": (CONTROLLER, SMOOTHED),
}
"""Short names of the MAC policies that the bench has: (which code, mode of the controller)."""

SIZINGS: dict[str, tuple[int, PhySizing]] = {
    "saturation": (SATURATION, Saturation()),
    "deadline": (DEADLINE, Deadline()),
}

PIECE_SLOTS = 2048
"""Slots whose channel is held at a time."""


def run_bench(
    scenario: BenchScenario,
    policy: str = "proportional_fair",
    sizing: str = "saturation",
    ran_sms: int | None = None,
    tuning: Tuning | None = None,
) -> BenchRun:
    """Run a scenario to the end of its drain.

    Args:
        scenario: what to run.
        policy: short name of a MAC policy (``POLICIES``).
        sizing: short name of a PHY sizing (``SIZINGS``).
        ran_sms: a part of the GPU to which the RAN is confined (a static partition).
        tuning: of the spare-compute controller.

    Raises:
        PolicyError: a policy or sizing that the bench does not have.
        TopologyError: see ``scenario.setup_of``.
    """
    for kind, name, known in (("policy", policy, POLICIES), ("sizing", sizing, SIZINGS)):
        if name not in known:
            raise PolicyError(f"{kind} = {name!r}: the bench has {', '.join(known)}")
    code, mode = POLICIES[policy]
    sizing_code, sizing_policy = SIZINGS[sizing]
    setup = setup_of(scenario, sizing_policy, ran_sms)
    return _Runner(setup, code, mode, sizing_code, tuning or Tuning()).run()


class _Runner:
    """One run: the slots, piece by piece, and the room that they need."""

    def __init__(self, setup: Setup, code: int, mode: int, sizing: int, tuning: Tuning) -> None:
        cells, gpu = setup.cells, setup.gpu
        numbers = new_numbers(setup, code, sizing)
        n_cells, n_ues = numbers.n_cells, numbers.n_ues
        state = new_state(2 * n_cells, n_ues, numbers.processes)
        site = SiteGpu(
            gpu,
            cells,
            setup.ul_decode_budget_us,
            setup.fronthaul_lead_us,
            setup.training_bandwidth_permille,
            gpu.sms - setup.ran_gpu.sms,
        )
        params, shaper = new_controller(site, mode, tuning)
        most_grants = max(cell.max_ues_per_slot for cell in cells)
        rule = gpu.phy.ul_iterations
        self._setup = setup
        self._source = RadioSource(setup)
        self._pools = Pools(state)
        self._taken: list[Rows] = []
        self._bench = Bench(
            numbers=numbers,
            state=state,
            shaping=params,
            shaper=shaper,
            tables=(
                radio_tables(cells, Direction.DL, rule),
                radio_tables(cells, Direction.UL, rule),
            ),
            shown=empty_slot(n_cells, n_ues),
            grants=empty_grants(n_cells, most_grants),
            arrivals=arrivals(setup),
            piece=self._source.piece(0, PIECE_SLOTS),
            sdus=self._pools.sdus,
            segments=self._pools.segments,
            timeline=self._pools.timeline,
            used=np.zeros_like(self._pools.timeline),
            decoding=np.zeros_like(self._pools.timeline),
            rows=new_rows(2 * n_cells, min(n_ues, most_grants)),
        )

    def run(self) -> BenchRun:
        """All slots; the counters are noted when the warm-up ends, and at the end."""
        setup, state = self._setup, self._bench.state
        noted: list[Counters] = []
        slot, why, stop = 0, GOES_ON, setup.warmup_slot + 1
        while why != FINISHED:
            begun = self._bench.piece.first_slot
            if slot == begun + PIECE_SLOTS:
                self._bench = self._bench._replace(piece=self._source.piece(slot, PIECE_SLOTS))
                begun = slot
            beyond = begun + PIECE_SLOTS
            if slot < stop:
                beyond = min(beyond, stop)
            slot, why = run_slots(self._bench, slot, beyond)
            self._make_room(why)
            if slot == stop and not noted:
                noted.append(Counters.of(state, self._links, setup.warmup_us))
        end_us = (slot - 1) * setup.slot_us + setup.mac_phase_us
        noted.append(Counters.of(state, self._links, end_us))
        self._taken.append(taken_out(self._bench.rows, state.n_rows))
        self._answer_open_blocks(end_us)
        self._taken.append(taken_out(self._bench.rows, state.n_rows))
        return bench_run(setup, joined(self._taken), noted, end_us)

    @property
    def _links(self) -> int:
        return 2 * len(self._setup.cells)

    def _make_room(self, why: int) -> None:
        """For the next slot, where it stopped for the lack of it."""
        bench, pools = self._bench, self._pools
        if why == ROWS_FULL and bench.state.n_rows[:TASKS_BEFORE].any():
            self._taken.append(taken_out(bench.rows, bench.state.n_rows))
        elif why == ROWS_FULL:  # one slot may complete more SDUs than there is room for
            self._bench = bench._replace(rows=with_more_sdus(bench.rows))
        elif why == POOL_FULL:
            pools.grow()
            self._bench = bench._replace(sdus=pools.sdus, segments=pools.segments)
        elif why == TIMELINE_FULL:
            pools.lengthen_timeline()
            self._bench = bench._replace(
                timeline=pools.timeline,
                used=np.zeros_like(pools.timeline),
                decoding=np.zeros_like(pools.timeline),
            )

    def _answer_open_blocks(self, end_us: int) -> None:
        """Write down the results that came before the end but were not due yet."""
        state, rows = self._bench.state, self._bench.rows
        for link, place in zip(*np.nonzero(state.in_air[..., N_SENT]), strict=True):
            in_air = state.in_air[link, place]
            if in_air[SENT_END_US] + self._setup.message_us >= end_us:
                continue
            for block in state.sent[link, place, : in_air[N_SENT]]:
                if block[SENT_RESULT] != NO_FEEDBACK:
                    process = state.process[link, block[SENT_UE], block[SENT_PROCESS]]
                    write_block(state, rows.blocks, link, in_air[SENT_SLOT], process, block)
