"""Profiles of GPUs and of declared models: TOML files with the source of every number.

``gpus/NAME.toml`` and ``models/NAME.toml`` are built in; their ``[sources]`` say where each number
is from, or "assumed". A GPU's profile may also be a file of the user's (``files``).
"""

from __future__ import annotations

import dataclasses
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from testbed.errors import TopologyError
from testbed.gpu.profile import GpuProfile, ModelProfile, PhyCost
from testbed.topology.mistakes import did_you_mean
from testbed.topology.profiles.files import (
    file_profile,
    is_profile_file,
    missing_numbers,
    profile_file_mistakes,
    profile_of,
    profile_text,
    with_profile_files,
)
from testbed.topology.site import Site

__all__ = [
    "effective_gpu",
    "file_profile",
    "gpu_profile",
    "is_profile_file",
    "list_gpus",
    "list_models",
    "model_profile",
    "profile_file_mistakes",
    "profile_text",
    "with_profile_files",
]

_ROOT = Path(__file__).parent


@lru_cache(maxsize=1)
def list_gpus() -> tuple[str, ...]:
    """Names of the GPU profiles, sorted."""
    return _names("gpus")


@lru_cache(maxsize=1)
def list_models() -> tuple[str, ...]:
    """Names of the declared-model profiles, sorted."""
    return _names("models")


@lru_cache(maxsize=64)
def gpu_profile(name: str) -> GpuProfile:
    """A built-in GPU profile by name.

    Raises:
        TopologyError: no such profile; the text lists those that there are.
    """
    document = _read("gpus", name, list_gpus(), "a GPU profile")
    sources = tuple(document.pop("sources").items())
    phy = PhyCost(**document.pop("phy"))
    points = tuple((sms, float(speed)) for sms, speed in document.pop("speed_points"))
    return GpuProfile(name=name, speed_points=points, phy=phy, sources=sources, **document)


@lru_cache(maxsize=64)
def model_profile(name: str) -> ModelProfile:
    """A declared model by name.

    Raises:
        TopologyError: no such profile; the text lists those that there are.
    """
    document = _read("models", name, list_models(), "a model profile")
    sources: dict[str, str] = document.pop("sources")
    source = "; ".join(f"{key}: {text}" for key, text in sources.items())
    return ModelProfile(name=name, source=source, **document)


def effective_gpu(site: Site) -> GpuProfile:
    """The GPU of a site: its profile with the site's overrides.

    Raises:
        TopologyError: the site names no GPU, one without a profile, or a profile file whose
            numbers were not taken in (``with_profile_files``).
    """
    if site.gpu is None:
        raise TopologyError(["a site without a GPU: set gpu"])
    if is_profile_file(site.gpu):
        return _of_file(site, site.gpu)
    profile = gpu_profile(site.gpu)
    changes = site.gpu_overrides.model_dump(exclude_none=True)
    phy_changes = changes.pop("phy", {})
    sources = tuple((f"{key} (override)", "the topology") for key in (*changes, *phy_changes))
    phy = dataclasses.replace(profile.phy, **phy_changes)
    return dataclasses.replace(profile, phy=phy, sources=profile.sources + sources, **changes)


def _of_file(site: Site, gpu: str) -> GpuProfile:
    if lacking := missing_numbers(site.gpu_overrides):
        raise TopologyError([f"{gpu}: a GPU profile of which {', '.join(lacking)} was not read"])
    return profile_of(Path(gpu).stem, site.gpu_overrides, (("every number", gpu),))


def _names(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_ROOT / folder).glob("*.toml")))


def _read(folder: str, name: str, known: tuple[str, ...], what: str) -> dict[str, Any]:
    if name not in known:
        near = did_you_mean(name, known)
        hint = f"; did you mean {near}?" if near else ""
        raise TopologyError([f"{name!r}: not {what}{hint} (allowed: {', '.join(known)})"])
    return tomllib.loads((_ROOT / folder / f"{name}.toml").read_text(encoding="utf-8"))
