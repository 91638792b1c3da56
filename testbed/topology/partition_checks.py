"""Checks of how a site's GPU is parted between the RAN and training."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.gpu.partitions import MIG_INSTANCES, mig_instances
from testbed.gpu.profile import GpuProfile
from testbed.topology.job_checks import usable_gpus
from testbed.topology.mistakes import Mistake
from testbed.topology.places import Place
from testbed.topology.schema import Topology
from testbed.topology.site import Site


def partition_mistakes(topology: Topology) -> Iterator[Mistake]:
    """Sites whose GPU cannot be parted as they say."""
    gpus = usable_gpus(topology)
    for name, site in topology.sites.items():
        place: Place = ("sites", name)
        if site.partition == "mig" and name in gpus and mig_instances(gpus[name]) is None:
            yield _no_mig(place, gpus[name])
        if site.partition != "static" and site.static_training_sms is not None:
            yield Mistake(
                (*place, "static_training_sms"),
                f'of no use while partition = "{site.partition}"',
                allowed='with partition = "static" alone',
                depends=((*place, "partition"),),
            )
        if site.partition == "static" and name in gpus:
            yield from _static(place, site, gpus[name])


def _no_mig(place: Place, gpu: GpuProfile) -> Mistake:
    problem = f"{gpu.name} has no MIG"
    if model := MIG_INSTANCES.get(gpu.name):
        problem = f"the instances of {gpu.name} are those of {model.gpu_sms} SMs, not of {gpu.sms}"
    return Mistake(
        (*place, "partition"),
        problem,
        allowed="green_context, mps, static",
        depends=((*place, "gpu"), (*place, "gpu_overrides", "sms")),
    )


def _static(place: Place, site: Site, gpu: GpuProfile) -> Iterator[Mistake]:
    least_sms = gpu.min_sms if site.gnbs else 0
    allowed = [sms for sms in gpu.sm_levels() if gpu.sms - sms >= least_sms]
    words = f"{allowed[0]} to {allowed[-1]} in steps of {gpu.sm_step}" if allowed else "none"
    key: Place = (*place, "static_training_sms")
    if site.static_training_sms is None:
        yield Mistake(key, "missing: a static partition needs it", allowed=words)
    elif site.static_training_sms not in allowed:
        beside = f" that leaves the RAN {gpu.min_sms} SMs" if site.gnbs else ""
        yield Mistake(
            key,
            f"no partition of {gpu.name}{beside}",
            allowed=words,
            depends=((*place, "gpu"), (*place, "gpu_overrides")),
        )
