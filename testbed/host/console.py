"""What a person at the terminal sees of a run, of its report, and of what can be named."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from testbed.host.launcher import OnProgress
from testbed.host.live_result import LiveResult
from testbed.host.policies import BUILT_IN, METHODS
from testbed.topology.profiles import (
    file_profile,
    gpu_profile,
    is_profile_file,
    list_gpus,
    list_models,
    model_profile,
)
from testbed.topology.schema import Topology

_PLAIN_EVERY_S = 5.0


@contextmanager
def live_console(topology: Topology, time_scale: float, run_dir: Path) -> Iterator[OnProgress]:
    """A progress bar on a terminal, a plain line every few seconds elsewhere."""
    total_s = topology.time.total_us / 1e6
    wall_s = math.ceil(topology.time.total_us * time_scale / 1e5) / 10
    print(f"{topology.name}: {total_s:g} s of emulated time at scale {time_scale:g}: {wall_s:g} s")
    print(f"run directory: {run_dir}", flush=True)
    if not sys.stdout.isatty():
        yield _plain(total_s)
        return
    columns = (
        TextColumn("{task.fields[now_s]:.2f} s emulated"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(), transient=True) as progress:
        task = progress.add_task("run", total=total_s, now_s=0.0, note="starting processes")

        def on_progress(now_us: int, note: str) -> None:
            now_s = now_us / 1e6
            progress.update(task, completed=min(now_s, total_s), now_s=now_s, note=note)

        yield on_progress


def _plain(total_s: float) -> OnProgress:
    last_s = time.monotonic() - _PLAIN_EVERY_S

    def on_progress(now_us: int, note: str) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _PLAIN_EVERY_S:
            last_s = time.monotonic()
            print(f"{now_us / 1e6:7.2f} of {total_s:g} s emulated  {note}", flush=True)

    return on_progress


def finish_live(result: LiveResult, run_dir: Path, *, report: bool) -> int:
    """Report what there is, then, if something went wrong, the first cause last."""
    if report:
        show_report(run_dir)
    if result.status == "done":
        return 0
    sys.stdout.flush()
    if result.status == "interrupted":
        print(f"interrupted; what was recorded is in {run_dir}", file=sys.stderr)
        return 130
    print(f"\nerror: the run failed: {result.reason}", file=sys.stderr)
    if result.log:
        what = "last lines of" if result.tail else "nothing in"
        print(f"  {what} {result.log}{':' if result.tail else ''}", file=sys.stderr)
        for line in result.tail:
            print(f"    {line}", file=sys.stderr)
    print(f"  next: python run.py report {run_dir}", file=sys.stderr)
    return 1


def finish_simulated(run_dir: Path, *, report: bool) -> None:
    """Report a simulated run."""
    if report:
        show_report(run_dir)
    else:
        print(f"run directory: {run_dir}")


def show_report(run_dir: Path) -> None:
    """Write report, figures and trace, and print the summary. Raises RanloomError."""
    from testbed.record.report import print_summary
    from testbed.record.run_dir import run_report

    print_summary(run_report(run_dir), Console(), run_dir / "report.html")


def policy_lines() -> list[str]:
    """Each policy slot, its built-in policies, and the method that an own class needs."""
    lines = []
    for slot, built_in in BUILT_IN.items():
        lines.append(f"{slot}  (own: --policy {slot}=module:Class with a method {METHODS[slot]}())")
        for name, factory in built_in.items():
            summary = (factory.__doc__ or "").strip().splitlines()[0]
            lines.append(f"  {name:20} {summary}")
    return lines


def profile_lines(name: str | None) -> list[str]:
    """All profiles, or the numbers of one with their sources. Raises TopologyError."""
    if name is None:
        lines = ["GPU profiles (sites.NAME.gpu):"]
        for gpu_name in list_gpus():
            gpu = gpu_profile(gpu_name)
            lines.append(
                f"  {gpu_name:12} {gpu.sms} SMs in steps of {gpu.sm_step}, "
                f"{gpu.bf16_tflops:g} TFLOP/s bf16, {gpu.memory_gb_per_s:g} GB/s, "
                f"{gpu.usd_per_hour:g} USD/h"
            )
        lines.append("declared models (jobs.NAME.model):")
        for model_name in list_models():
            model = model_profile(model_name)
            size = f"{model.parameters / 1e6:.0f} M parameters, {model.layers} blocks"
            lines.append(f"  {model_name:12} {size}, hidden {model.hidden}")
        return lines
    if name in list_models():
        return [f"{name}: {model_profile(name)}"]
    gpu = file_profile(Path(name)) if is_profile_file(name) else gpu_profile(name)
    lines = [f"{name}: {gpu.sms} SMs"]
    for key, source in gpu.sources:
        owner, _, last = key.rpartition(".")
        value = getattr(gpu.phy if owner else gpu, last, "")
        lines.append(f"  {key:32} {value!s:40} {source}")
    return lines
