"""The radio tables of a topology: groups of equal cells, classes of their UEs, gNBs.

Owns ranges of single values; what depends on two of them (a carrier that does not exist at a
subcarrier spacing) is in ``radio_checks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from testbed.topology.base import Loose, Section
from testbed.topology.traffic import TRAFFIC_EXAMPLE, NoTraffic, Traffic

MAX_UES = 256
_OF_ALL_UES = {"ues": 8, "five_qi": 9}
"""Defaults of the keys that a group has only where it has no classes."""


class UeClass(Section):
    """UEs of a cell that have one 5QI and one kind of traffic."""

    ues: int = Field(ge=1, le=MAX_UES, examples=[4], description="how many of each cell's UEs")
    five_qi: int = Field(default=9, ge=1, le=85, description="5QI of the UEs (TS 23.501 T5.7.4-1)")
    ul_traffic: Traffic = Field(examples=[TRAFFIC_EXAMPLE], description="what the UEs have to send")
    dl_traffic: Traffic = Field(
        examples=[TRAFFIC_EXAMPLE], description="what is to be sent to the UEs"
    )


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
    ues: int | None = Field(
        default=None,
        ge=1,
        le=MAX_UES,
        examples=[8],
        description="UEs per cell, connected for the whole run (8, or as many as the classes have)",
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
    five_qi: int | None = Field(
        default=None,
        ge=1,
        le=85,
        examples=[9],
        description="5QI of the UEs (TS 23.501 T5.7.4-1); 9, or that of their class",
    )
    k2_slots: int = Field(
        default=3, ge=0, le=32, description="slots from an uplink grant to its PUSCH"
    )
    lookahead_slots: int = Field(
        default=3,
        ge=1,
        le=20,
        description="slots between planning and air time (FAPI slot advance)",
    )
    ul_traffic: Traffic | None = Field(
        default=None, examples=[TRAFFIC_EXAMPLE], description="what the UEs have to send"
    )
    dl_traffic: Traffic | None = Field(
        default=None, examples=[TRAFFIC_EXAMPLE], description="what is to be sent to the UEs"
    )
    classes: Annotated[tuple[UeClass, ...], Loose] = Field(
        default=(),
        max_length=16,
        description="UEs that differ in 5QI or traffic; instead of ues, five_qi and the traffic",
    )

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, document: Any) -> Any:
        if isinstance(document, Mapping) and not document.get("classes"):
            return {**_OF_ALL_UES, **document}
        return document

    @property
    def ue_classes(self) -> tuple[UeClass, ...]:
        """The classes, or the one that all UEs are of; a cell's UEs are theirs in this order."""
        if self.classes:
            return self.classes
        silent = NoTraffic(kind="none")
        one = UeClass(
            ues=self.ues or _OF_ALL_UES["ues"],
            five_qi=self.five_qi or _OF_ALL_UES["five_qi"],
            ul_traffic=self.ul_traffic or silent,
            dl_traffic=self.dl_traffic or silent,
        )
        return (one,)

    @property
    def n_ues(self) -> int:
        """UEs per cell."""
        return sum(of_class.ues for of_class in self.ue_classes)

    @property
    def five_qis(self) -> tuple[int, ...]:
        """5QI of each UE of a cell."""
        return tuple(q for of_class in self.ue_classes for q in (of_class.five_qi,) * of_class.ues)


class Gnb(Section):
    """One gNB: a MAC and a PHY process that serve all of its cells together."""

    mac_phase_permille: int = Field(
        400, ge=0, le=900, description="when in a slot the MAC plans, thousandths of the slot"
    )

    cells: Annotated[tuple[CellGroup, ...], Loose] = Field(
        min_length=1,
        max_length=64,
        examples=[[{"ul_traffic": TRAFFIC_EXAMPLE, "dl_traffic": TRAFFIC_EXAMPLE}]],
        description="groups of equal cells",
    )
