"""Consolidation after departures: dissolve a group whose jobs fit elsewhere at less cost.

The rule: groups smallest first; place all members of one by Algorithm 1 in the other groups; keep
it if the added price is below the dissolved group's and the saving over ``horizon_h`` exceeds what
the moves lose. A job is moved only if its banked slack covers the move, so a move breaks no SLO.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.coexec.algorithm1 import place
from testbed.coexec.decisions import Cause, Decision
from testbed.coexec.groups import Group, Plan
from testbed.coexec.jobs import FRESH, Standing
from testbed.coexec.rules import PlannerRules


@dataclass(frozen=True, slots=True)
class MoveRules:
    """What a move costs and when it pays.

    ``move_h``: hours of progress that a moved job loses; ``move_usd_per_h``: what an hour of lost
    progress is charged (57.04 $/h is a dedicated 8 + 8 unit); ``horizon_h``: for how long a saving
    is believed to last; ``largest_dissolved``: no larger group is dissolved, None for any.
    """

    move_h: float = 0.04
    move_usd_per_h: float = 57.04
    horizon_h: float = 5.0
    largest_dissolved: int | None = None

    @property
    def move_usd(self) -> float:
        return self.move_h * self.move_usd_per_h


def may_move(slo: float, standing: Standing, move_h: float) -> bool:
    """The guard: banked slack SLO x progress - elapsed must cover the move."""
    return standing.slack_h(slo) >= slo * move_h


def _movable(group: Group, standings: Mapping[str, Standing], moves: MoveRules) -> bool:
    if moves.largest_dissolved is not None and len(group.members) > moves.largest_dissolved:
        return False
    return all(
        may_move(m.job.slo, standings.get(m.job.job, FRESH), moves.move_h) for m in group.members
    )


def _dissolved(
    plan: Plan, group: Group, rules: PlannerRules, moves: MoveRules
) -> tuple[Plan, list[Decision]] | None:
    """The plan without ``group``, or None if its jobs do not fit elsewhere at a gain."""
    rest = plan.replaced(group, None)
    added_usd = 0.0
    decisions: list[Decision] = []
    worth = group.usd_per_hour - len(group.members) * moves.move_usd / moves.horizon_h
    for member in group.members:
        note = f"group {group.group_id} dissolved ({group.usd_per_hour:.2f} $/h)"
        placed = place(
            member.job, rest, rules, cause=Cause.CONSOLIDATION, allow_new=False, note=note
        )
        if placed is None:
            return None
        rest, decision = placed
        added_usd += decision.delta_usd_per_hour
        decisions.append(decision)
        if added_usd >= group.usd_per_hour or added_usd >= worth:
            return None
    return rest, decisions


def consolidate(
    plan: Plan, rules: PlannerRules, moves: MoveRules, standings: Mapping[str, Standing]
) -> tuple[Plan, list[Decision]]:
    """Dissolve groups, smallest first, until none can be dissolved at a gain."""
    decisions: list[Decision] = []
    tried: set[int] = set()
    while True:
        order = sorted(plan.groups, key=lambda group: (len(group.members), group.group_id))
        for group in order:
            if group.group_id in tried or not _movable(group, standings, moves):
                continue
            tried.add(group.group_id)
            result = _dissolved(plan, group, rules, moves)
            if result is not None:
                plan = result[0]
                decisions += result[1]
                break
        else:
            return plan, decisions
