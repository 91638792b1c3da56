"""A timerfd: a file descriptor that becomes readable at an absolute time of CLOCK_MONOTONIC.

Python 3.13 has ``os.timerfd_create``; until then this asks libc. Linux only. Torch-free, and used
by the live host as well.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from types import TracebackType

_TFD_TIMER_ABSTIME = 1
_NS = 1_000_000_000


class _Itimerspec(ctypes.Structure):
    """``struct itimerspec``: interval, then the first expiry; zero means disarmed."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


_LIBC = ctypes.CDLL(None, use_errno=True)


class DeadlineTimer:
    """One timerfd, non-blocking and close-on-exec; hand it to poll(), select() or an event loop."""

    def __init__(self) -> None:
        self._fd = _check(
            _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC),
            "timerfd_create",
        )

    def fileno(self) -> int:
        """The descriptor; readable from the armed time until ``acknowledge``."""
        return self._fd

    def arm(self, at_ns: int) -> None:
        """Become readable at ``at_ns`` of CLOCK_MONOTONIC; at once where that has passed."""
        self._set(max(1, at_ns))

    def disarm(self) -> None:
        """Not become readable any more; a missed expiry is forgotten."""
        self._set(0)

    def acknowledge(self) -> bool:
        """Whether the timer had expired; it is not readable afterwards."""
        try:
            return bool(os.read(self._fd, 8))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> DeadlineTimer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _set(self, at_ns: int) -> None:
        spec = _Itimerspec(0, 0, at_ns // _NS, at_ns % _NS)
        _check(
            _LIBC.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None),
            "timerfd_settime",
        )


def _check(result: int, call: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)} ({errno.errorcode.get(code, code)})")
    return result
