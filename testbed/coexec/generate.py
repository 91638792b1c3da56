"""Synthetic job traces by stated laws and a seed.

The laws restate what RollMux (arXiv 2512.11306v2, section 7) publishes of its workloads: neither
trace is public. All parameters are data (:class:`TraceLaw`); the shipped file of laws is
``topologies/weave_replay.toml``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from testbed.coexec.jobs import JobProfile
from testbed.coexec.replay import TraceJob
from testbed.rng import generator


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A declared model's host bytes per node and seconds: RollMux, tables 4 and 5."""

    name: str
    host_rollout_gb: float
    host_train_gb: float
    swap_rollout_s: float
    swap_train_s: float
    sync_s: float


MODEL_SIZES = (
    ModelSize("3B", 113.4, 156.2, 0.8, 1.9, 0.4),
    ModelSize("7B", 275.7, 240.0, 0.9, 4.1, 0.9),
    ModelSize("14B", 445.4, 456.1, 1.8, 4.7, 1.7),
    ModelSize("32B", 490.3, 520.4, 1.7, 5.9, 3.9),
)


class Arrivals(Enum):
    BURSTY = "bursty"
    """``burst_share`` of the jobs in clusters of ``burst_jobs``, the rest uniform."""
    UNIFORM = "uniform"


@dataclass(frozen=True, slots=True)
class PhaseLaw:
    """One kind of job: rollout seconds U(low, high) (with a length law: the multiplier), and
    training seconds U(low, high), or the rollout over a ratio U(low, high)."""

    weight: float
    t_rollout_s: tuple[float, float]
    t_train_s: tuple[float, float] | None = None
    ratio: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if (self.t_train_s is None) == (self.ratio is None):
            raise ValueError("a phase law has either t_train_s or ratio")


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """Rollout seconds by model and response length, for laws of jobs with a length limit.

    Seconds = ``seconds_at_8k`` of the model x (length / 8)^``exponent`` x the phase law's
    multiplier, clipped. Lengths in thousands of tokens, with their weights.
    """

    lengths_k: tuple[float, ...]
    weights: tuple[float, ...]
    exponent: float
    seconds_at_8k: tuple[float, ...]
    clip_s: tuple[float, float]

    def __post_init__(self) -> None:
        if len(self.lengths_k) != len(self.weights) or not self.lengths_k:
            raise ValueError("lengths_k and weights must be of one length, and not empty")


@dataclass(frozen=True, slots=True)
class TraceLaw:
    """A trace: ``jobs`` over ``span_h`` hours; log-normal durations of ``mean_h``, capped."""

    name: str
    jobs: int
    span_h: float
    mean_h: float
    sigma: float
    cap_h: float
    phases: tuple[PhaseLaw, ...]
    slo: tuple[float, float] = (1.0, 2.0)
    arrivals: Arrivals = Arrivals.BURSTY
    burst_share: float = 0.6
    burst_jobs: int = 25
    burst_h: float = 2.0
    rollout_nodes: int = 1
    train_nodes: int = 1
    models: tuple[str, ...] = ("3B", "7B", "14B", "32B")
    least_t_train_s: float = 1.0
    lengths: LengthLaw | None = None

    def __post_init__(self) -> None:
        if self.jobs < 1 or not self.phases or self.slo[0] < 1:
            raise ValueError(f"law {self.name}: jobs >= 1, at least one phase law, SLO >= 1")
        known = [size.name for size in MODEL_SIZES]
        if not self.models or any(name not in known for name in self.models):
            raise ValueError(f"law {self.name}: models {self.models}; allowed: {known}")
        if self.lengths and len(self.lengths.seconds_at_8k) != len(self.models):
            raise ValueError(f"law {self.name}: seconds_at_8k needs one value per model")


def _arrivals_h(law: TraceLaw, rng: np.random.Generator) -> list[float]:
    if law.arrivals is Arrivals.UNIFORM:
        return sorted(float(x) for x in rng.uniform(0, law.span_h, law.jobs))
    clusters = max(1, law.jobs // law.burst_jobs)
    centres = rng.uniform(0, law.span_h, clusters)
    hours: list[float] = []
    for _ in range(law.jobs):
        if rng.random() < law.burst_share:
            centre = float(centres[int(rng.integers(clusters))])
            hours.append(centre + float(rng.exponential(law.burst_h)))
        else:
            hours.append(float(rng.uniform(0, law.span_h)))
    return sorted(hours)


def _durations_h(law: TraceLaw, rng: np.random.Generator) -> list[float]:
    """Log-normal, scaled so that the mean after the cap is ``mean_h`` (bisection on the scale)."""
    draws = np.exp(law.sigma * rng.standard_normal(law.jobs))
    low, high = 0.0, law.mean_h * 1000.0
    for _ in range(80):
        scale = (low + high) / 2
        if float(np.minimum(draws * scale, law.cap_h).mean()) < law.mean_h:
            low = scale
        else:
            high = scale
    return [float(x) for x in np.minimum(draws * high, law.cap_h)]


def _phases_s(
    law: TraceLaw, kind: PhaseLaw, model: int, rng: np.random.Generator
) -> tuple[float, float]:
    t_rollout = float(rng.uniform(*kind.t_rollout_s))
    if law.lengths is not None:
        at = float(rng.random()) * math.fsum(law.lengths.weights)
        length_k = law.lengths.lengths_k[_weighted(law.lengths.weights, at)]
        base_s = law.lengths.seconds_at_8k[model]
        t_rollout *= base_s * (length_k / 8.0) ** law.lengths.exponent
        t_rollout = min(max(t_rollout, law.lengths.clip_s[0]), law.lengths.clip_s[1])
    if kind.t_train_s is not None:
        return t_rollout, float(rng.uniform(*kind.t_train_s))
    assert kind.ratio is not None
    return t_rollout, max(law.least_t_train_s, t_rollout / float(rng.uniform(*kind.ratio)))


def generate(law: TraceLaw, seed: int) -> list[TraceJob]:
    """The trace of ``law`` and ``seed``; job names are row numbers."""
    by_name = {size.name: size for size in MODEL_SIZES}
    sizes = [by_name[name] for name in law.models]
    stream = f"coexec.trace/{law.name}"
    arrivals = _arrivals_h(law, generator(seed, f"{stream}/arrivals"))
    durations = _durations_h(law, generator(seed, f"{stream}/durations"))
    weights = [kind.weight for kind in law.phases]
    total = math.fsum(weights)
    trace: list[TraceJob] = []
    for index, (arrival_h, duration_h) in enumerate(zip(arrivals, durations, strict=True)):
        rng = generator(seed, stream, index)
        model = int(rng.integers(len(sizes)))
        size = sizes[model]
        kind = law.phases[_weighted(weights, float(rng.random()) * total)]
        t_rollout_s, t_train_s = _phases_s(law, kind, model, rng)
        profile = JobProfile(
            job=str(index),
            model=size.name,
            rollout_nodes=law.rollout_nodes,
            train_nodes=law.train_nodes,
            t_rollout_s=round(t_rollout_s, 2),
            t_train_s=round(t_train_s, 2),
            slo=round(float(rng.uniform(*law.slo)), 3),
            host_rollout_gb=size.host_rollout_gb,
            host_train_gb=size.host_train_gb,
            swap_rollout_s=size.swap_rollout_s,
            swap_train_s=size.swap_train_s,
            sync_s=size.sync_s,
        )
        trace.append(TraceJob(profile, round(arrival_h, 4), round(duration_h, 4)))
    return trace


def _weighted(weights: Sequence[float], at: float) -> int:
    """The position in which ``at`` falls when the weights are laid end to end."""
    for position, weight in enumerate(weights):
        if at < weight:
            return position
        at -= weight
    return len(weights) - 1
