"""The traffic tables of a topology: what arrives in one direction at the UEs of a cell.

Owns ranges of single values; what depends on two of them, or on the cell, is in ``traffic_checks``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from testbed.topology.base import MAX_EMULATED_US, Loose, Section, Text, WordOrNumber


class FgnTable(Section):
    """Fractional Gaussian noise on the intensity of Poisson arrivals; its mean is kept."""

    hurst: float = Field(
        default=0.85, ge=0.5, lt=1, description="Hurst parameter; 0.5: no memory between steps"
    )
    cv: float = Field(
        default=0.45, gt=0, le=2, description="standard deviation of the intensity over its mean"
    )
    step_us: int = Field(
        default=2_500, ge=1, le=MAX_EMULATED_US, description="how long one value of it holds"
    )


class DiurnalTable(Section):
    """A profile over the day on the intensity of Poisson arrivals; its mean is 1."""

    period_s: float = Field(
        default=86_400.0, gt=0, le=1e7, description="length of the day, emulated seconds"
    )
    phase: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="when in it the run begins, share of the period; sites differ in it",
    )
    peak_to_trough: float | None = Field(
        default=None,
        ge=1,
        le=1e6,
        examples=[4.0],
        description="of a sinusoid with its trough at phase 0; instead of points",
    )
    points: Annotated[tuple[Annotated[float, Field(ge=0, le=1e9)], ...], Loose] = Field(
        default=(),
        max_length=1440,
        description="relative levels, equally spaced over the period; instead of peak_to_trough",
    )


class NoTraffic(Section):
    """Nothing arrives in this direction."""

    kind: Literal["none"] = Field(description="no arrivals")


class _PoissonLoad(Section):
    """What the kinds of Poisson arrivals share."""

    kind: str = Field(description="which of them")
    load: float = Field(
        ge=0,
        le=10,
        examples=[0.2],
        description="offered bytes over what the cell carries at the mean MCS; above 1: overflow",
    )
    load_of: Literal["own", "cell"] = Field(
        default="own",
        description="whose bytes the load counts: own, or those of all classes of the cell, of "
        "which this traffic makes up what the others leave",
    )
    fgn: FgnTable | None = Field(
        default=None, description="fractional Gaussian noise on the intensity"
    )
    diurnal: DiurnalTable | None = Field(
        default=None, description="profile over the day on the intensity"
    )


class Ftp3Traffic(_PoissonLoad):
    """FTP model 3 (TR 36.889): files of one size, Poisson arrivals per UE."""

    kind: Literal["ftp3"] = Field(description="FTP model 3: Poisson arrivals of equal files")
    file_bytes: int = Field(default=500_000, ge=1, le=10**9, description="size of each file, bytes")


class ImixTraffic(_PoissonLoad):
    """The simple Internet mix: Poisson packets of 40, 576 and 1500 bytes, 7:4:1."""

    kind: Literal["imix"] = Field(description="Poisson packets of 40, 576, 1500 bytes, 7:4:1")


class PeriodicTraffic(Section):
    """One packet per UE and period, from a random phase."""

    kind: Literal["periodic"] = Field(
        description="a packet per UE and period; equal sizes make a constant bit rate"
    )
    bytes_min: int = Field(ge=1, le=10**9, examples=[250], description="smallest packet, bytes")
    bytes_max: int = Field(
        ge=1, le=10**9, examples=[1500], description="largest packet; sizes between are as likely"
    )
    period_us: int = Field(
        ge=100, le=MAX_EMULATED_US, examples=[10_000], description="between two packets of a UE"
    )


class XrTraffic(Section):
    """Video frames of extended reality and cloud gaming (TR 38.838)."""

    kind: Literal["xr"] = Field(description="video frames of TR 38.838")
    rate_mbps: float = Field(
        gt=0,
        le=1e5,
        examples=[30.0],
        description="mean rate per UE: 30 or 45, cloud gaming 8 or 30",
    )
    fps: int = Field(default=60, ge=1, le=240, description="frames per second")
    jitter: bool = Field(
        default=True, description="shift each frame by up to 4 ms (deviation 2 ms)"
    )


class CommagTraffic(Section):
    """The services of the COMMAG and ColO-RAN measurements; their mix is a class for each."""

    kind: Literal["commag"] = Field(description="a service of the COMMAG measurements")
    service: Literal["embb-1", "embb-4", "mtc", "urllc"] = Field(
        examples=["mtc"],
        description="embb: constant 1 or 4 Mb/s; mtc, urllc: 30 or 10 packets/s of 125 bytes",
    )


class FullBufferTraffic(Section):
    """Every UE always has data waiting."""

    kind: Literal["full_buffer"] = Field(description="every UE always has data waiting")


class TraceTraffic(Section):
    """Replay of byte arrivals from a file; the cell's direction picks its rows."""

    kind: Literal["trace"] = Field(description="byte arrivals from a file")
    path: Text = Field(
        examples=["trace.csv"], description="the trace, relative to the topology file"
    )
    format: Literal["ranloom", "nr-scope"] = Field(
        default="ranloom", description="ranloom: as import-trace writes it; nr-scope: a log of DCIs"
    )
    start_s: Annotated[
        Annotated[Literal["busiest"], Tag("word")]
        | Annotated[float, Field(ge=0, le=1e7), Tag("number")],
        WordOrNumber,
    ] = Field(
        default=0.0,
        description="where to begin, seconds; busiest: the window of the run with most bytes",
    )
    loop: bool = Field(
        default=False, description="begin again at the end; otherwise nothing follows"
    )
    bytes_scale: float = Field(
        default=1.0, gt=0, le=1e6, description="factor on the bytes of an arrival"
    )
    time_compress: float = Field(
        default=1.0, gt=0, le=1e6, description="factor on the pace: 2 replays two seconds in one"
    )


PoissonTraffic = Ftp3Traffic | ImixTraffic
Traffic = Annotated[
    NoTraffic
    | Ftp3Traffic
    | ImixTraffic
    | PeriodicTraffic
    | XrTraffic
    | CommagTraffic
    | FullBufferTraffic
    | TraceTraffic,
    Field(discriminator="kind"),
]
TRAFFIC_EXAMPLE = {"kind": "ftp3", "load": 0.2}
