"""Buffers of bytes, compiled: the twin of ``testbed.ran.rlc``, and of the arrivals in ``.link``.

Owns the queues of segments and the account of each SDU's bytes, in pools of rows. It must not know
of grants or HARQ: a block's segments are a chain that is taken off a queue, and comes back or ends.
"""

from __future__ import annotations

from testbed.shaping.arrays import Ints
from testbed.shaping.compiled import compiled, inlined
from testbed.slotbench.inputs import Numbers
from testbed.slotbench.rows import SDUS
from testbed.slotbench.state import (
    ARRIVED,
    BACKLOG,
    FREE_SDU,
    FREE_SEGMENT,
    HEAD,
    IN_FLIGHT,
    N_FREE_SDUS,
    N_FREE_SEGMENTS,
    NONE,
    P_CARRIED,
    P_HEAD,
    P_TAIL,
    RLC_RETX,
    SDU_ARRIVAL_US,
    SDU_BYTES,
    SDU_LAST_BYTE_US,
    SDU_NEXT,
    SDU_UNACKED,
    SEG_BYTES,
    SEG_NEXT,
    SEG_SDU,
    TAIL,
    BenchState,
)


@inlined
def _segment(state: BenchState, segments: Ints, sdu: int, n_bytes: int) -> int:
    """A new segment that stands alone."""
    segment = state.pool[FREE_SEGMENT]
    state.pool[FREE_SEGMENT] = segments[segment, SEG_NEXT]
    state.pool[N_FREE_SEGMENTS] -= 1
    segments[segment, SEG_SDU] = sdu
    segments[segment, SEG_BYTES] = n_bytes
    segments[segment, SEG_NEXT] = NONE
    return int(segment)


@inlined
def _push(
    state: BenchState,
    sdus: Ints,
    segments: Ints,
    link: int,
    ue: int,
    n_bytes: int,
    arrival_us: int,
) -> None:
    """A new SDU at the tail."""
    sdu = state.pool[FREE_SDU]
    state.pool[FREE_SDU] = sdus[sdu, SDU_NEXT]
    state.pool[N_FREE_SDUS] -= 1
    sdus[sdu, SDU_BYTES] = n_bytes
    sdus[sdu, SDU_ARRIVAL_US] = arrival_us
    sdus[sdu, SDU_UNACKED] = n_bytes
    sdus[sdu, SDU_LAST_BYTE_US] = 0
    segment = _segment(state, segments, sdu, n_bytes)
    buffer = state.ue[link, ue]
    if buffer[HEAD] == NONE:
        buffer[HEAD] = segment
    else:
        segments[buffer[TAIL], SEG_NEXT] = segment
    buffer[TAIL] = segment
    buffer[BACKLOG] += n_bytes
    state.counters[link, ARRIVED] += n_bytes


@compiled
def arrive(
    numbers: Numbers,
    state: BenchState,
    first: Ints,
    arriving: Ints,
    sdus: Ints,
    segments: Ints,
    link: int,
    slot: int,
) -> None:
    """What arrives in a slot, a topped-up full buffer included."""
    for index in range(first[link, slot], first[link, slot + 1]):
        ue, n_bytes, arrival_us = arriving[index]
        _push(state, sdus, segments, link, ue, n_bytes, arrival_us)
    if slot < numbers.drain_slot:
        for ue in range(numbers.cell_ues[link // 2]):
            refill_bytes = numbers.refill_bytes[link, ue]
            if state.ue[link, ue, BACKLOG] < refill_bytes:
                now_us = slot * numbers.slot_us
                _push(state, sdus, segments, link, ue, refill_bytes, now_us)


@inlined
def acknowledge(
    state: BenchState,
    sdus: Ints,
    segments: Ints,
    delivered: Ints,
    link: int,
    ue: int,
    segment: int,
    received_us: int,
) -> None:
    """Note the bytes of a received block; SDUs that are complete now are written down."""
    while segment != NONE:
        number = segments[segment, SEG_SDU]
        sdu = sdus[number]
        sdu[SDU_UNACKED] -= segments[segment, SEG_BYTES]
        # Blocks of one SDU may end out of order: the last of them delivers it.
        sdu[SDU_LAST_BYTE_US] = max(sdu[SDU_LAST_BYTE_US], received_us)
        if sdu[SDU_UNACKED] == 0:
            row = delivered[state.n_rows[SDUS]]
            state.n_rows[SDUS] += 1
            row[0], row[1], row[2] = link // 2, ue, link % 2
            row[3], row[4], row[5] = sdu[SDU_ARRIVAL_US], sdu[SDU_LAST_BYTE_US], sdu[SDU_BYTES]
            sdu[SDU_NEXT] = state.pool[FREE_SDU]
            state.pool[FREE_SDU] = number
            state.pool[N_FREE_SDUS] += 1
        after = segments[segment, SEG_NEXT]
        segments[segment, SEG_NEXT] = state.pool[FREE_SEGMENT]
        state.pool[FREE_SEGMENT] = segment
        state.pool[N_FREE_SEGMENTS] += 1
        segment = after


@inlined
def put_back(state: BenchState, segments: Ints, link: int, ue: int, process: Ints) -> None:
    """Bytes of a block that HARQ gave up on, to the head, in their order."""
    state.counters[link, RLC_RETX] += process[P_CARRIED]
    state.counters[link, IN_FLIGHT] -= process[P_CARRIED]
    buffer = state.ue[link, ue]
    if buffer[HEAD] == NONE:
        buffer[TAIL] = process[P_TAIL]
    segments[process[P_TAIL], SEG_NEXT] = buffer[HEAD]
    buffer[HEAD] = process[P_HEAD]
    buffer[BACKLOG] += process[P_CARRIED]


@inlined
def take(
    state: BenchState, segments: Ints, link: int, ue: int, process: Ints, n_bytes: int
) -> None:
    """That many bytes (at least one) from the head of the buffer, as the segments of a block."""
    buffer = state.ue[link, ue]
    buffer[BACKLOG] -= n_bytes
    state.counters[link, IN_FLIGHT] += n_bytes
    process[P_CARRIED] = n_bytes
    process[P_HEAD] = buffer[HEAD]
    left, last = n_bytes, NONE
    while left > 0:
        last = buffer[HEAD]
        waiting = segments[last, SEG_BYTES]
        if waiting <= left:
            buffer[HEAD] = segments[last, SEG_NEXT]
            left -= waiting
            continue
        # The block has the front of this segment; the rest of it stays, as a segment of its own.
        rest = _segment(state, segments, segments[last, SEG_SDU], waiting - left)
        segments[rest, SEG_NEXT] = segments[last, SEG_NEXT]
        if buffer[TAIL] == last:
            buffer[TAIL] = rest
        segments[last, SEG_BYTES] = left
        buffer[HEAD] = rest
        left = 0
    process[P_TAIL] = last
    segments[last, SEG_NEXT] = NONE
