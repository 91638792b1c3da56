"""The slot loop, compiled: radio, policy and GPU of one gNB, slot after slot.

Owns the order of what happens in a slot, which is that of the MAC node and the site agent. It
stops where a slot's rows might not fit any more; then the caller makes room and calls again.
"""

from __future__ import annotations

from typing import NamedTuple

from testbed.shaping.arrays import GrantArrays, Ints, RadioTables, SlotArrays
from testbed.shaping.compiled import compiled, inlined
from testbed.shaping.filling import NO_LIMIT
from testbed.shaping.packing import MAX_STEPS
from testbed.shaping.plan import plan
from testbed.shaping.retransmissions import note_retransmissions, retransmission_limit
from testbed.shaping.state import SHAPED, ControllerParams, ControllerState
from testbed.slotbench.buffers import arrive
from testbed.slotbench.gpu_time import (
    add,
    commit_envelope,
    size_and_place,
    tidy,
    write_promise,
)
from testbed.slotbench.inputs import Arrivals, Numbers, RadioPiece
from testbed.slotbench.policies import proportional_fair, round_robin
from testbed.slotbench.radio import commit, decide, settle, show_cell
from testbed.slotbench.rows import (
    BLOCKS,
    EMERGENCIES,
    PIECES,
    PROMISES,
    SDUS,
    TASKS,
    TASKS_BEFORE,
    Rows,
)
from testbed.slotbench.state import (
    AIR_SLOTS,
    BACKLOG,
    IN_FLIGHT,
    N_FREE_SDUS,
    N_FREE_SEGMENTS,
    N_SENT,
    P_CODE_BLOCKS,
    P_KIND,
    P_MCS,
    P_PRB,
    SENT_PROCESS,
    SENT_UE,
    BenchState,
)

PROPORTIONAL_FAIR, ROUND_ROBIN, CONTROLLER = range(3)
GOES_ON, FINISHED, ROWS_FULL, POOL_FULL, TIMELINE_FULL = range(5)


class Bench(NamedTuple):
    """Everything that a slot reads and writes.

    ``shaping``, ``shaper``: the spare-compute controller or load smoother (``CONTROLLER``).
    ``tables``: downlink, uplink. ``shown``, ``grants``: what the policy sees and gives. ``used``,
    ``decoding``: room for as many rows as ``timeline`` has.
    """

    numbers: Numbers
    state: BenchState
    shaping: ControllerParams
    shaper: ControllerState
    tables: tuple[RadioTables, RadioTables]
    shown: SlotArrays
    grants: GrantArrays
    arrivals: Arrivals
    piece: RadioPiece
    sdus: Ints
    segments: Ints
    timeline: Ints
    used: Ints
    decoding: Ints
    rows: Rows


@compiled
def run_slots(bench: Bench, first_slot: int, beyond_slot: int) -> tuple[int, int]:
    """Run slots from ``first_slot`` on.

    Returns (the slot to go on with, why it stopped): ``GOES_ON`` at ``beyond_slot``, ``FINISHED``
    after the last slot of the run, else what has no room for the next slot.
    """
    numbers, state = bench.numbers, bench.state
    for slot in range(first_slot, beyond_slot):
        short = _short_of(
            numbers, state, bench.arrivals.first, bench.sdus, bench.timeline, bench.rows, slot
        )
        if short != GOES_ON:
            return slot, short
        _radio_in(bench, slot)
        tidy(state, bench.timeline, slot * numbers.slot_us)
        for direction in range(2):
            air_slot = slot + numbers.lookahead_slots + direction * numbers.k2_slots
            _plan(bench, bench.tables[direction], direction, slot, air_slot)
        if numbers.policy == CONTROLLER and bench.shaping.mode == SHAPED:
            commit_envelope(
                numbers, state, bench.shaper, bench.timeline, bench.rows.emergencies, slot
            )
        write_promise(numbers, state, bench.timeline, bench.rows.promises, slot)
        if _finished(numbers, state, slot):
            return slot + 1, FINISHED
    return beyond_slot, GOES_ON


@compiled
def _short_of(
    numbers: Numbers,
    state: BenchState,
    first: Ints,
    sdus: Ints,
    timeline: Ints,
    rows: Rows,
    slot: int,
) -> int:
    """What lacks the room for whatever this slot may bring."""
    n_rows, links = state.n_rows, 2 * numbers.n_cells
    blocks = 0
    for link in range(links):
        blocks += min(numbers.most_blocks[link], numbers.cell_ues[link // 2])
    if (
        n_rows[BLOCKS] + blocks > len(rows.blocks)
        or n_rows[TASKS] + links > len(rows.tasks)
        or n_rows[PIECES] + links * MAX_STEPS > len(rows.pieces)
        or n_rows[PROMISES] == len(rows.promises)
        or n_rows[EMERGENCIES] == len(rows.emergencies)
        or n_rows[SDUS] + len(sdus) - state.pool[N_FREE_SDUS] > len(rows.sdus)
    ):
        return ROWS_FULL
    new_sdus = links * numbers.n_ues  # full buffers that are topped up
    for link in range(links):
        new_sdus += first[link, slot + 1] - first[link, slot]
    if state.pool[N_FREE_SDUS] < new_sdus or state.pool[N_FREE_SEGMENTS] < new_sdus + blocks:
        return POOL_FULL
    # A group's tasks change their SMs where others do already, or where one of them ends.
    if state.n_breakpoints + 4 * links + 4 > len(timeline):
        return TIMELINE_FULL
    return GOES_ON


@inlined
def _radio_in(bench: Bench, slot: int) -> None:
    """Arrivals and due results of all cells."""
    numbers, state, rows = bench.numbers, bench.state, bench.rows
    sdus, segments = bench.sdus, bench.segments
    first, arriving = bench.arrivals.first, bench.arrivals.sdus
    for link in range(2 * numbers.n_cells):
        arrive(numbers, state, first, arriving, sdus, segments, link, slot)
        due = slot - numbers.feedback_slots[link]
        if due >= 0 and state.in_air[link, due % AIR_SLOTS, N_SENT]:
            settle(numbers, state, sdus, segments, rows.blocks, rows.sdus, link, due)


@inlined
def _plan(bench: Bench, tables: RadioTables, direction: int, now_slot: int, air_slot: int) -> None:
    """One direction of an air slot: blocks of all cells, their PHY work, and its results."""
    numbers, state, shown, grants = bench.numbers, bench.state, bench.shown, bench.grants
    carried = _show(bench, tables, direction, now_slot, air_slot)
    if not carried:
        return
    if numbers.policy == PROPORTIONAL_FAIR:
        proportional_fair(tables, shown, state.rank, grants)
    elif numbers.policy == ROUND_ROBIN:
        round_robin(tables, shown, state.last_served, direction, grants)
    else:
        shaping, shaper = bench.shaping, bench.shaper
        plan(shaping, shaper, tables, shown, direction, now_slot, air_slot, grants)
    commit(numbers, state, tables, bench.segments, shown, grants, direction, air_slot)
    n = _gather_tasks(numbers, state, tables, direction, air_slot)
    if n == 0:
        return
    if direction == 0:
        ready_us = (air_slot - 1) * numbers.slot_us
        deadline_us = air_slot * numbers.slot_us - numbers.fronthaul_lead_us
    else:
        ready_us = (air_slot + 1) * numbers.slot_us
        deadline_us = ready_us + numbers.ul_decode_budget_us
    timeline, used, decoding = bench.timeline, bench.used, bench.decoding
    uplink = direction == 1
    size_and_place(numbers, state, timeline, used, decoding, n, uplink, ready_us, deadline_us)
    index = air_slot - bench.piece.first_slot
    for task in range(n):
        _reserve(
            state,
            timeline,
            bench.rows.tasks,
            bench.rows.pieces,
            task,
            direction,
            air_slot,
            deadline_us,
        )
        c = state.task_cell[task]
        sinr_cdb, crc = bench.piece.sinr_cdb[index, c], bench.piece.crc[direction, index, c]
        end_us = state.packing.end_us[task]
        decide(numbers, state, sinr_cdb, crc, 2 * c + direction, air_slot, end_us, deadline_us)


@compiled
def _oldest_failed(
    state: BenchState, tables: RadioTables, c: int, direction: int, air_slot: int
) -> int:
    """Code blocks of the oldest failed block that needs a slot of this kind; 0 for none."""
    kind = tables.kind_of_phase[c, air_slot % tables.kind_of_phase.shape[1]]
    link = 2 * c + direction
    for index in range(state.n_failed[link]):
        ue, process = state.failed[link, index, 0], state.failed[link, index, 1]
        if state.process[link, ue, process, P_KIND] == kind:
            return int(state.process[link, ue, process, P_CODE_BLOCKS])
    return 0


@inlined
def _show(bench: Bench, tables: RadioTables, direction: int, now_slot: int, air_slot: int) -> bool:
    """Retransmissions of all cells, as far as the policy allows them; the rest to the policy.

    Returns whether any cell carries the direction in that slot.
    """
    numbers, state, shown = bench.numbers, bench.state, bench.shown
    shapes = numbers.policy == CONTROLLER
    carried = False
    for c in range(numbers.n_cells):
        most = NO_LIMIT
        oldest = _oldest_failed(state, tables, c, direction, air_slot) if shapes else 0
        again = oldest > 0
        if again:
            shaping, shaper = bench.shaping, bench.shaper
            most = retransmission_limit(shaping, shaper, tables, direction, air_slot, c, oldest)
        mcs = bench.piece.mcs[now_slot - bench.piece.first_slot, c]
        show_cell(
            numbers,
            state,
            tables,
            bench.sdus,
            bench.segments,
            mcs,
            shown,
            c,
            direction,
            air_slot,
            most,
        )
        carried = carried or shown.kind[c] >= 0
        if again and shown.kind[c] >= 0:
            blocks = shown.retx_blocks[c]
            note_retransmissions(bench.shaping, bench.shaper, direction, air_slot, blocks)
    return carried


@compiled
def _gather_tasks(
    numbers: Numbers, state: BenchState, tables: RadioTables, direction: int, air_slot: int
) -> int:
    """One PHY task per cell that has blocks in the air slot; returns how many."""
    n = 0
    place = air_slot % AIR_SLOTS
    for c in range(numbers.n_cells):
        link = 2 * c + direction
        blocks = milli = prbs = 0
        for index in range(state.in_air[link, place, N_SENT]):
            block = state.sent[link, place, index]
            process = state.process[link, block[SENT_UE], block[SENT_PROCESS]]
            blocks += process[P_CODE_BLOCKS]
            milli += process[P_CODE_BLOCKS] * tables.milli_per_block[c, process[P_MCS]]
            prbs += process[P_PRB]
        if blocks:
            state.task_cell[n] = c
            state.task_blocks[n] = blocks
            state.task_milli[n] = milli
            state.task_prb[n] = prbs
            n += 1
    return n


@compiled
def _reserve(
    state: BenchState,
    timeline: Ints,
    tasks: Ints,
    pieces: Ints,
    task: int,
    direction: int,
    air_slot: int,
    deadline_us: int,
) -> None:
    """Put a placed task on the timeline, and write it down."""
    packing, number = state.packing, state.n_rows[TASKS]
    end_us, n_steps = packing.end_us[task], packing.n_steps[task]
    row = tasks[number]
    row[0], row[1], row[2] = state.task_cell[task], air_slot, direction
    row[3], row[4] = state.task_prb[task], state.task_blocks[task]
    row[6], row[7], row[8] = end_us, deadline_us, 0
    for step in range(n_steps):
        from_us, sms = packing.steps[task, step, 0], packing.steps[task, step, 1]
        to_us = packing.steps[task, step + 1, 0] if step + 1 < n_steps else end_us
        if sms == 0:
            continue
        if row[8] == 0:
            row[5], row[8] = from_us, sms
        add(state, timeline, from_us, to_us, sms, direction)
        piece = pieces[state.n_rows[PIECES]]
        piece[0] = state.n_rows[TASKS_BEFORE] + number
        piece[1], piece[2], piece[3] = from_us, to_us, sms
        state.n_rows[PIECES] += 1
    state.n_rows[TASKS] = number + 1


@compiled
def _finished(numbers: Numbers, state: BenchState, slot: int) -> bool:
    """Whether the drain ends with this slot: all delivered, or the longest budget over."""
    if slot < numbers.drain_slot:
        return False
    waiting = 0
    for link in range(2 * numbers.n_cells):
        waiting += state.counters[link, IN_FLIGHT]
        for ue in range(numbers.cell_ues[link // 2]):
            waiting += state.ue[link, ue, BACKLOG]
    return waiting == 0 or slot * numbers.slot_us + numbers.mac_phase_us >= numbers.finish_us
