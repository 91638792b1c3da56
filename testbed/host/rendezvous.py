"""The store through which the trainers' process groups find each other: one small process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable

from protocols.codec import Frame
from protocols.errors import RanloomError
from protocols.messages import Message
from protocols.work import ExecutorFailed, ExecutorReady
from testbed.errors import NodeFailed
from testbed.executors.config import StoreConfig
from testbed.host.executor_child import ExecutorChild
from testbed.host.run_dir import RunDirectory


class Rendezvous:
    """Owns the ``store`` executor; ``endpoint`` is host:port on loopback."""

    def __init__(self, run_dir: RunDirectory, fail: Callable[[RanloomError], None]) -> None:
        self._run_dir = run_dir
        self._fail = fail
        self._child = ExecutorChild("store", StoreConfig().model_dump_json(), os.getpid())
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.endpoint = ""

    @property
    def pid(self) -> int:
        """Process id of the store."""
        return self._child.pid

    async def start(self, limit_s: float) -> None:
        """Start it and wait for its endpoint. Raises NodeFailed."""
        self._child.start(self._on_message, self._on_exit)
        self._run_dir.note_process("store", "rendezvous", self._child.pid)
        try:
            async with asyncio.timeout(limit_s):
                self.endpoint = await self._ready
        except TimeoutError:
            raise NodeFailed(
                f"the collective's store was not ready after {limit_s:.0f} s (host.start_wall_ms)"
            ) from None

    async def stop(self) -> None:
        """End it."""
        await self._child.stop(2.0)

    def _on_message(self, message: Message, _frames: list[Frame]) -> None:
        if isinstance(message, ExecutorReady) and not self._ready.done():
            self._ready.set_result(str(json.loads(message.detail)["endpoint"]))
        elif isinstance(message, ExecutorFailed):
            self._on_exit(f"{message.error}: {message.reason}")

    def _on_exit(self, reason: str) -> None:
        error = NodeFailed(f"the collective's store: {reason}")
        if not self._ready.done():
            self._ready.set_exception(error)
        self._fail(error)
