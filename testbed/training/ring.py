"""How long transfers between sites take, by the links' latency and bandwidth."""

from __future__ import annotations

import math


def ring_latency_us(members: int, latency_us: int) -> int:
    """What the ring's 2 (n-1) messages take without any bytes; 0 for one member."""
    return 2 * (members - 1) * latency_us


def ring_allreduce_us(
    members: int, payload_bytes: int, bandwidth_gbps: float, latency_us: int
) -> int:
    """Time of a ring allreduce (reduce-scatter and all-gather), bound by the slowest link.

    Each member sends 2 (n-1)/n of the payload in 2 (n-1) messages (Patarasuk and Yuan, 2009):
    t = 2 (n-1) latency + 2 (n-1)/n * bytes / bandwidth. One member needs no time.
    """
    if members <= 1:
        return 0
    transfer_us = 2 * (members - 1) / members * payload_bytes * 8 / (bandwidth_gbps * 1e3)
    return ring_latency_us(members, latency_us) + math.ceil(transfer_us)


def transfer_us(payload_bytes: int, bandwidth_gbps: float, latency_us: int) -> int:
    """Time until the last byte has come over one link: latency + bytes / bandwidth."""
    return latency_us + math.ceil(payload_bytes * 8 / (bandwidth_gbps * 1e3))


def bucket_arrivals_us(buckets: int, ring_us: int, latency_us: int) -> tuple[int, ...]:
    """When each of equal buckets has been summed, from the start of a ring that pipelines them:
    the latency, and the bucket's share of the transfer."""
    transfer_us = max(0, ring_us - latency_us)
    return tuple(latency_us + transfer_us * (i + 1) // buckets for i in range(buckets))
