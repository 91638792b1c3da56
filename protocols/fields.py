"""What a field of a message may hold: each kind checks one value and says what is allowed.

A field is declared as ``name: Annotated[python_type, Kind(...)]``. The codec calls ``check`` on
every field of every message that it decodes; it is also the source of the table in PROTOCOL.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt


class FieldKind(Protocol):
    """One kind of field. ``check`` returns the value, or raises ValueError with what is allowed."""

    def check(self, value: Any) -> Any: ...

    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Int:
    """An integer within [low, high]."""

    low: int
    high: int

    def check(self, value: Any) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise ValueError(f"{_short(value)} is not {self.describe()}")
        return value

    def describe(self) -> str:
        return f"integer {self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def check(self, value: Any) -> bool:
        if type(value) is not bool:
            raise ValueError(f"{_short(value)} is not {self.describe()}")
        return value

    def describe(self) -> str:
        return "boolean"


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most ``longest`` characters."""

    longest: int

    def check(self, value: Any) -> str:
        if type(value) is not str or len(value) > self.longest:
            raise ValueError(f"{_short(value)} is not {self.describe()}")
        return value

    def describe(self) -> str:
        return f"text, at most {self.longest} characters"


@dataclass(frozen=True, slots=True)
class Ints:
    """A list of at most ``longest`` integers within [low, high]."""

    low: int
    high: int
    longest: int

    def check(self, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list | tuple) or len(value) > self.longest:
            raise ValueError(f"{_short(value)} is not {self.describe()}")
        for item in value:
            if type(item) is not int or not self.low <= item <= self.high:
                raise ValueError(f"{_short(item)} in a list is not {self.describe()}")
        return tuple(value)

    def describe(self) -> str:
        return f"list of at most {self.longest} integers {self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of at most ``most`` strings of at most ``longest`` characters."""

    most: int
    longest: int

    def check(self, value: Any) -> tuple[str, ...]:
        if (
            not isinstance(value, list | tuple)
            or len(value) > self.most
            or any(type(item) is not str or len(item) > self.longest for item in value)
        ):
            raise ValueError(f"{_short(value)} is not {self.describe()}")
        return tuple(value)

    def describe(self) -> str:
        return f"list of at most {self.most} texts of at most {self.longest} characters"


@dataclass(frozen=True, slots=True)
class Rows:
    """A list of at most ``most`` rows of exactly ``width`` integers within [low, high]."""

    width: int
    most: int
    low: int = 0
    high: int = 2**62

    def check(self, value: Any) -> tuple[tuple[int, ...], ...]:
        if not isinstance(value, list | tuple) or len(value) > self.most:
            raise ValueError(f"{_short(value)} is not {self.describe()}")
        rows = []
        for row in value:
            if not isinstance(row, list | tuple) or len(row) != self.width:
                raise ValueError(f"row {_short(row)} is not {self.describe()}")
            for item in row:
                if type(item) is not int or not self.low <= item <= self.high:
                    raise ValueError(f"{_short(item)} in a row is not {self.describe()}")
            rows.append(tuple(row))
        return tuple(rows)

    def describe(self) -> str:
        return f"list of at most {self.most} rows of {self.width} integers {self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class Array:
    """A C-ordered array that travels as a frame of its own, without a copy.

    ``columns`` is the length of the second axis; 0 means a one-dimensional array.
    """

    dtype: str
    columns: int
    most_bytes: int

    def check(self, value: Any) -> npt.NDArray[Any]:
        if not isinstance(value, memoryview | bytes | bytearray | np.ndarray):
            raise ValueError(f"{_short(value)} is not {self.describe()}")
        itemsize = np.dtype(self.dtype).itemsize
        size = value.nbytes if isinstance(value, memoryview | np.ndarray) else len(value)
        if size > self.most_bytes or size % (itemsize * max(1, self.columns)):
            raise ValueError(f"a frame of {size} bytes is not {self.describe()}")
        array = np.frombuffer(value, dtype=self.dtype)
        return array.reshape(-1, self.columns) if self.columns else array

    def describe(self) -> str:
        shape = f"(n, {self.columns})" if self.columns else "(n,)"
        return f"frame: {self.dtype} array {shape}, at most {self.most_bytes} bytes"


@dataclass(frozen=True, slots=True)
class Columns:
    """Named columns of equal length, each a frame of its own: float64 or int64 arrays.

    In memory a mapping name -> array; on the wire the frames carry ``name:dtype`` in the header.
    """

    most_columns: int
    most_bytes: int

    def check(self, value: Any) -> dict[str, npt.NDArray[Any]]:
        if not isinstance(value, dict) or not 0 < len(value) <= self.most_columns:
            raise ValueError(f"{_short(value)} is not {self.describe()}")
        lengths = set()
        for name, column in value.items():
            if not isinstance(name, str) or not isinstance(column, np.ndarray):
                raise ValueError(f"column {_short(name)} is not {self.describe()}")
            if column.dtype.str not in ("<i8", "<f8") or column.nbytes > self.most_bytes:
                raise ValueError(f"column {name} of {column.dtype} is not {self.describe()}")
            lengths.add(len(column))
        if len(lengths) != 1:
            raise ValueError(f"columns of different lengths {sorted(lengths)}")
        return value

    def describe(self) -> str:
        return (
            f"frames: at most {self.most_columns} named int64 or float64 columns of equal length, "
            f"at most {self.most_bytes} bytes each"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


# The kinds that most messages use.
U8 = Annotated[int, Int(0, 255)]
U16 = Annotated[int, Int(0, 2**16 - 1)]
U32 = Annotated[int, Int(0, 2**32 - 1)]
TimeUs = Annotated[int, Int(-(2**53), 2**53)]
Name = Annotated[str, Text(64)]
Note = Annotated[str, Text(2000)]
Boolean = Annotated[bool, Flag()]
