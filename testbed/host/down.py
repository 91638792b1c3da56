"""``down``: end a run from anywhere, or clean up after one that is dead."""

from __future__ import annotations

import os
import select
import signal

from testbed.errors import NodeFailed
from testbed.host.run_dir import clean_up, find_run, launcher_of

_DRAIN_LIMIT_S = 45.0
_STOP_LIMIT_S = 10.0


def end_run(run: str) -> list[str]:
    """What was done, one line each. Raises RanloomError: no such run, or it does not end."""
    run_dir = find_run(run)
    launcher = launcher_of(run_dir)
    if launcher is None:
        done = clean_up(run_dir)
        return done or [f"{run_dir}: nothing is left of this run"]
    pidfd = os.pidfd_open(launcher.pid)
    try:
        # As Ctrl-C: once to end what is open, twice to end at once.
        for limit_s in (_DRAIN_LIMIT_S, _STOP_LIMIT_S):
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if select.select([pidfd], [], [], limit_s)[0]:
                return [f"ended {run_dir}", *clean_up(run_dir)]
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if select.select([pidfd], [], [], _STOP_LIMIT_S)[0]:
            return [f"killed the launcher of {run_dir}", *clean_up(run_dir)]
    finally:
        os.close(pidfd)
    raise NodeFailed(f"the launcher of {run_dir} (pid {launcher.pid}) does not end")
