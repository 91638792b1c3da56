"""Experiments on a cell site's GPU: what the RAN leaves, how steadily, and who can use it.

Owns grids of bench runs, their tables, JSON and pictures. Heavy imports happen when a command runs,
so that the launcher starts fast.
"""

from __future__ import annotations

import click

from testbed.experiments.lazy import LazyCommand

EXPERIMENTS: dict[str, click.Command] = {
    name: LazyCommand(name, f"testbed.weaver_cli.{module}", "command", short_help)
    for name, module, short_help in (
        ("characterise", "characterise", "Spare GPU time: how much, how bursty, over a day."),
        ("usable", "usable", "Weaver: usable spare time, unshaped and shaped, and its bound."),
        ("ran-impact", "ran_impact", "Weaver: delay, misses, fairness; usable time per delay."),
        ("partition", "partition", "Weaver: green contexts, MPS, MIG, a fixed share on one RAN."),
    )
}
"""Experiments for ``reproduce``: each takes ``--quick`` and ``--out DIR``."""
