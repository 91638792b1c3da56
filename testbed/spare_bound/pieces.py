"""A long interval in pieces that are solved apart, and prices for the work that they leave over.

Solved alone, a piece would serve all that it can outside: what has arrived before would have been
served already, what is not yet due would wait. So service up to a boundary is a column of both
neighbours, and their being equal is relaxed at a price per code block: what a piece has served at
its end is paid for by the next. By weak duality the sum over the pieces is a lower bound of the
whole at any prices; good ones are the multipliers of a piece around the boundary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from testbed.spare_bound.granular import Intervals, add_hits, forced_intervals, least_sms
from testbed.spare_bound.greedy import Lowered
from testbed.spare_bound.inputs import BoundInput, Floats
from testbed.spare_bound.program import Program, Solution
from testbed.spare_bound.windows import add_windows, windows_of
from testbed.spare_bound.work import Service, Work, add_work


@dataclass(frozen=True, slots=True)
class Prices:
    """Price per code block served before a boundary; None where a neighbour has no service."""

    downlink: Floats | None
    uplink: Floats | None

    def of(self, piece: Piece) -> tuple[tuple[Service | None, Floats | None], ...]:
        """Each direction's service in a piece, and its prices."""
        work = piece.work
        return (work.downlink, self.downlink), (work.uplink, self.uplink)


FREE = Prices(None, None)
"""At the ends of the whole interval."""


@dataclass(frozen=True, slots=True)
class Solved:
    """A piece for one window length.

    ``sm_windows``: no policy's sum of window maxima and prices is smaller. ``least``: of the
    solver's windows the smallest maximum, or None without windows.
    """

    sm_windows: float
    starts: int
    least: float | None
    solution: Solution


@dataclass(frozen=True, slots=True)
class Piece:
    """Work of the air slots that begin in some execution slots, and the windows that start there.

    Windows count what of them lies within the piece.
    """

    given: BoundInput
    program: Program
    work: Work
    forced: Intervals

    @classmethod
    def of(
        cls,
        given: BoundInput,
        curves: Lowered,
        from_slot: int,
        to_slot: int,
        end: int,
        block_us: int,
    ) -> Piece:
        """Windows that start in [from_slot, to_slot), work of [from_slot, end)."""
        own = replace(given, from_slot=from_slot, to_slot=to_slot)
        program = Program()
        work = add_work(program, own, curves.downlink, curves.uplink, end, block_us)
        return cls(own, program, work, forced_intervals(own, work.ran, curves))

    def solve(
        self, window_us: int, granular: bool, start: Prices = FREE, end: Prices = FREE
    ) -> Solved:
        """The least sum of window maxima, with what the boundaries' prices add to it."""
        program, sms = self.program.copy(), self.given.gpu.sms
        windows = windows_of(self.given, self.work.ran, window_us)
        least = np.zeros(len(windows.count))
        if granular:
            least = least_sms(self.given, windows, self.forced)
        columns = add_windows(program, sms, self.work.ran, windows, least)
        if granular:
            add_hits(program, self.given, windows, self.forced, columns)
        constant = 0.0
        for prices, sign in ((start, 1.0), (end, -1.0)):
            for service, price in prices.of(self):
                if service is not None and price is not None:
                    program.add_cost(service.start if sign > 0 else service.end, sign * price)
                    constant += sign * float((price * service.base).sum())
        solution = program.solve()
        values = solution.values[columns]
        return Solved(
            sm_windows=solution.proven_cost + constant,
            starts=windows.starts,
            least=float(values.min()) if len(values) else None,
            solution=solution,
        )

    def prices_at(self, slot: int, window_us: int, granular: bool) -> Prices:
        """What one more code block served before an execution slot within the piece is worth.

        Classes whose service is known in finer steps have no price: they hardly wait.
        """
        multipliers = self.solve(window_us, granular).solution.multipliers

        def of(service: Service | None) -> Floats | None:
            if service is None:
                return None
            block = min(int(np.searchsorted(service.first_slot, slot)), service.rows.shape[-1] - 1)
            worth = np.maximum(-multipliers[service.rows[..., block]], 0.0)
            return np.where(service.coarse, worth, 0.0)

        return Prices(of(self.work.downlink), of(self.work.uplink))


def common(prices: Prices, left: Piece, right: Piece) -> Prices:
    """The prices of those directions that both neighbours of a boundary have."""
    has = (
        left.work.downlink is not None and right.work.downlink is not None,
        left.work.uplink is not None and right.work.uplink is not None,
    )
    return Prices(prices.downlink if has[0] else None, prices.uplink if has[1] else None)
