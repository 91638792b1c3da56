"""A quantum that ignores its lease delays a decode by exactly what arithmetic says.

All cases: one cell on a gb10, air slot 9 (uplink, slots of 500 us), one full carrier of 64QAM. The
profile's constants: 60 us fixed, 22 us per code block at saturation, 8 SMs per started 10 code
blocks, 48 SMs in all. 273 PRB at MCS 28 on one layer are 29 code blocks, so

    saturation = 8 * ceil(29 / 10) = 24 SMs
    work       = 29 * 22           = 638 us on 24 SMs
    ready      = (9 + 1) * 500     = 5000 us, the end of the slot
    undisturbed end                = 5000 + 60 + 638 = 5698 us
    deadline                       = 5000 + 1500     = 6500 us

The decode's share of the memory bandwidth (600 permille at 29 code blocks) and training's (300) are
below 1000 together: no slow-down by contention.
"""

from __future__ import annotations

import numpy as np
import pytest
from nodes_bench import Bench, job, parse, reasons, rows, sent, site, work

from protocols.messages import (
    CrcIndication,
    PhyAllocation,
    PhyDone,
    QuantumStarted,
    SlotDemand,
    TtiRequest,
)
from protocols.work import PhyTask, PhyTaskDone

NACK, ACK, LATE = 0, 1, 2
CELL, AIR_SLOT, UPLINK = 0, 9, 1
FAULT = 9
SATURATION, UNDISTURBED_END_US, DEADLINE_US = 24, 5698, 6500

DEMAND = SlotDemand("g1", 3, 6, 9, ((CELL, AIR_SLOT, UPLINK, 273, 1, 29, 29_000),))
REQUEST = TtiRequest(
    "g1",
    AIR_SLOT,
    UPLINK,
    np.array([[CELL, 0, 0, 1, 273, 1, 28, 29_000, 29, 5554, 4000]], dtype="<i4"),
)


class Site:
    """The agent and the PHY of one gNB; messages between them are passed on by hand."""

    def __init__(self) -> None:
        topology = parse(site() + job())
        self.agent = Bench(topology, "north.agent")
        self.phy = Bench(topology, "north.g1.phy")

    def plan(self) -> None:
        """The MAC plans in slot 3 (1500 us), K2 and lookahead ahead."""
        self.allocate(1500, self.agent.receive(1500, "north.g1.mac", DEMAND))
        self.phy.receive(1500, "north.g1.mac", REQUEST)

    def quantum(self, now_us: int, start_us: int, end_us: int, sms: int) -> None:
        started = QuantumStarted("pretrain", 1, FAULT, 0, start_us, end_us, sms)
        effects = self.agent.receive(now_us, "north.pretrain.trainer", started)
        self.allocate(now_us, effects)

    def allocate(self, now_us: int, effects: list) -> None:
        for allocation in sent(effects, PhyAllocation, "north.g1.phy"):
            self.phy.receive(now_us, "north.agent", allocation)

    def run(self) -> tuple[PhyTask, CrcIndication, dict[str, int]]:
        """What the executor was last asked to do, done; then the row that the agent records."""
        task = work(self.phy.effects, PhyTask)[-1]
        done = PhyTaskDone(task.task, task.start_us, task.start_us, task.end_us, 1000)
        effects = self.phy.report(task.end_us, done)
        (crc,) = sent(effects, CrcIndication, "north.g1.mac")
        (phy_done,) = sent(effects, PhyDone, "north.agent")
        recorded = self.agent.receive(task.end_us, "north.g1.phy", phy_done)
        (row,) = rows(recorded, "ran_tasks")
        return task, crc, row


@pytest.fixture
def cell_site() -> Site:
    planned = Site()
    planned.plan()
    return planned


def test_without_a_quantum_the_decode_takes_what_the_model_says(cell_site):
    task, crc, row = cell_site.run()
    assert (task.start_us, task.end_us) == (5000, UNDISTURBED_END_US)
    assert (task.code_blocks, task.decode_iterations) == (29, 290)
    assert crc.results == ((0, 0, ACK),)
    assert (row["modelled_end_us"], row["deadline_us"]) == (UNDISTURBED_END_US, DEADLINE_US)
    assert row["sms"] == row["wanted_sms"] == SATURATION


def test_two_millisecond_quantum_on_the_whole_gpu_makes_the_decode_miss(cell_site):
    """48 SMs are held from 4900 to 4900 + 2000 = 6900 us, so the decode has none before that:

    start = 6900, end = 6900 + 60 + 638 = 7598 us: 1900 us later than undisturbed, and
    7598 - 6500 = 1098 us after its deadline.
    """
    cell_site.quantum(4920, 4900, 6900, 48)
    task, crc, row = cell_site.run()
    assert (task.start_us, task.end_us) == (6900, 7598)
    assert task.end_us - UNDISTURBED_END_US == 1900
    assert crc.results == ((0, 0, LATE),)
    assert row["modelled_end_us"] - row["deadline_us"] == 1098
    assert "phy 0/9/1: uplink task 1098 us after its deadline" in reasons(cell_site.phy.effects)
    assert any(
        "a quantum of 48 SMs runs until 6900 us; the task begins with 0 of 24 SMs" in reason
        for reason in reasons(cell_site.agent.effects)
    )


def test_quantum_that_leaves_sixteen_sms_delays_but_does_not_miss(cell_site):
    """32 of 48 SMs are held until 6900: 16 are left, two thirds of saturation.

    60 us fixed, then 638 us of work at 2/3: 957 us. End = 5000 + 60 + 957 = 6017 <= 6500.
    """
    cell_site.quantum(4920, 4900, 6900, 32)
    task, crc, row = cell_site.run()
    assert (task.start_us, task.end_us) == (5000, 6017)
    assert crc.results == ((0, 0, ACK),)
    assert (row["sms"], row["wanted_sms"]) == (16, SATURATION)


def test_decode_takes_the_sms_back_when_the_quantum_ends(cell_site):
    """40 of 48 SMs are held until 6900: 8 are left, a third of saturation.

    Until 6900 the work done is (1900 - 60) / 3 = 613.33 us; the other 24.67 us run on 24 SMs:
    end = 6900 + 24.67, rounded up = 6925 us, 425 us after the deadline.
    """
    cell_site.quantum(4920, 4900, 6900, 40)
    task, crc, row = cell_site.run()
    assert (task.start_us, task.end_us) == (5000, 6925)
    assert crc.results == ((0, 0, LATE),)
    assert row["modelled_end_us"] - DEADLINE_US == 425


def test_quantum_beside_which_the_decode_fits_changes_nothing(cell_site):
    """24 of 48 SMs are held: the 24 that saturate the decode are free."""
    before = len(work(cell_site.phy.effects, PhyTask))
    cell_site.quantum(4920, 4900, 6900, 24)
    assert len(work(cell_site.phy.effects, PhyTask)) == before
    task, crc, _ = cell_site.run()
    assert (task.end_us, crc.results) == (UNDISTURBED_END_US, ((0, 0, ACK),))


def test_quantum_that_was_held_before_the_plan_is_taken_off_the_first_allocation():
    """A quantum known when the task is planned: one allocation, already late. End as above."""
    late = Site()
    late.quantum(1400, 1300, 6900, 48)
    late.plan()
    task, crc, _ = late.run()
    assert len(work(late.phy.effects, PhyTask)) == 1
    assert (task.start_us, task.end_us) == (6900, 7598)
    assert crc.results == ((0, 0, LATE),)


def test_overrun_of_real_work_is_fidelity_and_not_a_miss(cell_site):
    """The executor needs until 9000 us; the model's end stays 5698, and the block is in time."""
    (task,) = work(cell_site.phy.effects, PhyTask)
    effects = cell_site.phy.report(9000, PhyTaskDone(task.task, 5003, 9000, 9000, 1000))
    (crc,) = sent(effects, CrcIndication)
    (done,) = sent(effects, PhyDone)
    assert (crc.end_us, crc.results) == (UNDISTURBED_END_US, ((0, 0, ACK),))
    assert (done.modelled_end_us, done.end_us) == (UNDISTURBED_END_US, 9000)
    (lateness,) = rows(effects, "lateness")
    assert (lateness["lateness_us"], lateness["overrun_us"]) == (3, 9000 - UNDISTURBED_END_US)
