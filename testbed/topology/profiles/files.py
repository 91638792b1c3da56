"""GPU profiles in files of their own: read beside the topology, and taken into it.

``gpu = "mine.toml"`` names one. Its numbers become the site's ``gpu_overrides`` when the topology
is loaded, so that from then on the topology says all by itself: nodes, and the run directory, need
no file. Must not know where the numbers come from (``calibrate`` measures some).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from testbed.errors import TopologyError
from testbed.gpu.profile import GpuProfile, PhyCost
from testbed.topology.places import quoted, quoted_key
from testbed.topology.resolved import toml_value
from testbed.topology.schema import Topology
from testbed.topology.site import GpuOverrides, PhyOverrides, Site

_MOST_BYTES = 1 << 16
Sources = tuple[tuple[str, str], ...]


def is_profile_file(gpu: str) -> bool:
    """Whether a site's ``gpu`` is the path of a profile, and not the name of a built-in one."""
    return gpu.endswith(".toml")


def read_profile(path: Path) -> tuple[GpuOverrides, Sources]:
    """The numbers of a profile file, all of them there, and where each is from.

    Raises:
        TopologyError: it cannot be read, a number is missing or out of its range, or there is a
            key that no profile has; one line per mistake, which names the file.
    """
    document = _document(path)
    sources = document.pop("sources", {})
    if not isinstance(sources, dict):
        raise TopologyError([f"{path.name}: sources: not a table of texts"])
    try:
        numbers = GpuOverrides.model_validate(document)
    except ValidationError as error:
        raise TopologyError([_mistake(path, item) for item in error.errors()]) from None
    if lacking := missing_numbers(numbers):
        raise TopologyError([f"{path.name}: a GPU profile without {', '.join(lacking)}"])
    return numbers, tuple((str(key), str(text)) for key, text in sources.items())


def missing_numbers(numbers: GpuOverrides) -> list[str]:
    """The keys of a profile that have no value, as a profile file writes them."""
    own = [key for key in GpuOverrides.model_fields if getattr(numbers, key) is None]
    phy = [key for key in PhyOverrides.model_fields if getattr(numbers.phy, key) is None]
    return own + [f"phy.{key}" for key in phy]


def profile_of(name: str, numbers: GpuOverrides, sources: Sources) -> GpuProfile:
    """A profile whose numbers are all given. Raises TypeError where one is not."""
    document = numbers.model_dump(exclude_none=True)
    phy = PhyCost(**document.pop("phy"))
    return GpuProfile(name=name, phy=phy, sources=sources, **document)


def file_profile(path: Path) -> GpuProfile:
    """The profile in a file, under the file's name. Raises TopologyError."""
    return profile_of(path.stem, *read_profile(path))


def profile_text(profile: GpuProfile, comments: Sequence[str] = ()) -> str:
    """The file of a profile: comment lines, numbers, and the source of each."""
    own = {key.name: getattr(profile, key.name) for key in fields(profile)}
    for key in ("name", "phy", "sources"):
        del own[key]
    return "\n".join(
        [
            *(f"# {line}".rstrip() for line in comments),
            *(f"{key} = {toml_value(value)}" for key, value in own.items()),
            "\n[phy]",
            *(f"{key} = {toml_value(value)}" for key, value in asdict(profile.phy).items()),
            "\n[sources]",
            *(f"{quoted_key(key)} = {quoted(text)}" for key, text in profile.sources),
            "",
        ]
    )


def with_profile_files(topology: Topology) -> Topology:
    """The topology with the numbers of every profile file that it names.

    What the topology overrides itself stands. A file that cannot be read is left for the checks to
    report (``profile_file_mistakes``), and one whose every number is overridden is not looked at.
    """
    filled: dict[str, Site] = {}
    for name, site in topology.sites.items():
        if site.gpu is None or not is_profile_file(site.gpu) or not _open(site):
            continue
        try:
            numbers, _ = read_profile(topology.directory / site.gpu)
        except TopologyError:
            continue
        own = site.gpu_overrides
        phy = numbers.phy.model_copy(update=own.phy.model_dump(exclude_none=True))
        changes = own.model_dump(exclude_none=True) | {"phy": phy}
        filled[name] = site.model_copy(update={"gpu_overrides": numbers.model_copy(update=changes)})
    if not filled:
        return topology
    copy = topology.model_copy(update={"sites": {**topology.sites, **filled}})
    return copy.placed(topology.directory, topology.warnings)


def profile_file_mistakes(topology: Topology, site: str) -> Iterator[str]:
    """What is wrong with the profile file of a site whose numbers are not all there."""
    named = topology.sites[site]
    if named.gpu is None or not _open(named):
        return
    try:
        read_profile(topology.directory / named.gpu)
    except TopologyError as error:
        yield from error.mistakes
    else:
        yield "its numbers were not taken in: load the topology from its file"


def _open(site: Site) -> bool:
    return bool(missing_numbers(site.gpu_overrides))


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise TopologyError([f"cannot be read: {reason.lower()}"]) from None
    if len(raw) > _MOST_BYTES:
        raise TopologyError([f"{path.name}: larger than {_MOST_BYTES >> 10} KiB; no GPU profile"])
    try:
        return tomllib.loads(raw.decode("utf-8-sig").replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        raise TopologyError([f"{path.name}: not valid TOML: {error}"]) from None


def _mistake(path: Path, item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    value = item["input"]
    shown = f" = {value!r}" if isinstance(value, int | float | str) else ""
    return f"{path.name}: {key}{shown}: {item['msg'].lower()}"
