"""The transmit buffer of one UE and direction, and the account of each SDU's bytes.

Bytes leave in order of arrival; bytes that HARQ gave up on come back to the head (RLC acknowledged
mode). Headers of MAC, RLC and PDCP are left out: a block carries its size in SDU bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Sdu:
    """One file or packet; delivered once no byte is unacknowledged."""

    n_bytes: int
    arrival_us: int
    unacked_bytes: int
    last_byte_us: int = 0


Segment = tuple[Sdu, int]
"""Part of an SDU: which, and how many bytes."""


class RlcBuffer:
    """Bytes that wait for a grant."""

    __slots__ = ("_waiting", "backlog_bytes")

    def __init__(self) -> None:
        self._waiting: deque[Segment] = deque()
        self.backlog_bytes = 0

    @property
    def head_arrival_us(self) -> int:
        """Arrival time of the SDU that is next to be sent; the buffer must not be empty."""
        return self._waiting[0][0].arrival_us

    @property
    def head_bytes(self) -> int:
        """Bytes of that SDU that wait."""
        return self._waiting[0][1]

    @property
    def tail_arrival_us(self) -> int:
        """Arrival time of the SDU that is last to be sent."""
        return self._waiting[-1][0].arrival_us

    def push(self, n_bytes: int, arrival_us: int) -> None:
        """A new SDU at the tail."""
        self._waiting.append((Sdu(n_bytes, arrival_us, n_bytes), n_bytes))
        self.backlog_bytes += n_bytes

    def take(self, n_bytes: int) -> tuple[Segment, ...]:
        """Up to ``n_bytes`` from the head, for one transport block."""
        wanted = min(n_bytes, self.backlog_bytes)
        self.backlog_bytes -= wanted
        taken: list[Segment] = []
        while wanted:
            sdu, waiting = self._waiting[0]
            if waiting <= wanted:
                self._waiting.popleft()
                taken.append((sdu, waiting))
                wanted -= waiting
            else:
                self._waiting[0] = (sdu, waiting - wanted)
                taken.append((sdu, wanted))
                wanted = 0
        return tuple(taken)

    def put_back(self, segments: tuple[Segment, ...]) -> None:
        """Bytes of a block that HARQ gave up on, to the head, in their order."""
        self._waiting.extendleft(reversed(segments))
        self.backlog_bytes += segment_bytes(segments)


def segment_bytes(segments: tuple[Segment, ...]) -> int:
    """Bytes of a block's segments."""
    return sum(n_bytes for _, n_bytes in segments)


def acknowledge(segments: tuple[Segment, ...], received_us: int) -> list[Sdu]:
    """Note the bytes of a received block; returns the SDUs that this completed, in order."""
    complete: list[Sdu] = []
    for sdu, n_bytes in segments:
        sdu.unacked_bytes -= n_bytes
        # Blocks of one SDU may end out of order: the last of them delivers it.
        sdu.last_byte_us = max(sdu.last_byte_us, received_us)
        if sdu.unacked_bytes == 0:
            complete.append(sdu)
    return complete
