"""What ``check`` prints of a good topology: what would run, where, and what it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.gpu.partitions import mechanism
from testbed.gpu.profile import GpuProfile, ModelProfile
from testbed.ran.numerology import n_prb
from testbed.topology.jobs import Job
from testbed.topology.node_config import NODE_KINDS, plan_nodes
from testbed.topology.profiles import effective_gpu, is_profile_file, model_profile
from testbed.topology.radio import CellGroup
from testbed.topology.schema import Topology
from testbed.topology.site import Site
from testbed.topology.sizes import (
    DEFAULT_SLOT_WALL_MS,
    block_us,
    grantable_sms,
    job_costs,
    notice_us,
    state_bytes,
    time_scale,
)
from testbed.topology.traffic import PoissonTraffic, Traffic

_WITH_EXECUTOR = ("gnb_phy", "trainer")
_COLUMNS = 100


def describe_check(topology: Topology, slot_wall_ms_min: float = DEFAULT_SLOT_WALL_MS) -> list[str]:
    """Lines for a terminal, at most 100 columns; no colours, no machine paths."""
    return [
        _headline(topology),
        f"  {_times(topology, slot_wall_ms_min)}",
        f"  {_processes(topology)}",
        *(line for name in topology.sites for line in _site(topology, name)),
        *(line for name in topology.jobs for line in _job(topology, name)),
    ]


def _headline(topology: Topology) -> str:
    cells = list(topology.cells())
    gnbs = sum(len(site.gnbs) for site in topology.sites.values())
    ues = sum(ref.spec.n_ues for ref in cells)
    parts = (
        (len(topology.sites), "site"),
        (gnbs, "gNB"),
        (len(cells), "cell"),
        (ues, "UE"),
        (len(topology.jobs), "job"),
    )
    return f"{topology.name}: " + ", ".join(_counted(count, what) for count, what in parts)


def _times(topology: Topology, slot_wall_ms_min: float) -> str:
    scale = time_scale(topology, slot_wall_ms_min)
    total_s = topology.time.total_us / 1e6
    auto = " (auto)" if topology.time.scale == "auto" else ""
    return (
        f"{total_s:.1f} s of emulated time at scale {scale:g}{auto}: {total_s * scale:.0f} s "
        f"(warm-up {topology.time.warmup_us / 1e6:g} s, measured "
        f"{topology.time.measured_us / 1e6:g} s)"
    )


def _processes(topology: Topology) -> str:
    kinds = Counter(plan.kind for plan in plan_nodes(topology))
    executors = sum(kinds[kind] for kind in _WITH_EXECUTOR)
    listed = ", ".join(f"{kinds[kind]} {kind}" for kind in NODE_KINDS if kinds[kind])
    return f"processes: {listed}; {_counted(executors, 'executor')}"


def _site(topology: Topology, name: str) -> Iterator[str]:
    site = topology.sites[name]
    if site.gpu is None:
        yield f"  {name}: no GPU, nothing runs here"
        return
    gpu = effective_gpu(site)
    changed = ""
    if is_profile_file(site.gpu):
        changed = f" of {site.gpu}"
    elif site.gpu_overrides.model_dump(exclude_none=True) != {"phy": {}}:
        changed = " with overrides"
    yield (
        f"  {name}: {gpu.name}{changed}, {gpu.sms} SMs in steps of {gpu.sm_step}, "
        f"{gpu.hbm_gib:g} GiB of device and {gpu.host_gib:g} GiB of host memory"
    )
    for gnb_name, gnb in site.gnbs.items():
        for group in gnb.cells:
            yield from _cells(gnb_name, group)
    yield from _spare(site, gpu)


def _cells(gnb: str, group: CellGroup) -> Iterator[str]:
    """One line for cells whose UEs are alike, if it fits; else one more per class and direction."""
    head = (
        f"    {gnb}: {_counted(group.count, 'cell')}, {group.bandwidth_mhz} MHz "
        f"({n_prb(group.bandwidth_mhz, group.scs_khz)} PRB), {group.scs_khz} kHz, {group.tdd}, "
        f"{_counted(group.n_ues, 'UE')} each"
    )
    classes = group.ue_classes
    line = f"{head}; UL {_traffic(classes[0].ul_traffic)}, DL {_traffic(classes[0].dl_traffic)}"
    if not group.classes and len(line) <= _COLUMNS:
        yield line
        return
    yield head
    for of_class in classes:
        what = f"{_counted(of_class.ues, 'UE')}, 5QI {of_class.five_qi}"
        yield f"      {what}: UL {_traffic(of_class.ul_traffic)}"
        yield f"      {'':{len(what)}}  DL {_traffic(of_class.dl_traffic)}"


def _traffic(traffic: Traffic) -> str:
    match traffic.kind:
        case "ftp3":
            return f"FTP-3 {_load(traffic)}"
        case "imix":
            return f"IMIX {_load(traffic)}"
        case "periodic":
            sizes = {traffic.bytes_min: None, traffic.bytes_max: None}
            return f"{'-'.join(map(str, sizes))} B each {traffic.period_us / 1000:g} ms"
        case "xr":
            return f"XR {traffic.rate_mbps:g} Mb/s at {traffic.fps} fps"
        case "commag":
            return f"COMMAG {traffic.service}"
        case "full_buffer":
            return "full buffer"
        case "trace":
            scaled = f" x {traffic.bytes_scale:g} bytes" if traffic.bytes_scale != 1 else ""
            return f"trace{scaled}"
        case "none":
            return "none"


def _load(traffic: PoissonTraffic) -> str:
    more = ["with the other classes"] if traffic.load_of == "cell" else []
    if traffic.fgn is not None:
        more.append(f"fGn H {traffic.fgn.hurst:g}, cv {traffic.fgn.cv:g}")
    if traffic.diurnal is not None:
        more.append(f"a day in {traffic.diurnal.period_s:g} s")
    return f"{traffic.load:g}" + (f" ({', '.join(more)})" if more else "")


def _spare(site: Site, gpu: GpuProfile) -> Iterator[str]:
    notice = notice_us(site)
    always_sms, most_sms = grantable_sms(site, gpu)
    if notice is None:
        yield f"    no RAN: all {most_sms} SMs can be granted at any time"
        return
    granted = f"{always_sms} to {most_sms}" if always_sms < most_sms else str(most_sms)
    yield (
        f"    notice of RAN work: DL {notice[0]} us, UL {notice[1]} us; SMs that can be granted: "
        f"{granted}"
    )
    if site.partition != "green_context":
        switch_us = mechanism(site.partition, gpu, site.static_training_sms).switch_us
        switch = f"a switch takes {switch_us / 1000:g} ms" if switch_us else "never switches"
        yield f"    partition: {site.partition}, {switch}"


def _job(topology: Topology, name: str) -> Iterator[str]:
    job = topology.jobs[name]
    model = model_profile(job.model)
    size = state_bytes(job, model)
    yield (
        f"  {name}: {model.name}, {job.tokens} tokens, {job.dtype}, on {', '.join(job.sites)}; "
        f"{size.pinned_gib:.2f} GiB of host, {size.device_gib:.2f} GiB of device memory"
    )
    by_gpu: dict[GpuProfile, list[Site]] = {}
    for site in (topology.sites[site] for site in job.sites):
        by_gpu.setdefault(effective_gpu(site), []).append(site)
    for gpu, sites in by_gpu.items():
        yield from _levels(job, gpu, model, sites)


def _levels(job: Job, gpu: GpuProfile, model: ModelProfile, sites: list[Site]) -> Iterator[str]:
    """Per SM step: how long a block takes, and whether it fits what the job and the RAN allow."""
    costs = job_costs(job, gpu, model)
    notices = [min(notice) for notice in map(notice_us, sites) if notice is not None]
    granted_sms = [grantable_sms(site, gpu) for site in sites]
    always, most = min(least for least, _ in granted_sms), max(most for _, most in granted_sms)
    widths = (6, 14, 20, 18, 11, 15)
    titles = ("SMs", "block p99 us", "longest quantum us", f"within {job.quantum_us} us")
    row = (*titles, "in notice", "granted")
    yield "    " + f"{gpu.name:<6}" + _columns(row, widths)
    for sms in _shown_levels(costs.levels):
        block = block_us(costs, sms)
        in_notice = "-" if not notices else _yes(block <= min(notices))
        granted = "always" if sms <= always else "in spare time" if sms <= most else "never"
        fits = _yes(block <= job.quantum_us)
        cells = (str(sms), str(block), str(costs.longest_us(sms)), fits, in_notice, granted)
        yield " " * 10 + _columns(cells, widths)
    longest = costs.longest_us(costs.levels[-1])
    if longest > job.quantum_us:
        yield f"{'':10}the head or the optimiser takes {longest} us on all SMs"


def _columns(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _yes(condition: bool) -> str:
    return "yes" if condition else "no"


def _shown_levels(levels: tuple[int, ...], most: int = 8) -> tuple[int, ...]:
    """All levels, or about ``most`` of them with the first and the last."""
    if len(levels) <= most:
        return levels
    last = len(levels) - 1
    return tuple(levels[round(step * last / (most - 1))] for step in range(most))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
