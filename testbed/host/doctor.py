"""``doctor``: can this machine keep slot time, and what does it permit?

Measures what the simulator needs (overheads of a message and of a quantum) and what bounds the
time scale (lateness of a timerfd wake-up while torch-like work runs beside it).
"""

from __future__ import annotations

import math
import multiprocessing
import os
import platform
import resource
import select
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import zmq

from protocols.channel import ZmqInbox, ZmqOutbox
from protocols.codec import decode, encode
from protocols.messages import LeaseGrant
from testbed.executors.config import Scheduling
from testbed.executors.host_speed import SpeedProbe
from testbed.executors.process import fifo_permitted, set_class
from testbed.executors.timer import DeadlineTimer
from testbed.host.machine import MachineFacts, keep_facts
from testbed.record.schema import HOST_SLOW_PERMILLE

_PERIOD_NS = 10_000_000
_BURST_NS = 1_500_000
"""A slot as PHY has it at the usual scale: ten milliseconds, a part of them work."""
_WORK_PER_SLOT_MS = 3.0
"""What a slot of two cells costs a core at most: MAC, agent, and PHY's real work."""
_ON_TIME_SHARE = 0.1
_SPEED_PERIOD_S = 0.003
_ON_TIME_QUANTILE = 0.995


@dataclass(frozen=True, slots=True)
class Findings:
    """What was measured, in wall time, and what is permitted."""

    linux: bool
    cpus: int
    load: float
    fifo: bool
    memlock_bytes: int
    lateness_us: tuple[int, int, int]
    """p50, p99 and p99.5 of a wake-up beside one busy process per core."""
    late_share: float
    """Share of those wake-ups that came more than 10 % of the period late."""
    message_us: tuple[int, int]
    quantum_overhead_us: int
    slow_share: float
    """Share of the time in which a core ran below half of its best speed."""
    slowdown_permille: tuple[int, int]
    """p99.5 and maximum of the core's slowdown; 1000: at its best speed."""

    @property
    def facts(self) -> MachineFacts:
        """What ``check``, ``sim`` and ``scale = "auto"`` use."""
        late_ms = self.lateness_us[2] / 1000
        slot_ms = max(late_ms / _ON_TIME_SHARE, _WORK_PER_SLOT_MS)
        steady_ms = max(slot_ms, _WORK_PER_SLOT_MS * self.slowdown_permille[0] / 1000)
        return MachineFacts(
            math.ceil(slot_ms * 10) / 10,
            math.ceil(steady_ms * 10) / 10,
            max(1, self.message_us[0]),
            self.quantum_overhead_us,
        )


def examine(seconds: float) -> Findings:
    """Measure for about four times ``seconds``."""
    linux = platform.system() == "Linux"
    spawn = multiprocessing.get_context("spawn")
    busy = [spawn.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in busy:
        process.start()
    try:
        lateness, late_share = _lateness_us(2 * seconds) if linux else ((0, 0, 0), 0.0)
        messages = _message_us(seconds)
        overhead = _quantum_overhead_us(seconds) if linux else 0
        slow_share, slowdown = _slowness(seconds)
    finally:
        for process in busy:
            process.kill()
            process.join()
    return Findings(
        linux,
        os.cpu_count() or 1,
        os.getloadavg()[0],
        linux and fifo_permitted(),
        resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        lateness,
        late_share,
        messages,
        overhead,
        slow_share,
        slowdown,
    )


def print_findings(found: Findings, *, write: bool) -> None:
    """Tell a person; with ``write``, keep the figures for later runs."""
    facts = found.facts
    limit = "unlimited" if found.memlock_bytes < 0 else f"{found.memlock_bytes >> 20} MiB"
    p50, p99, p995 = found.lateness_us
    lines = [
        f"live runs: {'yes' if found.linux else 'no: they need Linux; sim runs anywhere'}",
        f"cores: {found.cpus}, load {found.load:.1f}",
        f"real-time priority (SCHED_FIFO): {'permitted' if found.fifo else 'refused'}",
        f"locked memory: {limit}",
        f"wake-up lateness beside busy cores: p50 {p50}, p99 {p99}, p99.5 {p995} us; "
        f"{found.late_share:.1%} of 10 ms slots began more than 1 ms late",
        f"one message between two processes: p50 {found.message_us[0]}, "
        f"p99 {found.message_us[1]} us (host.message_overhead_wall_us)",
        f"start and end of a quantum: {found.quantum_overhead_us} us "
        "(host.quantum_overhead_wall_us)",
        f"shortest slot that can be kept: {facts.slot_wall_ms:g} ms of wall time, so 30 kHz "
        f"cells (0.5 ms slots) need time.scale >= {facts.slot_wall_ms / 0.5:g}",
        f"cores below half of their best speed: {found.slow_share:.1%} of the time, at worst "
        f"1/{found.slowdown_permille[1] / 1000:.0f}; slots are late then, whatever their priority: "
        f"one that holds its work even so (p99.5) needs time.scale >= "
        f"{facts.steady_slot_wall_ms / 0.5:g}",
    ]
    print("\n".join(lines))
    if write:
        print(f"kept in {keep_facts(facts)}")
    else:
        print('`doctor --write` keeps these figures for check, sim and scale = "auto"')


def _slowness(seconds: float) -> tuple[float, tuple[int, int]]:
    """(share of samples below half of the core's best speed, p99.5 and maximum in permille)."""
    probe = SpeedProbe()
    found = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(_SPEED_PERIOD_S)
        found.append(probe.slowdown_permille())
    found.sort()
    slow = sum(value >= HOST_SLOW_PERMILLE for value in found)
    return slow / len(found), (found[int((len(found) - 1) * _ON_TIME_QUANTILE)], found[-1])


def _burn() -> None:
    """A busy process, as a trainer is: below whatever keeps time."""
    set_class(Scheduling(policy="idle"))
    value = 1.0
    while True:
        value = math.sqrt(value + 1.0)


def _lateness_us(seconds: float) -> tuple[tuple[int, int, int], float]:
    """Lateness of absolute wake-ups, with the priority that slot clocks would have, each followed
    by a burst of work: p50, p99, p99.5, and the share beyond 10 % of the period."""
    obtained = set_class(Scheduling(policy="fifo", priority=40))
    late_ns = []
    with DeadlineTimer() as timer:
        poll = select.poll()
        poll.register(timer, select.POLLIN)
        due_ns = time.monotonic_ns() + _PERIOD_NS
        for _ in range(int(seconds * 1e9 / _PERIOD_NS)):
            timer.arm(due_ns)
            while not timer.acknowledge():
                poll.poll(1000)
            woken_ns = time.monotonic_ns()
            late_ns.append(woken_ns - due_ns)
            while time.monotonic_ns() < woken_ns + _BURST_NS:
                math.sqrt(2.0)
            due_ns = max(due_ns, time.monotonic_ns()) + _PERIOD_NS
    if obtained.startswith("fifo"):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    late_ns.sort()
    last = len(late_ns) - 1
    found = [late_ns[min(last, int(last * q))] // 1000 for q in (0.5, 0.99, _ON_TIME_QUANTILE)]
    share = sum(late > _ON_TIME_SHARE * _PERIOD_NS for late in late_ns) / len(late_ns)
    return (found[0], found[1], found[2]), share


def _echo(endpoint: str, ready: Connection) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    inbox = ZmqInbox(context, "tcp://127.0.0.1:*")
    ready.send(inbox.endpoint)
    set_class(Scheduling(policy="fifo", priority=20))
    back = ZmqOutbox(context, endpoint, "doctor", b"echo")
    poll = select.poll()
    poll.register(inbox.fd, select.POLLIN)
    while True:
        poll.poll(1000)
        for delivery in inbox.drain(100):
            back.send(encode(decode(delivery.frames)[0]))


def _message_us(seconds: float) -> tuple[int, int]:
    """Half of a round trip between two processes, encoding and decoding included."""
    spawn = multiprocessing.get_context("spawn")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    inbox = ZmqInbox(context, "tcp://127.0.0.1:*")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_echo, args=(inbox.endpoint, theirs), daemon=True)
    process.start()
    outbox = ZmqOutbox(context, str(ours.recv()), "echo", b"doctor")
    message = LeaseGrant("job", 1, 300, tuple((i * 100, i * 100 + 99, 24) for i in range(8)))
    poll = select.poll()
    poll.register(inbox.fd, select.POLLIN)
    trips_ns = []
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    while time.monotonic_ns() < end_ns:
        begun_ns = time.monotonic_ns()
        outbox.send(encode(message))
        got: list[object] = []
        while not got and time.monotonic_ns() < end_ns + 2_000_000_000:
            got = list(inbox.drain(10))
            if not got:
                poll.poll(100)
        trips_ns.append(time.monotonic_ns() - begun_ns)
    process.kill()
    process.join()
    outbox.close()
    inbox.close()
    context.term()
    trips_ns.sort()
    return trips_ns[len(trips_ns) // 2] // 2000, trips_ns[len(trips_ns) * 99 // 100] // 2000


def _quantum_overhead_us(seconds: float) -> int:
    """What the gate costs per quantum beside its modelled time: on a held lease, without work."""
    from testbed.host.gate_probe import gate_overhead_us

    return gate_overhead_us(seconds)
