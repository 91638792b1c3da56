"""A static plan as data (for JSON) and as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from testbed.coexec.algorithm1 import refusals_of
from testbed.coexec.baselines import colocated
from testbed.coexec.decisions import Decision
from testbed.coexec.groups import Group, Plan
from testbed.coexec.jobs import JobProfile
from testbed.coexec.rules import PlannerRules

MOST_REFUSALS_SHOWN = 8
MOST_GROUPS_COMPARED = 100
"""In larger plans a job's `elsewhere` is None: the refusals at its placement still stand."""


def _elsewhere(group: Group, position: int, plan: Plan, rules: PlannerRules) -> list[str]:
    """Why the groups nearest in period would not take the job as the plan now stands."""
    others = sorted(
        (other for other in plan.groups if other is not group),
        key=lambda other: (abs(other.t_meta_s / group.t_meta_s - 1.0), other.group_id),
    )[:MOST_REFUSALS_SHOWN]
    job = group.members[position].job
    texts: list[str] = []
    for other in others:
        refused = refusals_of(job, [other], rules)
        texts.append(refused[0].text() if refused else f"group {other.group_id}: fits, not cheaper")
    return texts


def _job_data(
    group: Group, position: int, made: Sequence[Decision], plan: Plan, rules: PlannerRules
) -> dict[str, Any]:
    member, load = group.members[position], group.loads[position]
    refusals = [refusal for decision in made for refusal in decision.refusals]
    shown = len(plan.groups) <= MOST_GROUPS_COMPARED
    return {
        "job": member.job.job,
        "model": member.job.model,
        "rollout_nodes": list(member.nodes),
        "t_solo_s": load.solo_s,
        "t_coexec_s": group.t_meta_s,
        "slowdown": group.t_meta_s / load.solo_s,
        "slo": member.job.slo,
        "slack_s": member.job.slo * load.solo_s - group.t_meta_s,
        "reason": made[-1].reason() if made else "",
        "history": [decision.reason() for decision in made],
        "refused": {why.name.lower(): n for d in made for why, n in d.refused},
        "refusals": [refusal.text() for refusal in refusals[:MOST_REFUSALS_SHOWN]],
        "elsewhere": _elsewhere(group, position, plan, rules) if shown else None,
    }


def _group_data(
    group: Group, made: Mapping[str, Sequence[Decision]], plan: Plan, rules: PlannerRules
) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "rollout_nodes": len(group.nodes),
        "train_nodes": group.train_nodes,
        "usd_per_hour": group.usd_per_hour,
        "t_cycle_s": group.t_cycle_s,
        "t_load_s": group.t_load_s,
        "t_meta_s": group.t_meta_s,
        "saturated": group.saturated,
        "host_rollout_gb": dict(zip(map(str, group.nodes), group.node_used_gb, strict=True)),
        "host_train_gb": group.train_used_gb,
        "host_limit_gb": {
            "rollout": rules.pools.rollout.host_gb,
            "train": rules.pools.train.host_gb,
        },
        "jobs": [
            _job_data(group, i, made.get(member.job.job, ()), plan, rules)
            for i, member in enumerate(group.members)
        ],
    }


def plan_data(
    jobs: Sequence[JobProfile],
    plan: Plan,
    decisions: Sequence[Decision],
    rules: PlannerRules,
    *,
    policy: str,
    planning_s: float,
) -> dict[str, Any]:
    """Everything that ``plan`` says, under stable names; dollars are per hour.

    ``per_solo_hour``: the price of one hour's worth of solo progress, the fair figure where a
    slowed job stays longer.
    """
    made: dict[str, list[Decision]] = {}
    for decision in decisions:
        made.setdefault(decision.job, []).append(decision)
    pools = rules.pools
    solo = math.fsum(pools.usd_per_hour(job.rollout_nodes, job.train_nodes) for job in jobs)
    equal = math.fsum(colocated(job, pools, hbm_bound=False).usd_per_hour for job in jobs)
    hbm = [colocated(job, pools, hbm_bound=True) for job in jobs]
    hbm_solo_hour = math.fsum(one.usd_per_hour * one.slowdown for one in hbm)
    ours_solo_hour = plan.usd_per_hour / plan.progress
    return {
        "policy": policy,
        "jobs": len(jobs),
        "planning_s": planning_s,
        "pools": {
            "rollout": {"gpu": pools.rollout.gpu.name, "usd_per_gpu_hour": _usd(pools.rollout)},
            "train": {"gpu": pools.train.gpu.name, "usd_per_gpu_hour": _usd(pools.train)},
        },
        "usd_per_hour": {
            "plan": plan.usd_per_hour,
            "solo_d": solo,
            "colocated_equal_speed": equal,
            "colocated_hbm_bound": math.fsum(one.usd_per_hour for one in hbm),
        },
        "usd_per_solo_hour": {
            "plan": ours_solo_hour,
            "solo_d": solo / len(jobs),
            "colocated_equal_speed": equal / len(jobs),
            "colocated_hbm_bound": hbm_solo_hour / len(jobs),
        },
        "nodes": {"rollout": plan.rollout_nodes, "train": plan.train_nodes},
        "groups": [_group_data(group, made, plan, rules) for group in plan.groups],
    }


def _usd(node: Any) -> float:
    return float(node.gpu.usd_per_hour)


def print_plan(console: Console, data: Mapping[str, Any], most_groups: int) -> None:
    """The plan as tables: costs first, then groups."""
    usd, fair = data["usd_per_hour"], data["usd_per_solo_hour"]
    costs = Table(title=f"{data['jobs']} jobs, policy {data['policy']}", box=box.SIMPLE_HEAD)
    for name in ("", "$/h", "of plan", "$ per solo hour", "of plan"):
        costs.add_column(name, justify="left" if not name else "right")
    for key, label in (
        ("plan", "this plan"),
        ("solo_d", "dedicated nodes (Solo-D)"),
        ("colocated_equal_speed", "co-located, equal speed"),
        ("colocated_hbm_bound", "co-located, HBM-bound rollout"),
    ):
        costs.add_row(
            label,
            f"{usd[key]:,.2f}",
            f"{usd[key] / usd['plan']:.2f}x",
            f"{fair[key]:,.2f}",
            f"{fair[key] / fair['plan']:.2f}x",
        )
    console.print(costs)
    shown = data["groups"][:most_groups]
    _print_groups(console, shown, len(data["groups"]))
    _print_jobs(console, shown)
    if len(data["groups"]) > len(shown):
        console.print(f"{len(data['groups']) - len(shown)} more groups: see --json FILE")


def _print_groups(console: Console, shown: Sequence[Mapping[str, Any]], of: int) -> None:
    table = Table(title=f"{of} groups", box=box.SIMPLE_HEAD)
    for name in ("group", "nodes R+T", "$/h", "period s", "jobs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("host GB per rollout node | training node", overflow="fold")
    for group in shown:
        gb = ", ".join(f"{value:.0f}" for value in group["host_rollout_gb"].values())
        table.add_row(
            str(group["group"]),
            f"{group['rollout_nodes']}+{group['train_nodes']}",
            f"{group['usd_per_hour']:.2f}",
            f"{group['t_meta_s']:.1f}",
            str(len(group["jobs"])),
            f"{gb} | {group['host_train_gb']:.0f}",
        )
    console.print(table)


def _why(job: Mapping[str, Any]) -> str:
    """The last decision, and the first thing that keeps the job from another group."""
    elsewhere = job["elsewhere"] or job["refusals"]
    return f"{job['reason']} | {elsewhere[0]}" if elsewhere else str(job["reason"])


def _print_jobs(console: Console, shown: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="jobs", box=box.SIMPLE_HEAD)
    table.add_column("job", overflow="fold")
    for name in ("group", "slowdown", "SLO", "slack s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why here | why not elsewhere", overflow="fold")
    for group in shown:
        for job in group["jobs"]:
            table.add_row(
                escape(job["job"]),
                str(group["group"]),
                f"{job['slowdown']:.3f}",
                f"{job['slo']:.3f}",
                f"{job['slack_s']:.1f}",
                escape(_why(job)),
            )
    console.print(table)
