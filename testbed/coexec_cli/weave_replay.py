"""``reproduce weave-replay``: what do groups save over days of arrivals and departures?

The shipped reference traces and generated ones, under the paper's algorithm, the baselines and our
planner: residency rules, SLOs, group sizes, drift, worst-case planning, and the exact optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import click

from testbed.coexec.drift import DriftLaw, drifting, shorter_than_planned
from testbed.coexec.generate import TraceLaw, generate
from testbed.coexec.named import planner_named
from testbed.coexec.replay import ReplayRules, Residency, TraceJob
from testbed.coexec.rules import PHASES_FULL
from testbed.coexec_cli.laws import read_laws
from testbed.coexec_cli.scenarios import (
    PRINTED,
    SHIPPED,
    against_optimum,
    colocated_rows,
    named,
    replayed,
    shipped,
    with_slo,
)
from testbed.coexec_cli.tables import read_jobs
from testbed.coexec_cli.weave_checks import (
    drift_checks,
    generated_checks,
    of_scenario,
    optimum_checks,
    residing,
    trace_checks,
)
from testbed.errors import RanloomError, TraceError
from testbed.experiments.experiment import BadInput, Experiment, Row, finish, progress

FIXED = ReplayRules(Residency.FIXED)
MAIN = ("algorithm-1", "consolidating", "ranloom")
MAIN_FIXED = (*MAIN, "ranloom-cost")
BASELINES = ("dedicated", "cold slicing", "gavel-like", "random", "most idle")
VARIANTS = (
    "algorithm-1, swap and sync",
    "ranloom, swap and sync",
    "algorithm-1, tail at 0.8",
    "ranloom, tail at 0.8",
)
GENERATED_SEEDS = tuple(range(1, 11))
DRIFT_SEED = 1
DRIFT_MARGIN = 0.02
CHECK_EVERY_H = 1.0
DEFAULT_LAWS = "weave_replay.toml"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is replayed; ``--quick`` takes a part of everything."""

    traces: tuple[str, ...] = SHIPPED
    fixed: tuple[str, ...] = SHIPPED
    variants: tuple[str, ...] = ("prod_1", "prod_2", "prod_3", "philly_mixed_1")
    generated: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("prod", GENERATED_SEEDS),
        ("philly_mixed", GENERATED_SEEDS),
        ("philly_bl", (1, 2, 3)),
        ("philly_rh", (1, 2, 3)),
        ("philly_th", (1, 2, 3)),
    )
    generated_fixed: tuple[int, ...] = GENERATED_SEEDS
    sweep: tuple[str, ...] = ("prod_1", "philly_mixed_1")
    slos: tuple[float, ...] = (1.05, 1.2, 1.5, 2.0)
    sizes: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
    optimum: tuple[tuple[str, int], ...] = (
        ("philly_bl_1", 14),
        ("philly_rh_1", 14),
        ("philly_th_1", 14),
        ("philly_mixed_1", 30),
        ("prod_1", 14),
    )
    drift: tuple[str, ...] = ("prod_1", "philly_mixed_1")
    drift_laws: tuple[DriftLaw, ...] = tuple(DriftLaw)


QUICK = Scope(
    traces=("prod_1", "philly_mixed_1"),
    fixed=(),
    variants=(),
    generated=(),
    generated_fixed=(),
    sweep=(),
    optimum=(("philly_mixed_1", 13),),
    drift=("philly_mixed_1",),
    drift_laws=(DriftLaw.MIXED,),
)


def main_rows(name: str, trace: Sequence[TraceJob], *, fixed: bool, variants: bool) -> list[Row]:
    """One trace under the main policies and the baselines."""
    rows = replayed("trace", name, trace, named(*MAIN))
    if fixed:
        rows += replayed("trace", name, trace, named(*MAIN_FIXED), FIXED)
    rows += replayed("baseline", name, trace, named(*BASELINES))
    rows += colocated_rows(name, trace)
    if variants:
        rows += replayed("variant", name, trace, named(*VARIANTS))
    return rows


def sweep_rows(name: str, trace: Sequence[TraceJob], scope: Scope) -> list[Row]:
    """SLOs and group sizes, work-conserving."""
    rows: list[Row] = []
    for slo in scope.slos:
        rows += replayed(f"SLO {slo:g}", name, with_slo(trace, slo), named(*MAIN))
    for size in scope.sizes:
        rules = replace(PRINTED, max_group=size)
        planners = {policy: planner_named(policy, rules) for policy in MAIN}
        rows += replayed(f"max group {size}", name, trace, planners)
    return rows


def drift_rows(name: str, trace: Sequence[TraceJob], law: DriftLaw) -> list[Row]:
    """Drift up to 50 %: nobody looks, and eviction with a margin."""
    rules = ReplayRules(check_every_h=CHECK_EVERY_H, actual=drifting(law, 0.5, DRIFT_SEED))
    still = replace(rules, reviewed=False)
    careful = planner_named("ranloom", replace(PRINTED, slo_margin=DRIFT_MARGIN))
    scenario = f"drift {law.value} 0.5"
    label = f"ranloom, evicting, {DRIFT_MARGIN:.0%} margin"
    return [
        *replayed(scenario, name, trace, named("algorithm-1", "ranloom"), still),
        *replayed(scenario, name, trace, {label: careful}, rules),
    ]


def worst_case_rows(name: str, trace: Sequence[TraceJob]) -> list[Row]:
    """Planned at the worst case while rollouts take 0.5-1 of it: without and with re-profiling."""
    actual = shorter_than_planned(0.5, DRIFT_SEED)
    before = ReplayRules(actual=actual)
    after = ReplayRules(actual=actual, check_every_h=CHECK_EVERY_H)
    soon = ReplayRules(actual=actual, check_every_h=CHECK_EVERY_H / 10)
    careful = planner_named("ranloom", replace(PRINTED, slo_margin=DRIFT_MARGIN))
    label = f"ranloom, evicting, {DRIFT_MARGIN:.0%} margin"
    unplanned = ReplayRules(phases=PHASES_FULL)
    return [
        *replayed("worst case, as planned", name, trace, named("algorithm-1", "ranloom"), before),
        *replayed("worst case, re-profiled hourly", name, trace, {label: careful}, after),
        *replayed("worst case, re-profiled in 6 min", name, trace, {label: careful}, soon),
        *replayed("swap and sync not in the plan", name, trace, named("algorithm-1"), unplanned),
    ]


def _laws(path: Path | None) -> Mapping[str, TraceLaw]:
    """The laws of ``path``, or of the file beside the traces of the package."""
    if path is None:
        path = Path(str(files("testbed.coexec") / "traces" / DEFAULT_LAWS))
    return read_laws(path)


def run(
    out: Path, quick: bool, *, jobs: Sequence[Path] = (), laws_path: Path | None = None
) -> Experiment:
    """All scenarios, or with ``jobs`` only the replay of those files; writes ``weave-replay.json``.

    Raises:
        RanloomError: a file of ``jobs`` or of laws cannot be used.
    """
    experiment = Experiment("weave-replay", [], quick)
    rows = experiment.rows
    if jobs:
        for path in jobs:
            trace = read_jobs(path, trace=True, most_rollout_gb=2048, most_train_gb=2048).jobs
            rows += main_rows(
                path.stem.removeprefix("weave_jobs_"), trace, fixed=True, variants=True
            )
        experiment.checks = trace_checks(rows)
    else:
        scope = QUICK if quick else Scope()
        _collect(experiment, scope, _laws(laws_path))
        experiment.checks = [
            *trace_checks(rows),
            *generated_checks(rows),
            *optimum_checks(rows),
            *drift_checks(rows),
        ]
    _figure(experiment, out)
    finish(experiment, out, _sections(rows))
    return experiment


def _collect(experiment: Experiment, scope: Scope, laws: Mapping[str, TraceLaw]) -> None:
    rows = experiment.rows
    for name in scope.traces:
        progress(f"trace {name}")
        trace = shipped(name)
        rows += main_rows(name, trace, fixed=name in scope.fixed, variants=name in scope.variants)
    seeds: set[int] = {DRIFT_SEED}
    for law, of_law in scope.generated:
        if law not in laws:
            raise TraceError(f"no law is called {law!r}; the file has {', '.join(laws)}")
        for seed in of_law:
            seeds.add(seed)
            trace = generate(laws[law], seed)
            name = f"{law} seed {seed}"
            progress(f"generated {name}")
            rows += replayed("generated", name, trace, named(*MAIN))
            if law == "prod" and seed in scope.generated_fixed:
                rows += replayed("generated", name, trace, named(*MAIN_FIXED), FIXED)
    for name in scope.sweep:
        progress(f"SLOs and group sizes on {name}")
        rows += sweep_rows(name, shipped(name), scope)
    for name, most_jobs in scope.optimum:
        progress(f"optimum of {name}, up to {most_jobs} jobs at once")
        for unsaturated in (False, True):
            planners = named("algorithm-1", "ranloom")
            rows += against_optimum(
                name, shipped(name), planners, most_jobs=most_jobs, unsaturated=unsaturated
            )
    for name in scope.drift:
        progress(f"drift and worst case on {name}")
        for drift_law in scope.drift_laws:
            rows += drift_rows(name, shipped(name), drift_law)
        rows += worst_case_rows(name, shipped(name))
    experiment.seeds = sorted(seeds)


HEADINGS = {
    "scenario": "scenario",
    "trace": "trace",
    "policy": "policy",
    "residency": "residency",
    "variant": "optimum may",
    "of_optimum": "of optimum",
    "ratio_solo": "Solo-D / policy",
    "slo_attainment": "SLO kept",
    "moves": "moves",
    "peak_rollout_nodes": "peak R",
    "peak_train_nodes": "peak T",
}


def _sections(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """What the terminal shows: fewer columns than the JSON."""
    sections: dict[str, list[Row]] = {}
    for row in rows:
        kind = str(row["scenario"]).split(" ")[0]
        if row["scenario"] in ("trace", "generated", "optimum"):
            kind = f"{row['scenario']}, {row['residency']}"
        leave = {"residency"} | ({"scenario"} if kind.startswith(str(row["scenario"])) else set())
        shown = {
            heading: row.get(name)
            for name, heading in HEADINGS.items()
            if name not in leave and (name in row or not name.endswith("optimum"))
        }
        if "variant" not in row:
            shown.pop(HEADINGS["variant"], None)
        sections.setdefault(kind, []).append(shown)
    return sections


def _figure(experiment: Experiment, out: Path) -> None:
    from testbed.coexec_cli.picture import bars

    kept = residing(of_scenario(experiment.rows, "trace"), Residency.WORK_CONSERVING)
    traces = list(dict.fromkeys(str(row["trace"]) for row in kept))
    series = {
        policy: [float(r["ratio_solo"]) for r in kept if r["policy"] == policy] for policy in MAIN
    }
    out.mkdir(parents=True, exist_ok=True)
    name = "weave-replay.png"
    bars(out / name, "Cost of dedicated nodes / cost of the policy", traces, series, "ratio")
    experiment.figures.append(name)


@click.command("weave-replay")
@click.option("--quick", is_flag=True, help="A part of everything; ends within a minute.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), show_default=True)
@click.option(
    "--jobs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE...",
    help="Replay these job tables and nothing else.",
)
@click.option("--laws", type=click.Path(path_type=Path), help="Generator laws (TOML).")
@click.argument("more", nargs=-1, type=click.Path(path_type=Path), metavar="")
def command(
    quick: bool, out: Path, jobs: tuple[Path, ...], laws: Path | None, more: tuple[Path, ...]
) -> None:
    """Weave's inter-group planner over days of arrivals and departures."""
    if more and not jobs:
        raise click.UsageError(f"unexpected argument {more[0]}; job tables follow --jobs")
    try:
        run(out, quick, jobs=(*jobs, *more), laws_path=laws)
    except RanloomError as error:
        raise BadInput(str(error)) from error
