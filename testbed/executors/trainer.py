"""The trainer's executor: steps of real training in quanta under the lease.

Owns what the host's commands mean: compute, synchronise, apply, abandon, share the state. When a
quantum may run is ``gate_engine``'s; which it is, ``quantum_cursor``'s; gradients are
``training_state``'s.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from itertools import pairwise

import torch

from protocols.errors import ProtocolError
from protocols.messages import Message
from protocols.work import (
    AbandonStep,
    Applied,
    ApplyStep,
    ComputeStep,
    RunSync,
    SampleComputed,
    ShareEnded,
    ShareState,
    StepComputed,
    SyncEnded,
)
from testbed.executors.block_hooks import attach, find_blocks
from testbed.executors.config import TrainerConfig
from testbed.executors.device import make_pace, open_device
from testbed.executors.gate_costs import GateCosts
from testbed.executors.gate_engine import GateEngine, StepAbandoned, Stopped, Superseded
from testbed.executors.link import Port
from testbed.executors.proxy import build_module, digest
from testbed.executors.quantum_cursor import Gate, QuantumCursor
from testbed.executors.state_share import share_state
from testbed.executors.sync import SiteGroup, SyncFailed
from testbed.executors.text import TrainingText, load_text
from testbed.executors.training_state import TrainingState
from testbed.gpu.gate import Lease
from testbed.gpu.lease_word import LEASE_BYTES, read_lease
from testbed.gpu.quanta import QuantumKind, optimiser_quanta
from testbed.training.ring import bucket_arrivals_us

_TORN_READS = 8
_WARM_PASSES = 3
_MEET_POLL_US = 250
_NO_LEASE = Lease(0, ())
_REASON = 2000
"""Characters of an error's text that are reported."""


class _OpenGate:
    """The gate of the warm-up, before there is emulated time: everything may run."""

    def __init__(self) -> None:
        self.marks: list[tuple[QuantumKind, int, int]] = []
        """(kind, block, wall ns) of each opening."""

    def open(self, kind: QuantumKind, block: int) -> None:
        self.marks.append((kind, block, time.monotonic_ns()))

    def close(self) -> None:
        self.marks.append((QuantumKind.FAULT, 0, time.monotonic_ns()))


class TrainerExecutor:
    """Trains one module; warm when made. Raises ModuleError, TextError, DeviceError."""

    def __init__(self, config: TrainerConfig, read: Callable[[], Lease]) -> None:
        self.config = config
        self._read_lease = read
        self._device = open_device(config)
        self._text = TrainingText(
            config.seed,
            load_text(config.text, config.text_bytes),
            config.micro_batch,
            config.sequence,
        )
        module = build_module(config)
        self._blocks = find_blocks(module, config.blocks, config.declared_layers)
        self.state = TrainingState(config, module, self._device)
        self._initial_digest = digest(module)
        self._sync = SiteGroup(config.sync_timeout_wall_ms / 1000, config.job)
        self._sharing = SiteGroup(config.sync_timeout_wall_ms / 1000, config.job)
        self._warm_wall_us = self._warm_up()
        self._step: int | None = None
        self._synchronised: int | None = None

    def facts(self) -> dict[str, object]:
        """Model, text and the wall time of one micro-batch without holds."""
        return {
            "parameters": self.state.parameter_count,
            "parameters_digest": self._initial_digest,
            "blocks": len(self._blocks),
            "text_bytes": len(self._text.data),
            "text_digest": self._text.digest(),
            "unigram_entropy_nats": round(self._text.unigram_entropy_nats(), 6),
            "micro_batch_wall_us": self._warm_wall_us["total"],
            "longest_quantum_wall_us": self._warm_wall_us["longest"],
            "device": self.config.device,
            "pace": self.config.pace,
        }

    def run(self, link: Port) -> None:
        """Serve commands until ExecutorStop."""
        config = self.config
        costs = GateCosts(config.costs(), config.guard_us, config.switch_us)
        gate = GateEngine(link, self._read_lease, costs, make_pace(config))
        cursor = self._cursor(gate)
        handles = attach(self._blocks, cursor)
        try:
            while True:
                self._serve(link, gate, cursor, gate.next_command())
        except Stopped:
            return
        finally:
            for handle in handles:
                handle.remove()
            self._sync.close()
            self._sharing.close()

    def _serve(self, link: Port, gate: GateEngine, cursor: QuantumCursor, command: Message) -> None:
        match command:
            case ComputeStep():
                self._open_step(gate, command.step)
                self._abandonable(gate, lambda: self._compute(link, gate, cursor, command))
            case RunSync():
                self._require(command.step)
                self._abandonable(gate, lambda: self._synchronise(link, gate, command))
            case ApplyStep():
                self._require(command.step)
                self._keep(link, command)
            case ShareState(rank=0):
                self._share(link, gate, command)
            case ShareState():
                self._drop()
                gate.step = command.step
                self._abandonable(gate, lambda: self._share(link, gate, command))
            case AbandonStep():
                if command.step == self._step:
                    self._drop()
            case _:
                raise ProtocolError(
                    "unexpected-message", f"a trainer has no use for {type(command).__name__}"
                )

    def _cursor(self, gate: Gate) -> QuantumCursor:
        config = self.config
        return QuantumCursor(gate, config.declared_layers, len(self._blocks), config.head_chunks)

    # --- the step -----------------------------------------------------------------------------

    def _open_step(self, gate: GateEngine, step: int) -> None:
        """Another step's gradients are dropped; the same step's are added to."""
        if step != self._step:
            self._drop()
            self._step = gate.step = step
        self._rewind()

    def _abandonable(self, gate: GateEngine, work: Callable[[], None]) -> None:
        gate.abandonable = True
        try:
            work()
        except StepAbandoned:
            self._drop()
        finally:
            gate.abandonable = False

    def _compute(
        self, link: Port, gate: GateEngine, cursor: QuantumCursor, command: ComputeStep
    ) -> None:
        # Whoever waits for the state must not wait for all samples: they change none of it.
        gate.give = lambda share: self._share(link, gate, share)
        try:
            for sample in command.samples:
                try:
                    loss, tokens = self._micro_batch(sample, cursor)
                finally:
                    cursor.abort()
                self.state.tokens += tokens
                micronats = round(1e6 * loss / tokens)
                gate.flush()
                link.send(SampleComputed(command.epoch, command.step, sample, tokens, micronats))
        finally:
            gate.give = None
        link.send(StepComputed(command.epoch, command.step))

    def _micro_batch(self, sample: int, cursor: QuantumCursor) -> tuple[float, int]:
        """(sum of losses in nats, tokens); the gradients are in the state's sum."""
        inputs, targets = (torch.from_numpy(array) for array in self._text.sample(sample))
        cursor.begin()
        logits = self.state.forward(sample, inputs)
        cursor.head()
        loss = self.state.loss(logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        cursor.end()
        return loss.item(), targets.numel()

    def _synchronise(self, link: Port, gate: GateEngine, command: RunSync) -> None:
        """Sum, then let the optimiser follow the ring, bucket by bucket, provisionally."""
        start_us = link.now_us()
        self._rewind()
        epoch, step = command.epoch, command.step
        try:
            with gate.supersedable(epoch, step):
                self._meet(self._sync, link, gate, command, self._store(command))
                tokens = self._sum(command)
                real_us = link.now_us() - start_us
                self._follow_ring(gate, command, start_us)
            self._synchronised = step
            ended = SyncEnded(epoch, step, True, tokens, real_us, "")
        except (SyncFailed, Superseded) as error:
            reason = str(error)[:_REASON]
            ended = SyncEnded(epoch, step, False, 0, link.now_us() - start_us, reason)
        gate.flush()
        link.send(ended)

    def _sum(self, command: RunSync) -> int:
        """Sum gradients and tokens; the tokens behind the sum. Raises SyncFailed."""
        staged = self.state.stage()
        self._sync.all_reduce(staged, command.rank, command.world, self._store(command))
        return self.state.summed_tokens()

    def _meet(
        self,
        group: SiteGroup,
        link: Port,
        gate: GateEngine,
        command: RunSync | ShareState,
        store: str,
    ) -> None:
        """Wait for the other members at the gate, where one is told of a death among them."""
        group.meet(
            command.rank,
            command.world,
            store,
            lambda: gate.pause_until(link.now_us() + _MEET_POLL_US),
        )

    def _store(self, command: RunSync | ShareState) -> str:
        """A prefix of its own per job and epoch: keys of a rendezvous cannot be used twice."""
        return f"{command.store}/{self.config.job}/epoch{command.epoch}"

    def _follow_ring(self, gate: GateEngine, command: RunSync, start_us: int) -> None:
        """One optimiser quantum per bucket, not before the bucket has been summed by the model.

        The real step is made in the first quantum, and undone if the step is abandoned.
        """
        chunks = self.config.optimiser_chunks or self.config.declared_layers
        arrivals_us = bucket_arrivals_us(chunks, command.ring_us, command.ring_latency_us)
        for (kind, block), arrival_us in zip(optimiser_quanta(chunks), arrivals_us, strict=True):
            if self.config.pace == "emulated":
                gate.pause_until(start_us + arrival_us)
            gate.open(kind, block)
            if block == 0:
                self.state.apply()
            gate.close()

    def _share(self, link: Port, gate: GateEngine, command: ShareState) -> None:
        """Give the state, or take it and hold it back for its modelled time.

        It is whole before the hold: who is unwound there has the giver's state and no open step.
        """
        start_us = link.now_us()
        self._rewind()
        gate.flush()
        epoch, step, rank = command.epoch, command.step, command.rank
        try:
            with gate.supersedable(epoch, step):
                store = f"{self._store(command)}/share"
                self._meet(self._sharing, link, gate, command, store)
                share_state(self._sharing, self.state, rank, command.world, store)
                real_us = link.now_us() - start_us
                if rank > 0 and self.config.pace == "emulated":
                    gate.pause_until(start_us + command.transfer_us)
            ended = ShareEnded(epoch, step, True, digest(self.state.module), real_us, "")
        except (SyncFailed, Superseded) as error:
            reason = str(error)[:_REASON]
            ended = ShareEnded(epoch, step, False, "", link.now_us() - start_us, reason)
        gate.flush()
        link.send(ended)

    def _keep(self, link: Port, command: ApplyStep) -> None:
        if self._synchronised != command.step:
            raise ProtocolError(
                "not-synchronised", f"ApplyStep of step {command.step} before a RunSync that worked"
            )
        self.state.keep()
        self._step = self._synchronised = None
        link.send(Applied(command.epoch, command.step, digest(self.state.module)))

    def _rewind(self) -> None:
        """What the last collective of the open step led to is void; the local sum is not."""
        self.state.undo()
        self._synchronised = None

    def _drop(self) -> None:
        self._rewind()
        self.state.drop()
        self._step = None

    def _require(self, step: int) -> None:
        if step != self._step:
            raise ProtocolError("wrong-step", f"step {step}; the open step is {self._step}")

    # --- start-up -----------------------------------------------------------------------------

    def _warm_up(self) -> dict[str, int]:
        """Run unheld micro-batches; wall us of the last one and of its longest quantum."""
        gate = _OpenGate()
        cursor = self._cursor(gate)
        handles = attach(self._blocks, cursor)
        settle = make_pace(self.config).settle
        buffers = [(buffer, buffer.clone()) for buffer in self.state.module.buffers()]
        for sample in range(_WARM_PASSES):
            gate.marks.clear()
            self._micro_batch(sample, cursor)
            settle()
        for handle in handles:
            handle.remove()
        for buffer, before in buffers:
            buffer.copy_(before)
        self.state.warm_up_optimiser()
        self.state.drop()
        times = [at_ns for _, _, at_ns in gate.marks]
        longest = max(after - before for before, after in pairwise(times))
        return {"total": (times[-1] - times[0]) // 1000, "longest": longest // 1000}


def lease_reader(lease_fd: int) -> Callable[[], Lease]:
    """Reads the lease in that memfd; an empty one where it is torn or was never written.

    A read that stays torn meets a writer at work, and LeaseChanged follows every write.
    """
    memory = mmap.mmap(lease_fd, LEASE_BYTES, prot=mmap.PROT_READ)
    return lambda: _read(memory)


def _read(memory: mmap.mmap) -> Lease:
    for _ in range(_TORN_READS):
        found = read_lease(memory)
        if found is not None:
            return found[1]
    return _NO_LEASE
