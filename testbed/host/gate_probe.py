"""Measures the gate's own time per quantum: the executor's engine on an ample lease, no work."""

from __future__ import annotations

import socket
import time

from protocols.codec import decode
from protocols.work import QuantumBegun, QuantumEnded
from testbed.executors.clock import EmulatedClock
from testbed.executors.gate_costs import GateCosts
from testbed.executors.gate_engine import GateEngine
from testbed.executors.link import HostLink
from testbed.executors.pace import Pace
from testbed.gpu.gate import Lease, Window
from testbed.gpu.quanta import QuantumCosts, QuantumKind

_WALL_NS_PER_US = 1000
_COST_US = 2000


def gate_overhead_us(seconds: float) -> int:
    """Median wall time from the end of one quantum to the start of the next, microseconds."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    link = HostLink(theirs)
    link.start(EmulatedClock(time.monotonic_ns(), _WALL_NS_PER_US))
    levels = tuple(range(8, 49, 8))
    costs = QuantumCosts(levels, tuple((_COST_US,) * len(levels) for _ in range(4)))
    lease = Lease(1, (Window(0, 10**12, 48),))
    gate = GateEngine(link, lambda: lease, GateCosts(costs, 10, 0), Pace())
    gaps_us: list[int] = []
    ended_us: int | None = None
    for block in range(max(10, int(seconds * 1e6 / _COST_US / 2))):
        gate.open(QuantumKind.FORWARD, block)
        gate.close()
        gate.flush()
        for _ in range(2):
            message = decode([ours.recv(65536)])[0]
            if isinstance(message, QuantumBegun) and ended_us is not None:
                gaps_us.append(message.start_us - ended_us)
            elif isinstance(message, QuantumEnded):
                ended_us = message.end_us
    link.close()
    ours.close()
    return sorted(gaps_us)[len(gaps_us) // 2]
