"""The tables of a topology that bound a run: time, fidelity, host, links, faults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from testbed.topology.base import (
    MAX_EMULATED_US,
    Loose,
    Section,
    Text,
    WordOrNumber,
)


class Time(Section):
    """How much emulated time, and how slowly."""

    scale: Annotated[
        Annotated[Literal["auto"], Tag("word")]
        | Annotated[float, Field(ge=1e-4, le=1e4), Tag("number")],
        WordOrNumber,
    ] = Field(
        default=20.0,
        description="wall seconds per emulated second; auto: the smallest that doctor finds",
    )
    warmup_us: int = Field(
        default=200_000,
        ge=0,
        le=MAX_EMULATED_US,
        description="emulated time left out of every figure",
    )
    measured_us: int = Field(
        default=1_800_000, ge=1, le=MAX_EMULATED_US, description="emulated time that is measured"
    )

    @property
    def total_us(self) -> int:
        """Warm-up and measured time, emulated microseconds."""
        return self.warmup_us + self.measured_us


class SitePolicies(Section):
    """Policies of every site."""

    mac: Text = Field(
        default="proportional_fair", description="MAC scheduler: short name or module:Class"
    )
    phy: Text = Field(
        default="saturation", description="SMs of PHY tasks: short name or module:Class"
    )
    lease: Text = Field(
        default="whole_spare", description="sizing of leases: short name or module:Class"
    )


class CoordinatorPolicies(Section):
    """Policies of the coordinator."""

    assignment: Text = Field(
        default="equal", description="micro-batches to sites: short name or module:Class"
    )


class Policies(Section):
    """Which policy decides what; `policies` lists the short names."""

    site: SitePolicies = Field(default_factory=SitePolicies, description="decided at each site")
    coordinator: CoordinatorPolicies = Field(
        default_factory=CoordinatorPolicies, description="decided by the coordinator"
    )


class Link(Section):
    """Bandwidth and latency between two sites, each direction."""

    bandwidth_gbps: float = Field(default=100.0, gt=0, le=1e5, description="Gb/s")
    latency_us: int = Field(default=500, ge=0, le=10_000_000, description="one way")


class LinkBetween(Section):
    """A link that differs from the default."""

    sites: Annotated[tuple[Text, Text], Loose] = Field(
        examples=[["north", "south"]], description="the two sites"
    )
    bandwidth_gbps: float = Field(gt=0, le=1e5, examples=[10.0], description="Gb/s")
    latency_us: int = Field(ge=0, le=10_000_000, examples=[1000], description="one way")


class Links(Section):
    """The network between the sites."""

    default: Link = Field(default_factory=Link, description="between any two sites")
    between: Annotated[tuple[LinkBetween, ...], Loose] = Field(
        default=(), description="pairs that differ from the default"
    )


class Fidelity(Section):
    """Bounds outside of which a run says that its figures are not to be trusted."""

    slots_on_time_min: float = Field(
        default=0.995, ge=0, le=1, description="share of slots on time, of the worst process"
    )
    lateness_p99_max_permille: int = Field(
        default=100,
        ge=1,
        le=1000,
        description="p99 of the wake-up's lateness, thousandths of a slot",
    )


class Restart(Section):
    """How often a node of one kind is started again after its process has ended."""

    max: int = Field(default=3, ge=0, le=1000, description="times per node; 0: never")
    backoff_wall_ms: int = Field(
        default=200, ge=0, le=600_000, description="before it; doubled each time"
    )


class Restarts(Section):
    """Which nodes are started again; the end of any other node ends the run."""

    trainer: Restart = Field(default_factory=Restart, description="trainers")


class Host(Section):
    """Bounds of the machine in wall time, and the overheads that the simulator adds."""

    heartbeat_wall_ms: int = Field(
        default=200, ge=10, le=60_000, description="between two heartbeats"
    )
    missing_wall_ms: int = Field(
        default=1000, ge=20, le=600_000, description="without a heartbeat a node is missing"
    )
    dead_wall_ms: int = Field(
        default=8000, ge=100, le=3_600_000, description="and after this it is lost"
    )
    start_wall_ms: int = Field(
        default=90_000, ge=100, le=3_600_000, description="for all nodes to be ready"
    )
    drain_wall_ms: int = Field(
        default=30_000,
        ge=100,
        le=3_600_000,
        description="for open work to end after the measured time",
    )
    stop_wall_ms: int = Field(
        default=5000, ge=100, le=600_000, description="for a node to exit once it is told to stop"
    )
    restart: Restarts = Field(
        default_factory=Restarts, description="nodes that are started again when they have died"
    )
    trainer_start_wall_ms: int = Field(
        default=6000,
        ge=0,
        le=3_600_000,
        description="a trainer's start, as the simulator assumes it where one is restarted",
    )
    message_overhead_wall_us: int = Field(
        default=400, ge=0, le=1_000_000, description="one message, as doctor measures it"
    )
    quantum_overhead_wall_us: int = Field(
        default=200,
        ge=0,
        le=1_000_000,
        description="start and end of a quantum, as doctor measures it",
    )
    guard_us: int = Field(
        default=10, ge=0, le=100_000, description="emulated time kept free at the end of a lease"
    )


class Record(Section):
    """How much is kept."""

    level: Literal["default", "full"] = Field(
        default="default", description="full: every effect too, for replay step by step"
    )


class LateQuantum(Section):
    """A quantum that ignores its lease: what a broken gate would do."""

    kind: Literal["late_quantum"] = Field(description="a quantum that ignores its lease")
    site: Text = Field(examples=["north"], description="where")
    at_us: int = Field(ge=0, le=MAX_EMULATED_US, examples=[500_000], description="its start")
    duration_us: int = Field(ge=1, le=10_000_000, examples=[2000], description="how long")
    sms: int = Field(ge=1, le=1024, examples=[48], description="SMs that it holds")


class KillNode(Section):
    """SIGKILL to one node (and its executor)."""

    kind: Literal["kill"] = Field(description="SIGKILL to one node")
    node: Text = Field(examples=["north.pretrain.trainer"], description="which node")
    at_us: int = Field(ge=0, le=MAX_EMULATED_US, examples=[1_000_000], description="when")


Fault = Annotated[LateQuantum | KillNode, Field(discriminator="kind")]
