"""What must hold slot by slot, whatever arrives: the controller on a MAC and a GPU's timeline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from ran.helpers import sdus, steady_cell

from testbed.errors import PolicyError
from testbed.gpu.cost import DOWNLINK, UPLINK
from testbed.gpu.envelope import split_sms
from testbed.gpu.sizing import Deadline
from testbed.gpu.timeline import RanTimeline
from testbed.ran.capacity import ftp3_at_load
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction, TddPattern
from testbed.ran.qos import five_qis, mac_budget_us
from testbed.ran.traffic import Mixed, NoTraffic
from testbed.ran.traffic.specs import Part, Periodic
from testbed.shaping.policy import LoadSmoother, SpareCompute
from testbed.spare_bound.curves import link_curves
from testbed.spare_bound.greedy import lowered
from testbed.spare_bound.inputs import (
    BoundInput,
    LinkLoad,
    Sdus,
    arrived,
    carrier_bytes,
    known_slots,
)

from .loop import GB10, LEAD_US, SLOT_US, TRAINING_PERMILLE, UL_BUDGET_US, Gnb, Step

UL, DL = Direction.UL, Direction.DL
HORIZON_SLOTS = 40
RUN = settings(
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def any_cells(draw) -> tuple[CellConfig, ...]:
    """One to four cells of one pattern, anything else different, loads beyond saturation."""
    common = {
        "tdd": TddPattern.parse(draw(st.sampled_from(["DDDSU", "DDDSUUDDDD", "DU"]))),
        "lookahead_slots": draw(st.integers(2, 4)),
        "k2_slots": draw(st.integers(1, 4)),
    }
    cells = []
    for cell_id in range(draw(st.integers(1, 4))):
        n_ues = draw(st.integers(1, 6))
        cell = CellConfig(
            cell_id,
            n_ues=n_ues,
            bandwidth_mhz=draw(st.sampled_from([20, 100])),
            sinr_mean_db=draw(st.sampled_from([9.0, 14.0, 22.0])),
            sinr_sd_db=2.0,
            dl_layers=draw(st.sampled_from([1, 4])),
            ul_layers=draw(st.integers(1, 2)),
            harq_processes=draw(st.sampled_from([1, 3, 16])),
            max_ues_per_slot=draw(st.sampled_from([1, 3, 8])),
            max_transmissions=draw(st.integers(1, 4)),
            five_qi=tuple(draw(st.permutations(five_qis()))[:n_ues]),
            **common,
        )
        file_bytes = draw(st.sampled_from([300, 3000, 100_000]))
        loads = [draw(st.sampled_from([0.0, 0.2, 0.7, 1.2])) for _ in range(2)]
        cells.append(
            replace(
                cell,
                ul_traffic=ftp3_at_load(cell, UL, loads[0], file_bytes),
                dl_traffic=ftp3_at_load(cell, DL, loads[1], file_bytes),
            )
        )
    return tuple(cells)


class Checks:
    """What holds after each slot."""

    def __init__(self, gnb: Gnb) -> None:
        self.gnb = gnb
        self._sent: dict[tuple[object, ...], int] = {}
        self._period = len(gnb.cells[0].tdd.kinds)

    def __call__(self, step: Step) -> None:
        self._promise_kept(step)
        for cell in self.gnb.mac.cells:
            for link in (cell.dl, cell.ul):
                counted = link.counters
                kept = link.backlog_bytes + counted.in_flight_bytes + counted.acknowledged_bytes
                assert counted.arrived_bytes == kept
                busy = [link.busy_processes(ue) for ue in range(cell.config.n_ues)]
                assert all(0 <= count <= cell.config.harq_processes for count in busy)
        self._retransmitted_soon(step)

    def _promise_kept(self, step: Step) -> None:
        """R(t) is within the promise, and no promise is raised but in a counted emergency."""
        for slot, sms in step.ran_sms.items():
            assert sms <= step.after.get(slot, GB10.sms), (step.slot, slot)
        raised = {slot for slot, sms in step.after.items() if sms > step.before.get(slot, GB10.sms)}
        assert step.new_breaches > 0 or not raised, (step.slot, raised)
        if step.slot >= 2 * self._period:
            assert max(step.after) >= step.slot + HORIZON_SLOTS

    def _retransmitted_soon(self, step: Step) -> None:
        """A block that failed waits at most three periods for each that may wait before it."""
        for plan in step.plans:
            config = self.gnb.cells[plan.cell]
            ahead = config.feedback_slots(plan.direction) + config.plan_ahead_slots(plan.direction)
            link = self.gnb.mac.cell(plan.cell).link(plan.direction)
            others = sum(link.busy_processes(ue) for ue in range(config.n_ues))
            for block in plan.blocks:
                key = (plan.cell, plan.direction, block.ue, block.harq_id)
                if block.transmission > 1:
                    waited = plan.slot - self._sent[key] - ahead
                    assert waited <= 3 * self._period * (1 + others)
                self._sent[key] = plan.slot


@settings(RUN, max_examples=9)
@given(cells=any_cells(), seed=st.integers(0, 2**32))
def test_any_cells_any_traffic(cells, seed):
    """And in the end every byte is delivered: nobody starves, under no load."""
    gnb = Gnb(cells, SpareCompute(), seed)
    check = Checks(gnb)
    gnb.run(120, check)
    gnb.drain(5000, check)
    for cell in gnb.mac.cells:
        for link in (cell.dl, cell.ul):
            of_link = [
                sdu.n_bytes
                for sdu in gnb.delivered
                if (sdu.cell, sdu.direction) == (cell.config.cell_id, link.direction)
            ]
            assert sum(of_link) == link.counters.arrived_bytes
    assert gnb.missed == 0 or gnb.policy.promise().breaches, "late, and not for an emergency"


# --- budgets --------------------------------------------------------------------------------------

RELAXED = (9, 3, 1)
"""5QIs whose budgets, 30 ms and more, are long beside a TDD period."""

SLACK = 1.3
"""The schedule that the controller is measured by has to carry that much more, sooner."""


def feasible(cells: tuple[CellConfig, ...], seed: int, slots: int) -> bool:
    """Whether the bound's fluid schedule keeps all budgets, with some slack (``spare_bound``).

    It knows nothing of grants, PRBs or SM steps, hence the slack: bytes by ``SLACK``, and deadlines
    of files earlier by two TDD periods and the way from plan to result.
    """
    horizon = slots + 700
    earlier_us = 2 * 2500 + 3000

    def load(direction: Direction) -> LinkLoad:
        rows = arrived(cells, direction, seed, slots)
        files = rows.traffic_class != 80
        sooner = rows.deadline_us - np.where(files, earlier_us, 0)
        more = np.ceil(rows.n_bytes * SLACK).astype(np.int64)
        tight = Sdus(rows.cell, rows.ue, rows.traffic_class, more, rows.arrival_us, sooner)
        capacity = carrier_bytes(cells, direction, horizon)
        return LinkLoad(tight, known_slots(cells, direction), capacity)

    given = BoundInput(
        gpu=GB10,
        slot_us=SLOT_US,
        ul_decode_budget_us=UL_BUDGET_US,
        fronthaul_lead_us=LEAD_US,
        training_bandwidth_permille=TRAINING_PERMILLE,
        ul_work_milli=1000,
        downlink=load(DL),
        uplink=load(UL),
        windows_us=(5000,),
        from_slot=1,
        to_slot=2,
        end_slot=20,
    )
    curves = link_curves(given, DOWNLINK), link_curves(given, UPLINK)
    return lowered(given, *curves).late_blocks == 0


@settings(RUN, max_examples=6)
@given(
    n_cells=st.integers(1, 4),
    loads=st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.7]), st.sampled_from([0.0, 0.3, 0.6])),
    five_qi=st.lists(st.sampled_from(RELAXED), min_size=3, max_size=3),
    file_bytes=st.sampled_from([1500, 20_000]),
    seed=st.integers(0, 2**32),
)
def test_budgets_are_kept_wherever_the_bound_can_keep_them(
    n_cells, loads, five_qi, file_bytes, seed
):
    """A steady channel: block errors are no one's fault. The bound tells what is possible."""
    cells = tuple(mixed_cell(cell_id, loads, five_qi, file_bytes) for cell_id in range(n_cells))
    assume(feasible(cells, seed, 200))
    gnb = Gnb(cells, SpareCompute(), seed)
    gnb.run(200)
    gnb.drain(5000)
    assert gnb.late_bytes() == 0


def mixed_cell(
    cell_id: int, loads: tuple[float, float], five_qi: list[int], file_bytes: int
) -> CellConfig:
    """Three UEs with files, and one with a packet of the 10 ms class every 5 ms."""
    cell = steady_cell(cell_id, n_ues=4, dl_layers=4, ul_layers=2, five_qi=(*five_qi, 80))
    traffic = {}
    for way, load in zip((UL, DL), loads, strict=True):
        files = Part(0, 3, ftp3_at_load(cell, way, load, file_bytes, n_ues=3))
        packets = Part(3, 1, Periodic(250, 1500, 5000))
        traffic[f"{way.value.lower()}_traffic"] = Mixed((files, packets))
    return replace(cell, **traffic)


# --- an emergency ---------------------------------------------------------------------------------

BURST_US = 60 * SLOT_US


def burst(five_qi: int) -> Gnb:
    """A quiet cell of one UE, and then 26,800 bytes in the uplink: 26 code blocks of 1,053."""
    cell = steady_cell(ul_layers=2, five_qi=(five_qi,), ul_traffic=sdus(UL, (BURST_US, 0, 26_800)))
    return Gnb((cell,), SpareCompute())


def test_burst_that_is_due_breaks_the_promise_and_is_in_time():
    """Due in 8 ms, at 38 ms: known in slot 60, it has the uplink slots 69 and, if its decode is
    done 0.5 ms after it, 74. All of it takes 60 + 572 * 3 us on 8 SMs: longer than 1.5 ms."""
    gnb = burst(80)
    check = Checks(gnb)
    gnb.run(60, check)
    assert gnb.policy.promise().rows[0][1] == 8
    gnb.run(60, check)
    assert gnb.policy.promise().breaches >= 1
    [sdu] = gnb.delivered
    assert sdu.delivered_us - sdu.arrival_us <= mac_budget_us(80)


def test_burst_that_can_wait_keeps_the_promise():
    """The same bytes, due in 280 ms."""
    gnb = burst(9)
    gnb.run(360, Checks(gnb))
    assert gnb.policy.promise().breaches == 0
    [sdu] = gnb.delivered
    assert sdu.delivered_us - sdu.arrival_us <= mac_budget_us(9)


# --- sharing a GPU --------------------------------------------------------------------------------


def loaded(first_id: int, load: float, n_cells: int = 2) -> tuple[CellConfig, ...]:
    """Cells under that load in both directions, delay budgets of 280 ms."""
    cells = []
    for cell_id in range(first_id, first_id + n_cells):
        cell = CellConfig(cell_id, n_ues=4, ul_layers=2, dl_layers=4)
        traffic = {
            f"{way.value.lower()}_traffic": ftp3_at_load(cell, way, load, 20_000)
            for way in (DL, UL)
        }
        cells.append(replace(cell, **traffic))
    return tuple(cells)


def test_limit_is_kept_beyond_what_was_promised_before():
    """A limit holds for new promises at once, and for the work when the old ones have run out."""
    gnb = Gnb(loaded(0, 0.7, n_cells=3), SpareCompute())
    gnb.run(300)
    promise = gnb.policy.promise()
    assert promise.rows[-1][1] > 16, "it has wanted more than it is about to be left"
    gnb.policy.limit(16)
    after = promise.until_slot

    def check(step: Step) -> None:
        if gnb.policy.promise().breaches == promise.breaches:
            assert all(sms <= 16 for slot, sms in step.after.items() if slot >= after)
            assert all(sms <= 16 for slot, sms in step.ran_sms.items() if slot >= after)

    gnb.run(130, check)
    assert gnb.slot > after
    assert gnb.policy.promise().wanted_sms > 16


def test_two_gnbs_share_one_gpu():
    """Each is told its part of 48 SMs as the site agent tells it, from both one's wants and
    promises. Beyond the old promises, both together promise no more than there is."""
    timeline = RanTimeline(GB10, TRAINING_PERMILLE, Deadline())
    gnbs = {
        name: Gnb(loaded(first, 0.5), SpareCompute(), timeline=timeline)
        for name, first in (("g1", 0), ("g2", 2))
    }
    agreed_until, compared, broken = None, 0, 0
    for slot in range(400):
        steps = {name: gnb.step() for name, gnb in gnbs.items()}
        promises = {name: gnb.policy.promise() for name, gnb in gnbs.items()}
        shares = split_sms(
            GB10,
            {name: promise.wanted_sms for name, promise in promises.items()},
            {name: max(steps[name].after.values(), default=0) for name in gnbs},
        )
        for name, gnb in gnbs.items():
            gnb.policy.limit(shares[name])
        if slot == 200:
            assert all(share < 48 for share in shares.values())
            agreed_until = max(promise.until_slot for promise in promises.values())
            broken = sum(promise.breaches for promise in promises.values())
        if agreed_until is not None and sum(p.breaches for p in promises.values()) == broken:
            both = zip(*(step.after.items() for step in steps.values()), strict=False)
            for (at, one), (same, other) in both:
                assert at == same
                if at >= agreed_until:
                    assert one + other <= 48
                    compared += 1
    assert all(gnb.missed == 0 for gnb in gnbs.values())
    assert compared > 100


# --- the smoother ---------------------------------------------------------------------------------


def test_smoother_delivers_everything_and_promises_nothing():
    gnb = Gnb(loaded(0, 0.5), LoadSmoother())
    gnb.run(200)
    promise = gnb.policy.promise()
    assert (promise.rows, promise.until_slot, promise.breaches) == ((), 0, 0)
    assert 8 < promise.wanted_sms <= 48
    gnb.drain(5000)
    arrived_bytes = sum(
        link.counters.arrived_bytes for cell in gnb.mac.cells for link in (cell.dl, cell.ul)
    )
    assert sum(sdu.n_bytes for sdu in gnb.delivered) == arrived_bytes


def test_quiet_cells_promise_the_smallest_partition():
    cells = tuple(CellConfig(c, ul_traffic=NoTraffic(), dl_traffic=NoTraffic()) for c in range(3))
    gnb = Gnb(cells, SpareCompute())
    gnb.run(20, Checks(gnb))
    assert [sms for _, sms in gnb.policy.promise().rows] == [8]
    assert gnb.policy.promise().wanted_sms == 8


def test_is_bound_before_the_first_slot():
    with pytest.raises(PolicyError, match="SpareCompute: bind"):
        SpareCompute().promise()
