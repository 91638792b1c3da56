"""Counter-based random numbers: a draw depends on its key alone, never on the draws before it.

The generator is Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
Its 128-bit key is taken from (seed, stream name) and its counter from the integers that name the
draw (cell, UE, slot, HARQ process, ...), so that one late message shifts no other draw, and no
PYTHONHASHSEED can change one.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=1024)
def _philox_key(seed: int, stream: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def generator(seed: int, stream: str, *counter: int) -> np.random.Generator:
    """A generator for one named draw (or one block of draws).

    Args:
        seed: the topology's seed.
        stream: what is drawn, for example ``"ran.crc"``.
        counter: at most three non-negative integers below 2**64 that name the draw.
    """
    if len(counter) > 3:
        raise ValueError(f"at most three counters, got {counter}")
    # The lowest of the four counter words is left to the generator: it counts within the draw.
    words = sum(value << (64 * (index + 1)) for index, value in enumerate(counter))
    return np.random.Generator(np.random.Philox(key=_philox_key(seed, stream), counter=words))
