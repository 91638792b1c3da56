"""The one place that names the compiler of array code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

_CALLS = {"shaping": ("shaping",), "slotbench": ("shaping", "slotbench")}
"""Packages whose compiled functions those of a package call."""

_config = cast(Any, numba.config)


@cache
def _cache_directory(package: str) -> str:
    """Where a package's code is kept: by the state of *all* the sources that it comes from.

    numba looks at the source of the function alone, and would go on using what it has compiled
    when a function that it calls, in another file, has changed.
    """
    here = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for called in _CALLS[package]:
        for source in sorted((here.parent / called).glob("*.py")):
            digest.update(source.name.encode())
            digest.update(source.read_bytes())
    return str(here.parent / package / "__pycache__" / f"compiled-{digest.hexdigest()}")


def _compile(function: F, inline: str) -> F:
    given = _config.CACHE_DIR
    if not given:  # what the user has set (NUMBA_CACHE_DIR) stands
        _config.CACHE_DIR = _cache_directory(function.__module__.split(".")[1])
    try:
        return cast(F, cast(Any, numba.njit)(cache=True, inline=inline)(function))
    finally:
        _config.CACHE_DIR = given


def compiled(function: F) -> F:
    """Compile a function of numbers, arrays and named tuples of them, and keep it on disk.

    It may call other compiled functions and the numpy that numba knows. Integers are 64 bits wide
    and wrap; floats round as in Python (no fast-math), so that both give the same numbers.
    """
    return _compile(function, "never")


def inlined(function: F) -> F:
    """The same for a small function, put into its callers.

    A call that passes named tuples of arrays counts references to each of them: about ten times the
    cost of a look-up. Inlined, it costs nothing.
    """
    return _compile(function, "always")


def new_record(dtype: np.dtype[Any]) -> Any:
    """A record of zeros: its fields, numbers and arrays of fixed shapes, are attributes.

    Compiled code gets a record as one address. Named tuples of arrays would be taken apart and put
    together at each call, which costs time at work and minutes of compiling.
    """
    return np.zeros(1, dtype).view(np.recarray)[0]


def as_row(record: Any) -> Any:
    """A record of ``new_record`` as an array of one, of the same memory."""
    return record.base.view(np.ndarray)


def typed(number: int) -> int:
    """A constant for calls of compiled code: for a plain one the callee would be compiled anew."""
    return cast(int, np.int64(number))
