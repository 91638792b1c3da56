"""The intra-group schedule: strict cyclic round robin, its exact period, and FIFO beside it.

Strict: the same job order on every device, one rollout and one training phase per job and
meta-iteration. The start times then follow a max-plus linear recurrence, whose growth per
meta-iteration is the period. RollMux (arXiv 2512.11306v2, section 4.3) claims max(T_cycle, T_load)
for it; :func:`period_s` computes it exactly. Where every job rolls out on one node and the sync
holds the training pool the two are equal in all that was tried; a job on several rollout nodes can
make the period of a saturated group longer, so planners use the exact one there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.coexec.rules import SyncHolds


@dataclass(frozen=True, slots=True)
class Phases:
    """One job's meta-iteration as devices see it, in seconds, swaps inside the phases.

    The rollout takes ``rollout_s`` and frees its ``nodes`` ``tail_s`` before its end (a migrated
    long tail). Training holds the pool for ``train_s``; then ``sync_s`` pass, holding what
    ``sync_holds`` says.
    """

    nodes: tuple[int, ...]
    rollout_s: float
    train_s: float
    sync_s: float = 0.0
    sync_holds: SyncHolds = SyncHolds.NOTHING
    tail_s: float = 0.0

    @property
    def cycle_s(self) -> float:
        return self.rollout_s + self.train_s + self.sync_s


def t_cycle_s(group: Sequence[Phases]) -> float:
    """T_cycle: the longest member's own iteration."""
    return max(job.cycle_s for job in group)


def t_load_s(group: Sequence[Phases]) -> float:
    """T_load: the busiest device's seconds per meta-iteration (RollMux Alg. 1)."""
    pool = math.fsum(
        job.train_s + (job.sync_s if job.sync_holds is SyncHolds.TRAIN_POOL else 0.0)
        for job in group
    )
    nodes: dict[int, float] = {}
    for job in group:
        for node in job.nodes:
            nodes[node] = nodes.get(node, 0.0) + job.rollout_s - job.tail_s
    return max(pool, *nodes.values())


def closed_form_s(group: Sequence[Phases]) -> float:
    """max(T_cycle, T_load), for syncs that do not need the rollout nodes."""
    return max(t_cycle_s(group), t_load_s(group))


def _step(job: Phases, state: list[float], pool: int, own: int) -> tuple[float, float]:
    """One job's iteration, in place; returns its rollout and training start.

    ``state``: when each rollout node (from 0), the pool (index ``pool``) and the job (``own``) are
    free.
    """
    rollout = max(state[own], max(state[node] for node in job.nodes))
    rolled = rollout + job.rollout_s
    train = max(rolled, state[pool])
    trained = train + job.train_s
    synced = trained + job.sync_s
    state[pool] = trained if job.sync_holds is SyncHolds.NOTHING else synced
    for node in job.nodes:
        # A rendezvous on both pools behind an in-order queue: the next rollout waits for it.
        state[node] = synced if job.sync_holds is SyncHolds.BOTH_POOLS else rolled - job.tail_s
    state[own] = synced
    return rollout, train


def _advance(group: Sequence[Phases], state: Sequence[float], pool: int) -> list[float]:
    """One meta-iteration of all jobs; their own entries follow the pool's."""
    after = list(state)
    for position, job in enumerate(group):
        _step(job, after, pool, pool + 1 + position)
    return after


def _compact(group: Sequence[Phases]) -> tuple[list[Phases], int]:
    """The same group with nodes numbered from 0, and how many there are."""
    names = {node: i for i, node in enumerate(sorted({n for job in group for n in job.nodes}))}
    renamed = [
        Phases(
            tuple(names[n] for n in job.nodes),
            job.rollout_s,
            job.train_s,
            job.sync_s,
            job.sync_holds,
            job.tail_s,
        )
        for job in group
    ]
    return renamed, len(names)


def period_s(group: Sequence[Phases]) -> float:
    """The exact strict round-robin period: the max-plus eigenvalue of one meta-iteration.

    The matrix comes from pushing each unit vector through the recurrence; its largest mean circuit
    weight from Karp's theorem (R. Karp, "A characterization of the minimum cycle mean in a
    digraph", 1978).
    """
    jobs, nodes = _compact(group)
    size = nodes + 1 + len(jobs)
    into: list[list[float]] = []
    for source in range(size):
        unit = [-math.inf] * size
        unit[source] = 0.0
        into.append(_advance(jobs, unit, nodes))
    walks = [[0.0] * size]
    for _ in range(size):
        last = walks[-1]
        walks.append([max(last[u] + into[u][v] for u in range(size)) for v in range(size)])
    longest = walks[size]
    return max(
        min((longest[v] - walks[k][v]) / (size - k) for k in range(size))
        for v in range(size)
        if longest[v] > -math.inf
    )


def certified_period_s(group: Sequence[Phases], closed_form_s: float) -> float:
    """The exact period, given its lower bound ``closed_form_s``; much faster where they are equal.

    Certificate: if one meta-iteration delays no device and no job by more than the closed form from
    some state that the schedule reaches, none ever does (the recurrence is monotone and commutes
    with adding a constant). Without one, :func:`period_s` decides.
    """
    jobs, nodes = _compact(group)
    state = [0.0] * (nodes + 1 + len(jobs))
    most = closed_form_s * (1.0 + 1e-12)
    for _ in range(2 * len(state)):
        after = _advance(jobs, state, nodes)
        if all(late - early <= most for late, early in zip(after, state, strict=True)):
            return closed_form_s
        state = after
    return max(closed_form_s, period_s(group))


def starts_s(group: Sequence[Phases], rounds: int) -> list[list[tuple[float, float]]]:
    """Start of rollout and of training of every job, per meta-iteration (for pictures)."""
    jobs, nodes = _compact(group)
    state = [0.0] * (nodes + 1 + len(jobs))
    return [
        [_step(job, state, nodes, nodes + 1 + i) for i, job in enumerate(jobs)]
        for _ in range(rounds)
    ]


def fifo_iterations_s(
    group: Sequence[Phases], order: Sequence[int], rounds: int = 60
) -> tuple[float, ...]:
    """Mean seconds per iteration of each job under work-conserving FIFO queues.

    The counter-example: each device serves in order of request, and a short job loops freely. Run
    until every job has done ``rounds`` iterations; the mean is over the later half. ``order``: in
    which jobs first ask. Sync holds nothing here.
    """
    jobs, nodes = _compact(group)
    pool = nodes
    queues: list[deque[int]] = [deque() for _ in range(nodes + 1)]
    busy = [False] * (nodes + 1)
    running: list[tuple[float, int, int, bool]] = []  # end, tie, job, is it training
    ends: list[list[float]] = [[] for _ in jobs]
    tie = 0
    now = 0.0

    def needs(job: int, training: bool) -> tuple[int, ...]:
        return (pool,) if training else jobs[job].nodes

    syncing: list[tuple[float, int]] = []
    for job in order:
        for device in jobs[job].nodes:
            queues[device].append(job)
    while min(len(done) for done in ends) < rounds:
        started = True
        while started:
            started = False
            for device in range(nodes + 1):
                if busy[device] or not queues[device]:
                    continue
                job = queues[device][0]
                wanted = needs(job, device == pool)
                if any(busy[d] or queues[d][0] != job for d in wanted):
                    continue
                for d in wanted:
                    queues[d].popleft()
                    busy[d] = True
                training = device == pool
                length = jobs[job].train_s if training else jobs[job].rollout_s
                tie += 1
                running.append((now + length, tie, job, training))
                started = True
        due_run = min(running, default=None)
        due_sync = min(syncing, default=None)
        if due_run is not None and (due_sync is None or due_run[0] <= due_sync[0]):
            running.remove(due_run)
            now, _, job, training = due_run
            for d in needs(job, training):
                busy[d] = False
            if training:
                syncing.append((now + jobs[job].sync_s, job))
            else:
                queues[pool].append(job)
        elif due_sync is not None:
            syncing.remove(due_sync)
            now, job = due_sync
            ends[job].append(now)
            for device in jobs[job].nodes:
                queues[device].append(job)
        else:
            raise AssertionError("a FIFO group cannot be idle with work left")
    half = rounds // 2
    return tuple((done[-1] - done[half - 1]) / (len(done) - half) for done in ends)
