"""A log of DCIs replayed exactly: the live cell's grants through our sizes, plans and MAC.

The cell of the log is an FDD carrier of 10 MHz at 15 kHz (52 PRBs) with MCS table 2. Expected
values are the log's own: ``transport_block_size`` is what the network sent. Exact are

* the *size* of all 1,990 decoded blocks, from PRBs, symbols, DM-RS, MCS index and layers alone;
* through the importer and a ``CellMac``: air slot, PRBs, MCS, size and carried bytes of every block
  of new data whose slot has our RE per PRB (132 in downlink, 156 in uplink), no byte of padding.

Left out of the second: 87 blocks with 120 RE per PRB (DM-RS in both CDM groups), which none of our
slot kinds has, and those that the importer counts as retransmissions.

Since a cell of ours has one number of layers and is TDD, the carrier is stood for by three cells of
15 kHz: all uplink, all downlink with one layer, all downlink with two.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass

import pytest

from testbed.ran.config import CellConfig
from testbed.ran.mac import CellMac
from testbed.ran.nr_scope import parse_nr_scope
from testbed.ran.numerology import Direction, SlotKind, TddPattern
from testbed.ran.plan import BlockResult, Outcome
from testbed.ran.schedulers import Grant, SlotView, check_grants
from testbed.ran.tables import mcs_entry
from testbed.ran.tbs import segmentation, total_re, transport_block_size_bits
from testbed.ran.traces import Trace, map_rntis
from testbed.ran.traffic import NoTraffic, Replay

from .helpers import DATA

UL, DL = Direction.UL, Direction.DL
BITS_PER_SYMBOL = {"QPSK": 2, "16QAM": 4, "64QAM": 6, "256QAM": 8}
MCS_TABLE = 2


@dataclass(frozen=True)
class Dci:
    """One decoded row."""

    line: int
    sfn: int
    slot: int
    stamp_s: float
    rnti: int
    direction: Direction
    k_slots: int
    n_prb: int
    re_per_prb: int
    layers: int
    mcs: int
    qm: int
    rate: float
    size_bits: int


def read_log():
    dcis = []
    with (DATA / "nr_scope_dci.csv").open() as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            if row["rnti"] == "rnti" or "0" in (
                row["frequency_length"],
                row["transport_block_size"],
            ):
                continue
            assert row["mcs_table"] == "256qam"
            # DM-RS type 1, two symbols: 6 RE per PRB, symbol and CDM group kept free of data.
            dmrs = 12 * int(row["nof_dmrs_cdm_groups"])
            dcis.append(
                Dci(
                    line,
                    int(row["system_frame_index"]),
                    int(row["slot_index"]),
                    float(row["timestamp"]),
                    int(row["rnti"]),
                    UL if row["dci_format"] == "0_1" else DL,
                    int(row["k"]),
                    int(row["frequency_length"]),
                    12 * int(row["time_length"]) - dmrs,
                    int(row["nof_layers"]),
                    int(row["mcs_index"]),
                    BITS_PER_SYMBOL[row["modulation"]],
                    float(row["code_rate"]),
                    int(row["transport_block_size"]),
                )
            )
    return dcis


@pytest.fixture(scope="module")
def dcis():
    return read_log()


@pytest.fixture(scope="module")
def imported():
    lines = (DATA / "nr_scope_dci.csv").read_text().splitlines(keepends=True)
    return parse_nr_scope(lines, "log", clock="frame", scs_khz=15)


def code_blocks(size_bits, rate):
    """TS 38.212 5.2.2 and 6.2.2, written out once more for the sizes of this log."""
    crc = 24 if size_bits > 3824 else 16
    small = size_bits <= 292 or (size_bits <= 3824 and rate <= 0.67) or rate <= 0.25
    longest = 3840 if small else 8448
    return 1 if size_bits + crc <= longest else -(-(size_bits + crc) // (longest - 24))


def air_slots(dcis):
    """Slot of each DCI, counted from the log's first frame; its timestamps tell wraps of SFN."""
    first = dcis[0]
    for dci in dcis:
        frames = (dci.stamp_s - first.stamp_s) * 100
        frame = dci.sfn - first.sfn
        frame += 1024 * round((frames - frame) / 1024)
        yield frame * 10 + dci.slot


def test_every_block_has_the_size_that_its_dci_gives(dcis):
    assert len(dcis) == 1990
    for dci in dcis:
        entry = mcs_entry(MCS_TABLE, dci.mcs)
        assert (entry.qm, entry.rate) == (dci.qm, pytest.approx(dci.rate, abs=1e-6)), dci
        n_re = total_re(dci.n_prb, dci.re_per_prb)
        bits = transport_block_size_bits(n_re, entry.rate_x1024, entry.qm, dci.layers)
        assert bits == dci.size_bits, dci
        assert segmentation(bits, entry.rate).code_blocks == code_blocks(bits, dci.rate), dci


def test_the_importer_keeps_slots_and_sizes(dcis, imported):
    """Arrivals at the start of the DCI's slot; their sizes are the blocks'. (Retransmissions
    bring no bytes.)"""
    repeats = set(imported.report.retransmission_lines)
    new = [
        (slot, dci.rnti, dci.direction, dci.size_bits // 8)
        for slot, dci in zip(air_slots(dcis), dcis, strict=True)
        if dci.line not in repeats
    ]
    arrivals = [(a.time_us, a.rnti, a.direction, a.n_bytes) for a in imported.trace.arrivals]
    offset_us = arrivals[0][0] - 1000 * min(new)[0]
    key = lambda item: (item[0], item[1], item[2].value, item[3])  # noqa: E731
    assert sorted(arrivals, key=key) == sorted(
        ((1000 * slot + offset_us, *rest) for slot, *rest in new), key=key
    )


class LoggedChannel:
    """A channel in which link adaptation picks what the log's scheduler picked."""

    def __init__(self, n_ues):
        self._n_ues = n_ues
        self.mcs = {}

    def sinr_cdb(self, slot):
        return [3000] * self._n_ues

    def reported_mcs(self, slot):
        return [self.mcs.get(ue, 0) for ue in range(self._n_ues)]


class LoggedGrants:
    """The policy that grants each UE the PRBs of its DCI."""

    def __init__(self):
        self.n_prb = {}

    def schedule(self, view):
        (cell,) = view.cells
        return [Grant(cell.cell, ue, n_prb) for ue, n_prb in self.n_prb.items()]


@pytest.mark.parametrize(
    ("direction", "layers", "re_per_prb", "blocks_at_least"),
    [(UL, 1, 156, 1050), (DL, 1, 132, 200), (DL, 2, 132, 590)],
)
def test_a_cell_sends_the_logs_blocks(
    dcis, imported, monkeypatch, direction, layers, re_per_prb, blocks_at_least
):
    repeats = set(imported.report.retransmission_lines)
    ues = map_rntis(imported.trace, 64)
    shift = imported.trace.arrivals[0].time_us // 1000 - min(air_slots(dcis))
    # What this cell sends, by (slot of the DCI, UE).
    wanted = {
        (slot + shift, ues[dci.rnti]): dci
        for slot, dci in zip(air_slots(dcis), dcis, strict=True)
        if (dci.direction, dci.layers, dci.re_per_prb) == (direction, layers, re_per_prb)
        and dci.line not in repeats
    }
    assert len(wanted) >= blocks_at_least
    arrivals = [
        a
        for a in imported.trace.arrivals
        if a.direction is direction and (a.time_us // 1000, ues[a.rnti]) in wanted
    ]
    assert len(arrivals) == len(wanted)

    n_ues = len(ues)
    channel = LoggedChannel(n_ues)
    monkeypatch.setattr("testbed.ran.mac.Channel", lambda **settings: channel)
    # UEs are mapped by bytes: an RNTI's place among those of this cell's part of the trace.
    trace = Trace(tuple(arrivals))
    ue_in_cell = {ues[rnti]: ue for rnti, ue in map_rntis(trace, n_ues).items()}
    traffic = Replay(trace)
    mac = CellMac(
        CellConfig(
            0,
            n_ues=n_ues,
            scs_khz=15,
            bandwidth_mhz=10,
            tdd=TddPattern((SlotKind.U if direction is UL else SlotKind.D,)),
            mcs_table=MCS_TABLE,
            dl_layers=layers,
            ul_layers=layers,
            dl_traffic=traffic if direction is DL else NoTraffic(),
            ul_traffic=traffic if direction is UL else NoTraffic(),
        ),
        seed=1,
    )
    link = mac.link(direction)
    policy = LoggedGrants()
    by_air_slot = defaultdict(list)
    for (slot, ue), dci in wanted.items():
        by_air_slot[slot + dci.k_slots].append((slot, ue_in_cell[ue], dci))
    # An air slot is planned when the last of its grants goes out; both K2 of the log occur.
    agenda = sorted(
        (max(slot for slot, *_ in granted), air, granted) for air, granted in by_air_slot.items()
    )
    arrived = sorted({slot for slot, _ in wanted}, reverse=True)
    for now, air, granted in agenda:
        while arrived and arrived[-1] <= now:
            mac.advance(arrived.pop())
        policy.n_prb = {ue: dci.n_prb for _, ue, dci in granted}
        channel.mcs = {ue: dci.mcs for _, ue, dci in granted}
        carried_before = link.counters.in_flight_bytes
        view = link.open_slot(now, air)
        assert view is not None
        slot_view = SlotView(air, air * 1000, direction, (view,), now)
        (grants,) = check_grants(policy, slot_view, policy.schedule(slot_view))
        plan = link.commit(grants)
        sent = {
            block.ue: (block.n_prb, block.mcs_index, 8 * block.tbs_bytes, block.code_blocks)
            for block in plan.blocks
        }
        assert sent == {
            ue: (dci.n_prb, dci.mcs, dci.size_bits, code_blocks(dci.size_bits, dci.rate))
            for _, ue, dci in granted
        }, air
        carried = link.counters.in_flight_bytes - carried_before
        assert 8 * carried == sum(dci.size_bits for *_, dci in granted), air
        link.feedback(air, [BlockResult(b.ue, b.harq_id, Outcome.ACK) for b in plan.blocks])
        link.settle(air)
    assert mac.idle
    counters = link.counters
    assert counters.new_blocks == counters.acks == len(wanted)
    assert (counters.padding_bytes, counters.retransmissions) == (0, 0)
    assert 8 * counters.acknowledged_bytes == sum(dci.size_bits for dci in wanted.values())
