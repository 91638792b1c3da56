"""Lease policies: how the spare SMs of a window are divided among the jobs that want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from testbed.gpu.profile import GpuProfile


class LeasePolicy(Protocol):
    """Asked for every spare window of a grant; must not give more than ``sms`` in all."""

    def divide(self, sms: int, jobs: Sequence[str], gpu: GpuProfile) -> Mapping[str, int]:
        """SMs per job, multiples of the partition step; jobs left out get none."""
        ...


class WholeSpare:
    """All of it, in equal parts by partition step; what is left over goes to the first jobs.

    Works badly with many jobs: parts below the SM count on which a block fits the notice are
    useless to all of them.
    """

    def divide(self, sms: int, jobs: Sequence[str], gpu: GpuProfile) -> Mapping[str, int]:
        """Equal parts in partition steps."""
        steps, extra = divmod(sms // gpu.sm_step, len(jobs))
        return {
            job: gpu.round_down((steps + (index < extra)) * gpu.sm_step)
            for index, job in enumerate(jobs)
        }
