"""A linear programme in the making, and its solution with a bound that needs no trust in a solver.

Owns columns, rows and the call of HiGHS; knows nothing of slots or GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Term = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""Rows (counted from 0 within one call), columns, and coefficients; broadcast together."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The least cost that is proven, and the solver's point.

    Attributes:
        proven_cost: no feasible point costs less. By weak duality: the Lagrangian's minimum over
            the columns' bounds, at the solver's multipliers. A solver that stopped early or is
            inexact makes it smaller, never wrong.
        cost: of the solver's point.
        values: the point.
        multipliers: of the rows ``equal``: how the cost grows with their right sides.
        iterations: of the solver.
        rows, columns: size of the programme.
    """

    proven_cost: float
    cost: float
    values: Floats
    multipliers: Floats
    iterations: int
    rows: int
    columns: int


class SolverError(RuntimeError):
    """The solver gave no point; the text has its status and message."""


class _Rows:
    """Rows of one kind as coordinates of a sparse matrix."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[tuple[Ints, Ints, Floats]] = []
        self._right: list[Floats] = []

    def add(self, right: Floats, terms: Sequence[Term]) -> None:
        for rows, columns, values in terms:
            row, column, value = np.broadcast_arrays(
                np.asarray(rows, np.int64),
                np.asarray(columns, np.int64),
                np.asarray(values, np.float64),
            )
            self._parts.append((row.ravel() + self.count, column.ravel(), value.ravel()))
        self.count += len(right)
        self._right.append(right)

    def matrix(self, columns: int) -> csr_array:
        if not self._parts:
            return csr_array((0, columns))
        row, column, value = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return csr_array((value, (row, column)), shape=(self.count, columns))

    def right(self) -> Floats:
        return np.concatenate(self._right) if self._right else np.zeros(0)


class Program:
    """minimise cost x, subject to rows <= or ==, and lower <= x <= upper, all finite."""

    def __init__(self) -> None:
        self._lower: list[Floats] = []
        self._upper: list[Floats] = []
        self._cost: list[Floats] = []
        self._at_most = _Rows()
        self._equal = _Rows()
        self._columns = 0
        self._extra: list[tuple[Ints, Floats]] = []

    def copy(self) -> Program:
        """The same programme, to be extended on its own."""
        twin = Program()
        twin._lower, twin._upper, twin._cost = [*self._lower], [*self._upper], [*self._cost]
        for own, new in ((self._at_most, twin._at_most), (self._equal, twin._equal)):
            new.count, new._parts, new._right = own.count, [*own._parts], [*own._right]
        twin._columns, twin._extra = self._columns, [*self._extra]
        return twin

    def columns(
        self, lower: npt.ArrayLike, upper: npt.ArrayLike, cost: npt.ArrayLike = 0.0
    ) -> Ints:
        """New columns; the bounds and costs are broadcast together. Returns their numbers."""
        low, high, price = np.broadcast_arrays(
            np.asarray(lower, np.float64),
            np.asarray(upper, np.float64),
            np.asarray(cost, np.float64),
        )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
            raise ValueError("bounds of columns must be finite and in order")
        first, self._columns = self._columns, self._columns + low.size
        self._lower.append(low.ravel())
        self._upper.append(high.ravel())
        self._cost.append(price.ravel())
        return np.arange(first, self._columns).reshape(low.shape)

    def at_most(self, right: npt.ArrayLike, *terms: Term) -> None:
        """New rows: the sum of the terms is at most ``right`` (one value per row)."""
        self._at_most.add(np.atleast_1d(np.asarray(right, np.float64)), terms)

    def equal(self, right: npt.ArrayLike, *terms: Term) -> Ints:
        """New rows: the sum of the terms is ``right`` (one value each). Returns their numbers."""
        first = self._equal.count
        self._equal.add(np.atleast_1d(np.asarray(right, np.float64)), terms)
        return np.arange(first, self._equal.count)

    def add_cost(self, columns: Ints, cost: Floats) -> None:
        """Raise the cost of different columns (arrays of one shape)."""
        self._extra.append((columns.ravel(), cost.ravel()))

    def solve(self, method: str = "highs-ipm") -> Solution:
        """Solve by HiGHS. Raises SolverError where it has no optimal point."""
        if not self._columns:
            return Solution(0.0, 0.0, np.zeros(0), np.zeros(0), 0, 0, 0)
        cost, lower, upper = (np.concatenate(p) for p in (self._cost, self._lower, self._upper))
        for columns, extra in self._extra:
            cost[columns] += extra
        at_most, equal = self._at_most.matrix(len(cost)), self._equal.matrix(len(cost))
        result = linprog(
            cost,
            A_ub=at_most,
            b_ub=self._at_most.right(),
            A_eq=equal,
            b_eq=self._equal.right(),
            bounds=np.column_stack((lower, upper)),
            method=method,
        )
        if result.status != 0:
            raise SolverError(f"HiGHS: status {result.status}, {result.message}")
        inequality = np.minimum(result.ineqlin.marginals, 0.0)
        equality = result.eqlin.marginals
        reduced = cost - at_most.T @ inequality - equal.T @ equality
        proven = (
            self._at_most.right() @ inequality
            + self._equal.right() @ equality
            + np.minimum(reduced * lower, reduced * upper).sum()
        )
        return Solution(
            proven_cost=float(proven),
            cost=float(result.fun),
            values=result.x,
            multipliers=equality,
            iterations=int(result.nit),
            rows=at_most.shape[0] + equal.shape[0],
            columns=len(cost),
        )
