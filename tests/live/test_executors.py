"""Executors as their hosts see them: spawned, driven over the socket, stopped, orphaned."""

from __future__ import annotations

import pytest
from executor_process import ExecutorProcess

from protocols.work import (
    AbandonStep,
    Applied,
    ApplyStep,
    ComputeStep,
    ExecutorFailed,
    InjectQuantum,
    LeaseChanged,
    PhyTask,
    PhyTaskDone,
    QuantumBegun,
    QuantumEnded,
    RunSync,
    SampleComputed,
    StepComputed,
    SyncEnded,
)
from testbed.executors.config import (
    PhyConfig,
    ProxyConfig,
    Scheduling,
    TrainerConfig,
)
from testbed.gpu.gate import Lease, Window
from testbed.gpu.quanta import QuantumKind, micro_batch_quanta, optimiser_quanta

pytestmark = pytest.mark.live

GONE_WITHIN_S = 2
LOOPBACK = "0100007F"  # 127.0.0.1, as /proc/net/tcp writes it
LAYERS = 4
SWITCH_US = 100
FAR_US = 10**12

TRAINER = TrainerConfig(
    seed=5,
    declared_layers=LAYERS,
    levels=(20, 40),
    cost_us=((20_000, 10_000), (20_000, 10_000), (30_000, 15_000), (8_000, 4_000)),
    head_chunks=2,
    guard_us=500,
    switch_us=SWITCH_US,
    micro_batch=2,
    sequence=32,
    proxy=ProxyConfig(layers=2, hidden=32, heads=2),
    text_bytes=100_000,
    scheduling=Scheduling(policy="idle"),
)
"""Wall time: 1 emulated us lasts 1 us. Quanta of 4-15 ms on 40 SMs, real work of about 1 ms."""
ROUND_THE_CLOCK = Lease(1, (Window(0, FAR_US, 40),))


def started(config=TRAINER):
    executor = ExecutorProcess("trainer")
    executor.facts = executor.configure(config)
    executor.start()
    return executor


def order(quanta):
    return [(QuantumKind(quantum.kind), quantum.block) for quantum in quanta]


class TestPhy:
    def test_order_overlap_overrun_and_stop(self):
        config = PhyConfig(n_prb=51, code_blocks=8, scheduling=Scheduling(policy="fifo"))
        with ExecutorProcess("phy") as executor:
            facts = executor.configure(config)
            assert facts["scheduling"] == "fifo 10" or "refused" in facts["scheduling"]
            assert 0 < facts["largest_uplink_wall_us"] < 100_000
            executor.start(wall_ns_per_us=4000)
            first_us = executor.now_us() + 10_000
            tasks = [  # sent out of order; 2 starts first, 1 and 2 overlap, 3 cannot be in time
                PhyTask(1, 1, first_us + 5000, first_us + 20_000, 51, 1, 8, 80),
                PhyTask(2, 0, first_us, first_us + 40_000, 51, 2, 8, 0),
                PhyTask(3, 1, first_us + 50_000, first_us + 50_001, 51, 1, 8, 80),
            ]
            for task in tasks:
                executor.send(task)
            done = [executor.expect(PhyTaskDone) for _ in tasks]
            assert [report.task for report in done] == [1, 2, 3]
            for report, task in ((done[0], tasks[0]), (done[1], tasks[1])):
                assert report.woken_us >= task.start_us
                assert report.real_end_us > report.woken_us
                assert report.end_us == max(task.end_us, report.real_end_us)
            assert done[1].real_end_us < done[0].end_us, "the holds of 1 and 2 did not overlap"
            assert done[2].end_us == done[2].real_end_us > tasks[2].end_us
            # A held task is finished at the stop, one that has not begun is dropped.
            now_us = executor.now_us()
            executor.send(PhyTask(4, 0, now_us, now_us + 30_000, 51, 1, 1, 0))
            executor.send(PhyTask(5, 0, now_us + FAR_US, now_us + FAR_US, 51, 1, 1, 0))
            assert executor.stop() == 0
            assert {report.task for report in executor.of(PhyTaskDone)} <= {1, 2, 3, 4}

    def test_too_large_a_task_fails_by_name(self):
        with ExecutorProcess("phy") as executor:
            executor.configure(PhyConfig(n_prb=24))
            executor.start()
            executor.send(PhyTask(1, 1, 0, 10, 25, 1, 1, 10))
            assert executor.wait() == 1
            (failed,) = executor.of(ExecutorFailed)
            assert failed.error == "ProtocolError"
            assert "25 PRBs" in failed.reason
            assert "Traceback" in executor.log()


class TestTrainer:
    def test_steps_in_quanta_within_the_windows_and_learns_nothing_wrong(self):
        with started() as executor:
            facts = executor.facts
            assert facts["blocks"] == 2
            assert facts["text_bytes"] == 100_000
            assert 2.0 < facts["unigram_entropy_nats"] < 5.55
            windows = tuple(
                Window(at_us, at_us + 60_000, 40) for at_us in range(0, 60_000_000, 80_000)
            )[:64]
            executor.grant(Lease(9, windows))
            executor.send(ComputeStep(1, 0, (11, 12)))
            executor.expect(StepComputed)
            samples = executor.of(SampleComputed)
            assert [(s.sample, s.proxy_tokens) for s in samples] == [(11, 64), (12, 64)]
            # Untrained: about ln 256 nats.
            assert all(5.2e6 < s.loss_micronats < 5.9e6 for s in samples)
            asked_us = executor.now_us()
            executor.send(RunSync(1, 0, 0, 1, 70_000, 30_000, ""))
            synced = executor.expect(SyncEnded)
            assert (synced.ok, synced.proxy_tokens) == (True, 128)
            assert executor.now_us() - asked_us >= 60_000
            executor.send(ApplyStep(1, 0))
            assert executor.expect(Applied).digest != facts["parameters_digest"]
            quanta = executor.of(QuantumEnded)
            # Buckets of the ring arrive after 40, 50, 60 and 70 ms; each has its quantum then.
            for quantum, arrival_us in zip(quanta[-LAYERS:], (40, 50, 60, 70), strict=True):
                assert quantum.start_us >= asked_us + 1000 * arrival_us
            per_sample = list(micro_batch_quanta(LAYERS, 2))
            assert order(quanta) == 2 * per_sample + list(optimiser_quanta(LAYERS))
            assert order(executor.of(QuantumBegun)) == order(quanta)
            for quantum in quanta:
                assert (quantum.sms, quantum.lease_epoch) == (40, 9)
                assert any(
                    window.start_us <= quantum.start_us and quantum.modelled_end_us <= window.end_us
                    for window in windows
                )
            spans = [q.modelled_end_us - q.start_us for q in quanta[:2]]
            assert spans == [10_000 + SWITCH_US, 10_000]
            # Stopped while it waits for a lease: no quantum begins, and the end is clean.
            executor.grant(Lease(10, ()))
            executor.send(ComputeStep(1, 1, (13,)))
            assert executor.stop() == 0
            assert executor.of(QuantumBegun)[-1].lease_epoch == 9

    def test_lease_replaced_abandoned_and_injected_while_waiting(self):
        with started() as executor:
            executor.send(ComputeStep(1, 0, (1,)))  # no lease yet
            fault_us = executor.now_us() + 50_000
            executor.send(InjectQuantum(fault_us, 20_000, 60))
            fault = executor.expect(QuantumEnded)
            assert (fault.kind, fault.sms) == (QuantumKind.FAULT, 60)
            assert fault.start_us >= fault_us
            assert fault.end_us - fault.start_us == 20_000
            executor.send(LeaseChanged())  # and still none
            executor.send(AbandonStep(1, 0))
            executor.send(ComputeStep(2, 0, (2,)))
            executor.grant(ROUND_THE_CLOCK)
            executor.expect(StepComputed)
            assert [(s.epoch, s.sample) for s in executor.of(SampleComputed)] == [(2, 2)]
            # Abandoned in the middle of a micro-batch, through hooks and autograd.
            executor.send(ComputeStep(2, 1, tuple(range(100))))
            while executor.expect(QuantumBegun).kind != QuantumKind.BACKWARD:
                pass
            executor.send(AbandonStep(2, 1))
            executor.send(ComputeStep(2, 2, (7,)))
            executor.expect(StepComputed)
            executor.send(RunSync(2, 2, 0, 1, 0, 0, ""))
            assert executor.expect(SyncEnded).proxy_tokens == 64
            assert executor.hang_up() == 0
