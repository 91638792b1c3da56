"""Ties a node's life to the launcher's: no process of a run survives it.

PDEATHSIG kills at once; a thread on the launcher's pidfd covers what PDEATHSIG does not. The
recorder alone has no PDEATHSIG: it is the last to go, and takes the runtime directory with it. An
experiment is to the workers of its pool what the launcher is to its nodes.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import threading
from pathlib import Path

from testbed.errors import NodeFailed

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_LIBC = ctypes.CDLL(None, use_errno=True)


def tie_to_launcher(launcher_pid: int, janitor_of: Path | None) -> None:
    """Die with the launcher. ``janitor_of``: the runtime directory to remove then.

    Raises NodeFailed where the launcher is gone already.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _LIBC.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    if janitor_of is None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    try:
        pidfd = os.pidfd_open(launcher_pid)
    except ProcessLookupError:
        raise NodeFailed(f"the launcher (pid {launcher_pid}) is gone") from None
    if os.getppid() != launcher_pid:
        raise NodeFailed(f"the parent is {os.getppid()}, not the launcher {launcher_pid}")
    watch = threading.Thread(target=_watch, args=(pidfd, janitor_of), name="lifeline", daemon=True)
    watch.start()


def _watch(pidfd: int, janitor_of: Path | None) -> None:
    """Waits for ever: that is its purpose."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    while not poll.poll():
        pass
    if janitor_of is not None:
        shutil.rmtree(janitor_of, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)
