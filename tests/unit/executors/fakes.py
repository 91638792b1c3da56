"""A port whose clock moves only when somebody waits on it, and short-hands for what was sent."""

from __future__ import annotations

from protocols.messages import Message
from protocols.work import QuantumBegun, QuantumEnded
from testbed.executors.gate_costs import GateCosts
from testbed.executors.gate_engine import GateEngine
from testbed.executors.pace import Pace
from testbed.gpu.gate import Lease, Window
from testbed.gpu.quanta import QuantumCosts


class FakePort:
    """Messages arrive at set times; a wait with neither message nor end fails the test."""

    def __init__(self, late_us=0):
        self.flush = lambda: None
        self.now = 0
        self.late_us = late_us
        self.inbox = []
        self.sent = []

    def at(self, at_us, message, effect=None):
        """``message`` arrives at ``at_us``; ``effect`` runs just before it is received."""
        self.inbox.append((at_us, message, effect))
        self.inbox.sort(key=lambda item: item[0])

    def now_us(self) -> int:
        return self.now

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def receive(self, until_us: int | None) -> Message | None:
        arrival = self.inbox[0][0] if self.inbox else None
        if arrival is not None and (until_us is None or arrival <= max(until_us, self.now)):
            self.now = max(self.now, arrival)
            _, message, effect = self.inbox.pop(0)
            if effect is not None:
                effect()
            return message
        assert until_us is not None, f"waits for ever at {self.now} us"
        if until_us > self.now:
            self.now = until_us + self.late_us
        return None

    def hold_until(self, at_us: int) -> None:
        self.now = max(self.now, at_us)

    def works(self, us):
        """Real work takes ``us``."""
        self.now += us

    def kinds(self):
        self.flush()
        return [type(message).__name__ for message in self.sent]

    def begun(self):
        return [message for message in self.sent if isinstance(message, QuantumBegun)]

    def ended(self):
        self.flush()
        return [message for message in self.sent if isinstance(message, QuantumEnded)]


COSTS = QuantumCosts((20, 40), ((200, 100), (300, 150), (400, 200), (60, 30)))
ROUND_THE_CLOCK = Lease(1, (Window(0, 10**9, 40),))


class Bench:
    """A gate on a fake port, under a lease that tests replace."""

    def __init__(self, lease=ROUND_THE_CLOCK, guard_us=0, switch_us=0, pace=None, late_us=0):
        self.lease = lease
        self.port = FakePort(late_us)
        self.costs = GateCosts(COSTS, guard_us, switch_us)
        self.gate = GateEngine(self.port, lambda: self.lease, self.costs, pace or Pace())
        self.port.flush = self.gate.flush

    def replace(self, lease):
        def effect():
            self.lease = lease

        return effect


def spans(reports):
    """(kind, block, start, end) of quantum reports."""
    return [(int(r.kind), r.block, r.start_us, r.end_us) for r in reports]
