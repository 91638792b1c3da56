"""The gate: opens a quantum only where the lease can hold it, and holds it to its modelled end.

Owns the order of what a trainer's executor does in time: waiting for the lease, quanta, injected
faults, and the host's messages in between. Torch-free: the real work happens between ``open`` and
``close``, whoever does it. One quantum at a time; a running one is never interrupted.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from protocols.messages import Message
from protocols.work import (
    AbandonStep,
    ComputeStep,
    ExecutorStop,
    InjectQuantum,
    LeaseChanged,
    QuantumBegun,
    QuantumEnded,
    ShareState,
)
from testbed.executors.gate_costs import GateCosts
from testbed.executors.link import Port
from testbed.executors.pace import Pace
from testbed.gpu.gate import Lease, Never, Start, WaitUntil, next_start
from testbed.gpu.quanta import QuantumKind


class StepAbandoned(Exception):
    """Unwinds the open step through hooks and autograd: AbandonStep came at a gate."""


class Superseded(Exception):
    """Unwinds work of the open step: it goes on in a newer membership epoch."""


class Stopped(Exception):
    """Unwinds everything: ExecutorStop came, or the host is gone."""


@dataclass(frozen=True, slots=True, order=True)
class _Fault:
    at_us: int
    duration_us: int
    sms: int


@dataclass(frozen=True, slots=True)
class _Quantum:
    kind: QuantumKind
    block: int
    start_us: int
    modelled_end_us: int
    sms: int
    lease_epoch: int


class GateEngine:
    """The gate of one executor; ``step`` and ``abandonable`` are set by the work it serves."""

    def __init__(
        self, port: Port, read_lease: Callable[[], Lease], costs: GateCosts, pace: Pace
    ) -> None:
        self.step = 0
        self.abandonable = False
        self.give: Callable[[ShareState], None] | None = None
        """Gives the state away, where that is allowed while a quantum waits."""
        self._superseded_after: tuple[int, int] | None = None
        """(epoch, step) of work that a newer epoch of the step makes void."""
        self._port = port
        self._read_lease = read_lease
        self._costs = costs
        self._pace = pace
        self._quantum: _Quantum | None = None
        self._faults: list[_Fault] = []
        self._commands: deque[Message] = deque()
        self._unsent: QuantumEnded | None = None

    # --- quanta -----------------------------------------------------------------------------

    def open(self, kind: QuantumKind, block: int) -> None:
        """Wait for the lease, then begin a quantum; one that is open is closed first.

        Raises StepAbandoned, Superseded or Stopped while it waits; no quantum is open then.
        """
        self.close()
        start_us, sms, lease_epoch = self._await_start(kind, block)
        modelled_end_us = start_us + self._costs.modelled_us(kind, sms)
        self._costs.started(sms)
        self._begin(_Quantum(kind, block, start_us, modelled_end_us, sms, lease_epoch))

    def close(self) -> None:
        """The real work of the open quantum is done: hold it to its end. None open: no effect."""
        quantum = self._quantum
        if quantum is None:
            return
        self._pace.settle()
        real_end_us = self._port.now_us()
        self._costs.observe(
            quantum.kind, quantum.block, max(0, real_end_us - quantum.modelled_end_us)
        )
        self._end(quantum, real_end_us)

    def flush(self) -> None:
        """Report the last quantum's end, if it waits for the next one's begin: two reports that
        follow each other at once cost the host one wake-up."""
        if self._unsent is not None:
            ended, self._unsent = self._unsent, None
            self._port.send(ended)

    # --- waiting ----------------------------------------------------------------------------

    def next_command(self) -> Message:
        """The host's next command; faults run on time meanwhile. Raises Stopped."""
        while not self._commands:
            self._serve(None)
        return self._commands.popleft()

    def pause_until(self, at_us: int) -> None:
        """Wait without a quantum. Raises StepAbandoned, Superseded or Stopped."""
        while self._port.now_us() < at_us:
            self._serve(at_us)

    @contextmanager
    def supersedable(self, epoch: int, step: int) -> Iterator[None]:
        """Work of a membership epoch: raises Superseded, here and where it waits, once the step
        goes on in a newer one. Raises StepAbandoned or Stopped, too."""
        self._superseded_after = (epoch, step)
        try:
            for command in tuple(self._commands):
                self._check_superseded(command)
            self._drain()
            yield
        finally:
            self._superseded_after = None

    def _check_superseded(self, command: Message) -> None:
        match command, self._superseded_after:
            case (ComputeStep() | ShareState()) as newer, (epoch, step):
                if newer.step == step and newer.epoch > epoch:
                    raise Superseded(f"superseded: step {step} goes on in epoch {newer.epoch}")

    def _await_start(self, kind: QuantumKind, block: int) -> tuple[int, int, int]:
        """(now, SMs, lease epoch) once a quantum may start: at the moment that was decided on."""
        planned_us: int | None = None
        while True:
            self._drain()
            self._give_queued()
            lease = self._read_lease()
            now_us = self._port.now_us()
            # The guard is there for a late wake-up: ask about the moment that was planned.
            late = planned_us is not None and 0 <= now_us - planned_us <= self._costs.guard_us
            asked_us = planned_us if late and planned_us is not None else now_us
            decision = next_start(lease, asked_us, self._costs.p99_us(kind, block))
            planned_us = None
            if isinstance(decision, Start):
                end_us = now_us + self._costs.modelled_us(kind, decision.sms)
                if not self._faults or end_us <= self._faults[0].at_us:
                    return now_us, decision.sms, lease.epoch
                self._serve(self._faults[0].at_us)
            elif isinstance(decision, WaitUntil):
                planned_us = decision.at_us
                self._serve(planned_us)
            else:
                smooth = next_start(lease, asked_us, self._costs.smooth_us(kind))
                if not isinstance(smooth, Never):
                    self._costs.forget_largest(kind, block)
                self._serve(None)

    def _drain(self) -> None:
        """Handle what has arrived, and the faults that are due."""
        while self._serve(self._port.now_us()):
            pass

    def _give_queued(self) -> None:
        """Give the state to those who wait for it, ahead of what else is queued."""
        while self.give is not None and self._commands:
            shares = (item for item in self._commands if isinstance(item, ShareState))
            share = next((item for item in shares if item.rank == 0), None)
            if share is None:
                return
            self._commands.remove(share)
            self.give(share)

    def _serve(self, until_us: int | None) -> bool:
        """Wait until ``until_us``, for one message or for one fault; whether there was one."""
        fault = self._faults[0] if self._faults else None
        limit_us = until_us
        if fault is not None:
            limit_us = fault.at_us if until_us is None else min(until_us, fault.at_us)
        if limit_us is None or limit_us > self._port.now_us():
            self.flush()
        message = self._port.receive(limit_us)
        if message is not None:
            self._handle(message)
            return True
        if fault is not None and fault.at_us <= self._port.now_us():
            self._run_fault(heapq.heappop(self._faults))
            return True
        return False

    def _handle(self, message: Message) -> None:
        match message:
            case ExecutorStop():
                raise Stopped
            case LeaseChanged():
                pass  # the lease is read again before every decision
            case InjectQuantum(at_us=at_us, duration_us=duration_us, sms=sms):
                heapq.heappush(self._faults, _Fault(at_us, duration_us, sms))
            case AbandonStep(step=step) if self.abandonable and step == self.step:
                # What is queued of the step came before, in another membership epoch.
                kept = [item for item in self._commands if getattr(item, "step", None) != step]
                self._commands = deque(kept)
                raise StepAbandoned
            case _:
                self._commands.append(message)
                self._check_superseded(message)

    # --- reports ----------------------------------------------------------------------------

    def _run_fault(self, fault: _Fault) -> None:
        """A fault leaves the job's own partition as it was: the next quantum pays no switch."""
        start_us = self._port.now_us()
        end_us = start_us + fault.duration_us
        epoch = self._read_lease().epoch
        self._begin(_Quantum(QuantumKind.FAULT, 0, start_us, end_us, fault.sms, epoch))
        assert self._quantum is not None
        self._end(self._quantum, start_us, held=True)

    def _begin(self, quantum: _Quantum) -> None:
        self._quantum = quantum
        self.flush()
        self._port.send(
            QuantumBegun(
                self.step,
                quantum.kind,
                quantum.block,
                quantum.start_us,
                quantum.modelled_end_us,
                quantum.sms,
                quantum.lease_epoch,
            )
        )

    def _end(self, quantum: _Quantum, real_end_us: int, held: bool = False) -> None:
        end_us = real_end_us
        if held or self._pace.held:
            self._port.hold_until(quantum.modelled_end_us)
            end_us = max(quantum.modelled_end_us, real_end_us)
        self._quantum = None
        self._unsent = QuantumEnded(
            self.step,
            quantum.kind,
            quantum.block,
            quantum.start_us,
            end_us,
            quantum.modelled_end_us,
            real_end_us - quantum.start_us,
            quantum.sms,
            quantum.lease_epoch,
        )
