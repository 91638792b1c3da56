"""The text that proxies are trained on: bytes, the same on every site. Torch-free.

By default the Python standard library's own sources, which every machine of a run has: about 4 MB
in a fixed order. Sites whose interpreters differ have different texts; the digest shows it.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from protocols.errors import RanloomError
from testbed.rng import generator

VOCABULARY = 256
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}
_MACHINE_DEPENDENT = "_sysconfigdata"

ByteArray = npt.NDArray[np.uint8]


class TextError(RanloomError):
    """A text that cannot be read, or is too short for one sequence."""


class TrainingText:
    """Windows of a text. ``sample(k)`` depends on the seed and on k alone."""

    def __init__(self, seed: int, data: ByteArray, micro_batch: int, sequence: int) -> None:
        if len(data) < sequence + 2:
            raise TextError(
                f"a text of {len(data)} bytes; sequences of {sequence} need at least {sequence + 2}"
            )
        self.data = data
        self._seed = seed
        self._micro_batch = micro_batch
        self._offsets = np.arange(sequence + 1)

    def sample(self, sample_id: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(inputs, targets) of one micro-batch, each int64 [micro_batch, sequence]."""
        draw = generator(self._seed, "training.data", sample_id)
        starts = draw.integers(0, len(self.data) - len(self._offsets), size=self._micro_batch)
        windows = self.data[starts[:, None] + self._offsets].astype(np.int64)
        return windows[:, :-1], windows[:, 1:]

    def unigram_entropy_nats(self) -> float:
        """Entropy of the byte frequencies: the loss of a model that has learnt only those."""
        counts = np.bincount(self.data, minlength=VOCABULARY)
        share = counts[counts > 0] / len(self.data)
        return float(-(share * np.log(share)).sum())

    def digest(self) -> str:
        """Hex digest of the text: equal on sites that train on the same."""
        return hashlib.blake2b(self.data.tobytes(), digest_size=16).hexdigest()


def load_text(source: str, most_bytes: int) -> ByteArray:
    """The first ``most_bytes`` of the standard library, a file, or a directory's files in order.

    Raises TextError.
    """
    if source == "stdlib":
        return _read(_stdlib_sources(), most_bytes)
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return _read(files, most_bytes)
    if not path.is_file():
        raise TextError(f"text = {source!r} is neither 'stdlib' nor a file or directory")
    return _read([path], most_bytes)


def _stdlib_sources() -> Iterator[Path]:
    """A directory's own files by name, then its subdirectories by name; lazily."""
    for folder, subfolders, files in os.walk(sysconfig.get_paths()["stdlib"]):
        subfolders[:] = sorted(set(subfolders) - _LEFT_OUT)
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith(_MACHINE_DEPENDENT):
                yield Path(folder, name)


def _read(files: Iterable[Path], most_bytes: int) -> ByteArray:
    """The files' bytes in order, cut at ``most_bytes``."""
    parts = bytearray()
    for file in files:
        try:
            with file.open("rb") as stream:
                parts += stream.read(most_bytes - len(parts))
        except OSError as error:
            raise TextError(f"text: {file}: {error.strerror}") from None
        if len(parts) >= most_bytes:
            break
    return np.frombuffer(bytes(parts), dtype=np.uint8)
