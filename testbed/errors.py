"""The one hierarchy of errors that a user of the testbed can meet.

Every error names the place, the value and what is allowed, or what was awaited and for how long.
"""

from __future__ import annotations

from protocols.errors import ProtocolError, RanloomError

__all__ = [
    "FidelityError",
    "NodeFailed",
    "PolicyError",
    "ProtocolError",
    "RanloomError",
    "TopologyError",
    "TraceError",
]


class TopologyError(RanloomError):
    """Mistakes in an input file, one line each: file, line, key, value, what is allowed."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))


class TraceError(RanloomError):
    """A traffic or job trace that cannot be used (file, row, column, value, what is allowed)."""


class PolicyError(RanloomError):
    """A policy that cannot be loaded, or that returned something it must not."""


class NodeFailed(RanloomError):
    """A process of the run that ended before its time: kind, exit status, last lines of its log."""


class FidelityError(RanloomError):
    """A run that this machine cannot keep in time, or cannot run at all."""
