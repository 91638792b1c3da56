"""Reading the TOML file of trace laws (``topologies/weave_replay.toml``)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from testbed.coexec.generate import Arrivals, LengthLaw, PhaseLaw, TraceLaw
from testbed.errors import TopologyError

Positive = Field(gt=0)
Range = tuple[float, float]


class _Edge(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Phase(_Edge):
    weight: float = Positive
    t_rollout_s: Range
    t_train_s: Range | None = None
    ratio: Range | None = None


class _Lengths(_Edge):
    lengths_k: tuple[float, ...]
    weights: tuple[float, ...]
    exponent: float
    seconds_at_8k: tuple[float, ...]
    clip_s: Range


class _Law(_Edge):
    jobs: int = Positive
    span_h: float = Positive
    mean_h: float = Positive
    sigma: float = Positive
    cap_h: float = Positive
    phases: tuple[_Phase, ...]
    slo: Range = (1.0, 2.0)
    arrivals: Literal["bursty", "uniform"] = "bursty"
    burst_share: float = Field(default=0.6, ge=0, le=1)
    burst_jobs: int = 25
    burst_h: float = 2.0
    rollout_nodes: int = 1
    train_nodes: int = 1
    models: tuple[str, ...] = ("3B", "7B", "14B", "32B")
    least_t_train_s: float = 1.0
    lengths: _Lengths | None = None


class _Laws(_Edge):
    laws: dict[str, _Law]


def _law(name: str, raw: _Law) -> TraceLaw:
    fields = raw.model_dump()
    fields["phases"] = tuple(PhaseLaw(**phase.model_dump()) for phase in raw.phases)
    fields["lengths"] = LengthLaw(**raw.lengths.model_dump()) if raw.lengths else None
    fields["arrivals"] = Arrivals(raw.arrivals)
    return TraceLaw(name=name, **fields)


def read_laws(path: Path) -> dict[str, TraceLaw]:
    """All laws of a file.

    Raises:
        TopologyError: every mistake of the file (key, value, what is allowed).
    """
    try:
        raw = _Laws.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise TopologyError([f"{path}: {error.strerror}"]) from error
    except tomllib.TOMLDecodeError as error:
        raise TopologyError([f"{path}: {error}"]) from error
    except ValidationError as error:
        raise TopologyError(
            [
                f"{path}: {'.'.join(map(str, one['loc']))} = {one['input']!r}: {one['msg']}"
                for one in error.errors()
            ]
        ) from error
    laws: dict[str, TraceLaw] = {}
    mistakes: list[str] = []
    for name, law in raw.laws.items():
        try:
            laws[name] = _law(name, law)
        except ValueError as error:
            mistakes.append(f"{path}: laws.{name}: {error}")
    if mistakes:
        raise TopologyError(mistakes)
    return laws
