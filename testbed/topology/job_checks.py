"""Checks of GPUs, jobs and memory against the profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from testbed.gpu.profile import GpuProfile, ModelProfile
from testbed.topology.jobs import Job
from testbed.topology.mistakes import Mistake, did_you_mean
from testbed.topology.places import Place, quoted
from testbed.topology.profiles import (
    effective_gpu,
    is_profile_file,
    list_gpus,
    list_models,
    model_profile,
    profile_file_mistakes,
)
from testbed.topology.schema import Topology
from testbed.topology.sizes import block_us, cells_of, job_costs, state_bytes
from testbed.topology.traffic_checks import file_mistakes

Gpus = dict[str, GpuProfile]
_LEAST_SPEED = 1e-4


def usable_gpus(topology: Topology) -> Gpus:
    """The GPU of each site that has one without a mistake."""
    broken = {mistake.place[1] for mistake in gpu_mistakes(topology)}
    return {
        name: effective_gpu(site)
        for name, site in topology.sites.items()
        if name not in broken and site.gpu is not None
    }


def gpu_mistakes(topology: Topology) -> Iterator[Mistake]:
    """Sites whose GPU is missing, unknown, or impossible."""
    for name, site in topology.sites.items():
        place: Place = ("sites", name)
        if site.gpu is None:
            cells = sum(cells_of(gnb) for gnb in site.gnbs.values())
            jobs = topology.jobs_at(name)
            if cells or jobs:
                users = [f"{cells} cell{'s' * (cells != 1)}"] * (cells > 0)
                users += [f"job {job}" for job in jobs]
                allowed = ", ".join(list_gpus())
                problem = f"{' and '.join(users)} without a GPU: set gpu"
                yield Mistake((*place, "gpu"), problem, None, allowed)
        elif is_profile_file(site.gpu):
            problems = list(profile_file_mistakes(topology, name))
            yield from (Mistake((*place, "gpu"), problem) for problem in problems)
            if not problems:
                yield from _overrides(topology, name)
        elif site.gpu not in list_gpus():
            near = did_you_mean(site.gpu, list_gpus())
            allowed = ", ".join(list_gpus())
            yield Mistake((*place, "gpu"), "not a GPU profile", near, allowed)
        else:
            yield from _overrides(topology, name)


def job_mistakes(topology: Topology) -> Iterator[Mistake]:
    """Jobs whose sites, model, sizes or files do not fit."""
    gpus = usable_gpus(topology)
    for name, job in topology.jobs.items():
        place: Place = ("jobs", name)
        yield from _sites(topology, place, job)
        yield from _proxy(topology, place, job)
        if job.model not in list_models():
            near, allowed = did_you_mean(job.model, list_models()), ", ".join(list_models())
            yield Mistake((*place, "model"), "not a model profile", near, allowed)
        else:
            yield from _model(place, job, model_profile(job.model), gpus)
    yield from _memory(topology, gpus)


def _overrides(topology: Topology, name: str) -> Iterator[Mistake]:
    site = topology.sites[name]
    place: Place = ("sites", name, "gpu_overrides")
    gpu = effective_gpu(site)
    points = gpu.speed_points
    if gpu.min_sms > gpu.sms:
        problem = f"more than the GPU's {gpu.sms} SMs"
        yield Mistake((*place, "min_sms"), problem, depends=((*place, "sms"),))
    if gpu.min_sms % gpu.sm_step:
        problem = f"the smallest partition, {gpu.min_sms} SMs, is not a multiple of it"
        yield Mistake((*place, "sm_step"), problem, depends=((*place, "min_sms"),))
    rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(points))
    positive = points[0][0] >= 1 and points[0][1] >= _LEAST_SPEED
    if not rising or not positive or points[-1] != (gpu.sms, 1.0):
        yield Mistake(
            (*place, "speed_points"),
            f"not a speed curve of {gpu.sms} SMs",
            allowed=f"points that rise in SMs and speed and end in [{gpu.sms}, 1.0]",
            depends=((*place, "sms"),),
        )
    for key in ("ran_sm_cap", "dl_sms", "ul_sms_per_10_code_blocks"):
        if getattr(gpu.phy, key) > gpu.sms:
            problem = f"{getattr(gpu.phy, key)} SMs on a GPU of {gpu.sms}"
            yield Mistake((*place, "phy", key), problem, depends=((*place, "sms"),))


def _sites(topology: Topology, place: Place, job: Job) -> Iterator[Mistake]:
    for index, site in enumerate(job.sites):
        if site not in topology.sites:
            known = list(topology.sites)
            near = did_you_mean(site, known)
            yield Mistake(
                (*place, "sites", index),
                "no such site",
                near,
                ", ".join(known),
                depends=(("sites", site),),
            )
    for site, times in Counter(job.sites).items():
        if times > 1:
            yield Mistake((*place, "sites"), f"names {quoted(site)} {times} times")
    members = len(set(job.sites))
    equal = topology.policies.coordinator.assignment == "equal"
    known_sites = all(site in topology.sites for site in job.sites)
    if equal and known_sites and job.global_batch % members:
        yield Mistake(
            (*place, "global_batch"),
            f"cannot be split equally between {members} sites",
            allowed=f"multiples of {members}, or another policies.coordinator.assignment",
            depends=((*place, "sites"),),
        )


def _proxy(topology: Topology, place: Place, job: Job) -> Iterator[Mistake]:
    proxy = job.proxy
    if proxy.hidden % proxy.heads:
        yield Mistake(
            (*place, "proxy", "heads"),
            f"does not divide hidden = {proxy.hidden}",
            depends=((*place, "proxy", "hidden"),),
        )
    if proxy.text != "stdlib":
        yield from file_mistakes((*place, "proxy", "text"), proxy.text, topology.directory)
    if proxy.module is not None:
        yield from own_code_mistakes(topology, (*place, "proxy", "module"), proxy.module)


def own_code_mistakes(topology: Topology, place: Place, name: str) -> Iterator[Mistake]:
    """A ``module:name`` whose module is neither beside the topology file nor installed."""
    module = name.partition(":")[0]
    path = topology.directory.joinpath(*module.split("."))
    if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
        return
    from importlib.util import find_spec

    if find_spec(module.partition(".")[0]) is None:
        problem = f"no module {module}: neither beside the topology file nor installed"
        yield Mistake(place, problem)


def _model(place: Place, job: Job, model: ModelProfile, gpus: Gpus) -> Iterator[Mistake]:
    if job.proxy.module is None and model.layers % job.proxy.layers:
        divisors = [n for n in range(1, model.layers + 1) if model.layers % n == 0]
        yield Mistake(
            (*place, "proxy", "layers"),
            f"does not divide the {model.layers} blocks of {model.name}",
            allowed=", ".join(str(n) for n in divisors),
            depends=((*place, "model"),),
        )
    worst: tuple[int, str, str] | None = None
    for site in job.sites:
        if gpu := gpus.get(site):
            costs = job_costs(job, gpu, model)
            candidate = (block_us(costs, costs.levels[-1]), site, gpu.name)
            worst = max(worst or candidate, candidate)
    if worst and job.quantum_us < worst[0]:
        yield Mistake(
            (*place, "quantum_us"),
            f"below the longest block of {model.name}: p99 {worst[0]} us on {worst[1]}'s "
            f"whole {worst[2]}",
            allowed=f"at least {worst[0]}",
            depends=((*place, "model"), (*place, "tokens"), (*place, "dtype")),
        )


def _memory(topology: Topology, gpus: Gpus) -> Iterator[Mistake]:
    for site, gpu in gpus.items():
        sizes = {
            name: state_bytes(topology.jobs[name], model_profile(topology.jobs[name].model))
            for name in topology.jobs_at(site)
            if topology.jobs[name].model in list_models()
        }
        rests_on = [
            *(("sites", site, key) for key in ("gpu", "gpu_overrides")),
            *(("jobs", name, key) for name in sizes for key in ("model", "dtype", "sites")),
        ]
        depends: tuple[Place, ...] = tuple(rests_on)
        pinned_gib = sum(size.pinned_gib for size in sizes.values())
        if pinned_gib > gpu.host_gib:
            parts = ", ".join(f"{name} {size.pinned_gib:.1f}" for name, size in sizes.items())
            yield Mistake(
                ("sites", site),
                f"its jobs pin {pinned_gib:.1f} GiB of weights and optimiser state ({parts}), "
                f"the host memory of {gpu.name} is {gpu.host_gib:g} GiB",
                depends=depends,
            )
        for name, size in sizes.items():
            if size.device_gib > gpu.hbm_gib:
                yield Mistake(
                    ("jobs", name, "model"),
                    f"weights, optimiser state and gradients take {size.device_gib:.1f} GiB, "
                    f"{site}'s {gpu.name} has {gpu.hbm_gib:g} GiB",
                    depends=depends,
                )
