"""What a co-execution planner knows of one RL post-training job.

Owns the job profile and the phase seconds derived from it. Must not know pools, groups or any
simulator: the coordinator builds the same profiles from live measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class JobProfile:
    """One job as declared at submission, or as re-profiled later.

    ``t_rollout_s`` and ``t_train_s`` are what a plan is made with: by convention the worst case
    (every response as long as the configured maximum), because that is what a profiler can promise
    at submission. ``expected_*`` is the mean length, where it is known. Training seconds hold for
    ``train_nodes`` nodes. Host bytes are those pinned on *each* node of the phase.
    """

    job: str
    model: str
    rollout_nodes: int
    train_nodes: int
    t_rollout_s: float
    t_train_s: float
    slo: float
    host_rollout_gb: float
    host_train_gb: float
    swap_rollout_s: float = 0.0
    swap_train_s: float = 0.0
    sync_s: float = 0.0
    expected_t_rollout_s: float | None = None
    expected_t_train_s: float | None = None

    def __post_init__(self) -> None:
        if self.rollout_nodes < 1 or self.train_nodes < 1:
            raise ValueError(f"job {self.job}: nodes must be >= 1")
        if self.t_rollout_s <= 0 or self.t_train_s <= 0:
            raise ValueError(f"job {self.job}: phase seconds must be > 0")
        if self.slo < 1:
            raise ValueError(f"job {self.job}: SLO {self.slo} must be >= 1 (a slowdown)")
        if min(self.host_rollout_gb, self.host_train_gb) < 0:
            raise ValueError(f"job {self.job}: host bytes must be >= 0")
        if min(self.swap_rollout_s, self.swap_train_s, self.sync_s) < 0:
            raise ValueError(f"job {self.job}: swap and sync seconds must be >= 0")

    def expected(self) -> JobProfile:
        """The same job with its expected phase seconds where they are known."""
        return replace(
            self,
            t_rollout_s=self.expected_t_rollout_s or self.t_rollout_s,
            t_train_s=self.expected_t_train_s or self.t_train_s,
        )

    def scaled(self, rollout: float, train: float) -> JobProfile:
        """The same job with its phase seconds multiplied (drift, worst case, re-profiling)."""
        return replace(
            self, t_rollout_s=self.t_rollout_s * rollout, t_train_s=self.t_train_s * train
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """How a running job stands against its SLO, as the coordinator measures it.

    ``progress_h`` counts hours that the finished iterations would have taken on dedicated nodes;
    ``elapsed_h`` those since arrival, the rest of a move that is under way included.
    """

    progress_h: float
    elapsed_h: float

    def slack_h(self, slo: float) -> float:
        """Banked slack: hours that the job may still lose and be within its SLO up to now."""
        return slo * self.progress_h - self.elapsed_h


FRESH = Standing(progress_h=0.0, elapsed_h=0.0)
