"""The native pace on a CUDA device: nothing held, one quantum in flight, measured ends."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import torch

from protocols.work import ApplyStep, ComputeStep, ExecutorStop, PhyTask, RunSync
from testbed.executors.clock import EmulatedClock
from testbed.executors.config import PhyConfig, ProxyConfig, TrainerConfig

from .fakes import ROUND_THE_CLOCK, FakePort

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


class WallPort(FakePort):
    """Messages are there at once; the clock is the wall's, 1 us a us."""

    def __init__(self):
        super().__init__()
        self._clock = EmulatedClock(time.monotonic_ns(), 1000)

    def now_us(self):
        return self._clock.now_us()

    def receive(self, until_us):
        if self.inbox:
            return self.inbox.pop(0)[1]
        assert until_us is not None, "waits for ever"
        return None

    def hold_until(self, at_us):
        raise AssertionError("a hold at native pace")


def test_trainer_takes_a_step_and_reports_measured_ends():
    from testbed.executors.trainer import TrainerExecutor

    config = TrainerConfig(
        declared_layers=4,
        levels=(20, 40),
        cost_us=((10**7,) * 2,) * 4,
        proxy=ProxyConfig(layers=2),
        device="cuda",
        pace="native",
    )
    executor = TrainerExecutor(config, lambda: ROUND_THE_CLOCK)
    port = WallPort()
    for message in (ComputeStep(1, 0, (1,)), RunSync(1, 0, 0, 1, 10**9, 0, ""), ApplyStep(1, 0)):
        port.at(0, message)
    port.send = lambda message: _stop_after_applied(port, message)
    executor.run(port)
    ended = port.ended()
    assert len(ended) == 4 + 1 + 4 + 4
    assert all(q.end_us == q.start_us + q.real_us < q.modelled_end_us for q in ended)
    assert all(a.end_us <= b.start_us for a, b in pairwise(ended))


def _stop_after_applied(port, message):
    port.sent.append(message)
    if type(message).__name__ == "Applied":
        port.at(0, ExecutorStop())


@pytest.mark.parametrize("direction", [0, 1])
def test_phy_kernels_run_on_the_device(direction):
    from testbed.executors.phy_slot import SlotWork

    work = SlotWork(PhyConfig(device="cuda", pace="native"), torch.device("cuda"))
    work.run(PhyTask(0, direction, 0, 0, 273, 2, 60, 600))
    torch.cuda.synchronize()
