"""Sources: arrivals by slot, as arrays, and from traces."""

import numpy as np
import pytest

from testbed.ran.numerology import Direction
from testbed.ran.traces import Trace, TraceArrival
from testbed.ran.traffic import (
    Arrival,
    Diurnal,
    Fgn,
    Ftp3,
    FullBuffer,
    Imix,
    Mixed,
    NoTraffic,
    Part,
    Periodic,
    Replay,
    Xr,
    arrival_source,
    arrivals_array,
)

from .traffic_helpers import SLOT_US, SLOTS_PER_S, drawn, rows

UL, DL = Direction.UL, Direction.DL


def source(spec, **changes):
    key = {"seed": 1, "cell": 0, "direction": UL, "n_ues": 8, "slot_us": SLOT_US} | changes
    return arrival_source(spec, **key)


def test_ftp3_mean_rate_and_spread_are_poisson():
    seconds = 100
    files = drawn(Ftp3(25.0, 100_000), seconds * SLOTS_PER_S, n_ues=8)
    assert set(files.n_bytes.tolist()) == {100_000}
    counts = np.zeros((seconds, 8))
    np.add.at(counts, (files.slot // SLOTS_PER_S, files.ue), 1)
    # 25 files/s for 8 UEs and 100 s: 20,000 +- 141; dispersion of 800 counts: 1 +- sqrt(2/800).
    assert counts.sum() == pytest.approx(20_000, abs=4 * np.sqrt(20_000))
    for per_ue in counts.sum(axis=0):
        assert per_ue == pytest.approx(2500, abs=4 * np.sqrt(2500))
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.2)


def trace(*events):
    return Trace(tuple(TraceArrival(t, rnti, d, n) for t, rnti, d, n in events))


SAMPLE = trace(
    (0, 17, UL, 10), (500, 17, DL, 999), (501, 18, UL, 20), (1200, 17, UL, 30), (4000, 18, UL, 40)
)

MODULATED = Ftp3(200.0, 1000, fgn=Fgn(step_us=700), diurnal=Diurnal(0.3, 0.2, peak_to_trough=3))
EVERY_KIND = [
    Ftp3(200.0, 1000),
    MODULATED,
    Imix(300.0, fgn=Fgn()),
    Periodic(100, 900, 3_333),
    Xr(8.0),
    Xr(8.0, fps=90, jitter=False),
    Replay(SAMPLE, loop=True),
    Mixed((Part(0, 2, MODULATED), Part(2, 1, Xr(2.0)), Part(3, 5, Replay(SAMPLE, loop=True)))),
]


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_arrivals_fall_between_the_slot_starts_in_order(spec):
    last_us = 0
    slots = source(spec)
    for slot in range(1500):
        for arrival in slots.arrivals(slot):
            assert max(0, (slot - 1) * SLOT_US + 1) <= arrival.arrival_us <= slot * SLOT_US
            assert arrival.arrival_us >= last_us
            assert 0 <= arrival.ue < 8
            assert arrival.n_bytes >= 1
            last_us = arrival.arrival_us
    assert last_us > 1400 * SLOT_US


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_arrays_hold_what_the_slots_give_whatever_their_first_slot(spec):
    slots = source(spec)
    one_by_one = [
        (slot, a.ue, a.n_bytes, a.arrival_us) for slot in range(1000) for a in slots.arrivals(slot)
    ]
    assert rows(drawn(spec, 1000, n_ues=8)) == one_by_one
    assert rows(drawn(spec, 300, n_ues=8, first_slot=200)) == [
        row for row in one_by_one if 200 <= row[0] < 500
    ]
    assert rows(drawn(spec, 0, n_ues=8)) == []


@pytest.mark.parametrize("spec", [spec for spec in EVERY_KIND if not isinstance(spec, Replay)])
def test_arrivals_are_a_pure_function_of_the_key(spec):
    forward, backward = source(spec), source(spec)
    ahead = [list(forward.arrivals(slot)) for slot in range(1000)]
    back = [list(backward.arrivals(slot)) for slot in reversed(range(1000))]
    assert ahead == back[::-1]
    for other in ({"seed": 2}, {"cell": 1}, {"direction": DL}):
        assert rows(drawn(spec, 1000, **other)) != rows(drawn(spec, 1000))


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_a_longer_run_begins_with_the_shorter_one(spec):
    short, long = rows(drawn(spec, 700, n_ues=8)), rows(drawn(spec, 2000, n_ues=8))
    assert long[: len(short)] == short


def replayed(spec, slots, n_ues=2, direction=UL):
    slots_of = source(spec, direction=direction, n_ues=n_ues)
    return {slot: list(found) for slot in range(slots) if (found := slots_of.arrivals(slot))}


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
    with pytest.raises(ValueError, match="packets_per_s_per_ue = 1000000"):
        Imix(1e6)


@pytest.mark.parametrize("spec", [NoTraffic(), FullBuffer(), Mixed(())])
def test_silent_sources(spec):
    slots = source(spec)
    assert not any(slots.arrivals(slot) for slot in range(600))
    assert len(drawn(spec, 600).slot) == 0


def test_arrays_are_integers_of_64_bits():
    key = {"seed": 1, "cell": 0, "direction": UL, "n_ues": 4, "slot_us": SLOT_US}
    for spec in (*EVERY_KIND, NoTraffic()):
        arrays = arrivals_array(spec, **(key | {"n_ues": 8}), n_slots=100)
        assert {column.dtype for column in arrays} == {np.dtype(np.int64)}
