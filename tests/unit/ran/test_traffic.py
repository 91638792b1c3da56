import numpy as np
import pytest

from testbed.ran.numerology import Direction
from testbed.ran.traces import Trace, TraceArrival
from testbed.ran.traffic import (
    Arrival,
    Ftp3,
    Ftp3Source,
    FullBuffer,
    NoTraffic,
    Replay,
    ReplaySource,
    arrival_source,
)

SLOT_US = 500


def ftp3(rate=5.0, n_ues=8, seed=1, cell=0, direction=Direction.UL):
    return Ftp3Source(Ftp3(rate, 100_000), seed, cell, direction, n_ues, SLOT_US)


def test_ftp3_mean_rate_and_spread_are_poisson():
    source = ftp3()
    seconds = 500
    counts = np.zeros((seconds, 8))
    for slot in range(seconds * 2000):
        for arrival in source.arrivals(slot):
            counts[slot // 2000, arrival.ue] += 1
            assert arrival.n_bytes == 100_000
    # 5 files/s for 8 UEs and 500 s: 20,000 +- 141.
    assert counts.sum() == pytest.approx(20_000, abs=4 * np.sqrt(20_000))
    for per_ue in counts.sum(axis=0):
        assert per_ue == pytest.approx(2500, abs=4 * np.sqrt(2500))
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.1)


def test_arrivals_fall_between_the_slot_starts_in_order():
    source = ftp3(rate=200.0)
    last_us = 0
    for slot in range(3000):
        for arrival in source.arrivals(slot):
            assert (slot - 1) * SLOT_US < arrival.arrival_us <= slot * SLOT_US
            assert arrival.arrival_us >= last_us
            last_us = arrival.arrival_us
    assert last_us > 0


def test_arrivals_are_a_pure_function_of_the_key():
    forward, backward = ftp3(rate=100.0), ftp3(rate=100.0)
    ahead = [list(forward.arrivals(slot)) for slot in range(1000)]
    back = [list(backward.arrivals(slot)) for slot in reversed(range(1000))]
    assert ahead == back[::-1]
    for other in (
        ftp3(rate=100.0, seed=2),
        ftp3(rate=100.0, cell=1),
        ftp3(rate=100.0, direction=Direction.DL),
    ):
        assert [list(other.arrivals(slot)) for slot in range(1000)] != ahead


def trace(*events):
    return Trace(tuple(TraceArrival(t, rnti, d, n) for t, rnti, d, n in events))


UL, DL = Direction.UL, Direction.DL
SAMPLE = trace(
    (0, 17, UL, 10), (500, 17, DL, 999), (501, 18, UL, 20), (1200, 17, UL, 30), (4000, 18, UL, 40)
)


def replayed(spec, slots, n_ues=2, direction=UL):
    source = ReplaySource(spec, direction, n_ues, SLOT_US)
    return {slot: list(found) for slot in range(slots) if (found := source.arrivals(slot))}


def test_replay_hands_over_at_the_next_slot_start_and_keeps_the_time():
    # RNTI 17 has 1039 bytes in both directions together, 18 has 60: UE 0 and UE 1.
    assert replayed(Replay(SAMPLE), 20) == {
        0: [Arrival(0, 10, 0)],
        2: [Arrival(1, 20, 501)],
        3: [Arrival(0, 30, 1200)],
        8: [Arrival(1, 40, 4000)],
    }
    assert replayed(Replay(SAMPLE), 20, direction=DL) == {1: [Arrival(0, 999, 500)]}


def test_replay_options_by_hand():
    # From 0.5 ms on, twice as fast, half the bytes: (1 - 0) / 2 -> 0, 700 / 2, 3500 / 2.
    spec = Replay(SAMPLE, start_s=0.0005, bytes_scale=0.5, time_compress=2.0)
    assert replayed(spec, 20) == {
        0: [Arrival(1, 10, 0)],
        1: [Arrival(0, 15, 350)],
        4: [Arrival(1, 20, 1750)],
    }


def test_replay_loops():
    spec = Replay(SAMPLE, length_s=0.001, loop=True)  # 10 bytes at 0 and 20 at 501, every 1000 us
    assert replayed(spec, 7) == {
        0: [Arrival(0, 10, 0)],
        2: [Arrival(1, 20, 501), Arrival(0, 10, 1000)],
        4: [Arrival(1, 20, 1501), Arrival(0, 10, 2000)],
        6: [Arrival(1, 20, 2501), Arrival(0, 10, 3000)],
    }


def test_replay_without_a_loop_ends():
    assert replayed(Replay(SAMPLE, length_s=0.001), 100).keys() == {0, 2}


def test_more_rntis_than_ues_share_them():
    assert {a.ue for found in replayed(Replay(SAMPLE), 20, n_ues=1).values() for a in found} == {0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("start_s", -1.0),
        ("start_s", 0.005),
        ("length_s", 0.0),
        ("bytes_scale", 0.0),
        ("time_compress", -2.0),
        ("time_compress", float("nan")),
    ],
)
def test_bad_replay_options_are_refused(key, value):
    with pytest.raises(ValueError, match=f"{key} = "):
        Replay(SAMPLE, **{key: value})


def test_bad_rates_are_refused():
    with pytest.raises(ValueError, match="files_per_s_per_ue = -1"):
        Ftp3(-1.0)
    with pytest.raises(ValueError, match="file_bytes = 0"):
        Ftp3(1.0, 0)
    with pytest.raises(ValueError, match="backlog_bytes = 0"):
        FullBuffer(0)


@pytest.mark.parametrize("spec", [NoTraffic(), FullBuffer()])
def test_silent_sources(spec):
    source = arrival_source(spec, seed=1, cell=0, direction=UL, n_ues=2, slot_us=SLOT_US)
    assert not any(source.arrivals(slot) for slot in range(100))
