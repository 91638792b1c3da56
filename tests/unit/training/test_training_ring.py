"""Ring allreduce time, and the split of a step, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.training.assignment import Equal
from testbed.training.ring import (
    bucket_arrivals_us,
    ring_allreduce_us,
    ring_latency_us,
    transfer_us,
)

OPT_125M_BYTES = 125_239_296 * 2


@pytest.mark.parametrize(
    ("members", "payload_bytes", "gbps", "latency_us", "expected"),
    [
        # Nobody to talk to.
        (1, OPT_125M_BYTES, 100.0, 500, 0),
        # 2 messages of 500 us; 2 * 1/2 of 250 478 592 bytes = 2 003 828 736 bits / 100e3 per us.
        (2, OPT_125M_BYTES, 100.0, 500, 1000 + 20_039),
        # 6 messages; 2 * 3/4 of the bytes: 3 005 743 104 bits / 100e3 = 30 057.4.
        (4, OPT_125M_BYTES, 100.0, 500, 3000 + 30_058),
        # No bytes: latency alone. No latency: bytes alone, 1 MB = 8e6 bits at 10 Gb/s = 800 us.
        (3, 0, 10.0, 50, 200),
        (2, 1_000_000, 10.0, 0, 800),
    ],
)
def test_ring_by_hand(members, payload_bytes, gbps, latency_us, expected):
    """t = 2 (n - 1) latency + 2 (n - 1) / n * bytes / bandwidth (Patarasuk and Yuan, 2009)."""
    assert ring_allreduce_us(members, payload_bytes, gbps, latency_us) == expected


@pytest.mark.parametrize(("members", "expected"), [(1, 0), (2, 1000), (5, 4000)])
def test_latency_alone(members, expected):
    assert ring_latency_us(members, 500) == expected


def test_buckets_arrive_in_equal_parts_behind_the_latency():
    """1000 us of latency, 2000 us of transfer, four buckets: one every 500 us."""
    assert bucket_arrivals_us(4, 3000, 1000) == (1500, 2000, 2500, 3000)


def test_one_member_has_its_buckets_at_once():
    assert bucket_arrivals_us(3, 0, 0) == (0, 0, 0)


@given(st.integers(1, 64), st.integers(0, 10**7), st.integers(0, 10**6))
def test_last_bucket_arrives_with_the_ring(buckets, transfer_us, latency_us):
    arrivals = bucket_arrivals_us(buckets, latency_us + transfer_us, latency_us)
    assert arrivals[-1] == latency_us + transfer_us
    assert list(arrivals) == sorted(arrivals)
    assert min(arrivals) >= latency_us


@pytest.mark.parametrize(
    ("payload_bytes", "gbps", "latency_us", "expected"),
    [(0, 10.0, 50, 50), (1_000_000, 10.0, 50, 850), (1, 100.0, 0, 1)],
)
def test_one_transfer_by_hand(payload_bytes, gbps, latency_us, expected):
    """1 MB = 8e6 bits at 10 Gb/s = 800 us behind the latency; a byte takes a whole microsecond."""
    assert transfer_us(payload_bytes, gbps, latency_us) == expected


@pytest.mark.parametrize(
    ("total", "expected"), [(8, [4, 4]), (9, [5, 4]), (1, [1, 0]), (0, [0, 0])]
)
def test_equal_split_of_two(total, expected):
    assert list(Equal().split(total, ["north", "south"]).values()) == expected


@given(st.integers(0, 5000), st.integers(1, 64))
def test_equal_parts_differ_by_at_most_one(total, count):
    members = [f"m{i}" for i in range(count)]
    parts = Equal().split(total, members)
    assert list(parts) == members
    assert sum(parts.values()) == total
    assert max(parts.values()) - min(parts.values()) <= 1
