"""Planners by name, as topologies and the command line call them.

``ranloom`` prices progress: right where a slowed job stays longer. ``ranloom-cost`` looks at
dollars per hour alone: right where jobs leave at a fixed time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from testbed.coexec.policies import Algorithm1, Consolidating, Dedicated, Planner, Ranloom
from testbed.coexec.rules import PHASES_FULL, Objective, PlannerRules, TrainRescale
from testbed.errors import PolicyError

_MAKERS: Mapping[str, Callable[[PlannerRules], Planner]] = {
    "ranloom": lambda rules: Ranloom(
        replace(rules, prune=False, objective=Objective.COST_PER_PROGRESS)
    ),
    "ranloom-cost": lambda rules: Ranloom(replace(rules, prune=False, objective=Objective.COST)),
    "algorithm-1": lambda rules: Algorithm1(replace(rules, prune=True)),
    "consolidating": lambda rules: Consolidating(replace(rules, prune=False)),
    "dedicated": lambda rules: Dedicated(rules),
}

PLANNER_NAMES = tuple(_MAKERS)
DEFAULT_PLANNER = "ranloom"
DEFAULT_RULES = PlannerRules(phases=PHASES_FULL, train_rescale=TrainRescale.SLOWER_ONLY)
"""What runs for real: swaps and sync are in the plan, and no job is promised a speed-up by a
training pool that is larger than its own."""


def planner_named(name: str, rules: PlannerRules = DEFAULT_RULES) -> Planner:
    """The planner called ``name`` under ``rules`` (its prune and objective are its own).

    Raises:
        PolicyError: no planner has that name.
    """
    maker = _MAKERS.get(name)
    if maker is None:
        raise PolicyError(f"no planner is called {name!r}; allowed: {', '.join(PLANNER_NAMES)}")
    return maker(rules)
