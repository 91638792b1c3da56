"""Ranloom's command line: one short function per verb.

Exit status: 0 done, 1 the run failed, 2 bad usage or topology, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from protocols.errors import RanloomError
from testbed import coexec_cli, weaver_cli
from testbed.ran.importers.names import FORMAT_NAMES

if TYPE_CHECKING:
    from testbed.topology.schema import Topology


class RanloomGroup(click.Group):
    """Named errors become one message on standard error, never a traceback: exit status 1 where a
    run has failed, 2 where its input is wrong."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except RanloomError as error:
            from testbed.errors import NodeFailed

            click.echo(f"error: {error}", err=True)
            sys.exit(1 if isinstance(error, NodeFailed) else 2)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(130)


def topology_options(command: Any) -> Any:
    """The options that ``up`` and ``sim`` share."""
    for option in (
        click.argument("topology", type=click.Path(path_type=Path)),
        click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="change a value"),
        click.option(
            "--policy",
            "policies",
            multiple=True,
            metavar="SLOT=NAME",
            help="for example site.mac=mymodule:MyClass",
        ),
        click.option("--duration", type=float, metavar="S", help="measured emulated seconds"),
        click.option("--run-dir", type=click.Path(path_type=Path), help="where the run is written"),
        click.option("--seed", type=int, help="seed of every random draw"),
        click.option("--report/--no-report", default=True, help="write the report at the end"),
    ):
        command = option(command)
    return command


@click.group(cls=RanloomGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ranloom")
def main() -> None:
    """Emulation testbed for training on spare GPU time: one topology in, one run directory out."""


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
def init(file: Path) -> None:
    """Write a commented topology to start from."""
    from testbed.topology.template import init_template

    if file.exists():
        raise click.UsageError(f"{file} exists already")
    file.write_text(init_template(file.stem.replace("_", "-").lower()), encoding="utf-8")
    click.echo(f"wrote {file}; next: python run.py check {file}")


@main.command()
@click.argument("topologies", nargs=-1, required=True, type=click.Path(path_type=Path))
def check(topologies: tuple[Path, ...]) -> None:
    """Validate; print what would run, where, and what it needs."""
    from testbed.errors import TopologyError
    from testbed.host.machine import machine_facts
    from testbed.topology.describe import describe_check
    from testbed.topology.load import load_topology

    mistakes: list[str] = []
    facts = machine_facts()
    for path in topologies:
        try:
            topology = load_topology(path, slot_wall_ms_min=facts.slot_wall_ms)
        except TopologyError as error:
            mistakes += error.mistakes
        else:
            click.echo("\n".join(describe_check(topology, facts.steady_slot_wall_ms)))
    if mistakes:
        raise TopologyError(mistakes)


@main.command()
@topology_options
def up(topology: Path, run_dir: Path | None, report: bool, **options: Any) -> None:
    """Run a topology live: separate processes, real training."""
    from testbed.host.console import finish_live, live_console
    from testbed.host.live_run import binds_gpu, default_run_dir, run_live
    from testbed.host.run_dir import clean_up_dead_runs

    if sys.platform != "linux":
        raise RanloomError("live runs need Linux (timerfd, pidfd); `sim` runs anywhere")
    loaded, scale = _load(topology, live=True, **options)
    for line in clean_up_dead_runs():
        click.echo(f"left by a dead run: {line}", err=True)
    if binds_gpu(loaded):
        click.echo("preparing the MAC policy (the first time: up to two minutes)", err=True)
    path = run_dir or default_run_dir(loaded, "live")
    with live_console(loaded, scale, path) as on_progress:
        result = run_live(loaded, scale, path, on_progress)
    sys.exit(finish_live(result, path, report=report))


@main.command()
@topology_options
@click.option("--journals", is_flag=True, help="keep every node's journal, for replay")
def sim(topology: Path, run_dir: Path | None, report: bool, journals: bool, **options: Any) -> None:
    """Run a topology in virtual time: no processes, deterministic."""
    from testbed.host.console import finish_simulated
    from testbed.host.live_run import default_run_dir, run_simulated

    loaded, scale = _load(topology, live=False, **options)
    path = run_dir or default_run_dir(loaded, "sim")
    run_simulated(loaded, scale, path, journals=journals)
    finish_simulated(path, report=report)


@main.command()
@click.argument("run")
def down(run: str) -> None:
    """End a run (its directory or its name), from any directory; clean up after a dead one."""
    from testbed.host.down import end_run

    for line in end_run(run):
        click.echo(line)


@main.command("report")
@click.argument("run_dir", type=click.Path(path_type=Path))
def report_verb(run_dir: Path) -> None:
    """Terminal summary, report.html, figures and trace of a run."""
    from testbed.host.console import show_report

    show_report(run_dir)


@main.command()
@click.argument("run_dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
def compare(run_dirs: tuple[Path, ...]) -> None:
    """One table of several runs, ratios with the first as 1.0."""
    from rich.console import Console

    from testbed.record.compare import compare as compare_runs
    from testbed.record.compare import print_comparison

    print_comparison(compare_runs(run_dirs), Console())


@main.group()
def reproduce() -> None:
    """Experiments: paper figure, ours, bound; writes DIR/NAME.json and figures."""


main.add_command(coexec_cli.plan_command)
for experiment in (*weaver_cli.EXPERIMENTS.values(), *coexec_cli.EXPERIMENTS.values()):
    reproduce.add_command(experiment)


@main.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.argument("nodes", nargs=-1)
def replay(run_dir: Path, nodes: tuple[str, ...]) -> None:
    """Feed the journals of a run to new nodes; tell whether they do the same again."""
    from testbed.host.replay import replay_run

    same = True
    for result in replay_run(run_dir, nodes):
        same &= result.same
        verdict = "same effects" if result.same else f"DIFFERS before {result.differs_before_step}"
        click.echo(f"{result.node:32} {result.steps:8} steps {result.hashes:4} hashes  {verdict}")
    sys.exit(0 if same else 1)


@main.command("import-trace")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "kind", required=True, type=click.Choice(FORMAT_NAMES))
@click.option("-o", "output", required=True, type=click.Path(path_type=Path))
@click.option("--bad-rows", type=click.Choice(["refuse", "skip"]), default="refuse")
@click.option("--cell", "cells", multiple=True, help="of a log with several; again: taken together")
@click.option("--interval-s", type=float, help="seconds that a report covers")
@click.option("--peak-mbps", type=float, help="milan: rate of the busiest interval, DL + UL")
@click.option("--ul-share", type=float, help="milan: uplink's part of it, 0 to 1 (0.1)")
@click.option("--file-bytes", type=int, default=1500, show_default=True, help="of one arrival")
@click.option("--spread", type=click.Choice(["even", "poisson"]), default="even", show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="of --spread poisson")
@click.option("--ues", type=int, default=8, show_default=True, help="where the log knows no UEs")
@click.option("--start-s", type=float, default=0.0, help="where in the log the trace begins")
@click.option("--length-s", type=float, help="how much of the log is taken; default: the rest")
@click.option("--clock", type=click.Choice(["timestamp", "frame"]), default="timestamp")
@click.option("--scs-khz", type=int, default=30, help="of the cell, for --clock frame")
def import_trace(files: tuple[Path, ...], kind: str, output: Path, **options: Any) -> None:
    """Turn a log of real traffic into a trace that cells can replay."""
    from testbed.host.traces import import_files, import_options

    for line in import_files(files, kind, output, import_options(**options)):
        click.echo(line)


@main.command()
def policies() -> None:
    """Policies that a topology can name."""
    from testbed.host.console import policy_lines

    click.echo("\n".join(policy_lines()))


@main.command()
@click.argument("name", required=False)
def profiles(name: str | None) -> None:
    """GPU and model profiles that a topology can name; with NAME, its numbers and sources."""
    from testbed.host.console import profile_lines

    click.echo("\n".join(profile_lines(name)))


@main.command()
@click.option("--seconds", type=float, default=3.0, help="how long each measurement lasts")
@click.option("--write/--no-write", default=False, help="keep the figures for sim and auto scale")
def doctor(seconds: float, write: bool) -> None:
    """Can this machine keep slot time, and what does it permit?"""
    from testbed.host.doctor import examine, print_findings

    print_findings(examine(seconds), write=write)


@main.command()
@click.option("--gpu", metavar="NAME", help="profile that gives what is not measured")
@click.option("--quick", is_flag=True, help="a small grid, in less than 30 s")
@click.option("-o", "output", type=click.Path(path_type=Path), help="write a profile (.toml)")
def calibrate(gpu: str | None, quick: bool, output: Path | None) -> None:
    """Measure the PHY's cost on this machine's device; write a GPU profile that fits it."""
    from testbed.host.calibrate import run_calibration

    for line in run_calibration(gpu, quick, output):
        click.echo(line)


def _load(
    path: Path,
    *,
    live: bool,
    sets: tuple[str, ...],
    policies: tuple[str, ...],
    duration: float | None,
    seed: int | None,
) -> tuple[Topology, float]:
    """The topology with its options, and wall seconds per emulated second."""
    from testbed.host.machine import machine_facts, with_machine_facts
    from testbed.topology.load import load_topology
    from testbed.topology.sizes import time_scale

    facts = machine_facts()
    limit_ms = facts.slot_wall_ms if live else None
    loaded = load_topology(path, sets, policies, seed, duration, slot_wall_ms_min=limit_ms)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    return with_machine_facts(loaded), time_scale(loaded, facts.steady_slot_wall_ms)


if __name__ == "__main__":
    main()
