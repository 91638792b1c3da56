"""Co-execution groups: jobs, the nodes they are pinned to, and the sums that every test needs.

A :class:`Group` is immutable and carries its sums, so that one placement test is a few additions
whatever the number of members. Formulas: RollMux (arXiv 2512.11306v2), section 4 and Alg. 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.coexec.jobs import JobProfile
from testbed.coexec.round_robin import Phases, certified_period_s
from testbed.coexec.rules import PlannerRules, SyncHolds, TrainRescale


@dataclass(frozen=True, slots=True)
class Load:
    """What one job asks of a group's devices per meta-iteration (seconds, GB per node).

    ``rollout_s``, ``train_s``: occupation of its rollout nodes and of the training pool with the
    swaps inside; ``cycle_s``: its own iteration with swaps and sync; ``alone_s``: the same without
    swaps; ``solo_s``: T_solo on its own dedicated nodes; ``limit_s``: the longest meta-iteration
    that its SLO allows.
    """

    rollout_s: float
    train_s: float
    cycle_s: float
    alone_s: float
    solo_s: float
    limit_s: float
    train_gb: float


def solo_iteration_s(job: JobProfile, rules: PlannerRules) -> float:
    """T_solo: one iteration on the job's own dedicated nodes (swaps never happen there)."""
    return job.t_rollout_s + job.t_train_s + (job.sync_s if rules.phases.sync else 0.0)


def load_of(job: JobProfile, train_nodes: int, rules: PlannerRules) -> Load:
    """The job's load on a group whose training pool has ``train_nodes`` nodes."""
    phases = rules.phases
    share = job.train_nodes / train_nodes
    train_s, train_gb = job.t_train_s, job.host_train_gb
    if rules.train_rescale is not TrainRescale.NONE:
        speed = share if rules.train_rescale is TrainRescale.LINEAR else max(1.0, share)
        train_s, train_gb = train_s * speed, train_gb * max(1.0, share)
    sync_s = job.sync_s if phases.sync else 0.0
    swap_r, swap_t = (job.swap_rollout_s, job.swap_train_s) if phases.swap else (0.0, 0.0)
    held_s = sync_s if phases.sync_holds is SyncHolds.TRAIN_POOL else 0.0
    alone_s = job.t_rollout_s + train_s + sync_s
    solo_s = solo_iteration_s(job, rules)
    return Load(
        rollout_s=swap_r + job.t_rollout_s * (1.0 - phases.tail_freed),
        train_s=swap_t + train_s + held_s,
        cycle_s=alone_s + swap_r + swap_t,
        alone_s=alone_s,
        solo_s=solo_s,
        limit_s=job.slo * solo_s / (1.0 + rules.slo_margin),
        train_gb=train_gb,
    )


@dataclass(frozen=True, slots=True)
class Member:
    """A job of a group and the rollout nodes (ids inside the group) it is pinned to.

    It trains on the whole training pool of the group.
    """

    job: JobProfile
    nodes: tuple[int, ...]


def phases_of(
    members: Sequence[Member], loads: Sequence[Load], rules: PlannerRules
) -> tuple[Phases, ...]:
    """The phases of each member of a group, in its cyclic order (that of the members)."""
    phases = rules.phases
    shared = len(members) > 1
    result: list[Phases] = []
    for member, load in zip(members, loads, strict=True):
        sync_s = member.job.sync_s if phases.sync else 0.0
        swap_r = member.job.swap_rollout_s if phases.swap and shared else 0.0
        swap_t = member.job.swap_train_s if phases.swap and shared else 0.0
        result.append(
            Phases(
                nodes=member.nodes,
                rollout_s=member.job.t_rollout_s + swap_r,
                train_s=load.alone_s - member.job.t_rollout_s - sync_s + swap_t,
                sync_s=sync_s,
                sync_holds=phases.sync_holds,
                tail_s=phases.tail_freed * member.job.t_rollout_s,
            )
        )
    return tuple(result)


def shared_period_s(
    closed_form_s: float, members: Sequence[Member], loads: Sequence[Load], rules: PlannerRules
) -> float:
    """The exact period of a shared group whose max(T_cycle, T_load) is ``closed_form_s``.

    Only a job on several rollout nodes can make it longer (see round_robin).
    """
    if all(len(member.nodes) == 1 for member in members):
        return closed_form_s
    return certified_period_s(phases_of(members, loads, rules), closed_form_s)


@dataclass(frozen=True, slots=True)
class Group:
    """A co-execution group. Build it with :func:`build_group`; never by hand.

    ``nodes`` are the ids of its rollout nodes in order of creation; ``node_load_s`` and
    ``node_used_gb`` run parallel to them. Sums are those of a shared group (swaps inside);
    ``t_load_s`` is T_load of Alg. 1 (the busiest device), ``t_meta_s`` the exact strict round-robin
    period, without swaps for a job alone.
    """

    group_id: int
    train_nodes: int
    nodes: tuple[int, ...]
    next_node: int
    members: tuple[Member, ...]
    loads: tuple[Load, ...] = field(repr=False)
    t_cycle_s: float
    t_load_s: float
    train_load_s: float
    node_load_s: tuple[float, ...]
    node_used_gb: tuple[float, ...]
    train_used_gb: float
    limit_s: float
    solo_sum_s: float
    usd_per_hour: float
    t_meta_s: float

    @property
    def progress(self) -> float:
        """Hours of solo progress per hour, summed over the members."""
        return self.solo_sum_s / self.t_meta_s

    @property
    def saturated(self) -> bool:
        """Alg. 1, line 4: T_load >= T_cycle."""
        return self.t_load_s >= self.t_cycle_s

    def jobs(self) -> tuple[str, ...]:
        return tuple(member.job.job for member in self.members)


def build_group(
    group_id: int,
    train_nodes: int,
    members: Sequence[Member],
    rules: PlannerRules,
    *,
    keep_nodes: Iterable[int] = (),
    next_node: int = 0,
    loads: tuple[Load, ...] | None = None,
) -> Group:
    """A group with its sums; rollout nodes are those that a member is pinned to, plus kept ones.

    ``loads``: those of the members on this pool, where they are at hand.
    """
    if loads is None:
        loads = tuple(load_of(member.job, train_nodes, rules) for member in members)
    used = {node for member in members for node in member.nodes} | set(keep_nodes)
    nodes = tuple(sorted(used))
    index = {node: i for i, node in enumerate(nodes)}
    node_load = [0.0] * len(nodes)
    node_gb = [0.0] * len(nodes)
    for member, load in zip(members, loads, strict=True):
        for node in member.nodes:
            node_load[index[node]] += load.rollout_s
            node_gb[index[node]] += member.job.host_rollout_gb
    t_cycle = max((load.cycle_s for load in loads), default=0.0)
    train_load = math.fsum(load.train_s for load in loads)
    if len(loads) == 1:
        t_meta = loads[0].alone_s
    else:
        closed_form_s = max(t_cycle, train_load, max(node_load, default=0.0))
        t_meta = shared_period_s(closed_form_s, members, loads, rules)
    return Group(
        group_id=group_id,
        train_nodes=train_nodes,
        nodes=nodes,
        next_node=max((next_node, *(node + 1 for node in nodes))),
        members=tuple(members),
        loads=loads,
        t_cycle_s=t_cycle,
        t_load_s=max(train_load, max(node_load, default=0.0)),
        train_load_s=train_load,
        node_load_s=tuple(node_load),
        node_used_gb=tuple(node_gb),
        train_used_gb=math.fsum(load.train_gb for load in loads),
        limit_s=min((load.limit_s for load in loads), default=math.inf),
        solo_sum_s=math.fsum(load.solo_s for load in loads),
        usd_per_hour=rules.pools.usd_per_hour(len(nodes), train_nodes),
        t_meta_s=t_meta,
    )


def with_member(
    group: Group, job: JobProfile, nodes: tuple[int, ...], rules: PlannerRules
) -> Group:
    """The group after ``job`` was pinned to ``nodes`` (ids beyond the present ones are new)."""
    load = load_of(job, group.train_nodes, rules)
    return build_group(
        group.group_id,
        group.train_nodes,
        (*group.members, Member(job, nodes)),
        rules,
        keep_nodes=group.nodes,
        next_node=group.next_node,
        loads=(*group.loads, load),
    )


def without_member(group: Group, job: str, rules: PlannerRules) -> Group | None:
    """The group after a job left, or None when it is empty.

    The training pool never shrinks; an empty rollout node is released unless the rules keep it.
    """
    stay = {member.job.job for member in group.members} - {job}
    return restricted(group, stay, rules) if stay else None


def restricted(group: Group, stay: Collection[str], rules: PlannerRules) -> Group:
    """The group with only the members named in ``stay`` (at least one), their pins unchanged."""
    pairs = [
        (member, load)
        for member, load in zip(group.members, group.loads, strict=True)
        if member.job.job in stay
    ]
    return build_group(
        group.group_id,
        group.train_nodes,
        [member for member, _ in pairs],
        rules,
        keep_nodes=() if rules.release_empty_nodes else group.nodes,
        next_node=group.next_node,
        loads=tuple(load for _, load in pairs),
    )


def reprofiled(group: Group, profiles: Mapping[str, JobProfile], rules: PlannerRules) -> Group:
    """The same group with fresh profiles, placements unchanged."""
    members = [Member(profiles.get(m.job.job, m.job), m.nodes) for m in group.members]
    return build_group(
        group.group_id,
        group.train_nodes,
        members,
        rules,
        keep_nodes=group.nodes,
        next_node=group.next_node,
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """All groups, by creation. Immutable: a planner returns a new one."""

    groups: tuple[Group, ...] = ()
    next_group: int = 0

    @property
    def usd_per_hour(self) -> float:
        return math.fsum(group.usd_per_hour for group in self.groups)

    @property
    def progress(self) -> float:
        """Hours of solo progress per hour, over all jobs."""
        return math.fsum(group.progress for group in self.groups)

    @property
    def rollout_nodes(self) -> int:
        return sum(len(group.nodes) for group in self.groups)

    @property
    def train_nodes(self) -> int:
        return sum(group.train_nodes for group in self.groups)

    def group_of(self, job: str) -> Group | None:
        for group in self.groups:
            for member in group.members:
                if member.job.job == job:
                    return group
        return None

    def jobs(self) -> tuple[str, ...]:
        return tuple(m.job.job for group in self.groups for m in group.members)

    def replaced(self, old: Group, new: Group | None) -> Plan:
        """The plan with ``old`` swapped for ``new``, or removed."""
        at = next(i for i, g in enumerate(self.groups) if g.group_id == old.group_id)
        middle = () if new is None else (new,)
        return Plan((*self.groups[:at], *middle, *self.groups[at + 1 :]), self.next_group)

    def added(self, group: Group) -> Plan:
        """The plan with one more group at the end."""
        return Plan((*self.groups, group), max(self.next_group, group.group_id + 1))
