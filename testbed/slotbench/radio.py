"""The radio of one slot, compiled: the twin of ``testbed.ran.link`` and ``.harq``.

Owns blocks from their grant to their end. It must not decide who is granted what (policies do), nor
when PHY work ends (the timeline does).
"""

from __future__ import annotations

import math

from testbed.ran.channel import BLER_SLOPE_DB
from testbed.shaping.arrays import Floats, GrantArrays, Ints, RadioTables, SlotArrays
from testbed.shaping.compiled import compiled, inlined
from testbed.slotbench.buffers import acknowledge, put_back, take
from testbed.slotbench.inputs import Numbers
from testbed.slotbench.rows import BLOCKS, Blocks
from testbed.slotbench.state import (
    ACKNOWLEDGED,
    AIR_SLOTS,
    BACKLOG,
    BUSY_MOST,
    FREE_FIRST,
    HEAD,
    IN_FLIGHT,
    LATE_FEEDBACK,
    N_FREE,
    N_SENT,
    P_CARRIED,
    P_CODE_BLOCKS,
    P_HEAD,
    P_KIND,
    P_MCS,
    P_PRB,
    P_TBS,
    P_TRANSMISSION,
    SDU_ARRIVAL_US,
    SEG_BYTES,
    SEG_SDU,
    SENT_END_US,
    SENT_MISSED,
    SENT_PROCESS,
    SENT_RESULT,
    SENT_SLOT,
    SENT_UE,
    TAIL,
    BenchState,
)

NACK, ACK, LATE, NO_FEEDBACK = 0, 1, 2, 3
_SLOPE = math.sqrt(2) * BLER_SLOPE_DB


@compiled
def settle(
    numbers: Numbers,
    state: BenchState,
    sdus: Ints,
    segments: Ints,
    blocks: Blocks,
    delivered: Ints,
    link: int,
    air_slot: int,
) -> None:
    """Use the results of an air slot: what arrived is acknowledged, the rest comes again.

    ``blocks``, ``delivered``: where blocks and complete SDUs are written down (``rows``).
    """
    in_air = state.in_air[link, air_slot % AIR_SLOTS]
    sent = state.sent[link, air_slot % AIR_SLOTS]
    for index in range(in_air[N_SENT]):
        block = sent[index]
        ue, number, result = block[SENT_UE], block[SENT_PROCESS], block[SENT_RESULT]
        process = state.process[link, ue, number]
        write_block(state, blocks, link, air_slot, process, block)
        if result == ACK:
            received_us = (air_slot + 1) * numbers.slot_us
            if link % 2 == 1:
                received_us = in_air[SENT_END_US]
            state.counters[link, IN_FLIGHT] -= process[P_CARRIED]
            state.counters[link, ACKNOWLEDGED] += process[P_CARRIED]
            acknowledge(state, sdus, segments, delivered, link, ue, process[P_HEAD], received_us)
            _release(numbers, state, link, ue, number)
            continue
        if result == NO_FEEDBACK:
            state.counters[link, LATE_FEEDBACK] += 1
        if process[P_TRANSMISSION] < numbers.most_transmissions[link]:
            state.failed[link, state.n_failed[link], 0] = ue
            state.failed[link, state.n_failed[link], 1] = number
            state.n_failed[link] += 1
            continue
        put_back(state, segments, link, ue, process)
        _release(numbers, state, link, ue, number)
    in_air[N_SENT] = 0


@inlined
def _release(numbers: Numbers, state: BenchState, link: int, ue: int, number: int) -> None:
    """The process is free again, behind those that are."""
    buffer = state.ue[link, ue]
    place = (buffer[FREE_FIRST] + buffer[N_FREE]) % numbers.processes[link]
    state.free_process[link, ue, place] = number
    buffer[N_FREE] += 1


@inlined
def _acquire(numbers: Numbers, state: BenchState, link: int, ue: int) -> int:
    """The process that is free for longest."""
    buffer, most = state.ue[link, ue], numbers.processes[link]
    number = state.free_process[link, ue, buffer[FREE_FIRST]]
    buffer[FREE_FIRST] = (buffer[FREE_FIRST] + 1) % most
    buffer[N_FREE] -= 1
    busy = most - buffer[N_FREE]
    state.counters[link, BUSY_MOST] = max(state.counters[link, BUSY_MOST], busy)
    return int(number)


@inlined
def write_block(
    state: BenchState, blocks: Blocks, link: int, air_slot: int, process: Ints, block: Ints
) -> None:
    """Write a block and its result down."""
    row = blocks[state.n_rows[BLOCKS]]
    state.n_rows[BLOCKS] += 1
    row[0], row[1], row[2] = link // 2, air_slot, link % 2
    row[3], row[4], row[5] = block[SENT_UE], process[P_TRANSMISSION], block[SENT_RESULT]
    row[6], row[7], row[8] = process[P_TBS], process[P_PRB], process[P_MCS]
    row[9] = block[SENT_MISSED]


@inlined
def _send(state: BenchState, link: int, place: int, ue: int, number: int) -> None:
    """One more block in that air slot; its result follows."""
    index = state.in_air[link, place, N_SENT]
    state.sent[link, place, index, SENT_UE] = ue
    state.sent[link, place, index, SENT_PROCESS] = number
    state.in_air[link, place, N_SENT] = index + 1


@compiled
def show_cell(
    numbers: Numbers,
    state: BenchState,
    tables: RadioTables,
    sdus: Ints,
    segments: Ints,
    mcs: Ints,
    shown: SlotArrays,
    c: int,
    direction: int,
    air_slot: int,
    most_retx_blocks: int,
) -> None:
    """Place a cell's retransmissions in an air slot, and show what is left to the policy.

    Args:
        numbers, state, tables, sdus, segments: the run's.
        mcs: [U], what link adaptation picks for the cell's UEs now.
        shown: what the policy will see.
        c, direction, air_slot: which cell, when.
        most_retx_blocks: code blocks that the retransmissions may have.
    """
    link = 2 * c + direction
    shown.retx_blocks[c] = 0
    shown.retx_milli[c] = 0
    kind = tables.kind_of_phase[c, air_slot % tables.kind_of_phase.shape[1]]
    shown.kind[c] = kind
    for ue in range(numbers.cell_ues[c]):
        can = kind >= 0 and state.ue[link, ue, N_FREE] > 0
        shown.backlog[c, ue] = state.ue[link, ue, BACKLOG] if can else 0
    if kind < 0:
        return
    shown.free_prb[c] = tables.n_prb[c]
    shown.max_grants[c] = numbers.most_blocks[link]
    if state.n_failed[link]:
        _retransmit(state, tables, shown, c, link, air_slot % AIR_SLOTS, most_retx_blocks)
    for ue in range(numbers.cell_ues[c]):
        if shown.backlog[c, ue] == 0:
            continue
        shown.mcs[c, ue] = mcs[ue]
        head, tail = segments[state.ue[link, ue, HEAD]], segments[state.ue[link, ue, TAIL]]
        shown.head_bytes[c, ue] = head[SEG_BYTES]
        budget_us = numbers.budget_us[c, ue]
        shown.head_deadline_us[c, ue] = sdus[head[SEG_SDU], SDU_ARRIVAL_US] + budget_us
        shown.tail_deadline_us[c, ue] = sdus[tail[SEG_SDU], SDU_ARRIVAL_US] + budget_us
        shown.average_rate[c, ue] = state.average_rate[link, ue]


@inlined
def _retransmit(
    state: BenchState,
    tables: RadioTables,
    shown: SlotArrays,
    c: int,
    link: int,
    place: int,
    free_blocks: int,
) -> None:
    """Oldest failure first; what does not fit this slot waits, and lets later ones pass."""
    waiting = 0
    for index in range(state.n_failed[link]):
        ue, number = state.failed[link, index, 0], state.failed[link, index, 1]
        process = state.process[link, ue, number]
        taken = False
        for sent in range(state.in_air[link, place, N_SENT]):
            taken = taken or state.sent[link, place, sent, SENT_UE] == ue
        if (
            process[P_KIND] != shown.kind[c]
            or process[P_PRB] > shown.free_prb[c]
            or process[P_CODE_BLOCKS] > free_blocks
            or taken
            or shown.max_grants[c] == 0
        ):
            state.failed[link, waiting, 0] = ue
            state.failed[link, waiting, 1] = number
            waiting += 1
            continue
        process[P_TRANSMISSION] += 1
        _send(state, link, place, ue, number)
        shown.free_prb[c] -= process[P_PRB]
        shown.max_grants[c] -= 1
        shown.backlog[c, ue] = 0
        free_blocks -= process[P_CODE_BLOCKS]
        shown.retx_blocks[c] += process[P_CODE_BLOCKS]
        shown.retx_milli[c] += process[P_CODE_BLOCKS] * tables.milli_per_block[c, process[P_MCS]]
    state.n_failed[link] = waiting


@compiled
def commit(
    numbers: Numbers,
    state: BenchState,
    tables: RadioTables,
    segments: Ints,
    shown: SlotArrays,
    grants: GrantArrays,
    direction: int,
    air_slot: int,
) -> None:
    """Turn the grants of all cells into new blocks."""
    for c in range(numbers.n_cells):
        kind = shown.kind[c]
        if kind < 0:
            continue
        link = 2 * c + direction
        beta = numbers.beta[link]
        for ue in range(numbers.cell_ues[c]):
            state.average_rate[link, ue] *= beta
        for index in range(grants.granted[c]):
            ue, n_prb = grants.ue[c, index], grants.n_prb[c, index]
            mcs = shown.mcs[c, ue]
            number = _acquire(numbers, state, link, ue)
            process = state.process[link, ue, number]
            n_bytes = tables.tbs_bytes[c, kind, mcs, n_prb]
            process[P_TRANSMISSION] = 1
            process[P_PRB] = n_prb
            process[P_MCS] = mcs
            process[P_TBS] = n_bytes
            process[P_CODE_BLOCKS] = tables.code_blocks[c, kind, mcs, n_prb]
            process[P_KIND] = kind
            take(state, segments, link, ue, process, min(n_bytes, state.ue[link, ue, BACKLOG]))
            # beta T + 0 is beta T: the rest of the average follows here.
            state.average_rate[link, ue] += (1 - beta) * n_bytes
            _send(state, link, air_slot % AIR_SLOTS, ue, number)


@compiled
def decide(
    numbers: Numbers,
    state: BenchState,
    sinr_cdb: Ints,
    crc: Floats,
    link: int,
    air_slot: int,
    end_us: int,
    deadline_us: int,
) -> None:
    """The results of a cell's blocks, once it is known when their PHY work ends.

    A task that ends after its deadline fails whatever the channel gives, and what the MAC has not
    got by the slot in which it is due counts as not arrived.

    Args:
        numbers, state: the run's.
        sinr_cdb, crc: [U], SINR and draws of the cell's UEs in the air slot.
        link, air_slot: which blocks.
        end_us, deadline_us: of the cell's PHY task.
    """
    due_us = (air_slot + numbers.feedback_slots[link]) * numbers.slot_us + numbers.mac_phase_us
    in_time = end_us + numbers.message_us < due_us
    missed = end_us > deadline_us
    in_air = state.in_air[link, air_slot % AIR_SLOTS]
    in_air[SENT_SLOT] = air_slot
    in_air[SENT_END_US] = end_us
    for index in range(in_air[N_SENT]):
        block = state.sent[link, air_slot % AIR_SLOTS, index]
        ue = block[SENT_UE]
        process = state.process[link, ue, block[SENT_PROCESS]]
        block[SENT_MISSED] = missed
        if not in_time:
            block[SENT_RESULT] = NO_FEEDBACK
        elif missed:
            block[SENT_RESULT] = LATE
        else:
            combined_db = numbers.combining_db[process[P_TRANSMISSION]]
            half_bler_db = numbers.half_bler_db[link // 2, process[P_MCS]]
            margin_db = sinr_cdb[ue] / 100 + combined_db - half_bler_db
            bler = 0.5 * math.erfc(margin_db / _SLOPE)
            block[SENT_RESULT] = ACK if crc[ue] >= bler else NACK
