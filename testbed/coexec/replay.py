"""Event-driven replay of a job trace under a planner: dollars, slowdowns, moves, peaks.

Between two events every group runs its exact strict round-robin period, with the *actual* phase
times; the planner sees the *planned* ones until a check gives it fresh profiles. Times are hours of
a trace, as floats: this is accounting, not an emulated clock. Deterministic: at one instant
departures come before checks, checks before arrivals, and equals go in the order of the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from testbed.coexec.decisions import Decision, Outcome
from testbed.coexec.groups import Plan, reprofiled
from testbed.coexec.jobs import JobProfile, Standing
from testbed.coexec.policies import Planner
from testbed.coexec.rules import PhaseRules
from testbed.errors import TraceError

SLO_TOLERANCE = 1e-9
"""Relative; covers the rounding of sums of hours, nothing else."""


class Residency(Enum):
    """How long a job stays."""

    WORK_CONSERVING = "work-conserving"
    """Until its iterations are done: a slowed job stays longer."""
    FIXED = "fixed"
    """For its solo duration, whatever it got done."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One row of a trace: a profile, when it arrives, and its hours on dedicated nodes."""

    profile: JobProfile
    arrival_h: float
    solo_duration_h: float


ActualTimes = Callable[[JobProfile, float], JobProfile]
"""(planned profile, share of the job's work done, 0-1) -> the profile as it really is."""


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """How a trace is replayed.

    ``move_h``: hours of progress that a moved job loses. ``check_every_h``: interval of the checks
    at which actual times step and the planner gets fresh profiles (None: never). ``actual``: the
    real phase times (None: as planned). ``phases``: what is part of a real iteration (None: what
    the planner's rules say). ``reviewed``: whether the planner is called at the checks.
    """

    residency: Residency = Residency.WORK_CONSERVING
    move_h: float = 0.04
    check_every_h: float | None = None
    actual: ActualTimes | None = None
    phases: PhaseRules | None = None
    reviewed: bool = True
    keep_intervals: bool = False


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """``slowdown``: hours of stay / hours of solo progress made. ``violation_h``: hours spent at an
    actual period beyond SLO x actual T_solo."""

    job: str
    arrival_h: float
    completion_h: float
    progress_h: float
    slo: float
    violation_h: float
    moves: int

    @property
    def slowdown(self) -> float:
        return (self.completion_h - self.arrival_h) / self.progress_h

    @property
    def met(self) -> bool:
        return self.slowdown <= self.slo * (1.0 + SLO_TOLERANCE)


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of constant plan: what ran, and at what price."""

    hours: float
    jobs: tuple[JobProfile, ...]
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Dollars are the integral of the plan's price to the last completion."""

    usd: float
    solo_usd: float
    jobs: tuple[JobOutcome, ...]
    decisions: tuple[Decision, ...]
    moves: int
    peak_rollout_nodes: int
    peak_train_nodes: int
    intervals: tuple[Interval, ...]

    @property
    def ratio_solo(self) -> float:
        """Cost of Solo-D / cost of the policy."""
        return self.solo_usd / self.usd

    @property
    def slo_attainment(self) -> float:
        """Share of jobs whose slowdown kept their SLO."""
        return sum(job.met for job in self.jobs) / len(self.jobs)

    @property
    def violation_share(self) -> float:
        """Share of job-hours spent at a period beyond the SLO."""
        stay_h = math.fsum(job.completion_h - job.arrival_h for job in self.jobs)
        return math.fsum(job.violation_h for job in self.jobs) / stay_h


@dataclass(slots=True)
class _Running:
    """A job in the system; mutable, private to one replay."""

    trace: TraceJob
    actual: JobProfile
    progress_h: float = 0.0
    stalled_until_h: float = 0.0
    rate: float = 0.0
    violating: bool = False
    violation_h: float = 0.0
    moves: int = 0


class _Replay:
    """State of one replay; every step is a method, :func:`replay` is the loop."""

    def __init__(self, planner: Planner, rules: ReplayRules) -> None:
        self.planner, self.rules = planner, rules
        self.actual_rules = replace(
            planner.rules, phases=rules.phases or planner.rules.phases, slo_margin=0.0
        )
        self.plan = Plan()
        self.now_h = 0.0
        self.running: dict[str, _Running] = {}
        self.done: list[JobOutcome] = []
        self.decisions: list[Decision] = []
        self.intervals: list[Interval] = []
        self.usd: list[float] = []
        self.moves = self.peak_rollout = self.peak_train = 0

    def advance(self, to_h: float) -> None:
        """Let every group run until ``to_h``."""
        hours = to_h - self.now_h
        if hours > 0 and self.running:
            price = self.plan.usd_per_hour
            self.usd.append(hours * price)
            if self.rules.keep_intervals:
                jobs = tuple(state.actual for state in self.running.values())
                self.intervals.append(Interval(hours, jobs, price))
            for state in self.running.values():
                state.progress_h += max(0.0, to_h - max(self.now_h, state.stalled_until_h)) * (
                    state.rate
                )
                if state.violating:
                    state.violation_h += hours
        self.now_h = to_h

    def refresh_rates(self) -> None:
        """Actual rates of all members under the present plan."""
        exact = self.rules.actual is None and self.rules.phases is None
        profiles = {name: state.actual for name, state in self.running.items()}
        for group in self.plan.groups:
            real = group
            if not exact or self.planner.rules.slo_margin:
                real = reprofiled(group, profiles, self.actual_rules)
            for member, load, rate in zip(
                real.members, real.loads, self.planner.rates(real), strict=True
            ):
                state = self.running[member.job.job]
                state.rate = rate
                state.violating = load.limit_s * rate * (1.0 + SLO_TOLERANCE) < load.solo_s

    def completion_h(self, state: _Running) -> float:
        if self.rules.residency is Residency.FIXED:
            return state.trace.arrival_h + state.trace.solo_duration_h
        left_h = max(0.0, state.trace.solo_duration_h - state.progress_h)
        return max(self.now_h, state.stalled_until_h) + left_h / state.rate

    def standings(self) -> dict[str, Standing]:
        """Progress and elapsed hours of all jobs; a move under way counts as already elapsed."""
        return {
            name: Standing(
                state.progress_h,
                max(self.now_h, state.stalled_until_h) - state.trace.arrival_h,
            )
            for name, state in self.running.items()
        }

    def apply(self, outcome: Outcome) -> None:
        """Take over the planner's answer; moved jobs stall."""
        self.plan = outcome.plan
        self.decisions += outcome.decisions
        self.moves += len(outcome.moved)
        for name in outcome.moved:
            state = self.running[name]
            state.moves += 1
            state.stalled_until_h = max(self.now_h, state.stalled_until_h) + self.rules.move_h
        self.peak_rollout = max(self.peak_rollout, self.plan.rollout_nodes)
        self.peak_train = max(self.peak_train, self.plan.train_nodes)
        self.refresh_rates()

    def arrive(self, job: TraceJob) -> None:
        outcome = self.planner.arrive(self.plan, job.profile, self.standings())
        actual = self.rules.actual(job.profile, 0.0) if self.rules.actual else job.profile
        self.running[job.profile.job] = _Running(job, actual)
        self.apply(outcome)

    def depart(self, name: str) -> None:
        state = self.running.pop(name)
        self.done.append(
            JobOutcome(
                name,
                state.trace.arrival_h,
                self.now_h,
                state.progress_h,
                state.trace.profile.slo,
                state.violation_h,
                state.moves,
            )
        )
        self.apply(self.planner.depart(self.plan, name, self.standings()))

    def check(self) -> None:
        """Actual times step with the work done; the planner sees them."""
        if self.rules.actual is not None:
            for state in self.running.values():
                share = min(1.0, state.progress_h / state.trace.solo_duration_h)
                state.actual = self.rules.actual(state.trace.profile, share)
        if self.rules.reviewed:
            profiles = {name: state.actual for name, state in self.running.items()}
            self.apply(self.planner.review(self.plan, profiles, self.standings()))
        else:
            self.refresh_rates()


def replay(
    trace: Sequence[TraceJob], planner: Planner, rules: ReplayRules | None = None
) -> ReplayResult:
    """Replay ``trace`` to the last completion.

    Raises:
        TraceError: the trace is empty.
        PolicyError: a job does not fit an empty node.
    """
    rules = rules or ReplayRules()
    if not trace:
        raise TraceError("the trace holds no job")
    pending = sorted(trace, key=lambda job: job.arrival_h)  # stable: trace order among equals
    run = _Replay(planner, rules)
    run.now_h = pending[0].arrival_h
    next_check_h = math.inf
    if rules.check_every_h is not None:
        next_check_h = run.now_h + rules.check_every_h
    position = 0
    while position < len(pending) or run.running:
        arrival_h = pending[position].arrival_h if position < len(pending) else math.inf
        first, end_h = "", math.inf
        for name, state in run.running.items():
            due_h = run.completion_h(state)
            if due_h < end_h:
                first, end_h = name, due_h
        if end_h <= arrival_h and end_h <= next_check_h:
            run.advance(end_h)
            run.depart(first)
        elif next_check_h <= arrival_h:
            run.advance(next_check_h)
            run.check()
            assert rules.check_every_h is not None
            next_check_h += rules.check_every_h
        else:
            run.advance(arrival_h)
            run.arrive(pending[position])
            position += 1
    pools = planner.rules.pools
    solo_usd = math.fsum(
        job.solo_duration_h * pools.usd_per_hour(job.profile.rollout_nodes, job.profile.train_nodes)
        for job in trace
    )
    return ReplayResult(
        usd=math.fsum(run.usd),
        solo_usd=solo_usd,
        jobs=tuple(run.done),
        decisions=tuple(run.decisions),
        moves=run.moves,
        peak_rollout_nodes=run.peak_rollout,
        peak_train_nodes=run.peak_train,
        intervals=tuple(run.intervals),
    )
