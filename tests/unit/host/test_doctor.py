"""doctor: what it measures is plausible, and what it advises follows from it."""

from __future__ import annotations

import pytest

from testbed.host.doctor import Findings
from testbed.host.gate_probe import gate_overhead_us


def test_the_gate_costs_less_than_a_block() -> None:
    """Blocks are of milliseconds on the wall at the usual scales."""
    assert 0 <= gate_overhead_us(0.05) < 20_000


@pytest.mark.parametrize(
    ("late_us", "slot_ms"),
    [
        (100, 3.0),  # 0.1 ms late is within a tenth of 3 ms, which a slot's work needs anyway
        (1000, 10.0),  # 1 ms late is a tenth of 10 ms
        (20_050, 200.5),
    ],
)
def test_the_shortest_slot_follows_from_the_lateness(late_us: int, slot_ms: float) -> None:
    found = findings(late_us, 1000)
    assert found.facts.slot_wall_ms == pytest.approx(slot_ms)
    assert found.facts.message_overhead_wall_us == 100
    assert found.facts.quantum_overhead_wall_us == 150


@pytest.mark.parametrize(
    ("late_us", "slowdown_permille", "slot_ms"),
    [
        (100, 1000, 3.0),
        (100, 12_000, 36.0),  # 3 ms of work take 36 ms at a twelfth of the speed
        (5000, 12_000, 50.0),  # the wake-ups alone need more
    ],
)
def test_a_steady_slot_holds_its_work_while_the_core_is_slow(
    late_us: int, slowdown_permille: int, slot_ms: float
) -> None:
    assert findings(late_us, slowdown_permille).facts.steady_slot_wall_ms == pytest.approx(slot_ms)


def findings(late_us: int, slowdown_permille: int) -> Findings:
    return Findings(
        linux=True,
        cpus=2,
        load=0.0,
        fifo=True,
        memlock_bytes=0,
        lateness_us=(10, 50, late_us),
        late_share=0.0,
        message_us=(100, 200),
        quantum_overhead_us=150,
        slow_share=0.0,
        slowdown_permille=(slowdown_permille, 30_000),
    )
