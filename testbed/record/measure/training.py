"""``training``: tokens per second, loss, steps, and the ledger of samples.

Rates are over the interval: a committed step's tokens are spread evenly over the time from its
assignment to its commit, so that steps across the interval's ends count in part. Loss and samples
are of the whole run: they are states, not rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from testbed.record.measure.members import NOBODY_LOST, members
from testbed.record.measure.numbers import Figures, put, ratio, rounded
from testbed.record.recording import Recording
from testbed.record.schema import SampleEvent, StepEvent, TrainerEvent
from testbed.record.scope import JobScope
from testbed.record.tables import NODE, ints

NATS_PER_MICRONAT = 1e-6
_NO_STEP = "no step was committed"
_SUMMED = (
    "tokens_per_s",
    "proxy_tokens_per_s",
    "steps_committed",
    "steps_committed_in_run",
    "steps_regrouped",
)


def training(recording: Recording) -> Figures:
    """The section: totals, per job under ``jobs``, tokens per site under ``sites``."""
    scope = recording.scope
    if not scope.jobs:
        return {"jobs": {}, "jobs_reason": "the topology has no job"}
    jobs = {job.name: _job(recording, job) for job in scope.jobs}
    only = next(iter(jobs.values())) if len(jobs) == 1 else None
    total: Figures = {}
    for key in _SUMMED:
        values = [job[key] for job in jobs.values()]
        known = [value for value in values if value is not None]
        put(total, key, sum(known) if known else None, "nothing was measured")
    total["samples"] = {
        key: sum(job["samples"][key] for job in jobs.values())
        for key in next(iter(jobs.values()))["samples"]
    }
    put(total, "members", members(recording.member_changes), NOBODY_LOST)
    for key in ("loss", "unigram_entropy_nats", "sync_time_share", "barrier_time_share"):
        reason = "several jobs: see jobs" if only is None else only.get(f"{key}_reason", "")
        put(total, key, None if only is None else only[key], reason)
    sites = {site.name: {"tokens_per_s": 0.0} for site in scope.sites}
    for job in jobs.values():
        for site, value in job["tokens_per_s_by_site"].items():
            sites[site]["tokens_per_s"] += value
    return total | {"jobs": jobs, "sites": sites}


def loss_curve(recording: Recording, job: JobScope) -> pl.DataFrame:
    """Committed steps of a job in order: step, at_us, tokens (declared, cumulative), loss (nats).

    ``loss`` is null in virtual time.
    """
    done = _committed(recording, job)
    loss = pl.when(pl.col("loss_micronats") >= 0).then(pl.col("loss_micronats") * NATS_PER_MICRONAT)
    tokens = pl.col("samples").cum_sum() * job.tokens_per_sample
    return done.select("step", "at_us", tokens.alias("tokens"), loss.alias("loss"))


def _committed(recording: Recording, job: JobScope) -> pl.DataFrame:
    steps = recording.tables["steps"]
    return steps.filter(
        (pl.col("job") == job.index) & (pl.col("event") == StepEvent.COMMITTED)
    ).sort("at_us", "step")


def _job(recording: Recording, job: JobScope) -> Figures:
    done = _committed(recording, job)
    at_us = ints(done, "at_us")
    inside = (at_us >= recording.from_us) & (at_us < recording.to_us)
    weight = _weights(recording, job, done)
    seconds = recording.measured_us * 1e-6
    tokens = float(np.dot(weight, ints(done, "samples"))) * job.tokens_per_sample
    proxy = float(np.dot(weight, ints(done, "proxy_tokens")))
    figures: Figures = {
        "steps_committed": int(inside.sum()),
        "steps_committed_in_run": len(done),
        "steps_abandoned": _steps_with(recording, job, StepEvent.ABANDONED),
        "steps_regrouped": _steps_with(recording, job, StepEvent.REGROUPED),
        "tokens_per_sample": job.tokens_per_sample,
    }
    put(figures, "tokens_per_s", ratio(tokens, seconds), "nothing was measured")
    put(figures, "proxy_tokens_per_s", ratio(proxy, seconds), "nothing was measured")
    figures["tokens_per_s_by_site"] = _by_site(recording, job, done, weight)
    entropy = _facts(recording, job).get("unigram_entropy_nats")
    put(figures, "unigram_entropy_nats", entropy, "the run did not note its text's entropy")
    loss, reason = _loss(recording, job)
    put(figures, "loss", loss, reason)
    figures["samples"] = _samples(recording, job)
    changes = [change for change in recording.member_changes if change.job.index == job.index]
    put(figures, "members", members(changes), NOBODY_LOST)
    return figures | _waits(recording, job)


def _facts(recording: Recording, job: JobScope) -> Mapping[str, Any]:
    facts = (recording.manifest.get("training") or {}).get(job.name)
    return facts if isinstance(facts, Mapping) else {}


def _steps_with(recording: Recording, job: JobScope, event: StepEvent) -> int:
    steps = recording.tables["steps"]
    return int(((steps["job"] == job.index) & (steps["event"] == event)).sum())


def _weights(recording: Recording, job: JobScope, done: pl.DataFrame) -> np.ndarray[Any, Any]:
    """Per committed step, the share of [assigned, committed) that lies within the interval, from
    its first assignment on, in whatever epoch it was committed."""
    steps = recording.tables["steps"].filter(
        (pl.col("job") == job.index) & (pl.col("event") == StepEvent.ASSIGNED)
    )
    assigned = dict(steps.group_by("step").agg(pl.col("at_us").min()).iter_rows())
    end = ints(done, "at_us")
    begin = np.array(
        [assigned.get(step, at) for step, at in done.select("step", "at_us").iter_rows()],
        dtype=np.int64,
    )
    inside = np.minimum(end, recording.to_us) - np.maximum(begin, recording.from_us)
    return np.asarray(np.maximum(inside, 0) / np.maximum(end - begin, 1))


def _by_site(
    recording: Recording, job: JobScope, done: pl.DataFrame, weight: np.ndarray[Any, Any]
) -> Figures:
    """Declared tokens/s of the samples by the site whose trainer computed them (last)."""
    steps = pl.DataFrame(
        {"step": done["step"], "weight": weight}, schema={"step": pl.Int64, "weight": pl.Float64}
    )
    computed = (
        recording.tables["samples"]
        .filter((pl.col("job") == job.index) & (pl.col("event") == SampleEvent.COMPUTED))
        .sort("at_us")
        .unique("sample", keep="last", maintain_order=True)
        .join(steps, on="step", how="inner")
    )
    known = computed.filter(pl.col("owner").is_between(0, len(job.sites) - 1)).sort("sample")
    owner, shares = ints(known, "owner"), known["weight"].to_numpy()
    summed = np.bincount(owner, weights=shares, minlength=len(job.sites))
    seconds = recording.measured_us * 1e-6
    return {
        site: rounded(float(total) * job.tokens_per_sample / seconds if seconds else 0.0)
        for site, total in zip(job.sites, summed, strict=True)
    }


def _loss(recording: Recording, job: JobScope) -> tuple[Figures | None, str]:
    """Mean loss per token (nats) of the first and last committed step and of the last three."""
    curve = loss_curve(recording, job)
    if not len(curve):
        return None, _NO_STEP
    losses = curve["loss"].drop_nulls().to_list()
    if not losses:
        why = "virtual time trains nothing" if recording.scope.simulated else "no loss was reported"
        return None, why
    last = losses[-3:]
    return {
        "first": rounded(losses[0]),
        "last": rounded(losses[-1]),
        "mean_last_3": rounded(sum(last) / len(last)),
        "steps": len(losses),
    }, ""


def _samples(recording: Recording, job: JobScope) -> Figures:
    """The ledger over the whole run.

    issued: distinct samples; committed: those in a committed step; returned: handed back and not
    committed; lost: none of both; duplicated: commits of a sample beyond its first;
    duplicates_refused: late results that were turned away.
    """
    rows = recording.tables["samples"].filter(pl.col("job") == job.index)

    def of(event: SampleEvent) -> list[int]:
        found: list[int] = rows.filter(pl.col("event") == event)["sample"].to_list()
        return found

    issued, commits = set(of(SampleEvent.ISSUED)), of(SampleEvent.COMMITTED)
    committed = set(commits)
    returned = set(of(SampleEvent.RETURNED)) - committed
    return {
        "issued": len(issued),
        "committed": len(committed),
        "returned": len(returned),
        "duplicated": len(commits) - len(committed),
        "duplicates_refused": len(of(SampleEvent.DUPLICATE)),
        "lost": len(issued - committed - returned),
    }


def _waits(recording: Recording, job: JobScope) -> Figures:
    """Share of the interval that trainers spent at the barrier and in the collective, mean.

    A step that goes on in another epoch has these waits in each; of one that never ended, as in a
    trainer's last moments, nothing is counted.
    """
    nodes = [node for node, index in recording.scope.trainers.items() if index == job.index]
    events = recording.tables["trainer_events"].filter(pl.col(NODE).is_in(nodes))
    spans = {
        "barrier_time_share": (TrainerEvent.COMPUTED, TrainerEvent.SYNC_BEGUN),
        "sync_time_share": (TrainerEvent.SYNC_BEGUN, TrainerEvent.SYNC_ENDED),
    }
    figures: Figures = {}
    for name, (begin, end) in spans.items():
        total = 0
        first, last = (
            events.filter(pl.col("event") == event).select(NODE, "epoch", "step", "at_us")
            for event in (begin, end)
        )
        pairs = first.join(last, on=[NODE, "epoch", "step"], how="inner", suffix="_end")
        for start_us, end_us in pairs.select("at_us", "at_us_end").iter_rows():
            total += max(0, min(end_us, recording.to_us) - max(start_us, recording.from_us))
        share = ratio(total, recording.measured_us * len(nodes))
        put(figures, name, share, "no trainer, or nothing was measured")
    return figures
