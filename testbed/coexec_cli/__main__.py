"""``python -m testbed.coexec_cli``: the planner's commands on their own."""

from __future__ import annotations

import click

from testbed.coexec_cli import EXPERIMENTS, plan_command


@click.group()
def main() -> None:
    """Weave's planner and its experiments."""


@main.group()
def reproduce() -> None:
    """Experiments: rows, checks and figures in --out DIR."""


main.add_command(plan_command)
for _command in EXPERIMENTS.values():
    reproduce.add_command(_command)

if __name__ == "__main__":
    main()
