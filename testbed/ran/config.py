"""What a cell is: everything the MAC, the channel and the traffic of one cell need to know."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.ran import numerology, qos
from testbed.ran.numerology import Direction, TddPattern
from testbed.ran.tables import MCS_TABLES
from testbed.ran.traffic import Mixed, NoTraffic, TrafficSpec

MAX_HARQ_PROCESSES = 16

# TS 38.213 11.1: the period of the pattern divides 20 ms.
_TDD_HYPERPERIOD_US = 20_000


@dataclass(frozen=True, slots=True)
class CellConfig:
    """One cell of a gNB.

    Attributes:
        cell_id: unique within the topology; keys every random draw of the cell.
        n_ues: UEs with a connection, all of them for the whole run.
        scs_khz: subcarrier spacing, 15, 30, 60 or 120.
        bandwidth_mhz: carrier width, as TS 38.101 allows at that spacing.
        tdd: the slot pattern.
        mcs_table: 1 (64QAM) or 2 (256QAM), both directions.
        dl_layers, ul_layers: spatial layers of every block.
        sinr_mean_db, sinr_sd_db: normal distribution from which each UE's mean SINR is drawn.
        fading_sd_db: standard deviation of a UE's SINR around its mean, over time.
        sinr_correlation_per_slot: correlation of a UE's SINR between neighbouring slots, 0 (drawn
            anew each slot) to 1 (constant). The SINR decorrelates to 1/e in -1/ln(rho) slots: at
            the default 0.99, 100 slots or 50 ms at 30 kHz.
        cqi_delay_slots: age of the channel report when the MAC picks an MCS.
        lookahead_slots: how far ahead of the air slot the MAC plans (FAPI's slot advance).
        k2_slots: how much earlier still uplink is planned, since its grant goes out first (K2).
        ul_feedback_slots, dl_feedback_slots: the result of air slot m is used in slot m + this.
        ul_report_delay_slots: how long after its arrival the gNB knows of uplink data (scheduling
            request and buffer status report). 0: at once.
        harq_processes: per UE and direction, at most 16.
        max_transmissions: after that many failures the block's bytes return to RLC.
        max_ues_per_slot: blocks per slot and direction (bounded by PDCCH capacity).
        average_rate_beta: weight of the past in each UE's average rate, per slot of a direction.
        dl_traffic, ul_traffic: what arrives; ``Mixed`` where UEs differ.
        five_qi: 5QI per UE; empty means 9 for all.
    """

    cell_id: int
    n_ues: int = 8
    scs_khz: int = 30
    bandwidth_mhz: int = 100
    tdd: TddPattern = field(default_factory=lambda: TddPattern.parse("DDDSU"))
    mcs_table: int = 2
    dl_layers: int = 2
    ul_layers: int = 1
    sinr_mean_db: float = 18.0
    sinr_sd_db: float = 4.0
    fading_sd_db: float = 2.0
    sinr_correlation_per_slot: float = 0.99
    cqi_delay_slots: int = 8
    lookahead_slots: int = 3
    k2_slots: int = 3
    ul_feedback_slots: int = 5
    dl_feedback_slots: int = 8
    ul_report_delay_slots: int = 0
    harq_processes: int = MAX_HARQ_PROCESSES
    max_transmissions: int = 4
    max_ues_per_slot: int = 8
    average_rate_beta: float = 0.98
    dl_traffic: TrafficSpec = field(default_factory=NoTraffic)
    ul_traffic: TrafficSpec = field(default_factory=NoTraffic)
    five_qi: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check each value; ValueError names the cell, the key, the value and what is allowed."""
        try:
            numerology.n_prb(self.bandwidth_mhz, self.scs_khz)
            for five_qi in self.five_qi:
                qos.packet_delay_budget_us(five_qi)
        except ValueError as error:
            raise ValueError(f"cell {self.cell_id}: {error}") from None
        layers = numerology.MAX_LAYERS
        self._range("cell_id", self.cell_id, 0, 2**32)
        self._range("n_ues", self.n_ues, 1, 1024)
        self._range("mcs_table", self.mcs_table, min(MCS_TABLES), max(MCS_TABLES))
        self._range("dl_layers", self.dl_layers, 1, layers)
        self._range("ul_layers", self.ul_layers, 1, layers)
        self._range("sinr_mean_db", self.sinr_mean_db, -100, 100)
        self._range("sinr_sd_db", self.sinr_sd_db, 0, 50)
        self._range("fading_sd_db", self.fading_sd_db, 0, 50)
        self._range("sinr_correlation_per_slot", self.sinr_correlation_per_slot, 0, 1)
        self._range("cqi_delay_slots", self.cqi_delay_slots, 0, 10_000)
        self._range("lookahead_slots", self.lookahead_slots, 0, 100)
        self._range("k2_slots", self.k2_slots, 0, 32)
        self._range("ul_feedback_slots", self.ul_feedback_slots, 1, 1000)
        self._range("dl_feedback_slots", self.dl_feedback_slots, 1, 1000)
        self._range("ul_report_delay_slots", self.ul_report_delay_slots, 0, 10_000)
        self._range("harq_processes", self.harq_processes, 1, MAX_HARQ_PROCESSES)
        self._range("max_transmissions", self.max_transmissions, 1, 32)
        self._range("max_ues_per_slot", self.max_ues_per_slot, 1, 1024)
        self._range("average_rate_beta", self.average_rate_beta, 0, 1)
        if len(self.five_qi) not in (0, self.n_ues):
            self._refuse("five_qi", self.five_qi, f"one value per UE ({self.n_ues}), or none")
        for key, traffic in (("dl_traffic", self.dl_traffic), ("ul_traffic", self.ul_traffic)):
            if isinstance(traffic, Mixed) and traffic.n_ues > self.n_ues:
                allowed = f"parts of the cell's {self.n_ues} UEs"
                self._refuse(key, f"parts of {traffic.n_ues} UEs", allowed)
        period_us = self.tdd.period_us(self.scs_khz)
        if _TDD_HYPERPERIOD_US % period_us:
            allowed = "a period that divides 20 ms"
            self._refuse("tdd", f"{self.tdd} ({period_us} us)", allowed)

    @property
    def slot_us(self) -> int:
        """Length of a slot, microseconds."""
        return numerology.slot_us(self.scs_khz)

    @property
    def n_prb(self) -> int:
        """PRBs of the carrier."""
        return numerology.n_prb(self.bandwidth_mhz, self.scs_khz)

    def ue_five_qi(self, ue: int) -> int:
        """5QI of a UE."""
        return self.five_qi[ue] if self.five_qi else 9

    def needs_first_block(self, ue: int) -> bool:
        """Whether the UE's delay budget has no room for a retransmission.

        An uplink block and its retransmission take twice the way from plan to result, and a wait
        for the next uplink slot.
        """
        once = self.plan_ahead_slots(Direction.UL) + self.ul_feedback_slots
        twice_us = 2 * once * self.slot_us + self.tdd.period_us(self.scs_khz)
        return qos.mac_budget_us(self.ue_five_qi(ue)) < twice_us

    def layers(self, direction: Direction) -> int:
        """Spatial layers of one direction."""
        return self.dl_layers if direction is Direction.DL else self.ul_layers

    def feedback_slots(self, direction: Direction) -> int:
        """Slots from an air slot to the use of its results."""
        return self.dl_feedback_slots if direction is Direction.DL else self.ul_feedback_slots

    def plan_ahead_slots(self, direction: Direction) -> int:
        """Slots from the planning of an air slot to that slot."""
        return self.lookahead_slots + (self.k2_slots if direction is Direction.UL else 0)

    def traffic(self, direction: Direction) -> TrafficSpec:
        """What arrives in one direction."""
        return self.dl_traffic if direction is Direction.DL else self.ul_traffic

    def _range(self, key: str, value: float, lowest: float, highest: float) -> None:
        if not lowest <= value <= highest:
            self._refuse(key, value, f"{lowest} to {highest}")

    def _refuse(self, key: str, value: object, allowed: str) -> None:
        raise ValueError(f"cell {self.cell_id}: {key} = {value!r}: allowed is {allowed}")
