"""Eviction under drift: fresh profiles, and members moved out of groups that break an SLO.

A check looks at actual periods against SLO x actual T_solo, without the planning margin; the new
place of an evicted job must keep the margin. Which member leaves: the one whose leaving mends the
group at the least price, a job with the slack for a move before one without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.coexec.algorithm1 import place
from testbed.coexec.consolidation import MoveRules, may_move
from testbed.coexec.decisions import Cause, Decision
from testbed.coexec.groups import Group, Plan, reprofiled, without_member
from testbed.coexec.jobs import FRESH, JobProfile, Standing
from testbed.coexec.rules import PlannerRules


def violators(group: Group, rules: PlannerRules) -> list[str]:
    """Members whose period is beyond SLO x T_solo, the planning margin left out."""
    return [
        member.job.job
        for member, load in zip(group.members, group.loads, strict=True)
        if group.t_meta_s > load.limit_s * (1.0 + rules.slo_margin) * (1.0 + 1e-12)
    ]


@dataclass(frozen=True, slots=True)
class _Exit:
    plan: Plan
    decision: Decision
    rank: tuple[bool, bool, float, str]


def _exits(
    plan: Plan,
    group: Group,
    rules: PlannerRules,
    moves: MoveRules,
    standings: Mapping[str, Standing],
) -> list[_Exit]:
    broken = violators(group, rules)
    found: list[_Exit] = []
    for member in group.members:
        name = member.job.job
        left = without_member(group, name, rules)
        rest = plan.replaced(group, left)
        note = f"group {group.group_id} ran at {group.t_meta_s:.1f} s, too slow for " + ", ".join(
            broken
        )
        placed = place(
            member.job,
            rest,
            rules,
            cause=Cause.EVICTION,
            excluding=(group.group_id,),
            note=note,
        )
        if placed is None:
            continue
        after, decision = placed
        still = left is not None and bool(violators(left, rules))
        tired = not may_move(member.job.slo, standings.get(name, FRESH), moves.move_h)
        price = after.usd_per_hour - plan.usd_per_hour
        found.append(_Exit(after, decision, (still, tired, price, name)))
    return found


def evict(
    plan: Plan,
    profiles: Mapping[str, JobProfile],
    rules: PlannerRules,
    moves: MoveRules,
    standings: Mapping[str, Standing],
) -> tuple[Plan, list[Decision]]:
    """The plan on fresh profiles, with no member left beyond its SLO."""
    plan = Plan(tuple(reprofiled(group, profiles, rules) for group in plan.groups), plan.next_group)
    decisions: list[Decision] = []
    for group_id in [group.group_id for group in plan.groups]:
        while True:
            group = next((g for g in plan.groups if g.group_id == group_id), None)
            if group is None or len(group.members) < 2 or not violators(group, rules):
                break
            best = min(_exits(plan, group, rules, moves, standings), key=lambda one: one.rank)
            plan = best.plan
            decisions.append(best.decision)
    return plan, decisions
