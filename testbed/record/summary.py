"""``summary.json``: every figure that a report shows, under stable names.

Owns the top level, the goals, and the form on disk. Units are in the names, else it is a fraction
or a count. A figure that does not apply is ``null``, and ``<name>_reason`` beside it says why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from testbed.record.fates import FAULT
from testbed.record.measure.faults import faults
from testbed.record.measure.fidelity import fidelity
from testbed.record.measure.numbers import Figures, put
from testbed.record.measure.ran import ran
from testbed.record.measure.spare import spare_section
from testbed.record.measure.training import training
from testbed.record.recording import Recording
from testbed.record.scope import RunScope
from testbed.record.tables import NODE

SCHEMA_VERSION = 1

_NO_OUTCOME = "its launcher did not live to write how it ended"
_LATER = "this run has no co-execution group"


def summarise_recording(recording: Recording) -> dict[str, Any]:
    """All figures of a run, as summary.json holds them."""
    trust = fidelity(recording)
    learning = training(recording)
    tokens = {site: row["tokens_per_s"] for site, row in learning.get("sites", {}).items()}
    busy_sites = {site for job in recording.scope.jobs for site in job.sites}
    spare = spare_section(
        recording,
        trust["tolerance_us"],
        {site: value for site, value in tokens.items() if site in busy_sites},
    )
    summary: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": _run(recording),
        "fidelity": trust,
        "ran": ran(recording),
        "spare": spare,
        "training": learning,
        "messages": _messages(recording),
        "faults": faults(recording),
    }
    put(summary, "coexec", None, _LATER)
    put(summary, "swap", None, "nothing was swapped in this run")
    summary["run"]["goals"] = _goals(recording.scope, summary)
    return summary


def dump_summary(summary: Mapping[str, Any]) -> str:
    """The text of summary.json: keys sorted, the same content always the same bytes."""
    return json.dumps(summary, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _run(recording: Recording) -> Figures:
    scope, manifest = recording.scope, recording.manifest
    figures: Figures = {
        "name": scope.name,
        "mode": scope.mode,
        "seed": scope.seed,
        "time_scale": scope.time_scale,
        "warmup_us": scope.warmup_us,
        "planned_us": scope.measured_us,
        "measured_us": recording.measured_us,
        "complete": recording.complete,
        "outcome": manifest.get("outcome") or {"status": "unknown", "reason": _NO_OUTCOME},
        "sites": [site.name for site in scope.sites],
        "jobs": [job.name for job in scope.jobs],
        "arrivals": _arrivals(recording),
    }
    for key in ("versions", "host", "memory"):
        put(figures, key, manifest.get(key), "the manifest does not say")
    return figures


def _arrivals(recording: Recording) -> Figures:
    """What arrived over the whole run: by cell and direction, with a digest that runs compare."""
    last = (
        recording.tables["ran_counters"]
        .sort("at_us")
        .group_by(NODE, "cell", "direction", maintain_order=True)
        .last()
        .sort("cell", "direction")
    )
    arrived = {
        f"cell {cell} {'ul' if direction else 'dl'}": total
        for cell, direction, total in last.select("cell", "direction", "arrived_bytes").rows()
    }
    content = {
        "seed": recording.scope.seed,
        "traffic": dict(recording.scope.traffic),
        "arrived_bytes": arrived,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return content | {"digest": hashlib.sha256(text.encode()).hexdigest()[:16]}


def _messages(recording: Recording) -> Figures:
    facts = recording.manifest.get("messages") or {}
    simulated = recording.scope.simulated
    reason = "virtual time sends no message" if simulated else "the manifest does not say"
    figures: Figures = {}
    for key in ("rtt_us", "per_s", "rejected"):
        put(figures, key, facts.get(key), reason)
    return figures


def _goals(scope: RunScope, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The run against what a healthy run shows; ``met`` is None where a goal does not apply."""
    trust, learning, spare = summary["fidelity"], summary["training"], summary["spare"]
    bounds = trust["bounds"]
    goals: list[dict[str, Any]] = []

    def goal(name: str, value: Any, target: str, met: bool | None) -> None:
        goals.append({"name": name, "value": value, "target": target, "met": met})

    on_time = trust["slots_on_time"]
    least = bounds["slots_on_time_min"]
    if not scope.simulated:
        goal(
            "fidelity.slots_on_time",
            on_time,
            f">= {least}",
            None if on_time is None else on_time >= least,
        )
        p99_us, limit_us = trust["lateness_us"]["p99"], bounds["lateness_p99_max_us"]
        known = p99_us is not None and limit_us is not None
        goal(
            "fidelity.lateness_us.p99",
            p99_us,
            f"<= {limit_us} us",
            p99_us <= limit_us if known else None,
        )
    unexpected = sum(
        count
        for site in spare["sites"].values()
        for cause, count in site["violations"]["by_cause"].items()
        if cause != FAULT
    )
    goal("spare.violations not injected", unexpected, "0", unexpected == 0)
    if not scope.jobs:
        return goals
    for key in ("lost", "duplicated"):
        value = learning["samples"][key]
        goal(f"training.samples.{key}", value, "0", value == 0)
    goal(
        "training.steps_committed",
        learning["steps_committed"],
        ">= 1",
        learning["steps_committed"] >= 1,
    )
    loss, entropy = learning["loss"], learning["unigram_entropy_nats"]
    if loss is not None and entropy is not None:
        last = loss["mean_last_3"]
        goal("training.loss.mean_last_3", last, f"< {entropy} (unigram entropy)", last < entropy)
    used = spare["utilisation"]
    goal("spare.utilisation", used, ">= 0.6", None if used is None else used >= 0.6)
    return goals
