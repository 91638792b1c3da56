"""Assignment policies: how many micro-batches of a step each trainer computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class AssignmentPolicy(Protocol):
    """Asked once per step, and again for the samples of a member that was lost in it."""

    def split(self, total: int, members: Sequence[str]) -> Mapping[str, int]:
        """Micro-batches per member, ``total`` together; ``members`` are those that can compute now:
        all but the lost, and those that have not got the state yet."""
        ...


class Equal:
    """Parts that differ by at most one; the first members get more.

    Works badly where sites differ in spare time: all wait for the slowest.
    """

    def split(self, total: int, members: Sequence[str]) -> Mapping[str, int]:
        """``total`` in nearly equal parts."""
        base, extra = divmod(total, len(members))
        return {member: base + (index < extra) for index, member in enumerate(members)}
