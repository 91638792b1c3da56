"""A made-up run of two sites, consistent enough for every figure: no node and no model ran.

Leases are what the RAN's tasks leave, quanta pass the real gate, steps run in lockstep over both
sites. In the live flavour wake-ups are late, the loss falls, one quantum overruns its model, and a
fault holds all SMs of the second site for 2 ms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from protocols.messages import Decision, TableBatch
from testbed.gpu.gate import Lease, Start, WaitUntil, Window, next_start
from testbed.gpu.profile import GpuProfile, PhyCost
from testbed.gpu.quanta import QuantumKind, micro_batch_quanta, optimiser_quanta
from testbed.record.recording import Recording
from testbed.record.schema import (
    PROMISE_WINDOWS_US,
    TABLES,
    LatenessSource,
    SampleEvent,
    StepEvent,
    TrainerEvent,
)
from testbed.record.scope import CellScope, JobScope, RunScope, SiteScope
from testbed.record.tables import build_tables

SLOT_US = 500
WARMUP_US = 100_000
TDD = "DDDSU"
S = 48
LAYERS = 12
TOKENS = 512
COST_US = {8: 1500, 16: 800, 24: 560, 32: 430, 40: 350, 48: 300}

GPU = GpuProfile(
    name="gb10",
    sms=S,
    sm_step=2,
    min_sms=4,
    speed_points=((8, 0.2), (24, 0.55), (48, 1.0)),
    bf16_tflops=60.0,
    training_mfu=0.4,
    launch_us=10.0,
    memory_gb_per_s=273.0,
    hbm_gib=128.0,
    host_gib=128.0,
    pcie_gb_per_s=50.0,
    usd_per_hour=1.0,
    switch_us=10,
    phy=PhyCost(60.0, 22.0, 8, "fixed", 28, 480, 29, 0.5, 30.0, 2.0, 8),
)


@dataclass(frozen=True)
class Fabricated:
    """Messages as the recorder would have got them, and what the report needs beside them."""

    scope: RunScope
    manifest: dict[str, Any]
    batches: list[TableBatch]
    decisions: list[Decision]

    def recording(self) -> Recording:
        """The run as the figures see it."""
        return Recording(self.scope, self.manifest, build_tables(self.batches, self.decisions))


def fabricate(slots: int = 1000, *, seed: int = 1, live: bool = True) -> Fabricated:
    """A run of ``slots`` slots per site, of which the first 200 are warm-up."""
    rng = np.random.default_rng(seed)
    rows: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
    end_us = slots * SLOT_US
    names = ("north", "south")
    leases = {
        site: _radio(rows, rng, site, (2 * index, 2 * index + 1), slots, 0.25 + 0.3 * index, live)
        for index, site in enumerate(names)
    }
    _train(rows, rng, leases, end_us, live)
    if live:
        fault = (0, QuantumKind.FAULT, 0, 200_100, 202_100, 202_100, 2000, S, 0)
        rows["quanta", "south.pretrain.trainer"].append(fault)
    return Fabricated(
        _scope(slots, live, seed),
        _manifest(slots, live, seed),
        list(_batches(rows)),
        [Decision("coordinator", end_us, "run", "no new step: the measured interval is over")],
    )


def _radio(rows, rng, site, cells, slots, load, live):
    """RAN tables of one site; returns the windows that the tasks leave."""
    agent, mac = f"{site}.agent", f"{site}.g1.mac"
    spans: list[tuple[int, int, int]] = []
    arrived = dict.fromkeys(((c, d) for c in cells for d in (0, 1)), 0)
    counters_at_warmup: dict[tuple[int, int], int] = {}
    for slot in range(slots):
        start = slot * SLOT_US
        late = int(rng.gamma(1.5, 8)) if live else 0
        rows["lateness", mac].append((slot, start, late, 0, LatenessSource.SLOT_TIMER, 0))
        if start == WARMUP_US:
            counters_at_warmup = dict(arrived)
        uplink = TDD[slot % 5] == "U"
        wave = 0.6 + 0.4 * math.sin(slot / 180)
        together = []
        for cell in cells:
            if rng.random() > load * wave * (1.8 if uplink else 1.0):
                continue
            blocks = int(rng.integers(2, 14))
            if uplink:
                sms, duration = 8 * math.ceil(blocks / 10), 60 + 22 * blocks
                begin, deadline = start + SLOT_US, start + SLOT_US + 1500
            else:
                sms, duration = 8, 30 + 2 * blocks
                begin, deadline = start - 500, start - 125
            together.append((cell, blocks, sms, duration, begin, deadline))
        for cell, blocks, sms, duration, begin, deadline in together:
            jitter = int(rng.gamma(1.5, 4)) if live else 0
            task = (cell, slot, int(uplink), 60, blocks, begin, begin + duration)
            ran = (begin + jitter, begin + duration, begin + duration + jitter, deadline, sms, sms)
            rows["ran_tasks", agent].append(task + ran)
            whose = (cell, slot, int(uplink))
            rows["ran_pieces", agent].append((*whose, 1, begin, begin + duration, sms))
            rows["ran_pieces", agent].append((*whose, 0, ran[0], ran[2], sms))
            spans.append((begin, begin + duration, sms))
            size = blocks * 1000
            arrived[cell, int(uplink)] += size
            ue = int(rng.integers(0, 8))
            result = 0 if rng.random() < 0.1 else 1
            rows["blocks", mac].append(
                (cell, slot, int(uplink), ue, 1, result, size, 60, int(rng.integers(5, 25)))
            )
            arrival = start - int(rng.gamma(2, 4000))
            rows["sdus", mac].append((cell, ue, int(uplink), 9, arrival, deadline, size))
    for totals, at_us in ((counters_at_warmup, WARMUP_US), (arrived, slots * SLOT_US + 20_000)):
        for (cell, direction), total in totals.items():
            row = (cell, direction, at_us, total, total, 0, 0, 0, 0)
            rows["ran_counters", mac].append(row)
    steps = _steps(spans, slots * SLOT_US)
    _promises(rows, agent, steps, slots)
    windows = [Window(a, b, (S - ran) & ~1) for a, b, ran in steps if ran < S - 4]
    for number, window in enumerate(windows):
        row = (number, max(0, window.start_us - 2000), window.start_us, window.end_us, window.sms)
        rows["leases", agent].append(row)
    return windows


def _steps(spans, end_us):
    deltas: dict[int, int] = {0: 0, end_us: 0}
    for start, end, sms in spans:
        deltas[max(0, start)] = deltas.get(max(0, start), 0) + sms
        deltas[end] = deltas.get(end, 0) - sms
    times, level, found = sorted(deltas), 0, []
    for start, end in pairwise(times):
        level += deltas[start]
        found.append((start, end, level))
    return found


def _promises(rows, agent, steps, slots):
    starts = np.array([start for start, _, _ in steps])
    levels = np.array([level for _, _, level in steps])
    for slot in range(slots):
        row = [slot, slot * SLOT_US]
        for window in PROMISE_WINDOWS_US:
            first = np.searchsorted(starts, slot * SLOT_US, side="right") - 1
            beyond = np.searchsorted(starts, slot * SLOT_US + window, side="left")
            known = int(levels[first : max(beyond, first + 1)].max())
            row.append(max(known, 28 if window > 2500 else 8))
        rows["promises", agent].append(tuple(row))


def _train(rows, rng, leases, end_us, live):
    """Steps in lockstep until ``end_us``; the open one is committed in the drain."""
    sites = list(leases)
    now = dict.fromkeys(sites, 2000)
    apply: list[tuple[QuantumKind, int]] = []
    step = 0
    while max(now.values()) < end_us:
        assigned = max(now.values())
        samples = {s: range(8 * step + 4 * i, 8 * step + 4 * i + 4) for i, s in enumerate(sites)}
        reached = {}
        for owner, site in enumerate(sites):
            trainer = f"{site}.pretrain.trainer"
            note = rows["trainer_events", trainer]
            note.append((1, step, TrainerEvent.ASSIGNED, assigned))
            at = _run(rows, rng, trainer, leases[site], assigned, apply, step - 1, live)
            if apply:
                note.append((1, step - 1, TrainerEvent.APPLIED, at))
            for sample in samples[site]:
                at = _run(
                    rows, rng, trainer, leases[site], at, list(micro_batch_quanta(LAYERS, 2)),
                    step, live,
                )  # fmt: skip
                for event, when in ((SampleEvent.ISSUED, assigned), (SampleEvent.COMPUTED, at)):
                    rows["samples", "coordinator"].append((0, 1, step, sample, owner, event, when))
            note.append((1, step, TrainerEvent.COMPUTED, at))
            reached[site] = at
        opened = max(reached.values()) + 600
        synced = opened + 9000
        for site in sites:
            note = rows["trainer_events", f"{site}.pretrain.trainer"]
            note.append((1, step, TrainerEvent.SYNC_BEGUN, opened))
            note.append((1, step, TrainerEvent.SYNC_ENDED, synced))
            note.append((1, step, TrainerEvent.COMMITTED, synced + 800))
            now[site] = synced + 800
            for sample in samples[site]:
                rows["samples", "coordinator"].append(
                    (0, 1, step, sample, -1, SampleEvent.COMMITTED, synced + 500)
                )
        loss = int(1e6 * (2.2 + 3.4 * math.exp(-step / 8) + 0.05 * rng.random())) if live else -1
        for event, at in (
            (StepEvent.ASSIGNED, assigned),
            (StepEvent.BARRIER_OPEN, opened),
            (StepEvent.COMMITTED, synced + 500),
        ):
            lost = loss if event is StepEvent.COMMITTED else -1
            rows["steps", "coordinator"].append((0, 1, step, event, at, lost, 4096, 8))
        apply = list(optimiser_quanta(LAYERS))
        step += 1


def _run(rows, rng, trainer, windows, at, quanta, step, live):
    """Pass quanta through the gate; where the leases end they run on the whole GPU."""
    ends = [window.end_us for window in windows]
    for kind, block in quanta:
        while True:
            index = int(np.searchsorted(ends, at, side="right"))
            if index >= len(windows) - 1:
                sms, until = S, at + COST_US[S]
                break
            decision = next_start(Lease(1, tuple(windows[index : index + 12])), at, COST_US)
            if isinstance(decision, Start):
                sms, until = decision.sms, decision.until_us
                break
            at = decision.at_us if isinstance(decision, WaitUntil) else windows[index].end_us
        end = until
        if live and step == 4 and (kind, block) == (QuantumKind.BACKWARD, 3):
            end += 700
        rows["quanta", trainer].append((step, kind, block, at, until, end, until - at, sms, 1))
        at = end + (int(rng.gamma(1.5, 4)) if live else 0)
    return at


def _batches(rows):
    for (table, node), found in rows.items():
        for first in range(0, len(found), 200):
            part = np.array(found[first : first + 200], dtype=np.int64)
            columns = {name: part[:, i].copy() for i, name in enumerate(TABLES[table])}
            yield TableBatch(node, table, columns)


def _scope(slots: int, live: bool, seed: int) -> RunScope:
    return RunScope(
        name="fabricated",
        mode="live" if live else "sim",
        seed=seed,
        time_scale=20.0,
        warmup_us=WARMUP_US,
        measured_us=slots * SLOT_US - WARMUP_US,
        sites=tuple(
            SiteScope(
                name=site,
                gpu=GPU,
                cells=tuple(CellScope(c, f"cell {c}", TDD, SLOT_US, 8) for c in cells),
                nodes=tuple(
                    f"{site}.{kind}" for kind in ("agent", "g1.mac", "g1.phy", "pretrain.trainer")
                ),
            )
            for site, cells in (("north", (0, 1)), ("south", (2, 3)))
        ),
        jobs=(
            JobScope(
                "pretrain", 0, ("north", "south"), TOKENS, 1000, {"north": 60_000, "south": 60_000}
            ),
        ),
        trainers={"north.pretrain.trainer": 0, "south.pretrain.trainer": 0},
        traffic={f"cell {c}": {"ul": {"kind": "ftp3", "load": 0.3}} for c in range(4)},
    )


def _manifest(slots: int, live: bool, seed: int) -> dict[str, Any]:
    kinds = {"agent": "site_agent", "g1.mac": "gnb_mac", "g1.phy": "gnb_phy"}
    nodes = {
        f"{site}.{name}": {"kind": kind, "site": site}
        for site in ("north", "south")
        for name, kind in (kinds | {"pretrain.trainer": "trainer"}).items()
    }
    nodes |= {"coordinator": {"kind": "coordinator", "site": ""}}
    return {
        "schema_version": 1,
        "name": "fabricated",
        "mode": "live" if live else "sim",
        "seed": seed,
        "time_scale": 20.0,
        "warmup_us": WARMUP_US,
        "measured_us": slots * SLOT_US - WARMUP_US,
        "nodes": nodes,
        "scheduling": {"north.g1.mac": "SCHED_FIFO 50"} if live else {},
        "versions": {"ranloom": "0.1.0"},
        "host": {"cpus": 2},
        "memory": {"pss_bytes": 1_700_000_000} if live else None,
        "clock_source": "CLOCK_MONOTONIC, timerfd" if live else "virtual",
        "training": {
            "pretrain": {
                "unigram_entropy_nats": 3.3127,
                "parameters": 860_000,
                "text_bytes": 2_000_000,
            }
        },
        "messages": {
            "rtt_us": {"gnb_mac-gnb_phy": {"p50": 120, "p99": 410, "n": 4000}},
            "per_s": 1234.5,
            "rejected": {},
        },
        "faults": [{"kind": "late_quantum", "site": "south", "at_us": 200_100}] if live else [],
        "outcome": {"status": "done", "reason": "the measured interval is over"},
    }


TOPOLOGY_TEXT = """
name = "fabricated"
seed = 1

[sites.north]
gpu = "gb10"

[[sites.north.gnbs.g1.cells]]
count = 2
ul_traffic = { kind = "ftp3", load = 0.2 }
dl_traffic = { kind = "none" }

[sites.south]
gpu = "gb10"

[[sites.south.gnbs.g1.cells]]
count = 2
ul_traffic = { kind = "ftp3", load = 0.4 }
dl_traffic = { kind = "none" }

[jobs.pretrain]
kind = "pretraining"
sites = ["north", "south"]
model = "opt-125m"
"""
"""A topology whose sites, cells, job and nodes are those of the made-up run."""
