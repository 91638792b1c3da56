"""``calibrate``: the PHY cost model's constants of this machine's device, as a GPU profile.

Measures the PHY executor's kernels over a grid of MCS, PRBs and layers, fits the line of
``testbed.gpu.cost`` to the medians, and says how well it fits. The device is a CUDA GPU where torch
sees one; else the CPU, whose cores then stand for SMs: a slot's work runs on one of them, as the
executor of a gNB does. Must not guess: what is not measured says "assumed" and from where.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal, Protocol

from protocols.errors import RanloomError
from protocols.work import PhyTask
from testbed.executors.config import PhyConfig
from testbed.gpu.cost import DOWNLINK, UPLINK, decoder_iterations
from testbed.gpu.cost_fit import LineFit, fit_line
from testbed.gpu.profile import GpuProfile
from testbed.ran.numerology import Direction, SlotKind, res_per_prb
from testbed.ran.tables import mcs_entry
from testbed.ran.tbs import block_sizes
from testbed.topology.profiles import (
    file_profile,
    gpu_profile,
    is_profile_file,
    list_gpus,
    profile_text,
)

if TYPE_CHECKING:
    from testbed.executors.phy_bench import DeviceFacts

_MCS_TABLE = 2
_ANTENNAS = 4
_LEAST_TFLOPS = 0.01
_TEMPLATE = "gb10"
"""The profile that gives what is neither measured nor known of an unknown device."""
_SPEED_EXPONENT = 0.93
"""Of (SMs / all SMs), the rule of every built-in profile."""
_SPEED_POINTS = 6
_SECTIONS = {UPLINK: (SlotKind.U, Direction.UL), DOWNLINK: (SlotKind.D, Direction.DL)}


@dataclass(frozen=True, slots=True)
class Effort:
    """The grid, and for how long each direction of it is measured."""

    mcs: tuple[int, ...]
    n_prb: tuple[int, ...]
    layers: tuple[int, ...]
    seconds: float
    min_rounds: int


FULL = Effort((0, 4, 10, 16, 22, 27), (11, 24, 51, 106, 162, 273), (1, 2, 4), 40.0, 10)
QUICK = Effort((4, 16, 27), (24, 106, 273), (1, 2), 6.0, 5)


class Bench(Protocol):
    """What measures: ``testbed.executors.phy_bench.PhyBench``."""

    def facts(self) -> DeviceFacts:
        """What the device is."""

    def measure_us(
        self, tasks: Sequence[PhyTask], seconds: float, min_rounds: int
    ) -> list[list[float]]:
        """Durations of each task, microseconds."""


@dataclass(frozen=True, slots=True)
class Point:
    """One transport block over ``n_prb`` PRBs. ``iterations``: summed over its code blocks."""

    mcs: int
    n_prb: int
    layers: int
    code_blocks: int
    iterations: int

    def work(self, direction: int) -> float:
        """Code blocks; in the uplink weighted by decoder iterations / 10."""
        return self.iterations / 10 if direction == UPLINK else float(self.code_blocks)


@dataclass(frozen=True, slots=True)
class Direct:
    """One direction: its points, what each took, and the line through the medians."""

    direction: int
    points: tuple[Point, ...]
    rounds: int
    median_us: tuple[float, ...]
    p99_us: tuple[float, ...]
    fit: LineFit

    @property
    def quality(self) -> str:
        """How well the line fits, in words."""
        return (
            f"R2 {self.fit.r_squared:.3f}, worst residual {self.fit.worst_residual:.0%} over "
            f"{len(self.points)} points x {self.rounds} rounds"
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that was found: the device, its profile, and both directions."""

    device: DeviceFacts
    profile: GpuProfile
    uplink: Direct
    downlink: Direct

    def lines(self) -> list[str]:
        """For a terminal: what was measured, what was fitted, how well."""
        unit = "SMs" if self.device.capability else "cores, which stand for SMs"
        lines = [f"{self.device.name}: {self.device.units} {unit}"]
        for part, name, weight in (
            (self.uplink, "uplink", " x iterations / 10"),
            (self.downlink, "downlink", ""),
        ):
            at = part.points[part.fit.worst]
            spread = max(high / low for high, low in zip(part.p99_us, part.median_us, strict=True))
            lines += [
                f"{name}: {part.fit.fixed_us:.1f} us + {part.fit.code_block_us:.3f} us per code "
                f"block{weight}",
                f"  {part.quality}",
                f"  worst at MCS {at.mcs}, {at.n_prb} PRB, {at.layers} layers: "
                f"{part.median_us[part.fit.worst]:.0f} us measured; "
                f"p99 at most {spread:.2f} x median",
            ]
        return lines

    def text(self) -> str:
        """The profile's file, with what was measured as comments."""
        comments = [*self.lines(), "", "direction MCS PRB layers code-blocks median-us p99-us"]
        for part, name in ((self.uplink, "UL"), (self.downlink, "DL")):
            for point, middle, high in zip(part.points, part.median_us, part.p99_us, strict=True):
                comments.append(
                    f"{name} {point.mcs} {point.n_prb} {point.layers} {point.code_blocks} "
                    f"{middle:.1f} {high:.1f}"
                )
        return profile_text(self.profile, comments)


def run_calibration(gpu: str | None, quick: bool, output: Path | None) -> list[str]:
    """Measure, write the profile if there is an ``output``, and tell: lines for a terminal.

    Raises:
        RanloomError: ``output`` is not a ``.toml`` file in a directory that is there, or ``gpu``
            is no profile.
    """
    if output is not None and (not is_profile_file(output.name) or not output.parent.is_dir()):
        raise RanloomError(f"-o {output}: allowed is a file NAME.toml in a directory that is there")
    base = _named(gpu)
    effort = QUICK if quick else FULL
    found = calibrate(_open_bench(effort), effort, base)
    if output is None:
        return [*found.lines(), "-o PROFILE.toml writes a profile"]
    output.write_text(found.text(), encoding="utf-8")
    return [*found.lines(), f'wrote {output}; a topology names it: gpu = "{output.name}"']


def calibrate(bench: Bench, effort: Effort, base: GpuProfile | None = None) -> Calibration:
    """Measure a device and fit the constants.

    Args:
        bench: measures.
        effort: what, and for how long.
        base: the profile that gives all but the four fitted constants. None: the built-in one that
            the device's name contains; for another device what is known of it, the rest assumed.
    """
    device = bench.facts()
    start = base or _by_name(device) or own_profile(device)
    rule = start.phy.ul_iterations
    uplink = _measure(bench, UPLINK, effort, rule)
    downlink = _measure(bench, DOWNLINK, effort, rule)
    return Calibration(device, _with_fits(start, device, uplink, downlink), uplink, downlink)


def grid(effort: Effort, direction: int, rule: str) -> tuple[Point, ...]:
    """Every point of the grid, with its code blocks and decoder iterations by the standard."""
    return tuple(_points(effort, direction, rule))


def own_profile(device: DeviceFacts) -> GpuProfile:
    """A profile of a device that no built-in one describes; its PHY constants are still assumed."""
    on_gpu = device.capability is not None
    template = gpu_profile(_TEMPLATE)
    step, smallest, step_source = _granularity(device)
    sources = {key: f"assumed: as {_TEMPLATE}, not measured" for key, _ in template.sources}
    sources |= {
        "sms": "the device's own" if on_gpu else "the CPU's cores stand for SMs",
        "sm_step": step_source,
        "min_sms": step_source,
        "speed_points": "assumed: (SMs / all SMs) ** 0.93, one rule for every profile",
        "bf16_tflops": f"{_measured(device)}: products of {'bf16' if on_gpu else 'float32'}",
        "memory_gb_per_s": f"{_measured(device)}: a copy",
        "hbm_gib": "the device's own",
        "phy.ran_sm_cap": "assumed: all",
    }
    phy = replace(
        template.phy,
        ran_sm_cap=device.units - device.units % step,
        dl_sms=min(template.phy.dl_sms, device.units),
        ul_sms_per_10_code_blocks=min(template.phy.ul_sms_per_10_code_blocks, device.units),
    )
    profile = replace(
        template,
        name="own",
        sms=device.units,
        sm_step=step,
        min_sms=smallest,
        speed_points=_speed_points(device.units, smallest),
        bf16_tflops=max(_LEAST_TFLOPS, round(device.matrix_tflops, 3)),
        memory_gb_per_s=round(device.copy_gb_per_s, 1),
        hbm_gib=round(device.memory_gib, 1),
        phy=phy,
        sources=tuple(sources.items()),
    )
    return profile if on_gpu else _on_cores(profile)


def _on_cores(profile: GpuProfile) -> GpuProfile:
    """What is different where cores stand for SMs, and the machine's memory for both memories."""
    half_gib = round(profile.hbm_gib / 2, 1)
    one_core = "assumed: the least that the model has; a task's kernels run on one core"
    sources = dict(profile.sources) | {
        "hbm_gib": "assumed: half of the machine's memory",
        "host_gib": "assumed: the other half of the machine's memory",
        "pcie_gb_per_s": "assumed: a copy within one memory reads and writes, hence half",
        "phy.dl_sms": one_core,
        "phy.ul_sms_per_10_code_blocks": one_core,
    }
    return replace(
        profile,
        hbm_gib=half_gib,
        host_gib=half_gib,
        pcie_gb_per_s=round(profile.memory_gb_per_s / 2, 1),
        phy=replace(profile.phy, dl_sms=1, ul_sms_per_10_code_blocks=1),
        sources=tuple(sources.items()),
    )


def _points(effort: Effort, direction: int, rule: str) -> Iterator[Point]:
    re_per_prb = res_per_prb(*_SECTIONS[direction])
    for layers in effort.layers:
        for mcs in effort.mcs:
            sizes = block_sizes(max(effort.n_prb), re_per_prb, _MCS_TABLE, mcs, layers)
            each = decoder_iterations(rule, mcs_entry(_MCS_TABLE, mcs).spectral_efficiency)
            for n_prb in effort.n_prb:
                blocks = sizes[n_prb].code_blocks
                yield Point(mcs, n_prb, layers, blocks, blocks * each)


def _measure(bench: Bench, direction: int, effort: Effort, rule: str) -> Direct:
    points = grid(effort, direction, rule)
    tasks = [
        PhyTask(0, direction, 0, 0, point.n_prb, point.layers, point.code_blocks, point.iterations)
        for point in points
    ]
    times = bench.measure_us(tasks, effort.seconds, effort.min_rounds)
    medians = tuple(median(taken) for taken in times)
    p99 = tuple(sorted(taken)[math.ceil(0.99 * len(taken)) - 1] for taken in times)
    fit = fit_line([point.work(direction) for point in points], medians)
    return Direct(direction, points, len(times[0]), medians, p99, fit)


def _with_fits(
    start: GpuProfile, device: DeviceFacts, uplink: Direct, downlink: Direct
) -> GpuProfile:
    phy = replace(
        start.phy,
        ul_fixed_us=round(uplink.fit.fixed_us, 3),
        ul_code_block_us=round(uplink.fit.code_block_us, 3),
        dl_fixed_us=round(downlink.fit.fixed_us, 3),
        dl_code_block_us=round(downlink.fit.code_block_us, 3),
    )
    sources = dict(start.sources)
    for prefix, part in (("ul", uplink), ("dl", downlink)):
        for key in ("fixed_us", "code_block_us"):
            sources[f"phy.{prefix}_{key}"] = (
                f"{_measured(device)}, PHY kernels (128-bit stand-in code): {part.quality}"
            )
    return replace(start, phy=phy, sources=tuple(sources.items()))


def _measured(device: DeviceFacts) -> str:
    return f"measured by calibrate on {device.name}"


def _granularity(device: DeviceFacts) -> tuple[int, int, str]:
    """(step, smallest partition, source)."""
    if device.capability is None:
        return 1, 1, "assumed: a core at a time"
    documented = "CUDA documentation, green contexts: compute capability"
    if device.capability >= (9, 0):
        return 8, 8, f"{documented} 9.0 and above, minimum 8, step 8"
    if device.capability >= (8, 0):
        return 2, 4, f"{documented} 8.x, minimum 4, step 2"
    return 2, 2, f"{documented} below 8.0, minimum 2, step 2"


def _speed_points(units: int, smallest: int) -> tuple[tuple[int, float], ...]:
    counts = {smallest, *(units * part // _SPEED_POINTS for part in range(1, _SPEED_POINTS + 1))}
    return tuple(
        (count, round((count / units) ** _SPEED_EXPONENT, 3))
        for count in sorted(counts)
        if smallest <= count <= units
    )


def _by_name(device: DeviceFacts) -> GpuProfile | None:
    """The built-in profile of a GPU whose name it is; the longest, as GH200 contains H200."""
    if device.capability is None:
        return None
    named = [gpu for gpu in list_gpus() if gpu in device.name.lower()]
    return gpu_profile(max(named, key=len)) if named else None


def _named(gpu: str | None) -> GpuProfile | None:
    if gpu is None:
        return None
    return file_profile(Path(gpu)) if is_profile_file(gpu) else gpu_profile(gpu)


def _open_bench(effort: Effort) -> Bench:
    from testbed.executors.phy_bench import PhyBench, best_device

    largest = max(
        (point for direction in _SECTIONS for point in grid(effort, direction, "fixed")),
        key=lambda point: point.code_blocks,
    )
    device: Literal["cpu", "cuda"] = best_device()
    return PhyBench(
        PhyConfig(
            device=device,
            antennas=_ANTENNAS,
            n_prb=max(effort.n_prb),
            layers=max(effort.layers),
            code_blocks=largest.code_blocks,
        )
    )
