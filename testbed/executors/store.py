"""The run's one TCPStore, on loopback: at the socket that it inherits, or at one of its own."""

from __future__ import annotations

import socket
from datetime import timedelta

import torch.distributed as dist

from protocols.work import ExecutorStop
from testbed.executors.config import StoreConfig
from testbed.executors.link import HostLink

_LOOPBACK = "127.0.0.1"


class StoreExecutor:
    """Serves rendezvous keys to the trainers' process groups until it is stopped."""

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        # Left to itself, a TCPStore listens on all interfaces: give it a bound socket.
        if config.listener_fd is None:
            listener = socket.create_server((_LOOPBACK, 0))
        else:
            listener = socket.socket(fileno=config.listener_fd)
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            _LOOPBACK,
            listener.getsockname()[1],
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(milliseconds=config.timeout_wall_ms),
            master_listen_fd=listener.detach(),  # the store closes it
        )

    def facts(self) -> dict[str, object]:
        """Where the store listens."""
        return {"endpoint": f"{_LOOPBACK}:{self._store.port}"}

    def run(self, link: HostLink) -> None:
        """The store has threads of its own: only wait for the end."""
        while not isinstance(link.receive(None), ExecutorStop):
            pass
