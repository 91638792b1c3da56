"""The RAN's side of the GPU, compiled: the twin of ``testbed.gpu.timeline`` in the site agent.

Owns the reserved SMs over time, the sizing of groups, and the envelope that is committed. Where a
group's tasks run is decided by ``testbed.shaping.packing``.
"""

from __future__ import annotations

from testbed.shaping.arrays import Ints
from testbed.shaping.compiled import compiled, inlined
from testbed.shaping.packing import place
from testbed.shaping.state import PROMISED_UNTIL, RING_SLOTS, ControllerState
from testbed.slotbench.inputs import Numbers
from testbed.slotbench.rows import EMERGENCIES, PROMISES
from testbed.slotbench.state import NONE, BenchState

SATURATION, DEADLINE = 0, 1
"""How many SMs a group may have: as many as it can use, or the fewest that meet its deadlines."""

_RING = RING_SLOTS - 1


@compiled
def tidy(state: BenchState, timeline: Ints, now_us: int) -> None:
    """Drop what ended at or before ``now_us``, and rows that change nothing."""
    n, kept = state.n_breakpoints, 0
    for index in range(n):
        if index + 1 < n and timeline[index + 1, 0] <= now_us:
            continue
        row, before = timeline[index], timeline[kept - 1]
        if kept and row[1] == before[1] and row[2] == before[2]:
            continue
        for column in range(3):
            timeline[kept, column] = row[column]
        kept += 1
    state.n_breakpoints = kept


@inlined
def _row_at(state: BenchState, timeline: Ints, time_us: int) -> int:
    """The row that begins at that time, put in where there is none."""
    n = state.n_breakpoints
    index = n
    while index > 0 and timeline[index - 1, 0] >= time_us:
        index -= 1
    if index == n or timeline[index, 0] != time_us:
        for row in range(n, index, -1):
            for column in range(3):
                timeline[row, column] = timeline[row - 1, column]
        timeline[index, 0] = time_us
        timeline[index, 1] = timeline[index - 1, 1] if index else 0
        timeline[index, 2] = timeline[index - 1, 2] if index else 0
        state.n_breakpoints = n + 1
    return index


@compiled
def add(
    state: BenchState, timeline: Ints, from_us: int, to_us: int, sms: int, direction: int
) -> None:
    """Reserve SMs on [from_us, to_us)."""
    first = _row_at(state, timeline, from_us)
    beyond = _row_at(state, timeline, to_us)
    for index in range(first, beyond):
        timeline[index, 1] += sms
        timeline[index, 2] += sms * direction


@inlined
def reserved(state: BenchState, timeline: Ints, column: int, from_us: int, steps: Ints) -> int:
    """What is reserved from a time on, as rows (from_us, to_us, SMs), neighbours different.

    ``column``: 1 for all tasks, 2 for decodes. Returns the number of rows; none where nothing is.
    """
    count = used = 0
    for index in range(state.n_breakpoints - 1):
        to_us = timeline[index + 1, 0]
        if to_us <= from_us:
            continue
        sms = timeline[index, column]
        start_us = max(from_us, timeline[index, 0])
        if count == 0 and start_us > from_us:
            steps[0, 0], steps[0, 1], steps[0, 2] = from_us, start_us, 0
            count = 1
        if count and steps[count - 1, 2] == sms:
            steps[count - 1, 1] = to_us
        else:
            steps[count, 0], steps[count, 1], steps[count, 2] = start_us, to_us, sms
            count += 1
        if sms:
            used = count
    return used


@compiled
def most_within(state: BenchState, timeline: Ints, from_us: int, to_us: int) -> int:
    """The largest SM count in [from_us, to_us)."""
    most = 0
    for index in range(state.n_breakpoints - 1):
        if timeline[index, 0] >= to_us:
            break
        if timeline[index + 1, 0] > from_us:
            most = max(most, timeline[index, 1])
    return int(most)


@compiled
def size_and_place(
    numbers: Numbers,
    state: BenchState,
    timeline: Ints,
    used: Ints,
    decoding: Ints,
    n_tasks: int,
    uplink: bool,
    ready_us: int,
    deadline_us: int,
) -> None:
    """Place the tasks of ``state`` as one group, into ``state.packing``.

    Sized to DEADLINE, it has the fewest SMs on which all of it ends in time, or all that there are.
    ``used`` and ``decoding``: room for as many rows as the timeline has.
    """
    gpu, packing = numbers.gpu, state.packing
    n_used = reserved(state, timeline, 1, ready_us, used)
    n_decoding = reserved(state, timeline, 2, ready_us, decoding)
    level = gpu.sms if numbers.sizing == SATURATION else gpu.min_sms
    while True:
        place(
            gpu,
            level,
            uplink,
            ready_us,
            n_tasks,
            state.task_blocks,
            state.task_milli,
            used,
            n_used,
            decoding,
            n_decoding,
            packing,
        )
        in_time = True
        for task in range(n_tasks):
            in_time = in_time and packing.end_us[task] <= deadline_us
        if in_time or level == gpu.sms:
            return
        level = min(level + gpu.sm_step, gpu.sms)


@compiled
def commit_envelope(
    numbers: Numbers,
    state: BenchState,
    shaper: ControllerState,
    timeline: Ints,
    emergencies: Ints,
    slot: int,
) -> None:
    """Hold the RAN to what its policy promises; write down where it goes above that.

    The twin of ``testbed.gpu.envelope.Envelope.commit`` for one gNB.
    """
    committed, before = state.committed, state.before
    committed[(slot - 1) & _RING] = NONE
    known = slot + numbers.lookahead_slots
    until = max(shaper.marks[PROMISED_UNTIL], known)
    for at in range(slot, until):
        before[at & _RING] = committed[at & _RING]
    for at in range(known, shaper.marks[PROMISED_UNTIL]):
        committed[at & _RING] = min(numbers.gpu.sms, shaper.promised[at & _RING])
    _raise_to_plans(numbers, state, timeline, slot, until)
    first = last = NONE
    most = promised_sms = taken_sms = 0
    for at in range(slot, until):
        excess = committed[at & _RING] - before[at & _RING]
        if before[at & _RING] == NONE or excess <= 0:
            continue
        first, last = at if first == NONE else first, at
        if excess > most:
            most, promised_sms = excess, before[at & _RING]
            taken_sms = committed[at & _RING]
    if first == NONE:
        return
    row = emergencies[state.n_rows[EMERGENCIES]]
    state.n_rows[EMERGENCIES] += 1
    row[0], row[1], row[2] = slot, first * numbers.slot_us, (last + 1) * numbers.slot_us
    row[3], row[4] = promised_sms, taken_sms


@inlined
def _raise_to_plans(
    numbers: Numbers, state: BenchState, timeline: Ints, slot: int, until: int
) -> None:
    """A promise below what is planned for its slot rises to it."""
    for index in range(state.n_breakpoints - 1):
        first = max(slot, timeline[index, 0] // numbers.slot_us)
        last = (timeline[index + 1, 0] - 1) // numbers.slot_us
        for at in range(first, min(last + 1, until)):
            promised = state.committed[at & _RING]
            if promised != NONE:
                state.committed[at & _RING] = max(promised, timeline[index, 1])


@compiled
def write_promise(
    numbers: Numbers, state: BenchState, timeline: Ints, promises: Ints, slot: int
) -> None:
    """The largest SM count of the committed envelope within each window from this slot on."""
    slot_us, committed = numbers.slot_us, state.committed
    start_us, known = slot * slot_us, slot + numbers.lookahead_slots
    until = known
    while committed[until & _RING] != NONE:
        until += 1
    row = promises[state.n_rows[PROMISES]]
    state.n_rows[PROMISES] += 1
    row[0] = slot
    for index in range(len(numbers.windows_us)):
        end_us = start_us + numbers.windows_us[index]
        beyond = -(-end_us // slot_us)
        sms = most_within(state, timeline, start_us, min(end_us, known * slot_us))
        for at in range(known, min(beyond, until)):
            sms = max(sms, committed[at & _RING])
        for at in range(until, min(beyond, until + numbers.worst_period)):
            sms = max(sms, numbers.worst_sms[at % numbers.worst_period])
        row[1 + index] = sms
