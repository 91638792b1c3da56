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
    found = Findings(True, 2, 0.0, True, 0, (10, 50, late_us), 0.0, (100, 200), 150, 0.0, 1000)
    assert found.facts.slot_wall_ms == pytest.approx(slot_ms)
    assert found.facts.message_overhead_wall_us == 100
    assert found.facts.quantum_overhead_wall_us == 150
