"""Small pure parts of the host: liveness, latency, rows on their way to the recorder, faults."""

from __future__ import annotations

import numpy as np
import pytest

from nodes.api import Decide, Record
from testbed.host.faults import Injection, injections, kills
from testbed.host.latency import LatencyMeter
from testbed.host.liveness import Change, Liveness
from testbed.host.recording import ROWS_PER_BATCH, RowBuffer
from testbed.topology.schema import Topology

MISSING_S, LOST_S = 1.0, 8.0


@pytest.fixture
def liveness() -> Liveness:
    watched = Liveness(MISSING_S, LOST_S)
    watched.expect("mac", 100.0)
    return watched


def test_missing_comes_before_lost(liveness):
    assert liveness.check(101.0) == [], "not before the limit"
    (missing,) = liveness.check(101.1)
    assert (missing.node, missing.status) == ("mac", "missing")
    assert "host.missing_wall_ms" in missing.reason
    assert liveness.check(107.9) == [], "said once"
    (lost,) = liveness.check(108.1)
    assert (lost.node, lost.status) == ("mac", "lost")
    assert "host.dead_wall_ms" in lost.reason
    assert liveness.check(200.0) == [], "for good"


def test_heartbeat_heals_what_was_missing(liveness):
    liveness.check(101.5)
    assert liveness.beat("mac", 7, 102.0) == [
        Change("mac", "back", "after 2.0 s without a heartbeat")
    ]
    assert liveness.check(102.9) == []
    assert liveness.beat("mac", 8, 102.95) == [], "it was not missing"


def test_lost_node_tells_how_far_it_had_come(liveness):
    liveness.beat("mac", 4711, 100.5)
    (lost,) = liveness.check(109.0)
    assert lost.status == "lost", "a long pause of the launcher itself skips 'missing'"
    assert "its last progress was step 4711" in lost.reason


def test_lost_stays_lost_and_strangers_are_let_be(liveness):
    liveness.check(110.0)
    assert liveness.beat("mac", 1, 110.1) == []
    assert liveness.beat("stranger", 1, 110.1) == []


def test_node_that_ended_is_not_awaited(liveness):
    liveness.forget("mac")
    liveness.forget("mac")
    assert liveness.check(500.0) == []


def test_nodes_are_watched_apart(liveness):
    liveness.expect("phy", 100.9)
    assert [change.node for change in liveness.check(101.5)] == ["mac"]
    assert [change.node for change in liveness.check(102.0)] == ["phy"]


def test_next_life_is_watched_anew(liveness):
    liveness.check(110.0)
    liveness.expect("mac", 120.0)
    assert liveness.check(121.0) == []
    assert [change.status for change in liveness.check(121.1)] == ["missing"]


# --- latency ------------------------------------------------------------------------------------


def test_percentiles_of_one_to_a_hundred():
    meter = LatencyMeter()
    for sequence in range(100):
        assert meter.received("mac", sequence + 1, sequence) == 0
    assert meter.summary(1.0) == {"mac": [51, 100, 100]}
    assert meter.summary(20.0) == {"mac": [1020, 2000, 100]}


def test_gap_in_the_sequence_tells_how_many_are_missing():
    meter = LatencyMeter()
    assert [meter.received("mac", 1, sequence) for sequence in (0, 1, 4, 5)] == [0, 0, 2, 0]
    assert meter.received("agent", 1, 3) == 3, "of another source, from its beginning"
    assert meter.received("mac", 1, 2) == 0, "an old one is not a gap"


def test_message_before_the_clock_counts_in_the_sequence_alone():
    meter = LatencyMeter()
    meter.passed("mac", 0)
    assert meter.summary(1.0) == {}
    assert meter.received("mac", 5, 1) == 0
    assert meter.summary(1.0) == {"mac": [5, 5, 1]}


def test_new_life_counts_from_zero_and_latencies_are_kept():
    meter = LatencyMeter()
    meter.received("mac", 4, 0)
    meter.received("mac", 4, 1)
    meter.restart("mac")
    assert [meter.received("mac", 6, sequence) for sequence in (0, 2)] == [0, 1]
    assert meter.summary(1.0) == {"mac": [6, 6, 4]}


def test_clocks_that_disagree_give_no_negative_latency():
    meter = LatencyMeter()
    meter.received("mac", -7, 0)
    assert meter.summary(1.0) == {"mac": [0, 0, 1]}


def test_sample_is_bounded_and_stays_even():
    """100 000 messages whose latency rises: the kept sample's median is the middle, within 1 %."""
    meter = LatencyMeter()
    count = 100_000
    for sequence in range(count):
        meter.received("mac", sequence, sequence)
    p50, p99, seen = meter.summary(1.0)["mac"]
    assert seen == count
    assert p50 == pytest.approx(count / 2, rel=0.01)
    assert p99 == pytest.approx(count * 0.99, rel=0.01)
    assert len(meter._ways["mac"].sample_us) <= 4096


# --- rows ---------------------------------------------------------------------------------------

ROW = (1, 2, 3, 4)


def test_batch_comes_out_when_a_table_is_full():
    buffer = RowBuffer("north.pretrain.trainer")
    assert all(buffer.add(Record("trainer_events", ROW)) is None for _ in range(ROWS_PER_BATCH - 1))
    batch = buffer.add(Record("trainer_events", (9, 8, 7, 6)))
    assert (batch.node, batch.table) == ("north.pretrain.trainer", "trainer_events")
    assert list(batch.columns) == ["epoch", "step", "event", "at_us"]
    assert all(len(column) == ROWS_PER_BATCH for column in batch.columns.values())
    assert [int(column[-1]) for column in batch.columns.values()] == [9, 8, 7, 6]
    assert {column.dtype for column in batch.columns.values()} == {np.dtype("<i8")}
    assert buffer.flush() == []


def test_flush_gives_what_is_left_of_every_table_once():
    buffer = RowBuffer("n")
    buffer.add(Record("trainer_events", ROW))
    buffer.add(Record("samples", (1, 2, 3, 4, 5, 6, 7)))
    assert [(batch.table, len(batch.columns["step"])) for batch in buffer.flush()] == [
        ("trainer_events", 1),
        ("samples", 1),
    ]
    assert buffer.flush() == []


def test_long_decisions_are_cut_to_what_a_message_holds():
    decision = RowBuffer("n").decision(5, Decide("s" * 100, "r" * 3000))
    assert (decision.at_us, len(decision.subject), len(decision.reason)) == (5, 80, 2000)


# --- faults -------------------------------------------------------------------------------------


def test_faults_go_to_the_node_that_performs_them():
    topology = Topology.model_validate(
        {
            "name": "faults",
            "sites": {"north": {"gpu": "gb10"}, "south": {"gpu": "gb10"}},
            "jobs": {
                "one": {"kind": "pretraining", "sites": ["south"], "model": "opt-125m"},
                "two": {"kind": "pretraining", "sites": ["north", "south"], "model": "opt-125m"},
            },
            "faults": [
                {"kind": "kill", "node": "north.agent", "at_us": 900},
                {"kind": "kill", "node": "south.agent", "at_us": 800},
                {
                    "kind": "late_quantum",
                    "site": "north",
                    "at_us": 500,
                    "duration_us": 2000,
                    "sms": 48,
                },
            ],
        }
    )
    assert kills(topology) == [(800, "south.agent"), (900, "north.agent")]
    assert injections(topology) == [Injection("north.two.trainer", "late_quantum", 500, (2000, 48))]
