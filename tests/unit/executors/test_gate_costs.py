"""The gate's reckoning: p99 by rank, bounded memory."""

from __future__ import annotations

from testbed.executors.gate_costs import GateCosts
from testbed.gpu.quanta import QuantumKind

from .fakes import COSTS

FORWARD = QuantumKind.FORWARD


def test_p99_is_the_second_largest_of_128_overruns():
    costs = GateCosts(COSTS, guard_us=5, switch_us=0)
    for overrun_us in range(128):
        costs.observe(FORWARD, 0, overrun_us)
    # ceil(0.99 * 128) = 127th of the ascending 0..127.
    assert costs.p99_us(FORWARD, 0) == {20: 200 + 5 + 126, 40: 100 + 5 + 126}


def test_old_overruns_are_forgotten():
    costs = GateCosts(COSTS, guard_us=0, switch_us=0)
    costs.observe(FORWARD, 0, 10_000)
    for _ in range(128):
        costs.observe(FORWARD, 0, 0)
    assert costs.p99_us(FORWARD, 0)[40] == 100


def test_forgetting_the_largest_is_per_kind_and_block():
    costs = GateCosts(COSTS, guard_us=0, switch_us=0)
    costs.observe(FORWARD, 0, 70)
    costs.observe(FORWARD, 1, 70)
    costs.forget_largest(FORWARD, 0)
    costs.forget_largest(FORWARD, 0)
    assert (costs.p99_us(FORWARD, 0)[40], costs.p99_us(FORWARD, 1)[40]) == (100, 170)


def test_switch_is_part_of_the_model():
    costs = GateCosts(COSTS, guard_us=0, switch_us=9)
    assert costs.modelled_us(FORWARD, 20) == 209
    costs.started(20)
    assert (costs.modelled_us(FORWARD, 20), costs.modelled_us(FORWARD, 40)) == (200, 109)
