"""Small cells and a loop that answers a MAC's plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.ran.config import CellConfig
from testbed.ran.mac import GnbMac
from testbed.ran.numerology import Direction, TddPattern
from testbed.ran.plan import BlockResult, CellPlan, Outcome, SduDelivered, TransportBlock
from testbed.ran.schedulers import ProportionalFair
from testbed.ran.traces import Trace, TraceArrival
from testbed.ran.traffic import Replay

DATA = Path(__file__).parents[2] / "data"

Judge = Callable[[CellPlan, TransportBlock], Outcome | None]


def steady_cell(cell_id: int = 0, tdd: str = "DDDSU", **changes: object) -> CellConfig:
    """A cell whose channel never moves: SINR 30 dB, so the highest MCS and no surprises."""
    fixed = {"sinr_mean_db": 30.0, "sinr_sd_db": 0.0, "fading_sd_db": 0.0, "n_ues": 1}
    return CellConfig(cell_id, tdd=TddPattern.parse(tdd), **(fixed | changes))  # type: ignore[arg-type]


def sdus(direction: Direction, *arrivals: tuple[int, int, int]) -> Replay:
    """Traffic of exactly these (time_us, ue, bytes); RNTIs are dealt so that they are the UEs."""
    # map_rntis deals by bytes, heaviest first: huge markers far away fix RNTI n to UE n.
    n_ues = 1 + max(ue for _, ue, _ in arrivals)
    end_us = 10**12
    markers = [TraceArrival(end_us, ue, direction, 10**12 - ue) for ue in range(n_ues)]
    events = [TraceArrival(t, ue, direction, n) for t, ue, n in sorted(arrivals)]
    return Replay(Trace((*events, *markers)), length_s=1e5)


def gnb(*cells: CellConfig, seed: int = 1) -> GnbMac:
    """Proportional fair in both directions."""
    policy = ProportionalFair()
    return GnbMac(cells, seed=seed, dl_policy=policy, ul_policy=policy)


def answer(mac: GnbMac, plan: CellPlan, outcome: Outcome, decoded_us: int | None = None) -> None:
    """The same outcome for each block of a plan."""
    results = [BlockResult(b.ue, b.harq_id, outcome, decoded_us) for b in plan.blocks]
    mac.feedback(plan.slot, plan.direction, plan.cell, results)


def run(
    mac: GnbMac, slots: Iterable[int], judge: Judge
) -> tuple[list[CellPlan], list[SduDelivered]]:
    """Step through slots, answering each block at once; None is a result that never comes."""
    plans: list[CellPlan] = []
    for slot in slots:
        for plan in mac.step(slot):
            plans.append(plan)
            results = [
                BlockResult(block.ue, block.harq_id, outcome)
                for block in plan.blocks
                if (outcome := judge(plan, block)) is not None
            ]
            mac.feedback(plan.slot, plan.direction, plan.cell, results)
    return plans, mac.take_delivered()


def always(outcome: Outcome | None) -> Judge:
    """A judge that knows one answer."""
    return lambda plan, block: outcome
