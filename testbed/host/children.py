"""Child processes of the launcher: each in a process group of its own, watched by pidfd."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

OnExit = Callable[[str, int], None]


class Child:
    """One process; its standard output and error go to ``log``."""

    def __init__(
        self, name: str, command: list[str], log: Path, on_exit: OnExit, cwd: Path | None = None
    ) -> None:
        self.name = name
        self.log = log
        self.exited = asyncio.Event()
        self.code: int | None = None
        self._on_exit = on_exit
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                cwd=cwd,
            )
        self._pidfd = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    @property
    def pid(self) -> int:
        """Process id, and id of its process group."""
        return self._process.pid

    async def wait(self, limit_s: float) -> bool:
        """Whether it has exited within ``limit_s``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.exited.wait()
        return self.exited.is_set()

    def kill(self) -> None:
        """SIGKILL to it and to all in its group; without effect once all are gone."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if line.strip()][-lines:]

    def _exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.code = self._process.wait()
        self.exited.set()
        self._on_exit(self.name, self.code)
