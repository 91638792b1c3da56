"""Numbers as the summary shows them: rounding, percentiles, and "not applicable" with a reason.

``null`` always has a reason: the value of ``key`` is None, and ``key_reason`` beside it says why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Figures = dict[str, Any]


def rounded(value: float | None, digits: int = 6) -> float | None:
    """A float as it is written down (fixed number of digits: the same on every machine)."""
    return None if value is None else round(float(value), digits)


def put(figures: Figures, key: str, value: Any, reason: str) -> None:
    """Set ``key``; where the value is None, say why under ``key_reason``."""
    figures[key] = rounded(value) if isinstance(value, float) else value
    if value is None:
        figures[f"{key}_reason"] = reason


def ratio(part: float, whole: float) -> float | None:
    """part / whole; None where the whole is 0."""
    return part / whole if whole else None


def percentile(values: npt.ArrayLike, percent: int) -> int | None:
    """The smallest value that at least ``percent`` of all values do not exceed (nearest rank)."""
    ordered = np.sort(np.asarray(values, dtype=np.int64))
    if not len(ordered):
        return None
    return int(ordered[max(0, -(-len(ordered) * percent // 100) - 1)])


def jain(values: npt.ArrayLike) -> float | None:
    """Jain's fairness index (sum x)^2 / (n sum x^2); None where nothing was served."""
    x = np.sort(np.asarray(values, dtype=np.float64))  # one order of summing, one result
    square = float(np.dot(x, x))
    return float(x.sum()) ** 2 / (len(x) * square) if square else None
