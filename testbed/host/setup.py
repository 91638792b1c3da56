"""What a process of a run does to itself: lifelines, scheduling, and which executor it needs."""

from __future__ import annotations

import math

from testbed.executors.config import (
    PhyConfig,
    ProxyConfig,
    Scheduling,
    TrainerConfig,
)
from testbed.executors.process import fifo_permitted
from testbed.host.birth import Birth
from testbed.topology.profiles import effective_gpu, model_profile
from testbed.topology.views import GnbView, RunView

_SLOT_CLOCK, _PHY_WORK, _GPU, _TRAINING = 40, 30, 20, 10
"""SCHED_FIFO priorities. A MAC's slot is short and all else waits for it; PHY's work comes next;
what only reacts to messages comes last."""

_PRIME_LEAD_WALL_US = 1000
_ANTENNAS = 2
_STRIDE = {"kernels": 16, "sionna": 128}
"""Antennas of the PHY's real work, and of how many PRBs and decoder passes it takes one: what a CPU
core can do within the time of a GPU at the usual time scales (kernels), or nearly (sionna). The
modelled time depends on neither."""

SCHEDULING = {
    "gnb_mac": Scheduling(policy="fifo", priority=_SLOT_CLOCK),
    "gnb_phy": Scheduling(policy="fifo", priority=_GPU),
    "site_agent": Scheduling(policy="fifo", priority=_GPU),
    "trainer": Scheduling(policy="fifo", priority=_TRAINING),
    "coordinator": Scheduling(policy="fifo", priority=_TRAINING),
    "recorder": Scheduling(),
}


def training_class() -> Scheduling:
    """The class of executors that train: below everything of the radio.

    SCHED_IDLE where real-time priority is refused. Where the radio has it, an ordinary class is
    below it too, and unrelated work on the machine cannot starve the training.
    """
    return Scheduling(policy="normal") if fifo_permitted() else Scheduling(policy="idle")


def executor_of(birth: Birth, wall_ns_per_us: int) -> tuple[str, str] | None:
    """(kind of executor, its JSON document) for a node, or None."""
    plan = birth.plan
    topology = birth.topology
    if plan.kind == "gnb_phy":
        view = GnbView(topology, plan.site, plan.gnb)
        config = PhyConfig(
            scheduling=Scheduling(policy="fifo", priority=_PHY_WORK),
            kind=view.phy.executor,
            seed=topology.seed,
            n_prb=max(cell.n_prb for cell in view.cells_of_gnb),
            layers=max(max(cell.ul_layers, cell.dl_layers) for cell in view.cells_of_gnb),
            layer_counts=tuple(
                sorted({n for cell in view.cells_of_gnb for n in (cell.ul_layers, cell.dl_layers)})
            ),
            antennas=_ANTENNAS,
            stride=_STRIDE[view.phy.executor],
            prime_lead_us=math.ceil(_PRIME_LEAD_WALL_US * 1000 / wall_ns_per_us),
            code_blocks=80,
        )
        return "phy", config.model_dump_json()
    if plan.kind == "trainer":
        job = RunView(topology).job(plan.job)
        costs = RunView(topology).costs(plan.site, plan.job)
        proxy = job.proxy
        trainer = TrainerConfig(
            scheduling=training_class(),
            seed=topology.seed,
            job=plan.job,
            declared_layers=model_profile(job.model).layers,
            head_chunks=costs.head_chunks,
            optimiser_chunks=costs.optimiser_chunks,
            levels=costs.levels,
            cost_us=costs.cost_us,
            guard_us=topology.host.guard_us,
            switch_us=effective_gpu(topology.sites[plan.site]).switch_us,
            micro_batch=proxy.micro_batch,
            sequence=proxy.sequence,
            proxy=ProxyConfig(layers=proxy.layers, hidden=proxy.hidden, heads=proxy.heads),
            module=proxy.module,
            module_path=birth.directory if proxy.module else None,
            text=_text_path(birth, proxy.text),
            learning_rate=proxy.learning_rate,
        )
        return "trainer", trainer.model_dump_json()
    return None


def _text_path(birth: Birth, text: str) -> str:
    return text if text == "stdlib" else str(birth.topology.directory / text)
