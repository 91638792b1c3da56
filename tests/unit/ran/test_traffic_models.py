"""Each traffic model against its definition: means, deviations, bounds, spacing."""

from statistics import NormalDist

import numpy as np
import pytest

from testbed.ran.traces import Trace
from testbed.ran.traffic import Ftp3, FullBuffer, Imix, Mixed, NoTraffic, Part, Periodic, Replay, Xr
from testbed.ran.traffic.specs import COMMAG, mean_bytes_per_s

from .traffic_helpers import SLOTS_PER_S, drawn


def test_xr_frames_are_sized_and_timed_as_tr_38_838_says():
    """30 Mb/s at 60 fps: 62,500 bytes, deviation 10.5 %, within 50 to 150 %."""
    seconds = 40
    frames = drawn(Xr(30.0), seconds * SLOTS_PER_S, n_ues=2)
    n = len(frames.slot)
    assert n == pytest.approx(2 * 60 * seconds, abs=4)
    assert frames.n_bytes.mean() == pytest.approx(62_500, abs=4 * 6562.5 / np.sqrt(n))
    assert frames.n_bytes.std() == pytest.approx(6562.5, rel=4 / np.sqrt(2 * n))
    assert frames.n_bytes.min() >= 31_250
    assert frames.n_bytes.max() <= 93_750


def test_xr_jitter_is_a_truncated_gaussian():
    """Deviation 2 ms cut at 4 ms: by the formula of the truncated normal, 1.759 ms."""
    late = drawn(Xr(1.0), 50 * SLOTS_PER_S, n_ues=1).arrival_us
    phase_us = int(drawn(Xr(1.0, jitter=False), 60, n_ues=1).arrival_us[0])
    frame = np.rint((late - phase_us) * 60 / 1e6).astype(int)
    n = len(late)
    assert (np.diff(frame) == 1).all()
    jitter_us = late - (phase_us + frame * 1_000_000 // 60)
    phi = NormalDist()
    truncated = 1 - 4 * phi.pdf(2) / (phi.cdf(2) - phi.cdf(-2))
    expected_us = 2000 * np.sqrt(truncated)
    assert expected_us == pytest.approx(1759, abs=1)
    assert np.abs(jitter_us).max() <= 4000
    assert jitter_us.mean() == pytest.approx(0, abs=4 * expected_us / np.sqrt(n))
    assert jitter_us.std() == pytest.approx(expected_us, rel=4 / np.sqrt(2 * n))


def test_xr_frames_without_jitter_are_even_for_ever():
    """Frame k is at phase + floor(k 1e6 / 60): no drift, although 1/60 s is no whole number."""
    frames = drawn(Xr(1.0, jitter=False), 40 * SLOTS_PER_S, n_ues=1)
    k = np.arange(len(frames.slot))
    phase_us = int(frames.arrival_us[0])
    assert 0 <= phase_us < 16_667
    assert (frames.arrival_us == phase_us + k * 1_000_000 // 60).all()


def test_periodic_packets_keep_their_period_and_sizes():
    packets = drawn(Periodic(250, 1500, 10_000), 50 * SLOTS_PER_S, n_ues=3)
    phases = set()
    for ue in range(3):
        mine = packets.arrival_us[packets.ue == ue]
        assert len(mine) == 5000
        assert set(np.diff(mine).tolist()) == {10_000}
        phases.add(int(mine[0]))
    assert len(phases) == 3
    assert max(phases) < 10_000
    n = len(packets.slot)
    assert {packets.n_bytes.min(), packets.n_bytes.max()} == {250, 1500}
    # Uniform over 1,251 values: mean 875, variance (1251^2 - 1) / 12.
    deviation = np.sqrt((1251**2 - 1) / 12)
    assert packets.n_bytes.mean() == pytest.approx(875, abs=4 * deviation / np.sqrt(n))
    assert packets.n_bytes.std() == pytest.approx(deviation, rel=0.02)


def test_imix_is_seven_to_four_to_one():
    """Mean (7 x 40 + 4 x 576 + 1500) / 12 = 340.33 bytes."""
    packets = drawn(Imix(3000.0), 10 * SLOTS_PER_S)
    n = len(packets.slot)
    assert n == pytest.approx(120_000, abs=4 * np.sqrt(120_000))
    sizes, counts = np.unique(packets.n_bytes, return_counts=True)
    assert sizes.tolist() == [40, 576, 1500]
    assert counts / n == pytest.approx([7 / 12, 4 / 12, 1 / 12], abs=4 * 0.5 / np.sqrt(n))
    assert mean_bytes_per_s(Imix(3000.0), 4) == pytest.approx(12_000 * 4084 / 12)


@pytest.mark.parametrize(
    ("service", "bits_per_s", "packets_per_s"),
    [("embb-1", 1e6, None), ("embb-4", 4e6, None), ("mtc", 30_000, 30), ("urllc", 10_000, 10)],
)
def test_commag_services(service, bits_per_s, packets_per_s):
    """eMBB 1 or 4 Mb/s constant; MTC 30 and URLLC 10 Poisson packets of 125 bytes per second."""
    assert mean_bytes_per_s(COMMAG[service], 1) == pytest.approx(bits_per_s / 8)
    packets = drawn(COMMAG[service], 30 * SLOTS_PER_S)
    if packets_per_s is None:
        assert packets.n_bytes.sum() * 8 / 120 == pytest.approx(bits_per_s, rel=1e-3)
        return
    expected = 120 * packets_per_s
    assert set(packets.n_bytes.tolist()) == {125}
    assert len(packets.slot) == pytest.approx(expected, abs=4 * np.sqrt(expected))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (NoTraffic(), 0),
        (Ftp3(5.0, 100), 2 * 500),
        (Periodic(100, 300, 10_000), 2 * 200 * 100),
        (Xr(8.0), 2 * 1e6),
        (Mixed((Part(0, 1, Ftp3(5.0, 100)), Part(1, 3, Xr(8.0)))), 500 + 3e6),
        (FullBuffer(), None),
        (Replay(Trace(())), None),
        (Mixed((Part(0, 1, Replay(Trace(()))),)), None),
    ],
)
def test_mean_rates_by_hand(spec, expected):
    assert mean_bytes_per_s(spec, 2) == (None if expected is None else pytest.approx(expected))


FILES, PACKETS, FRAMES = Ftp3(300.0, 1000), Periodic(100, 900, 5000), Xr(4.0)


def of_ues(arrivals, ues):
    kept = np.isin(arrivals.ue, ues)
    return [column[kept].tolist() for column in arrivals]


def test_classes_are_drawn_apart():
    """Another class at the end, or a change in one, moves no arrival of the others."""
    two = drawn(Mixed((Part(0, 3, FILES), Part(3, 2, PACKETS))), 2000)
    three = drawn(Mixed((Part(0, 3, FILES), Part(3, 2, PACKETS), Part(5, 4, FRAMES))), 2000)
    assert of_ues(two, range(5)) == of_ues(three, range(5))
    assert set(three.ue.tolist()) == set(range(9))
    busier = drawn(Mixed((Part(0, 3, Ftp3(900.0, 1000)), Part(3, 2, PACKETS))), 2000)
    assert of_ues(busier, [3, 4]) == of_ues(two, [3, 4])
    assert of_ues(busier, range(3)) != of_ues(two, range(3))


def test_classes_of_the_same_traffic_are_independent():
    """Two classes of 1,000 files/s: counts per slot are uncorrelated, 0 +- 1/sqrt(20,000)."""
    spec = Mixed((Part(0, 4, Ftp3(250.0, 1)), Part(4, 4, Ftp3(250.0, 1))))
    arrivals = drawn(spec, 20_000)
    counts = [np.bincount(arrivals.slot[arrivals.ue // 4 == c], minlength=20_000) for c in (0, 1)]
    assert np.corrcoef(*counts)[0, 1] == pytest.approx(0, abs=4 / np.sqrt(20_000))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Periodic(0, 10, 1000), "bytes_min = 0"),
        (lambda: Periodic(10, 9, 1000), "bytes_max = 9: allowed is bytes_min"),
        (lambda: Periodic(10, 10, 99), "period_us = 99"),
        (lambda: Xr(0.0), "rate_mbps = 0.0"),
        (lambda: Xr(1.0, fps=0), "fps = 0: allowed is 1 to 240"),
        (lambda: Part(-1, 1, NoTraffic()), "no such UEs"),
        (lambda: Part(0, 0, NoTraffic()), "no such UEs"),
        (lambda: Part(0, 1, FullBuffer()), "for a whole cell"),
    ],
)
def test_values_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
