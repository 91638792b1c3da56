"""What all tables of a topology share: strictness, names, and the two-form values.

A value is taken as written: ``"20"`` is text, never a number, and an unknown key is a mistake.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints


class Section(BaseModel):
    """One table of a topology: frozen, no unknown keys, no silent conversions."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        defer_build=True,  # nothing is built before it is needed: `check` starts faster
    )


NAME_PATTERN = r"^[a-z][a-z0-9_]{0,23}$"
"""Names of sites, gNBs and jobs: short enough that ``site.job.trainer`` fits 64 characters."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=400)]
Loose = Field(strict=False)
"""Lets a tuple be read from a TOML array; its items stay strict."""

MAX_EMULATED_US = 86_400_000_000
"""One day: the longest emulated time that a topology may name."""


def _word_or_number(value: Any) -> str:
    return "word" if isinstance(value, str) else "number"


WordOrNumber = Discriminator(_word_or_number)
"""For unions of a literal word (tagged ``word``) and a number (tagged ``number``)."""
