"""Numbers that ``check`` derives from a topology: scale, notice, block times, bytes.

Pure arithmetic on a valid topology and its profiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.gpu.partitions import mechanism
from testbed.gpu.profile import GpuProfile, ModelProfile
from testbed.gpu.quanta import QuantumCosts, QuantumKind, quantum_costs
from testbed.ran.numerology import slot_us
from testbed.topology.jobs import Job
from testbed.topology.radio import CellGroup, Gnb
from testbed.topology.schema import Topology
from testbed.topology.site import Site

DEFAULT_SLOT_WALL_MS = 4.0
"""Shortest slot, in wall time, that a machine of unknown ability is believed to keep.

On two shared cores a wake-up by timerfd is 0.03 ms late (p50) and 0.12 ms (p99), and a slot must
hold ten or so messages and some torch work: 4 ms leaves it within 10 % of a slot. ``doctor``
measures the machine's own.
"""

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
_GIB = float(2**30)


def smallest_slot_us(topology: Topology) -> int | None:
    """The shortest slot of any cell, emulated microseconds; None without cells."""
    lengths = [slot_us(ref.spec.scs_khz) for ref in topology.cells()]
    return min(lengths, default=None)


def time_scale(topology: Topology, slot_wall_ms_min: float = DEFAULT_SLOT_WALL_MS) -> float:
    """Wall seconds per emulated second; for ``auto`` the smallest at which slots can be kept.

    A topology without cells has no slot to keep: its ``auto`` is 1.
    """
    if isinstance(topology.time.scale, float):
        return topology.time.scale
    slot = smallest_slot_us(topology)
    return 1.0 if slot is None else math.ceil(slot_wall_ms_min * 1e5 / slot) / 100


def notice_us(site: Site) -> tuple[int, int] | None:
    """How long before its start a site knows of downlink and of uplink PHY work, at least.

    Downlink is planned ``lookahead_slots`` before its air slot, and its PHY work begins one slot
    before that. Uplink is planned ``k2_slots`` earlier still, and its decode begins after its slot
    has ended. Both plans are out ``mac_phase_permille`` into the slot.
    """
    notices = [
        (
            slot_us(group.scs_khz) * (1000 * ahead - gnb.mac_phase_permille) // 1000
            for ahead in (group.lookahead_slots - 1, group.lookahead_slots + group.k2_slots + 1)
        )
        for gnb in site.gnbs.values()
        for group in gnb.cells
    ]
    if not notices:
        return None
    downlink, uplink = (min(times) for times in zip(*notices, strict=True))
    return max(0, downlink), uplink


def cells_of(gnb: Gnb) -> int:
    """Cells of a gNB."""
    return sum(group.count for group in gnb.cells)


def worst_ran_sms(site: Site, gpu: GpuProfile) -> int:
    """SMs that the RAN of a site can hold at once, all cells at their peak in both directions."""
    cells = sum(cells_of(gnb) for gnb in site.gnbs.values())
    peak = gpu.phy.ul_sms_per_10_code_blocks * math.ceil(gpu.phy.ul_peak_code_blocks / 10)
    uplink = min(gpu.phy.ran_sm_cap, cells * peak)
    return min(gpu.sms, uplink + cells * gpu.phy.dl_sms)


def grantable_sms(site: Site, gpu: GpuProfile) -> tuple[int, int]:
    """SMs that the site's partition can lend to training even when the RAN is at its peak, and at
    most."""
    left_sms = gpu.sms - worst_ran_sms(site, gpu)
    splits = mechanism(site.partition, gpu, site.static_training_sms).splits
    return max(split.sms for split in splits if split.spare_sms <= left_sms), splits[-1].sms


def job_costs(job: Job, gpu: GpuProfile, model: ModelProfile) -> QuantumCosts:
    """What each quantum of a job costs on each SM count of a GPU."""
    return quantum_costs(gpu, model, job.tokens, DTYPE_BYTES[job.dtype])


def block_us(costs: QuantumCosts, sms: int) -> int:
    """The longest quantum of one transformer block: its backward pass, as a rule."""
    index = costs.levels.index(sms)
    return max(costs.cost_us[kind][index] for kind in (QuantumKind.FORWARD, QuantumKind.BACKWARD))


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Declared bytes of one replica of a job.

    ``pinned``: what a suspended job keeps in host memory (weights, fp32 master copy and the two
    moments of AdamW). ``device``: that, and the gradients.
    """

    pinned: int
    device: int

    @property
    def pinned_gib(self) -> float:
        """Pinned bytes in GiB."""
        return self.pinned / _GIB

    @property
    def device_gib(self) -> float:
        """Device bytes in GiB."""
        return self.device / _GIB


def state_bytes(job: Job, model: ModelProfile) -> StateBytes:
    """AdamW in mixed precision: weights, master copy, moments; in fp32 the master is the weights.

    The count of Rajbhandari et al., "ZeRO", section 3.1: 2 + 12 bytes per parameter and 2 of
    gradients.
    """
    width = DTYPE_BYTES[job.dtype]
    per_parameter = 12 if job.dtype == "fp32" else width + 12
    return StateBytes(model.parameters * per_parameter, model.parameters * (per_parameter + width))


def slot_wall_ms(group: CellGroup, scale: float) -> float:
    """Wall time of one slot of a cell."""
    return slot_us(group.scs_khz) * scale / 1000
