"""How work on the device ends: held to its modelled end, or as measured. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """``settle`` returns once the device has finished the work launched."""

    held: bool = True
    settle: Callable[[], None] = lambda: None
