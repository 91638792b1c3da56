"""The radio tables of a topology: traffic, groups of equal cells, gNBs.

Owns ranges of single values; what depends on two of them (a carrier that does not exist at a
subcarrier spacing) is in ``radio_checks``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from testbed.topology.base import Loose, Section, Text, WordOrNumber


class NoTraffic(Section):
    """Nothing arrives in this direction."""

    kind: Literal["none"] = Field(description="no arrivals")


class Ftp3Traffic(Section):
    """FTP model 3 (TR 36.889): files of one size, Poisson arrivals per UE."""

    kind: Literal["ftp3"] = Field(description="FTP model 3: Poisson arrivals of equal files")
    load: float = Field(
        ge=0,
        le=10,
        examples=[0.2],
        description="offered bytes over what the cell carries at the mean MCS; above 1: overflow",
    )
    file_bytes: int = Field(default=500_000, ge=1, le=10**9, description="size of each file, bytes")


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


Traffic = Annotated[
    NoTraffic | Ftp3Traffic | FullBufferTraffic | TraceTraffic, Field(discriminator="kind")
]
_TRAFFIC_EXAMPLE = {"kind": "ftp3", "load": 0.2}


class CellGroup(Section):
    """A group of equal cells of one gNB; each draws its own channel and arrivals."""

    count: int = Field(default=1, ge=1, le=64, description="how many such cells")
    scs_khz: Literal[15, 30, 60, 120] = Field(default=30, description="subcarrier spacing, kHz")
    bandwidth_mhz: int = Field(default=100, ge=5, le=400, description="carrier width, MHz")
    tdd: str = Field(
        default="DDDSU",
        pattern=r"^[DSU]{1,80}$",
        description="slot pattern: D downlink, S special, U uplink",
    )
    ues: int = Field(
        default=8, ge=1, le=256, description="UEs per cell, connected for the whole run"
    )
    mcs_table: Literal[1, 2] = Field(
        default=2, description="TS 38.214 MCS table: 1 64QAM, 2 256QAM"
    )
    ul_layers: int = Field(default=1, ge=1, le=4, description="spatial layers, uplink")
    dl_layers: int = Field(default=2, ge=1, le=4, description="spatial layers, downlink")
    sinr_mean_db: float = Field(default=18.0, ge=-20, le=60, description="mean SINR over UEs, dB")
    sinr_sd_db: float = Field(
        default=6.0, ge=0, le=30, description="spread of the UEs' mean SINR, dB"
    )
    five_qi: int = Field(default=9, ge=1, le=85, description="5QI of the UEs (TS 23.501 T5.7.4-1)")
    k2_slots: int = Field(
        default=3, ge=0, le=32, description="slots from an uplink grant to its PUSCH"
    )
    lookahead_slots: int = Field(
        default=3,
        ge=1,
        le=20,
        description="slots between planning and air time (FAPI slot advance)",
    )
    ul_traffic: Traffic = Field(
        examples=[_TRAFFIC_EXAMPLE], description="what the UEs have to send"
    )
    dl_traffic: Traffic = Field(
        examples=[_TRAFFIC_EXAMPLE], description="what is to be sent to the UEs"
    )


class Gnb(Section):
    """One gNB: a MAC and a PHY process that serve all of its cells together."""

    mac_phase_permille: int = Field(
        400, ge=0, le=900, description="when in a slot the MAC plans, thousandths of the slot"
    )

    cells: Annotated[tuple[CellGroup, ...], Loose] = Field(
        min_length=1,
        max_length=64,
        examples=[[{"ul_traffic": _TRAFFIC_EXAMPLE, "dl_traffic": _TRAFFIC_EXAMPLE}]],
        description="groups of equal cells",
    )
