"""What a topology can get wrong although each of its values is allowed.

Pure but for looking whether named files are there. Errors refuse a run; warnings are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from testbed.topology.bounds import LateQuantum
from testbed.topology.job_checks import (
    gpu_mistakes,
    job_mistakes,
    own_code_mistakes,
    usable_gpus,
)
from testbed.topology.mistakes import Mistake, did_you_mean
from testbed.topology.names import OWN_CLASS, POLICY_NAMES
from testbed.topology.node_config import node_names
from testbed.topology.partition_checks import partition_mistakes
from testbed.topology.phy_checks import executor_mistakes
from testbed.topology.places import Place, quoted
from testbed.topology.radio_checks import cell_groups, radio_doubts, radio_mistakes
from testbed.topology.schema import Topology
from testbed.topology.sizes import DEFAULT_SLOT_WALL_MS, slot_wall_ms


def check_topology(
    topology: Topology, slot_wall_ms_min: float | None = DEFAULT_SLOT_WALL_MS
) -> tuple[list[Mistake], list[Mistake]]:
    """All (errors, warnings) of a topology whose single values are allowed.

    Args:
        topology: what to check; files are looked for beside its directory.
        slot_wall_ms_min: the shortest slot that the machine keeps, wall milliseconds (``doctor``
            measures it); None for virtual time, where any scale will do.
    """
    errors = [
        *gpu_mistakes(topology),
        *partition_mistakes(topology),
        *radio_mistakes(topology),
        *job_mistakes(topology),
        *_policies(topology),
        *_links(topology),
        *_host(topology),
        *_faults(topology),
    ]
    if slot_wall_ms_min is not None:
        errors += _slots_kept(topology, slot_wall_ms_min)
        errors += executor_mistakes(topology)
    warnings = [*radio_doubts(topology), *_doubts(topology)]
    return errors, warnings


def _policies(topology: Topology) -> Iterator[Mistake]:
    for slot, names in POLICY_NAMES.items():
        scope, key = slot.split(".")
        place: Place = ("policies", scope, key)
        value: str = getattr(getattr(topology.policies, scope), key)
        if value in names:
            continue
        if OWN_CLASS.fullmatch(value):
            yield from own_code_mistakes(topology, place, value)
        else:
            allowed = f"{', '.join(names)}, module:Class"
            yield Mistake(place, "no such policy", did_you_mean(value, names), allowed)


def _links(topology: Topology) -> Iterator[Mistake]:
    seen: dict[frozenset[str], int] = {}
    for index, link in enumerate(topology.links.between):
        place: Place = ("links", "between", index, "sites")
        for end, site in enumerate(link.sites):
            if site not in topology.sites:
                known = list(topology.sites)
                near = did_you_mean(site, known)
                yield Mistake(
                    (*place, end),
                    "no such site",
                    near,
                    ", ".join(known),
                    depends=(("sites", site),),
                )
        pair = frozenset(link.sites)
        if len(pair) == 1:
            yield Mistake(place, "a link from a site to itself")
        elif pair in seen:
            yield Mistake(place, f"the same pair as links.between[{seen[pair]}]")
        seen.setdefault(pair, index)


def _host(topology: Topology) -> Iterator[Mistake]:
    host = topology.host
    order = ("heartbeat_wall_ms", "missing_wall_ms", "dead_wall_ms")
    for shorter, longer in pairwise(order):
        if getattr(host, longer) <= getattr(host, shorter):
            bound = getattr(host, shorter)
            yield Mistake(
                ("host", longer),
                f"not above {shorter} = {bound}",
                allowed=f"more than {bound}",
                depends=(("host", shorter),),
            )


def _faults(topology: Topology) -> Iterator[Mistake]:
    gpus, nodes = usable_gpus(topology), node_names(topology)
    for index, fault in enumerate(topology.faults):
        place: Place = ("faults", index)
        if not isinstance(fault, LateQuantum):
            if fault.node not in nodes:
                near = did_you_mean(fault.node, nodes)
                site, _, rest = fault.node.partition(".")
                owner = rest.partition(".")[0]
                yield Mistake(
                    (*place, "node"),
                    "no such node",
                    near,
                    ", ".join(nodes),
                    depends=(("sites", site, "gnbs", owner), ("jobs", owner, "sites")),
                )
        elif fault.site not in topology.sites:
            known = list(topology.sites)
            yield Mistake(
                (*place, "site"),
                "no such site",
                did_you_mean(fault.site, known),
                ", ".join(known),
                depends=(("sites", fault.site),),
            )
        elif fault.site in gpus and fault.sms > gpus[fault.site].sms:
            gpu = gpus[fault.site]
            yield Mistake(
                (*place, "sms"),
                f"more than the SMs of {fault.site}'s {gpu.name}",
                allowed=f"at most {gpu.sms}",
                depends=(("sites", fault.site, "gpu"), (*place, "site")),
            )


def _slots_kept(topology: Topology, slot_wall_ms_min: float) -> Iterator[Mistake]:
    if not isinstance(topology.time.scale, float):
        return
    shortest = min(
        (
            (slot_wall_ms(group, topology.time.scale), place)
            for place, group in cell_groups(topology)
        ),
        default=None,
    )
    if shortest is None or shortest[0] >= slot_wall_ms_min:
        return
    slot_ms, place = shortest
    needed = topology.time.scale * slot_wall_ms_min / slot_ms
    yield Mistake(
        ("time", "scale"),
        f"a slot would last {slot_ms:g} ms of wall time, this machine keeps "
        f"{slot_wall_ms_min:g} ms (see `doctor`)",
        allowed=f'at least {needed:g}, or "auto"',
        depends=((*place, "scs_khz"),),
    )


def _doubts(topology: Topology) -> Iterator[Mistake]:
    for name, site in topology.sites.items():
        if not site.gnbs and not topology.jobs_at(name):
            yield Mistake(("sites", name), "does nothing: no cells, and no job may run there")
    for index, fault in enumerate(topology.faults):
        if fault.at_us >= topology.time.total_us:
            yield Mistake(
                ("faults", index, "at_us"),
                f"after the end of the run ({topology.time.total_us} us): it will not happen",
            )
    for name in topology.jobs:
        for site_name, site in topology.sites.items():
            if name in site.gnbs and site_name in topology.jobs[name].sites:
                problem = f"also the name of a gNB of {site_name}: logs will be hard to read"
                yield Mistake(("jobs", name), f"{quoted(name)} is {problem}")
