"""The bench runs the executor's kernels and counts its rounds; no figure is asserted."""

from __future__ import annotations

import pytest
import torch

from protocols.work import PhyTask
from testbed.executors.config import PhyConfig
from testbed.executors.phy_bench import PhyBench

TASKS = [PhyTask(0, direction, 0, 0, 4, 1, 1, 10) for direction in (0, 1)]


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def bench(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    return PhyBench(PhyConfig(device=request.param, n_prb=4, layers=1, code_blocks=1))


def test_every_task_is_timed_in_every_round(bench):
    times = bench.measure_us(TASKS, 0.0, 3)
    assert [len(taken) for taken in times] == [3, 3]
    assert all(time > 0 for taken in times for time in taken)


def test_the_device_says_what_it_is(bench, monkeypatch):
    monkeypatch.setattr("testbed.executors.phy_bench._MATRIX", 64)
    monkeypatch.setattr("testbed.executors.phy_bench._COPY_BYTES", 1 << 16)
    facts = bench.facts()
    assert facts.name
    assert facts.units >= 1
    assert min(facts.memory_gib, facts.matrix_tflops, facts.copy_gb_per_s) > 0
