"""Finds the policies that a topology names: short names, or ``module:Class`` beside its file.

The one place that turns a name into an object; ``run.py policies`` prints what is here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.errors import PolicyError
from testbed.gpu.lease_policy import WholeSpare
from testbed.gpu.sizing import Deadline, Saturation
from testbed.ran.schedulers import ProportionalFair, RoundRobin
from testbed.topology.names import OWN_CLASS
from testbed.topology.schema import Topology
from testbed.training.assignment import Equal


def _spare_compute() -> object:
    """Grants when and as much as keeps the RAN's SMs steady, within every delay budget."""
    from testbed.shaping.policy import SpareCompute

    return SpareCompute()


def _load_smoother() -> object:
    """Smooths the load by an average that may rise and fall by so much per slot, no more."""
    from testbed.shaping.policy import LoadSmoother

    return LoadSmoother()


BUILT_IN: Mapping[str, Mapping[str, Callable[[], object]]] = {
    "site.mac": {
        "proportional_fair": ProportionalFair,
        "round_robin": RoundRobin,
        "spare_compute": _spare_compute,
        "load_smoother": _load_smoother,
    },
    "site.phy": {"saturation": Saturation, "deadline": Deadline},
    "site.lease": {"whole_spare": WholeSpare},
    "coordinator.assignment": {"equal": Equal},
}
"""Slot -> short name -> a class, or a function that imports one: compiled policies load slowly."""

METHODS = {
    "site.mac": "schedule",
    "site.phy": "most_sms",
    "site.lease": "divide",
    "coordinator.assignment": "split",
}


def policy_names(topology: Topology) -> dict[str, str]:
    """Slot of a policy -> the name that the topology gives."""
    return {
        "site.mac": topology.policies.site.mac,
        "site.phy": topology.policies.site.phy,
        "site.lease": topology.policies.site.lease,
        "coordinator.assignment": topology.policies.coordinator.assignment,
    }


def resolve_policies(topology: Topology) -> dict[str, object]:
    """A new object per policy slot. Raises PolicyError, naming slot, name and what is allowed."""
    return {
        slot: make_policy(slot, name, topology.directory)
        for slot, name in policy_names(topology).items()
    }


def make_policy(slot: str, name: str, directory: Path) -> object:
    """One policy. ``module:Class`` is looked for beside the topology file, then installed."""
    factory = BUILT_IN[slot].get(name)
    if factory is None:
        factory = _own_class(slot, name, directory)
    try:
        policy = factory()
    except Exception as error:
        raise PolicyError(
            f"policies.{slot} = {name!r}: it cannot be made without arguments: {error!r}"
        ) from error
    if not callable(getattr(policy, METHODS[slot], None)):
        raise PolicyError(f"policies.{slot} = {name!r}: it has no method {METHODS[slot]}()")
    return policy


def own_module_file(name: str, directory: Path) -> Path | None:
    """The file beside the topology that ``module:Class`` names, if there is one."""
    match = OWN_CLASS.fullmatch(name)
    if match is None:
        return None
    path = directory / (match["module"].replace(".", "/") + ".py")
    return path if path.is_file() else None


def _own_class(slot: str, name: str, directory: Path) -> Callable[[], object]:
    match = OWN_CLASS.fullmatch(name)
    place = f"policies.{slot} = {name!r}"
    if match is None:
        allowed = ", ".join(BUILT_IN[slot])
        raise PolicyError(f"{place}: allowed are {allowed}, or module:Class")
    path = own_module_file(name, directory)
    try:
        if path is not None:
            spec = importlib.util.spec_from_file_location(match["module"], path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(match["module"], module)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(match["module"])
    except Exception as error:
        where = path or f"{directory} or the installed packages"
        raise PolicyError(f"{place}: {where}: {type(error).__name__}: {error}") from error
    found: object = getattr(module, match["name"], None)
    if not callable(found):
        raise PolicyError(f"{place}: {path or match['module']} has no class {match['name']}")
    return found
