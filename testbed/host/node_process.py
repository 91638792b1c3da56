"""The live host of one node: its sockets, timers, executor, journal and clock.

HELLO -> CONFIG -> READY -> START -> steps -> STOP -> exit 0. A later life of a node joins a run
that goes on: its START names an epoch that has passed. What its steps ask for is done in
``effects``; its timers are in ``timers``, its data sockets in ``post``, its executor in
``executor_child``; nothing here blocks.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from nodes.api import (
    DrainRequested,
    Event,
    Injected,
    PeerChanged,
    Received,
    Reported,
    Started,
    TimerFired,
)
from protocols.channel import ControlClient, routing_id
from protocols.codec import Envelope, Frame, decode, encode
from protocols.control import (
    Config,
    Drain,
    Failed,
    Heartbeat,
    Hello,
    Inject,
    PeerJoined,
    PeerStatus,
    Ready,
    Refused,
    Start,
    Stats,
    Stop,
)
from protocols.errors import ProtocolError, RanloomError
from protocols.messages import PROTOCOL_VERSION, Message
from protocols.work import ExecutorFailed, ExecutorReady, ExecutorStart
from testbed.errors import FidelityError, NodeFailed
from testbed.executors.clock import EmulatedClock
from testbed.executors.process import set_class
from testbed.host.birth import Birth, build_node, read_birth
from testbed.host.config_document import NodeArguments, NodeConfig
from testbed.host.effects import Effects
from testbed.host.executor_child import ExecutorChild
from testbed.host.journal import Journal, Stepper
from testbed.host.post import DRAIN_LIMIT, Post, zmq_context
from testbed.host.setup import SCHEDULING, executor_of
from testbed.host.timers import Timers
from testbed.record.spool import SPOOL_NAME, SpoolWriter
from testbed.topology.views import RunView

log = logging.getLogger("ranloom.node")

_FLUSH_MS = 50
_ROWS_FLUSH_MS = 1000
_LAST_ROWS_S = 1.0
READY_CHARACTERS = 2000
"""Room for READY's detail; facts of an executor that do not fit are left out."""
_CONFIG_LIMIT_S = 600.0
"""For CONFIG: longer than any start that the launcher allows; it knows better, and ends us."""


class NodeProcess:
    """Runs one node until it is told to stop."""

    def __init__(self, arguments: NodeArguments) -> None:
        self._arguments = arguments
        self._loop = asyncio.get_running_loop()
        self._context = zmq_context(arguments.kind)
        own_id = routing_id(arguments.run_token, arguments.node, arguments.life)
        self._control = ControlClient(self._context, arguments.control, own_id)
        self._post = Post(
            self._context, arguments.inbox, arguments.run_token, own_id, self._on_message
        )
        self._latency_us: dict[str, int] = {}
        self._timers = Timers(self._on_due)
        self._effects = Effects(
            arguments.node, self._post, self._timers, self._now_us, self._tell, self._fail
        )
        self._delayed: dict[str, tuple[Event, Sequence[Frame]]] = {}
        self._delayed_count = 0
        self._clock: EmulatedClock | None = None
        self._scale_ns = 1
        self._stepper: Stepper | None = None
        self._journal: Journal | None = None
        self._executor_ready: asyncio.Future[str] = self._loop.create_future()
        self._config: asyncio.Future[Config] = self._loop.create_future()
        self._stopped: asyncio.Future[str] = self._loop.create_future()
        self._early: list[tuple[Event, Sequence[Frame]]] = []
        self._heartbeat_s = 0.2
        self._scheduling = ""
        self._closing = False

    async def run(self) -> int:
        """The whole life; returns the exit status."""
        arguments = self._arguments
        self._loop.add_reader(self._control.fd, self._control_readable)
        hello = Hello(
            arguments.kind,
            arguments.node,
            arguments.life,
            PROTOCOL_VERSION,
            arguments.run_token,
            os.getpid(),
            self._post.endpoint,
        )
        self._tell(hello)
        try:
            async with asyncio.timeout(_CONFIG_LIMIT_S):
                config = await self._config
            await self._build(NodeConfig.model_validate_json(config.document))
            self._tell(Ready(arguments.node, arguments.life, self._ready_detail()))
            reason = await self._stopped
            log.info("stopping: %s", reason)
            if self._effects.spool is not None:
                await self._post.all_rows(_LAST_ROWS_S)
        except RanloomError as error:
            log.exception("failed")
            self._tell(Failed(arguments.node, type(error).__name__, str(error)[:2000]))
            await self._close()
            return 1
        await self._close()
        return 0

    # --- birth ----------------------------------------------------------------------------------

    async def _build(self, config: NodeConfig) -> None:
        run_dir = Path(config.run_dir)
        birth = read_birth(config.birth, Path(config.directory))
        self._scale_ns = config.wall_ns_per_us
        name = f"{birth.plan.node}.mp" if birth.life == 1 else f"{birth.plan.node}.{birth.life}.mp"
        file = (run_dir / "events" / name).open("wb")
        self._journal = Journal(file, birth.document(), full=birth.topology.record.level == "full")
        self._stepper = Stepper(build_node(birth), self._journal)
        view = RunView(birth.topology)
        self._latency_us = {
            node: view.latency_us(peer.site, birth.plan.site) for node, peer in config.peers.items()
        }
        if birth.plan.kind == "recorder":
            self._effects.spool = SpoolWriter(run_dir / SPOOL_NAME)
        self._post.connect(config.peers)
        await self._start_executor(birth)
        self._heartbeat_s = birth.topology.host.heartbeat_wall_ms / 1000
        self._loop.call_soon(self._beat)
        self._loop.call_later(_FLUSH_MS / 1000, self._flush_journal)
        self._loop.call_later(_ROWS_FLUSH_MS / 1000, self._flush_rows)
        self._scheduling = set_class(SCHEDULING[birth.plan.kind])
        gc.collect()
        gc.freeze()

    async def _start_executor(self, birth: Birth) -> None:
        spec = executor_of(birth, self._scale_ns)
        if spec is None:
            self._executor_ready.set_result("")
            return
        executor = ExecutorChild(*spec, self._arguments.launcher_pid)
        self._effects.executor = executor
        executor.start(self._on_executor, self._on_executor_exit)
        limit_s = birth.topology.host.start_wall_ms / 1000
        try:
            async with asyncio.timeout(limit_s):
                await self._executor_ready
        except TimeoutError:
            raise NodeFailed(
                f"its {spec[0]} executor was not ready after {limit_s:.0f} s "
                "(host.start_wall_ms sets the limit)"
            ) from None

    def _ready_detail(self) -> str:
        facts = self._executor_ready.result() if self._executor_ready.done() else ""
        executor = self._effects.executor
        detail = {
            "scheduling": self._scheduling,
            "executor": json.loads(facts) if facts else None,
            "executor_pid": executor.pid if executor else None,
        }
        text = json.dumps(detail)
        if len(text) > READY_CHARACTERS:
            text = json.dumps(detail | {"executor": None})
        return text

    # --- inputs ---------------------------------------------------------------------------------

    def _on_message(
        self, source: str, message: Message, frames: Sequence[Frame], envelope: Envelope
    ) -> None:
        """Measure a message's way, and hold it back for the rest of its link's latency."""
        event = Received(source, message)
        if self._clock is None:
            self._post.meter.passed(source, envelope.sequence)
            self._feed(event, frames)
            return
        now_us = self._clock.now_us()
        missed = self._post.meter.received(source, now_us - envelope.sent_us, envelope.sequence)
        if missed:
            self._post.reject("lost", f"{missed} messages of {source} before {envelope.sequence}")
        at_us = envelope.sent_us + self._latency_us[source]
        if at_us <= now_us:
            self._feed(event, frames)
            return
        self._delayed_count += 1
        key = f"\0{self._delayed_count}"
        self._delayed[key] = (event, frames)
        self._timers.set(key, at_us)

    def _on_due(self, key: str, at_us: int) -> None:
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            self._feed(*delayed)
        else:
            self._feed(TimerFired(key, at_us))

    def _control_readable(self) -> None:
        if self._closing:
            return
        deliveries = self._control.drain(DRAIN_LIMIT)
        for delivery in deliveries:
            try:
                message, _ = decode(delivery.frames)
            except ProtocolError as error:
                self._post.reject(error.code, f"from the launcher: {error}")
                continue
            self._on_control(message)
        if len(deliveries) == DRAIN_LIMIT:
            self._loop.call_soon(self._control_readable)

    def _on_control(self, message: Message) -> None:
        match message:
            case Config() if not self._config.done():
                self._config.set_result(message)
            case Start(epoch_ns=epoch_ns):
                self._start_clock(epoch_ns)
            case PeerStatus(node=node, status=status, reason=reason):
                if status == "lost":
                    self._post.lose(node)
                self._feed(PeerChanged(node, status, reason))
            case PeerJoined():
                self._on_joined(message)
            case Inject(fault=fault, at_us=at_us, numbers=numbers):
                self._feed(Injected(fault, at_us, numbers))
            case Drain(reason=reason, at_once=at_once):
                self._feed(DrainRequested(reason, at_once))
            case Refused(code=code, reason=reason):
                self._fail(NodeFailed(f"the launcher refused it ({code}): {reason}"))
            case Stop(reason=reason) if not self._stopped.done():
                self._stopped.set_result(reason)

    def _on_joined(self, joined: PeerJoined) -> None:
        """A lost peer lives again: the node hears that before anything that the newcomer says."""
        try:
            self._post.replace(joined.node, joined.life, joined.inbox)
        except ProtocolError as error:
            self._post.reject(error.code, f"from the launcher: {error}")
            return
        if self._stepper is not None:
            self._stepper.restart_sequence(joined.node)
        self._feed(PeerChanged(joined.node, "joined", f"life {joined.life}"))
        self._post.look()

    def _start_clock(self, epoch_ns: int) -> None:
        clock = EmulatedClock(epoch_ns, self._scale_ns)
        if clock.now_us() >= 0 and self._arguments.life == 1:
            late_ms = clock.now_us() * self._scale_ns / 1e6
            self._fail(FidelityError(f"START came {late_ms:.0f} ms after the epoch"))
            return
        self._clock = clock
        self._timers.start(clock)
        if self._effects.executor is not None:
            self._effects.executor.send(ExecutorStart(epoch_ns, self._scale_ns))
        self._feed(Started())
        early, self._early = self._early, []
        for event, raw in early:
            self._feed(event, raw)

    def _on_executor(self, message: Message, frames: list[Frame]) -> None:
        if isinstance(message, ExecutorReady):
            if not self._executor_ready.done():
                self._executor_ready.set_result(message.detail)
        elif isinstance(message, ExecutorFailed):
            self._fail(NodeFailed(f"its executor: {message.error}: {message.reason}"))
        else:
            self._feed(Reported(message), frames)

    def _on_executor_exit(self, reason: str) -> None:
        error = NodeFailed(reason)
        if not self._executor_ready.done():
            self._executor_ready.set_exception(error)
        self._fail(error)

    # --- steps ----------------------------------------------------------------------------------

    def _feed(self, event: Event, raw: Sequence[Frame] = ()) -> None:
        if self._clock is None or self._stepper is None:
            if not isinstance(event, DrainRequested):
                self._early.append((event, raw))
            return
        if self._closing:
            return
        now_us = self._clock.now_us()
        try:
            for effect, frames in self._stepper.feed(now_us, event, raw):
                self._effects.perform(now_us, effect, frames)
        except RanloomError as error:
            self._fail(error)
        except Exception as error:  # a bug of a node or of a user's policy ends the run by name
            log.exception("step failed on %r", event)
            self._fail(NodeFailed(f"step failed: {type(error).__name__}: {error}"))

    # --- upkeep ---------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._stopped.done():
            return
        steps = self._stepper.steps if self._stepper else 0
        note = json.dumps({"rejected": self._post.rejected, "progress": self._effects.progress})
        self._tell(Heartbeat(steps, self._now_us(), note))
        self._loop.call_later(self._heartbeat_s, self._beat)

    def _flush_journal(self) -> None:
        if self._stepper is not None and not self._stopped.done():
            self._stepper.flush()
            self._loop.call_later(_FLUSH_MS / 1000, self._flush_journal)

    def _flush_rows(self) -> None:
        if self._stopped.done():
            return
        self._effects.flush_rows()
        self._loop.call_later(_ROWS_FLUSH_MS / 1000, self._flush_rows)

    def _tell(self, message: Message) -> None:
        self._control.send(encode(message, 0, self._now_us()))
        # The descriptor is edge-triggered: what arrived while sending raises no new edge.
        self._loop.call_soon(self._control_readable)

    def _now_us(self) -> int:
        """Emulated time; 0 before it exists."""
        return self._clock.now_us() if self._clock else 0

    def _stats(self) -> dict[str, object]:
        return {
            "sent": self._post.sent,
            "steps": self._stepper.steps if self._stepper else 0,
            "rejected": self._post.rejected,
            "one_way_wall_us": self._post.meter.summary(self._scale_ns / 1000),
        }

    def _fail(self, error: RanloomError) -> None:
        if self._stopped.done():
            return
        if not self._config.done():
            self._config.set_exception(error)
            return
        self._stopped.set_exception(error)

    async def _close(self) -> None:
        """Flush, end the executor, close. Order: executor, rows, journal, sockets."""
        self._closing = True
        await self._effects.close()
        if self._stepper is not None:
            self._stepper.close()
        self._tell(Stats(self._arguments.node, json.dumps(self._stats())))
        self._timers.close()
        self._post.close()
        self._control.close()
        self._context.term()
