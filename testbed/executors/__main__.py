"""``python -m testbed.executors KIND``: the life cycle that all kinds of executor share.

ExecutorConfig -> build and warm up -> ExecutorReady -> ExecutorStart -> work -> ExecutorStop or
EOF -> exit 0. An exception -> ExecutorFailed, a traceback on stderr, exit 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import sys
import traceback
from contextlib import suppress
from typing import Protocol

from protocols.errors import ProtocolError
from protocols.work import (
    ExecutorConfig,
    ExecutorFailed,
    ExecutorReady,
    ExecutorStart,
    ExecutorStop,
)
from testbed.executors.clock import EmulatedClock
from testbed.executors.config import ExecutorBase, PhyConfig, StoreConfig, TrainerConfig
from testbed.executors.link import HostGone, HostLink
from testbed.executors.process import schedule, set_up

CONFIGS: dict[str, type[ExecutorBase]] = {
    "phy": PhyConfig,
    "store": StoreConfig,
    "trainer": TrainerConfig,
}
_DETAIL_CHARACTERS = 2000


class Executor(Protocol):
    """One kind of work, warm when made."""

    @property
    def config(self) -> ExecutorBase:
        """Scheduling, among others."""

    def facts(self) -> dict[str, object]:
        """What the host should know of it: JSON values."""

    def run(self, link: HostLink) -> None:
        """Work until ExecutorStop."""


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run one executor, return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m testbed.executors", description=__doc__)
    parser.add_argument("kind", choices=sorted(CONFIGS))
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--lease-fd", type=int)
    parser.add_argument("--launcher-pid", type=int, required=True)
    given = parser.parse_args(arguments)
    sock = socket.socket(fileno=given.socket_fd)
    link = HostLink(sock)
    try:
        set_up(sock, given.launcher_pid)
        _live(link, given.kind, given.lease_fd)
    except HostGone:
        return 0
    except Exception as error:
        traceback.print_exc()
        with suppress(HostGone):
            link.send(ExecutorFailed(type(error).__name__[:64], str(error)[:_DETAIL_CHARACTERS]))
        return 1
    finally:
        link.close()
    return 0


def _live(link: HostLink, kind: str, lease_fd: int | None) -> None:
    message = link.receive(None)
    if isinstance(message, ExecutorStop):
        return
    if not isinstance(message, ExecutorConfig):
        raise ProtocolError("unexpected-message", f"{type(message).__name__} before ExecutorConfig")
    config = CONFIGS[kind].model_validate_json(message.document)
    executor = _build(config, lease_fd)
    facts = executor.facts() | {"scheduling": schedule(executor.config)}
    gc.collect()
    gc.freeze()
    link.send(ExecutorReady(json.dumps(facts, sort_keys=True)))
    message = link.receive(None)
    if isinstance(message, ExecutorStop):
        return
    if not isinstance(message, ExecutorStart):
        raise ProtocolError("unexpected-message", f"{type(message).__name__} before ExecutorStart")
    link.start(EmulatedClock(message.epoch_ns, message.wall_ns_per_us))
    executor.run(link)


def _build(config: ExecutorBase, lease_fd: int | None) -> Executor:
    """Import and make the executor; no kind pays for another's imports."""
    _quieten()
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    match config:
        case PhyConfig():
            from testbed.executors.phy import PhyExecutor

            return PhyExecutor(config)
        case StoreConfig():
            from testbed.executors.store import StoreExecutor

            return StoreExecutor(config)
        case TrainerConfig():
            from testbed.executors.trainer import TrainerExecutor, lease_reader

            if lease_fd is None:
                raise ProtocolError("no-lease", "a trainer needs --lease-fd")
            return TrainerExecutor(config, lease_reader(lease_fd))
    raise TypeError(f"no executor takes a {type(config).__name__}")


def _quieten() -> None:
    """Before torch is imported: one thread, and errors only from it and from torchft."""
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    for name, level in (("TORCH_CPP_LOG_LEVEL", "ERROR"), ("RUST_LOG", "error")):
        os.environ.setdefault(name, level)


if __name__ == "__main__":
    sys.exit(main())
