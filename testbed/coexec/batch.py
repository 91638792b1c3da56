"""Planning many jobs at once: the same decisions as one arrival after another, but indexed.

An index keeps the sums of all groups in arrays, so that the groups which cannot take a job are
ruled out together. For a static plan (``plan JOBS.csv``): no job has started, so all move freely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from testbed.coexec.algorithm1 import decide, refusals_of
from testbed.coexec.consolidation import MoveRules
from testbed.coexec.decisions import Because, Decision, Strategy
from testbed.coexec.groups import Group, Plan, load_of
from testbed.coexec.jobs import JobProfile
from testbed.coexec.repacking import RepackRules, repack
from testbed.coexec.rules import Objective, PlannerRules
from testbed.errors import PolicyError

MOST_NAMED = 8
"""Groups ruled out by their sums that a decision names; the others are counted."""
_COLUMNS = ("train_nodes", "size", "t_cycle", "t_load", "limit", "train_load", "train_gb")


class GroupIndex:
    """Sums of a growing list of groups as arrays; positions are those of the list."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._sizes: set[int] = set()
        self._table: NDArray[np.float64] = np.zeros((len(_COLUMNS), 64))

    def put(self, position: int, group: Group) -> None:
        """Replace the group at ``position``, or append at the end."""
        if position == len(self.groups):
            self.groups.append(group)
            if position >= self._table.shape[1]:
                self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
        self.groups[position] = group
        self._sizes.add(group.train_nodes)
        self._table[:, position] = (
            group.train_nodes,
            len(group.members),
            group.t_cycle_s,
            group.t_load_s,
            group.limit_s,
            group.train_load_s,
            group.train_used_gb,
        )

    def shortlist(
        self, job: JobProfile, rules: PlannerRules
    ) -> tuple[list[int], list[int], Counter[Because]]:
        """Groups that their sums do not rule out, by creation; the others; those by cause.

        The tests and their order are those of ``algorithm1.candidates``.
        """
        train_nodes, size, t_cycle, t_load, limit, train_load, train_gb = self._table[
            :, : len(self.groups)
        ]
        left = np.ones(len(self.groups), dtype=bool)
        causes: Counter[Because] = Counter()

        def drop(mask: NDArray[np.bool_], why: Because) -> None:
            nonlocal left
            causes[why] += int(np.count_nonzero(mask & left))
            left = left & ~mask

        if rules.prune:
            drop(t_load >= t_cycle, Because.SATURATED)
        drop(size >= rules.max_group, Because.FULL)
        for nodes in sorted(self._sizes):
            load = load_of(job, nodes, rules)
            here = train_nodes == nodes
            most = np.minimum(limit, load.limit_s)
            floor = np.maximum(np.maximum(t_cycle, load.cycle_s), train_load + load.train_s)
            drop(here & (floor > most), Because.SLO)
            host_gb = rules.pools.train.host_gb
            drop(here & (train_gb + load.train_gb >= host_gb), Because.TRAIN_MEMORY)
        return np.flatnonzero(left).tolist(), np.flatnonzero(~left).tolist(), causes


def place_many(jobs: Sequence[JobProfile], rules: PlannerRules) -> tuple[Plan, list[Decision]]:
    """Place ``jobs`` one after another, as ``place`` would from an empty plan.

    Raises:
        PolicyError: a job does not fit an empty node.
    """
    index = GroupIndex()
    decisions: list[Decision] = []
    usd = progress = 0.0
    for job in jobs:
        positions, out, causes = index.shortlist(job, rules)
        price = 0.0
        if rules.objective is Objective.COST_PER_PROGRESS and progress:
            price = usd / progress
        groups = (index.groups[i] for i in positions)
        decided = decide(job, groups, len(index.groups), rules, price)
        if decided is None:
            raise PolicyError(f"job {job.job}: no placement, although a new group was allowed")
        group, decision = decided
        usd += decision.delta_usd_per_hour
        progress += group.progress
        if decision.strategy is not Strategy.ISOLATED:
            progress -= index.groups[group.group_id].progress
        named = refusals_of(job, (index.groups[i] for i in out[:MOST_NAMED]), rules)
        causes.update(dict(decision.refused))
        refused = tuple((why, causes[why]) for why in Because if causes[why])
        refusals = (*decision.refusals, *named)
        decisions.append(replace(decision, refused=refused, refusals=refusals))
        index.put(group.group_id, group)
    plan = Plan(tuple(index.groups), len(index.groups))
    return plan, decisions


def settle(
    plan: Plan, rules: PlannerRules, moves: MoveRules, repacking: RepackRules, most_rounds: int
) -> tuple[Plan, list[Decision]]:
    """Re-pack a plan of jobs that have not started, until no window gains or the rounds are over.

    Each round seeds its windows with the groups that have changed since, then with those that no
    round has looked at yet.
    """
    decisions: list[Decision] = []
    free = frozenset(plan.jobs())
    seen: dict[int, Group] = {}
    for _ in range(most_rounds):
        fresh = [g for g in plan.groups if seen.get(g.group_id) is not g]
        if not fresh:
            break
        fresh.sort(key=lambda g: (-(g.usd_per_hour / g.progress), g.group_id))
        seed = fresh[0]
        seen[seed.group_id] = seed
        plan, made = repack(
            plan, rules, moves, {}, touched=[seed.group_id], free=free, repack_rules=repacking
        )
        decisions += made
    return plan, decisions
