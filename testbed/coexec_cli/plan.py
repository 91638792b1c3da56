"""``plan JOBS.csv``: which jobs should share GPUs, and what does it save? Starts no process."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from testbed.coexec.batch import place_many, settle
from testbed.coexec.decisions import Decision
from testbed.coexec.groups import Plan
from testbed.coexec.jobs import JobProfile
from testbed.coexec.named import DEFAULT_PLANNER, DEFAULT_RULES, PLANNER_NAMES, planner_named
from testbed.coexec.policies import Ranloom
from testbed.coexec.rules import PHASES_PRINTED, PlannerRules
from testbed.coexec_cli.prices import GPUS, pools_of, read_prices
from testbed.coexec_cli.tables import read_jobs
from testbed.errors import RanloomError
from testbed.experiments.experiment import BadInput

MOST_ROUNDS = 60
ROUND_JOBS = 4000
"""Re-packing rounds x jobs: keeps a table of 2,000 jobs within a second."""


def static_plan(
    jobs: list[JobProfile], policy: str, rules: PlannerRules
) -> tuple[Plan, list[Decision], PlannerRules]:
    """Plan jobs that are all waiting, in the order given; deterministic."""
    planner = planner_named(policy, rules)
    plan, decisions = place_many(jobs, planner.rules)
    if isinstance(planner, Ranloom) and planner.repacking is not None:
        rounds = max(2, min(MOST_ROUNDS, ROUND_JOBS // len(jobs)))
        plan, more = settle(plan, planner.rules, planner.moves, planner.repacking, rounds)
        decisions += more
    return plan, decisions, planner.rules


def run_plan(
    path: Path,
    *,
    slo: float | None,
    prices: str | None,
    max_group: int,
    policy: str,
    host_gb: float,
    printed: bool,
) -> tuple[dict[str, Any], Plan, PlannerRules, tuple[str, ...]]:
    """Read, plan, and describe. Raises RanloomError on bad input."""
    priced = read_prices(prices)
    table = read_jobs(
        path, slo=slo, most_rollout_gb=host_gb, most_train_gb=host_gb, gpu_names=sorted(GPUS)
    )
    pools = pools_of(table.gpus, priced)
    pools = replace(
        pools,
        rollout=replace(pools.rollout, host_gb=host_gb),
        train=replace(pools.train, host_gb=host_gb),
    )
    rules = replace(DEFAULT_RULES, pools=pools, max_group=max_group)
    if printed:
        rules = replace(rules, phases=PHASES_PRINTED)
    profiles = [entry.profile for entry in table.jobs]
    began = time.perf_counter()
    plan, decisions, rules = static_plan(profiles, policy, rules)
    took = time.perf_counter() - began
    from testbed.coexec_cli.plan_report import plan_data

    data = plan_data(profiles, plan, decisions, rules, policy=policy, planning_s=took)
    return data, plan, rules, table.ignored


@click.command("plan")
@click.argument("jobs", type=click.Path(path_type=Path))
@click.option("--slo", type=click.FloatRange(min=1.0), help="One SLO (slowdown) for all jobs.")
@click.option("--prices", metavar="GPU=USD,...", help="Dollars per GPU-hour, e.g. H20=1.85.")
@click.option("--max-group", type=click.IntRange(1, 8), default=5, show_default=True)
@click.option(
    "--policy", type=click.Choice(PLANNER_NAMES), default=DEFAULT_PLANNER, show_default=True
)
@click.option(
    "--host-gb",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_RULES.pools.rollout.host_gb,
    show_default=True,
    help="Host memory that one node lends to pinned state.",
)
@click.option("--printed", is_flag=True, help="Leave swap and sync out, as RollMux prints it.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write it as JSON too.")
@click.option(
    "--picture", type=click.Path(path_type=Path), help="Write a Gantt chart (.png, .svg, .pdf)."
)
@click.option("--groups", default=20, show_default=True, help="Groups to show at most.")
def plan_command(
    jobs: Path,
    slo: float | None,
    prices: str | None,
    max_group: int,
    policy: str,
    host_gb: float,
    printed: bool,
    json_path: Path | None,
    picture: Path | None,
    groups: int,
) -> None:
    """Which RL jobs of JOBS.csv should share GPUs, and what it saves. Runs nothing."""
    from rich.console import Console

    from testbed.coexec_cli.plan_report import print_plan

    try:
        data, plan, rules, ignored = run_plan(
            jobs,
            slo=slo,
            prices=prices,
            max_group=max_group,
            policy=policy,
            host_gb=host_gb,
            printed=printed,
        )
    except RanloomError as error:
        raise BadInput(str(error)) from error
    console = Console()
    print_plan(console, data, groups)
    if ignored:
        console.print(f"columns not used: {', '.join(ignored)}")
    console.print(f"planned in {data['planning_s']:.2f} s")
    try:
        if json_path is not None:
            json_path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        if picture is not None:
            from testbed.coexec_cli.picture import draw_plan

            shown = draw_plan(plan.groups, rules, picture, min(groups, 12))
            console.print(f"{picture}: {shown} of {len(plan.groups)} groups")
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot write: {error}") from error
