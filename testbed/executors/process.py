"""What every executor process does to itself: lifelines, timer slack, scheduling. Torch-free.

An executor must never outlive its host or the launcher: PDEATHSIG covers the host, a thread that
polls the pidfds of both covers the launcher and spawn methods for which PDEATHSIG does nothing.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import struct
import threading

from protocols.errors import RanloomError
from testbed.executors.config import ExecutorBase, Scheduling

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30
_LIBC = ctypes.CDLL(None, use_errno=True)


class Orphaned(RanloomError):
    """The host or the launcher was gone before the executor had tied its life to theirs."""


def set_up(sock: socket.socket, launcher_pid: int) -> None:
    """Tie this process to its host and launcher; exact timers; SIGINT is the launcher's.

    The host is whoever made the inherited socket pair (SO_PEERCRED), so that a host that died
    before PDEATHSIG was set is noticed. Raises Orphaned.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_TIMERSLACK, 1)
    keep_freed_memory()
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    (host_pid, _, _) = struct.unpack("3i", credentials)
    if os.getppid() != host_pid:
        raise Orphaned(f"the parent is {os.getppid()}, not the host {host_pid}")
    try:
        pidfds = [os.pidfd_open(pid) for pid in {host_pid, launcher_pid}]
    except ProcessLookupError:
        raise Orphaned(f"host {host_pid} or launcher {launcher_pid} is gone") from None
    threading.Thread(target=_lifeline, args=(pidfds,), name="lifeline", daemon=True).start()


def schedule(config: ExecutorBase) -> str:
    """Set nice value and scheduling class of the calling thread; what was obtained, in words."""
    notes = [set_class(config.scheduling)]
    if config.nice is not None:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, config.nice)
            notes.append(f"nice {config.nice}")
        except PermissionError:
            notes.append(f"nice {os.getpriority(os.PRIO_PROCESS, 0)} ({config.nice} refused)")
    return ", ".join(notes)


def set_class(wanted: Scheduling) -> str:
    """Set the scheduling class of the calling thread; what was obtained, in words."""
    if wanted.policy == "normal":
        return "normal"
    fifo = wanted.policy == "fifo"
    policy = os.SCHED_FIFO if fifo else os.SCHED_IDLE
    try:
        os.sched_setscheduler(0, policy, os.sched_param(wanted.priority if fifo else 0))
    except OSError as error:
        return f"normal ({wanted.policy} refused: {error.strerror})"
    return f"fifo {wanted.priority}" if fifo else "idle"


def fifo_permitted() -> bool:
    """Whether this process may ask for SCHED_FIFO; leaves its class as it was."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, *before)
    return True


def _lifeline(pidfds: list[int]) -> None:
    """Kill this process when one of the others ends. Waits for ever: that is its purpose."""
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    while not poll.poll():
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def keep_freed_memory() -> None:
    """Let malloc reuse freed tensors instead of returning them to the kernel.

    Tensors above its mmap threshold would otherwise be mapped, and their pages touched, anew in
    every slot and block: that was a third of an uplink slot's time. No effect outside glibc.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            mallopt(parameter, _KEEP_BYTES)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")
