"""Commands of the Weave planner: ``plan`` and its experiments.

Owns reading of job tables, terminal tables, JSON and pictures. Heavy imports happen when a command
runs, so that the launcher starts fast.
"""

from __future__ import annotations

import click

from testbed.experiments.lazy import LazyCommand

plan_command: click.Command = LazyCommand(
    "plan",
    "testbed.coexec_cli.plan",
    "plan_command",
    "Weave's grouping of a job table and its cost, without running.",
)

EXPERIMENTS: dict[str, click.Command] = {
    name: LazyCommand(name, f"testbed.coexec_cli.{module}", "command", short_help)
    for name, module, short_help in (
        ("weave-replay", "weave_replay", "Weave: groups over days of arrivals and departures."),
        ("planner", "planner_times", "Weave: decision time, 5 to 2,000 jobs."),
        ("round-robin", "round_robin", "Weave: the intra-group theorem and what breaks it."),
    )
}
"""Experiments for ``reproduce``: each takes ``--quick`` and ``--out DIR``."""
