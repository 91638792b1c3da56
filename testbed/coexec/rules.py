"""The rules that a plan hangs on, each a named option.

Two implementations of "Algorithm 1" differ by more than their seeds unless every rule here is
stated. The defaults of :class:`PlannerRules` are the algorithm as printed in RollMux (arXiv
2512.11306v2, Alg. 1), with no swap and no sync in the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from testbed.coexec.pools import DEFAULT_POOLS, Pools


class SyncHolds(Enum):
    """What a weight sync occupies while it runs."""

    TRAIN_POOL = "train-pool"
    """What planners assume: weights land in the rollout host's memory and go up at the next warm
    start. The closed form of the period is exact."""
    NOTHING = "nothing"
    """Pure latency: the closed form is up to 1 % short in about 1 of 1,000 saturated groups."""
    BOTH_POOLS = "both-pools"
    """A rendezvous: breaks the closed form (see round_robin)."""


class TrainRescale(Enum):
    """How training seconds and bytes follow when a job trains on a pool that is not its own size.

    With N_T nodes of the job and N_G of the group's pool.
    """

    LINEAR = "linear"
    """Seconds x N_T/N_G either way; bytes per node x N_T/N_G, never below the declared ones."""
    SLOWER_ONLY = "slower-only"
    """The same, but a larger pool does not make a job faster."""
    NONE = "none"
    """Seconds and bytes as declared."""


class Objective(Enum):
    """What a placement is charged for."""

    COST = "cost"
    """Alg. 1: dollars per hour now, strict <, groups and nodes by creation, so the first wins."""
    COST_PER_PROGRESS = "cost-per-progress"
    """Dollars per hour now plus the price of the progress lost to slowdown, at the plan's own
    dollars per hour of solo progress. The right one where a slowed job stays longer."""


@dataclass(frozen=True, slots=True)
class PhaseRules:
    """What besides rollout and training is part of an iteration.

    With ``sync`` the solo iteration is rollout + training + sync. With ``swap`` a group of more
    than one job pays each phase's warm swap before the phase; a job alone never swaps.
    ``tail_freed``: share of the rollout during which its long tail has left the node (0: none).
    """

    swap: bool = False
    sync: bool = False
    sync_holds: SyncHolds = SyncHolds.TRAIN_POOL
    tail_freed: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.tail_freed < 1.0:
            raise ValueError(f"tail_freed {self.tail_freed} must be in [0, 1)")


PHASES_PRINTED = PhaseRules()
PHASES_FULL = PhaseRules(swap=True, sync=True)


@dataclass(frozen=True, slots=True)
class PlannerRules:
    """Options of admission and placement.

    ``slo_margin``: members must satisfy T_coexec * (1 + margin) <= SLO * T_solo.
    ``prune``: skip groups that are saturated before the insertion (Alg. 1, line 4).
    """

    pools: Pools = field(default=DEFAULT_POOLS)
    phases: PhaseRules = PHASES_PRINTED
    train_rescale: TrainRescale = TrainRescale.LINEAR
    prune: bool = True
    rollout_scaling: bool = True
    release_empty_nodes: bool = True
    max_group: int = 5
    slo_margin: float = 0.0
    objective: Objective = Objective.COST

    def __post_init__(self) -> None:
        if self.max_group < 1:
            raise ValueError(f"max_group {self.max_group} must be >= 1")
        if self.slo_margin < 0:
            raise ValueError(f"slo_margin {self.slo_margin} must be >= 0")
        if self.phases.sync and self.phases.sync_holds is not SyncHolds.TRAIN_POOL:
            raise ValueError(
                f"sync_holds {self.phases.sync_holds.value}: max(T_cycle, T_load) is exact only "
                f"where the sync holds the training pool; planners accept no other"
            )
