"""The one place that names the compiler of array code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of numbers, arrays and named tuples of them, and keep it on disk.

    It may call other compiled functions and the numpy that numba knows. Integers are 64 bits wide
    and wrap; floats round as in Python (no fast-math), so that both give the same numbers.
    """
    return cast(F, njit(cache=True)(function))


def inlined(function: F) -> F:
    """The same for a small function, put into its callers.

    A call that passes named tuples of arrays counts references to each of them: about ten times the
    cost of a look-up. Inlined, it costs nothing.
    """
    return cast(F, njit(cache=True, inline="always")(function))


def new_record(dtype: np.dtype[Any]) -> Any:
    """A record of zeros: its fields, numbers and arrays of fixed shapes, are attributes.

    Compiled code gets a record as one address. Named tuples of arrays would be taken apart and put
    together at each call, which costs time at work and minutes of compiling.
    """
    return np.zeros(1, dtype).view(np.recarray)[0]
