"""What a planner answers: where a job goes, why there, and who refused it and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from testbed.coexec.groups import Plan


class Strategy(Enum):
    """How room was made for a job (RollMux section 4.2), or why it was moved."""

    DIRECT = "direct packing"
    SCALED = "rollout scaling"
    ISOLATED = "isolated group"
    REGROUPED = "regrouped"


class Cause(Enum):
    """What made the planner place this job now."""

    ARRIVAL = "arrival"
    CONSOLIDATION = "consolidation"
    EVICTION = "eviction"
    REPACK = "re-packing"


class Because(Enum):
    """Why a group refused a job."""

    SATURATED = "saturated before insertion"
    FULL = "at the largest group size"
    ROLLOUT_MEMORY = "host memory of its rollout nodes"
    TRAIN_MEMORY = "host memory of its training nodes"
    SLO = "SLO"
    NO_SCALING = "no rollout node has room, and scaling is off"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One group's refusal: ``value`` is what the insertion would give, ``limit`` what is allowed.

    Seconds per meta-iteration for the SLO and saturation, GB per node for memory, jobs for size.
    ``job`` is the member whose SLO would break (the newcomer's or another's).
    """

    group_id: int
    because: Because
    value: float
    limit: float
    job: str = ""

    def text(self) -> str:
        who = f" of {self.job}" if self.job else ""
        unit = {
            Because.FULL: " jobs",
            Because.ROLLOUT_MEMORY: " GB",
            Because.TRAIN_MEMORY: " GB",
        }.get(self.because, " s")
        return (
            f"group {self.group_id}: {self.because.value}{who} "
            f"({self.value:.1f}{unit}, allowed {self.limit:.1f}{unit})"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """One placement. ``delta_usd_per_hour`` is the change of the plan's price.

    ``refusals`` names the groups that were looked at closely; ``refused`` counts all of them by
    cause (a large plan rules most groups out by their sums alone).
    """

    job: str
    cause: Cause
    strategy: Strategy
    group_id: int
    nodes: tuple[int, ...]
    delta_usd_per_hour: float
    t_meta_s: float
    slowdown: float
    refusals: tuple[Refusal, ...] = ()
    refused: tuple[tuple[Because, int], ...] = ()
    note: str = ""

    def reason(self) -> str:
        """One line: why this group, with the slowdown at the time of the decision."""
        text = (
            f"{self.cause.value}: {self.strategy.value}, group {self.group_id}, "
            f"{self.delta_usd_per_hour:+.2f} $/h, slowdown {self.slowdown:.3f}"
        )
        if self.note:
            text += f"; {self.note}"
        if self.refused:
            text += "; refused by " + ", ".join(f"{n} ({why.value})" for why, n in self.refused)
        return text


def counted(refusals: Iterable[Refusal]) -> tuple[tuple[Because, int], ...]:
    """Refusals by cause, in the order of :class:`Because`."""
    numbers = Counter(refusal.because for refusal in refusals)
    return tuple((why, numbers[why]) for why in Because if numbers[why])


@dataclass(frozen=True, slots=True)
class Outcome:
    """A planner's answer to one event: the new plan, and the placements that led to it.

    ``moved`` are running jobs whose pinned state must travel (another group, or other nodes).
    """

    plan: Plan
    decisions: tuple[Decision, ...] = ()
    moved: tuple[str, ...] = ()


def moved_jobs(before: Plan, after: Plan, ignoring: Iterable[str] = ()) -> tuple[str, ...]:
    """Jobs of both plans whose group or pinned nodes differ, in the order of the later plan."""
    skip = set(ignoring)
    old = {
        member.job.job: (group.group_id, member.nodes)
        for group in before.groups
        for member in group.members
    }
    return tuple(
        member.job.job
        for group in after.groups
        for member in group.members
        if member.job.job not in skip
        and member.job.job in old
        and old[member.job.job] != (group.group_id, member.nodes)
    )
