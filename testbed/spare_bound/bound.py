"""The bound itself: curves in, one linear programme per quantum length, a proven share out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from testbed.gpu.cost import DOWNLINK, UPLINK
from testbed.spare_bound.curves import link_curves
from testbed.spare_bound.greedy import Lowered, lowered
from testbed.spare_bound.inputs import BoundInput
from testbed.spare_bound.pieces import FREE, Piece, Solved, common

BLOCK_US = 5_000
"""Length of the blocks of ``work``; shorter ones are slower to solve and hardly tighter."""

PIECE_US = 2_000_000
"""Longest piece that is solved at once; the time that a solver needs grows faster than that."""


@dataclass(frozen=True, slots=True)
class WindowBound:
    """Bounds for one quantum length.

    Attributes:
        window_us: the quantum length q.
        starts: windows of the average; several intervals are averaged with these as weights.
        bound_fraction: usable_fraction[q] of no policy that keeps all budgets is larger.
        bound_fraction_granular: the same, knowing that SMs come in steps: never above it.
        pieces, rows, columns: of the programmes of ``bound_fraction``; the sum of their sizes.
        iterations: of the solver, for these.
    """

    window_us: int
    starts: int
    bound_fraction: float
    bound_fraction_granular: float
    pieces: int
    rows: int
    columns: int
    iterations: int


@dataclass(frozen=True, slots=True)
class BoundResult:
    """Bounds of one interval, in the order of the input's windows.

    ``late_blocks``: 0 where a schedule was found that keeps all budgets. Else the deadlines were
    lowered by at most so many code blocks at any time: the bound is still one for all policies that
    keep all budgets, but there may be none.
    """

    windows: tuple[WindowBound, ...]
    late_blocks: float

    @property
    def status(self) -> str:
        """``"met"``: a schedule keeps all budgets; ``"lowered"``: none was found."""
        return "lowered" if self.late_blocks > 0 else "met"


def bound(given: BoundInput, *, block_us: int = BLOCK_US, piece_us: int = PIECE_US) -> BoundResult:
    """Upper bounds of mean (S - max R over [t, t + q)) / S, over all policies.

    Every policy counts that is given the same arrivals, puts each byte on the air after it was
    known and early enough to be received by its deadline, and does its PHY work between its ready
    time and its deadline, at the costs of the cost model at least. Block errors cost nothing here:
    a policy that foresees them can avoid them. Outside the interval nothing costs anything, so
    that an interval should be much longer than the longest delay budget.

    Args:
        given: what is served, and which windows are asked for.
        block_us: how finely the service of each cell is known (``work``). Any is valid.
        piece_us: longest piece that is solved at once (``pieces``). Any is valid.

    Raises:
        ValueError: a window that does not fit into the interval.
        program.SolverError: HiGHS gave no solution.
    """
    for window_us in given.windows_us:
        if given.from_slot + window_us // given.slot_us > given.end_slot:
            raise ValueError(
                f"windows_us = {window_us}: allowed is what fits between from_slot = "
                f"{given.from_slot} and end_slot = {given.end_slot}"
            )
    curves = lowered(given, link_curves(given, DOWNLINK), link_curves(given, UPLINK))
    interval = _Interval(given, curves, block_us, piece_us)
    return BoundResult(tuple(interval.bound(q) for q in given.windows_us), curves.late_blocks)


class _Interval:
    """The pieces of an interval, and those around its inner boundaries."""

    def __init__(self, given: BoundInput, curves: Lowered, block_us: int, piece_us: int) -> None:
        slots = given.to_slot - given.from_slot
        count = -(-slots * given.slot_us // piece_us)
        cuts = [given.from_slot + slots * i // count for i in range(count + 1)]
        longest = max(given.windows_us, default=given.slot_us) // given.slot_us
        end = min(given.to_slot - 1 + longest, given.end_slot)
        ends = [*cuts[1:-1], end]
        self._given = given
        self._pieces = [
            Piece.of(given, curves, first, beyond, last, block_us)
            for (first, beyond), last in zip(pairwise(cuts), ends, strict=True)
        ]
        half = [(left + right) // 2 for left, right in pairwise(cuts)]
        self._around = [
            (cut, Piece.of(given, curves, first, beyond, beyond, block_us))
            for cut, (first, beyond) in zip(cuts[1:-1], pairwise(half), strict=True)
        ]

    def bound(self, window_us: int) -> WindowBound:
        """Both bounds for one quantum length."""
        plain = self._solve(window_us, granular=False)
        stepped = plain
        min_sms = self._given.gpu.min_sms
        if any(piece.least is not None and piece.least < min_sms for piece in plain):
            stepped = self._solve(window_us, granular=True)
        starts = sum(piece.starts for piece in plain)
        whole = self._given.gpu.sms * starts

        def fraction(solved: list[Solved]) -> float:
            return min(1.0, 1 - sum(piece.sm_windows for piece in solved) / whole)

        return WindowBound(
            window_us=window_us,
            starts=starts,
            bound_fraction=fraction(plain),
            bound_fraction_granular=min(fraction(plain), fraction(stepped)),
            pieces=len(plain),
            rows=sum(piece.solution.rows for piece in plain),
            columns=sum(piece.solution.columns for piece in plain),
            iterations=sum(piece.solution.iterations for piece in plain),
        )

    def _solve(self, window_us: int, granular: bool) -> list[Solved]:
        inner = [
            common(around.prices_at(cut, window_us, granular), left, right)
            for (cut, around), (left, right) in zip(
                self._around, pairwise(self._pieces), strict=True
            )
        ]
        prices = [FREE, *inner, FREE]
        return [
            piece.solve(window_us, granular, start, end)
            for piece, (start, end) in zip(self._pieces, pairwise(prices), strict=True)
        ]
