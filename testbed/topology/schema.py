"""A topology: what one file describes, as frozen models.

Owns the structure and the range of every single value. What depends on several values, on profiles
or on files is in ``checks``; reading a file is in ``load``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PrivateAttr

from testbed.topology.base import Loose, Name, Section
from testbed.topology.bounds import (
    Fault,
    Fidelity,
    Host,
    Links,
    Policies,
    Record,
    Time,
)
from testbed.topology.jobs import Job
from testbed.topology.radio import CellGroup
from testbed.topology.site import Site


@dataclass(frozen=True, slots=True)
class CellRef:
    """One cell of the run: its number, unique over all sites, and where it comes from."""

    cell: int
    site: str
    gnb: str
    group: int
    spec: CellGroup


class Topology(Section):
    """Everything that one run is made of."""

    name: str = Field(
        pattern=r"^[a-z0-9-]{1,32}$", examples=["example"], description="names runs and reports"
    )
    seed: int = Field(default=1, ge=0, le=2**63 - 1, description="of every random draw")
    time: Time = Field(default_factory=Time, description="emulated time")
    policies: Policies = Field(default_factory=Policies, description="which policy decides what")
    sites: Mapping[Name, Site] = Field(
        min_length=1, examples=[{"north": {"gpu": "gb10"}}], description="GPU sites"
    )
    jobs: Mapping[Name, Job] = Field(default={}, description="training jobs")
    links: Links = Field(default_factory=Links, description="the network between the sites")
    fidelity: Fidelity = Field(default_factory=Fidelity, description="bounds of a trustworthy run")
    host: Host = Field(default_factory=Host, description="wall-time bounds of this machine")
    record: Record = Field(default_factory=Record, description="how much is kept")
    faults: Annotated[tuple[Fault, ...], Loose] = Field(
        default=(), description="what goes wrong, and when"
    )

    _directory: Path = PrivateAttr(default=Path("."))
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    @property
    def directory(self) -> Path:
        """Where relative paths and ``module:Class`` are resolved; not part of the document."""
        return self._directory

    @property
    def warnings(self) -> tuple[str, ...]:
        """What ``load_topology`` found doubtful, one line each."""
        return self._warnings

    def placed(self, directory: Path, warnings: tuple[str, ...] = ()) -> Self:
        """A copy that resolves its paths beside ``directory``; model_validate_json forgets it."""
        copy = self.model_copy()
        copy._directory = directory
        copy._warnings = warnings
        return copy

    def cells(self) -> Iterator[CellRef]:
        """All cells of the run, numbered from 0 in the order of the file."""
        cell = 0
        for site_name, site in self.sites.items():
            for gnb_name, gnb in site.gnbs.items():
                for group_index, group in enumerate(gnb.cells):
                    for _ in range(group.count):
                        yield CellRef(cell, site_name, gnb_name, group_index, group)
                        cell += 1

    def jobs_at(self, site: str) -> tuple[str, ...]:
        """Names of the jobs that may run at a site, in the order of the file."""
        return tuple(name for name, job in self.jobs.items() if site in job.sites)

    def __eq__(self, other: object) -> bool:
        """Equal documents are equal topologies, wherever they were read from."""
        if not isinstance(other, Topology):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]
