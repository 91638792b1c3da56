"""Actual phase times that differ from the planned ones: drift over a job's life, worst-case plans.

Pure functions of (planned profile, share of the work done); draws are keyed by seed and job name.
"""

from __future__ import annotations

from enum import Enum

from testbed.coexec.jobs import JobProfile
from testbed.coexec.replay import ActualTimes
from testbed.rng import generator


class DriftLaw(Enum):
    """How phase times change over a job's life, linearly in the share of its work done.

    One factor per job, for both phases: longer responses are longer to write and to learn from.
    """

    INCREASE = "increase"
    """To T x (1 + u), u ~ U(0, d)."""
    DECREASE = "decrease"
    """To T / (1 + u), u ~ U(0, d)."""
    MIXED = "mixed"
    """Each job is one or the other, evenly."""


def drifting(law: DriftLaw, depth: float, seed: int) -> ActualTimes:
    """Actual times under ``law`` with ``depth`` d (0.5: up to 50 %)."""
    if depth < 0:
        raise ValueError(f"drift depth {depth} must be >= 0")

    def actual(job: JobProfile, share: float) -> JobProfile:
        rng = generator(seed, f"coexec.drift/{job.job}")
        u = depth * rng.random()
        up = law is DriftLaw.INCREASE or (law is DriftLaw.MIXED and rng.random() < 0.5)
        end = 1.0 + u if up else 1.0 / (1.0 + u)
        factor = 1.0 + share * (end - 1.0)
        return job.scaled(factor, factor)

    return actual


def shorter_than_planned(lowest: float, seed: int) -> ActualTimes:
    """Rollouts that take U(lowest, 1) of the planned worst case; training as planned."""
    if not 0 < lowest <= 1:
        raise ValueError(f"lowest share {lowest} must be in (0, 1]")

    def actual(job: JobProfile, share: float) -> JobProfile:
        rng = generator(seed, f"coexec.actual/{job.job}")
        return job.scaled(lowest + (1.0 - lowest) * rng.random(), 1.0)

    return actual
