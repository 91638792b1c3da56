"""The order of PHY tasks and their holds, in a clock that only waits and work move."""

from __future__ import annotations

import pytest
import torch

from protocols.errors import ProtocolError
from protocols.work import ExecutorStop, LeaseChanged, PhyTask
from testbed.executors.config import PhyConfig
from testbed.executors.pace import Pace
from testbed.executors.phy import PhyLoop
from testbed.executors.phy_slot import SlotWork

from .fakes import FakePort


def task(number, start_us, end_us, direction=1):
    return PhyTask(number, direction, start_us, end_us, 10, 1, 2, 20)


class Bench:
    def __init__(self, work_us=10, pace=None, late_us=0):
        self.port = FakePort(late_us)
        self.order = []
        self._work_us = work_us
        self.loop = PhyLoop(self.port, self._work, pace or Pace())

    def _work(self, tasks):
        self.order += [(task.task, self.port.now) for task in tasks]
        self.port.works(self._work_us)
        yield from ()

    def run(self, stop_at=10_000):
        self.port.at(stop_at, ExecutorStop())
        self.loop.run()
        return [(d.task, d.woken_us, d.real_end_us, d.end_us) for d in self.port.sent]


def test_holds_overlap_and_end_in_their_own_order():
    bench = Bench()
    bench.port.at(0, task(1, 100, 900))
    bench.port.at(0, task(2, 150, 400))
    assert bench.run() == [(2, 150, 160, 400), (1, 100, 110, 900)]
    assert bench.order == [(1, 100), (2, 150)]


def test_starts_in_start_order_not_in_order_of_arrival():
    bench = Bench()
    bench.port.at(0, task(1, 300, 500))
    bench.port.at(5, task(2, 200, 500))
    bench.run()
    assert bench.order == [(2, 200), (1, 300)]


def test_real_work_is_serial_and_waiting_for_it_is_not_lateness():
    bench = Bench(work_us=80)
    bench.port.at(0, task(1, 100, 500))
    bench.port.at(0, task(2, 100, 500))
    assert bench.run() == [(1, 100, 180, 500), (2, 100, 260, 500)]


def test_a_small_task_passes_a_large_one_between_its_stages():
    """The large task needs five stages of 30 us from 100 on; the small one, due at 140, has 60."""
    port, order = FakePort(), []

    def work(tasks):
        (task,) = tasks
        for stage in range(5 if task.task == 1 else 1):
            order.append((task.task, stage, port.now))
            port.works(30)
            yield

    loop = PhyLoop(port, work, Pace())
    port.at(0, task(1, 100, 900))
    port.at(0, task(2, 140, 200))
    port.at(1000, ExecutorStop())
    loop.run()
    assert [(who, stage) for who, stage, _ in order] == [
        (1, 0), (1, 1), (2, 0), (1, 2), (1, 3), (1, 4)
    ]  # fmt: skip
    assert [(d.task, d.woken_us, d.end_us) for d in port.sent] == [(2, 160, 200), (1, 100, 900)]


def test_downlink_that_begins_together_is_one_launch():
    bench = Bench(work_us=30)
    bench.port.at(0, task(1, 100, 160, direction=0))
    bench.port.at(0, task(2, 100, 300, direction=0))
    bench.port.at(0, task(3, 100, 500))
    assert bench.run() == [(1, 100, 130, 160), (2, 100, 130, 300), (3, 100, 160, 500)]


def test_priming_comes_once_before_each_start_and_delays_none():
    port, primed = FakePort(), []
    work = lambda tasks: iter(())  # noqa: E731
    loop = PhyLoop(port, work, Pace(), lambda: primed.append(port.now), prime_lead_us=50)
    port.at(0, task(1, 100, 200))
    port.at(0, task(2, 100, 250))
    port.at(0, task(3, 400, 500))
    port.at(1000, ExecutorStop())
    loop.run()
    assert primed == [50, 350]
    assert [(d.task, d.woken_us, d.end_us) for d in port.sent] == [
        (1, 100, 200), (2, 100, 250), (3, 400, 500)
    ]  # fmt: skip


def test_overrun_ends_when_the_real_work_does():
    bench = Bench(work_us=80)
    bench.port.at(0, task(1, 100, 130))
    assert bench.run() == [(1, 100, 180, 180)]


def test_late_task_runs_at_once():
    bench = Bench()
    bench.port.at(700, task(1, 100, 600))
    assert bench.run() == [(1, 700, 710, 710)]


def test_late_wake_up_shows():
    bench = Bench(late_us=7)
    bench.port.at(0, task(1, 100, 600))
    assert bench.run()[0][:3] == (1, 107, 117)


def test_stop_holds_what_has_begun_and_drops_the_rest():
    bench = Bench()
    bench.port.at(0, task(1, 100, 600))
    bench.port.at(0, task(2, 300, 700))
    assert bench.run(stop_at=200) == [(1, 100, 110, 600)]
    assert bench.port.now == 600


def test_native_pace_ends_with_the_real_work():
    bench = Bench(pace=Pace(held=False))
    bench.port.at(0, task(1, 100, 600))
    assert bench.run() == [(1, 100, 110, 110)]


def test_other_messages_are_refused():
    bench = Bench()
    bench.port.at(0, LeaseChanged())
    with pytest.raises(ProtocolError, match="LeaseChanged"):
        bench.run()


@pytest.fixture(scope="module")
def work():
    return SlotWork(PhyConfig(n_prb=24, layers=2, code_blocks=3), torch.device("cpu"))


class TestSlotWork:
    @pytest.mark.parametrize("direction", [0, 1])
    @pytest.mark.parametrize(
        ("n_prb", "layers", "blocks"), [(24, 2, 3), (1, 1, 1), (0, 0, 0), (24, 1, 70)]
    )
    def test_any_size_runs(self, work, direction, n_prb, layers, blocks):
        work.run(PhyTask(0, direction, 0, 0, n_prb, layers, blocks, 4 * blocks))

    def test_larger_than_configured_is_refused(self, work):
        with pytest.raises(ProtocolError, match=r"25 PRBs x 1 layers; .* 24 x 2"):
            work.run(PhyTask(0, 1, 0, 0, 25, 1, 1, 1))


def test_the_speed_of_the_core_is_asked_once_after_each_real_work():
    slow = iter([1000, 4000])
    port = FakePort()
    loop = PhyLoop(port, lambda tasks: iter(()), Pace(), slowdown_permille=lambda: next(slow))
    port.at(0, task(1, 100, 200))
    port.at(0, task(2, 300, 400, direction=0))
    port.at(0, task(3, 300, 400, direction=0))  # one launch with task 2
    port.at(1000, ExecutorStop())
    loop.run()
    assert [done.host_slowdown_permille for done in port.sent] == [1000, 4000, 4000]
