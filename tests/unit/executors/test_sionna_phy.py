"""The NR receiver and transmitter of sionna against what they must do, and against each other."""

from __future__ import annotations

import pytest
import torch

from protocols.errors import ProtocolError
from protocols.work import PhyTask
from testbed.executors.config import PhyConfig
from testbed.executors.phy_work import open_work, run_tasks

pytest.importorskip("sionna.phy", reason='needs the extra: pip install "ranloom[sionna]"')

from testbed.executors.sionna_phy import NrSlot, SionnaWork
from testbed.ran.tbs import transport_block_size_bits

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def slot():
    return NrSlot(n_prb=16, layers=2, order=4, antennas=4, seed=3, device=CPU)


@pytest.fixture(scope="module")
def work():
    return open_work(PhyConfig(kind="sionna", n_prb=24, layers=2, stride=12, antennas=2), CPU)


def test_the_transport_block_has_the_size_of_the_standard(slot):
    """TS 38.214 5.1.3.2, by our own implementation: 12 symbols of 12 subcarriers, table 2 MCS 8."""
    n_re = 16 * 144
    assert len(slot.sent_bits) == transport_block_size_bits(n_re, 553, 4, 2)


def test_a_clear_slot_is_received_and_a_drowned_one_is_not(slot):
    bits, crc_holds = slot.receive()
    assert crc_holds
    assert torch.equal(bits, slot.sent_bits)
    clean = slot._received
    slot._received = clean + 3 * torch.randn(
        clean.shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(1)
    )
    _, crc_holds = slot.receive()
    slot._received = clean
    assert not crc_holds


def test_what_pdsch_sends_is_decoded_by_the_receiver(slot):
    """For one codeword PDSCH and PUSCH have the same bits, scrambling, DMRS type 1 and layers."""
    kept = slot._received
    slot._received = slot.transmit()[None, None]
    bits, crc_holds = slot.receive()
    slot._received = kept
    assert crc_holds
    assert torch.equal(bits, slot.sent_bits)


def test_every_task_finds_a_slot_and_too_large_ones_are_refused(work):
    assert isinstance(work, SionnaWork)
    for direction in (0, 1):
        run_tasks(work, PhyTask(0, direction, 0, 0, 24, 2, 7, 70))
        run_tasks(work, PhyTask(0, direction, 0, 0, 1, 1, 1, 10))
    work.prime()
    with pytest.raises(ProtocolError, match=r"25 PRBs x 1 layers; .* 24 x 2"):
        run_tasks(work, PhyTask(0, 1, 0, 0, 25, 1, 1, 10))


def test_more_bits_take_a_higher_modulation_and_more_prbs_a_larger_slot(work):
    def bits(n_prb, blocks):
        return len(work.slot_of(PhyTask(0, 1, 0, 0, n_prb, 2, blocks, 0)).sent_bits)

    assert bits(24, 1) < bits(24, 3) < bits(24, 6)
    assert bits(12, 1) < bits(24, 2)
