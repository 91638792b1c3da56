"""The lease in shared memory: one writer (the trainer's node), one reader (its executor).

Layout, little-endian int64 words: version, epoch, bandwidth_permille, n, then n rows (start_us,
end_us, sms), then a CRC-32 of all of it. The reader takes a copy and checks the CRC, so that a
torn read shows on any memory model; ``version`` changes with every write.
"""

from __future__ import annotations

import struct
import zlib
from typing import Protocol

from testbed.gpu.gate import Lease, Window

MAX_WINDOWS = 64
LEASE_BYTES = 8 * (4 + 3 * MAX_WINDOWS + 1)


class Memory(Protocol):
    """A writable buffer that both processes map (an ``mmap`` of a memfd)."""

    def __getitem__(self, index: slice, /) -> bytes: ...

    def __setitem__(self, index: slice, value: bytes, /) -> None: ...


def write_lease(memory: Memory, lease: Lease, version: int) -> None:
    """Replace the lease. More than MAX_WINDOWS windows: the later ones are left out (safe side)."""
    windows = lease.windows[:MAX_WINDOWS]
    words = [version, lease.epoch, lease.bandwidth_permille, len(windows)]
    for window in windows:
        words += (window.start_us, window.end_us, window.sms)
    body = struct.pack(f"<{len(words)}q", *words)
    record = body + struct.pack("<q", zlib.crc32(body))
    memory[0 : len(record)] = record


def read_lease(memory: Memory) -> tuple[int, Lease] | None:
    """(version, lease), or None where the read was torn or nothing was written yet."""
    raw = bytes(memory[0:LEASE_BYTES])
    version, epoch, bandwidth_permille, count = struct.unpack_from("<4q", raw)
    if not 0 <= count <= MAX_WINDOWS or version == 0:
        return None
    size = 8 * (4 + 3 * count)
    (crc,) = struct.unpack_from("<q", raw, size)
    if zlib.crc32(raw[:size]) != crc:
        return None
    rows = struct.iter_unpack("<3q", raw[32:size])
    return version, Lease(epoch, tuple(Window(*row) for row in rows), bandwidth_permille)
