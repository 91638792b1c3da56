"""The store through which the trainers' process groups find each other: one small process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from protocols.codec import Frame
from protocols.errors import RanloomError
from protocols.messages import Message
from protocols.work import ExecutorFailed, ExecutorReady
from testbed.errors import NodeFailed
from testbed.executors.config import StoreConfig
from testbed.host.executor_child import ExecutorChild
from testbed.host.run_dir import RunDirectory

_LOOPBACK = "127.0.0.1"


class Rendezvous:
    """Owns the ``store`` executor. Its ``endpoint`` (host:port on loopback) is known before it is
    ready: who connects early waits in the listener's queue."""

    def __init__(
        self,
        run_dir: RunDirectory,
        on_ready: Callable[[], None],
        fail: Callable[[RanloomError], None],
    ) -> None:
        self._on_ready = on_ready
        self._fail = fail
        self.ready = False
        with socket.create_server((_LOOPBACK, 0)) as listener:
            self.endpoint = f"{_LOOPBACK}:{listener.getsockname()[1]}"
            config = StoreConfig(listener_fd=listener.fileno())
            self._child = ExecutorChild(
                "store", config.model_dump_json(), os.getpid(), (listener.fileno(),)
            )
            self._child.start(self._on_message, self._on_exit)
        run_dir.note_process("store", "rendezvous", self._child.pid)

    @property
    def pid(self) -> int:
        """Process id of the store."""
        return self._child.pid

    async def stop(self) -> None:
        """End it."""
        await self._child.stop(2.0)

    def _on_message(self, message: Message, _frames: list[Frame]) -> None:
        if isinstance(message, ExecutorReady):
            self.ready = True
            self._on_ready()
        elif isinstance(message, ExecutorFailed):
            self._on_exit(f"{message.error}: {message.reason}")

    def _on_exit(self, reason: str) -> None:
        self._fail(NodeFailed(f"the collective's store: {reason}"))
