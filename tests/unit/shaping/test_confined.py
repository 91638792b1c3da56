"""The controller's cost model beside a static partition of training.

GB10: 60 us, then 22 us per code block on 8 SMs per 10 of them, in steps of 8, 48 in all.
"""

from __future__ import annotations

import numpy as np
import pytest

from testbed.gpu.cost import UPLINK, phy_demand
from testbed.gpu.partitions import confined_gpu
from testbed.gpu.timeline import RanTimeline, TaskKey, TaskRequest
from testbed.shaping.packing import gpu_numbers, latest_end_us
from testbed.topology.profiles import gpu_profile

from .loop import new_packing

GB10 = gpu_profile("gb10")


@pytest.mark.parametrize(
    ("training_sms", "blocks", "ends_us"),
    [
        # 20 blocks saturate 16 SMs; on 8 they take 60 + 22 * 20 * 2.
        (40, [20], 940),
        # 50 saturate 40 SMs; on 16 they take 60 + 22 * 50 * 2.5.
        (32, [50], 2810),
        (0, [50], 1160),
    ],
)
def test_what_saturates_a_decode_does_not_shrink_with_the_ran(training_sms, blocks, ends_us):
    numbers, packing = gpu_numbers(GB10, 0, training_sms), new_packing()
    counts = np.array(blocks, np.int64)
    level = GB10.sms - training_sms
    work = 1000 * counts
    assert latest_end_us(numbers, level, True, len(blocks), counts, work, packing) == ends_us
    timeline = RanTimeline(confined_gpu(GB10, training_sms))
    requests = [
        TaskRequest(TaskKey(c, 0, UPLINK), 0, 1500, phy_demand(GB10, UPLINK, n, 1000 * n))
        for c, n in enumerate(blocks)
    ]
    assert max(placed.end_us for placed in timeline.reserve(requests)) == ends_us
