"""The summary as a whole: its shape, its reasons, its bytes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from testbed.record.recording import Recording
from testbed.record.summary import dump_summary, summarise_recording

from .fabricate import Fabricated, fabricate
from .handmade import by_hand

TOP = {"schema_version", "run", "fidelity", "ran", "spare", "training", "coexec", "swap"}
TOP |= {"messages", "faults"}


def nulls(value: Any, path: str = "") -> list[str]:
    """Paths of null values without a reason beside them."""
    if isinstance(value, dict):
        return [
            found
            for key, item in value.items()
            for found in (
                [f"{path}.{key}"]
                if item is None and not value.get(f"{key}_reason")
                else nulls(item, f"{path}.{key}")
            )
        ]
    if isinstance(value, list):
        return [found for item in value for found in nulls(item, f"{path}[]")]
    return []


EXEMPT = re.compile(r"\.run\.goals\[\]\.(met|value)")


@pytest.mark.parametrize("kind", ["live", "simulated", "empty", "empty_sim", "failed"])
def test_the_top_level_and_a_reason_for_every_null(
    kind: str, recording: Recording, simulated: Recording
) -> None:
    runs = {
        "live": lambda: recording,
        "simulated": lambda: simulated,
        "empty": lambda: by_hand({}),
        "empty_sim": lambda: by_hand({}, mode="sim", jobs=(), trainers={}),
        "failed": lambda: by_hand({}, {}),
    }
    summary = summarise_recording(runs[kind]())
    assert set(summary) - {"coexec_reason", "swap_reason"} == TOP
    assert [path for path in nulls(summary) if not EXEMPT.match(path)] == []


def test_the_parts_of_the_idle_time_sum_exactly_per_site_and_in_total(
    recording: Recording,
) -> None:
    spare = summarise_recording(recording)["spare"]
    for figures in (spare, *spare["sites"].values()):
        went = sum(row["sm_us"] for row in figures["where_it_went"].values())
        assert went == figures["idle_sm_us"]
        wasted = sum(row["sm_us"] for row in figures["wasted"].values())
        assert wasted == figures["where_it_went"]["wasted"]["sm_us"]
    sites = spare["sites"].values()
    assert spare["idle_sm_us"] == sum(site["idle_sm_us"] for site in sites)


def test_what_the_made_up_run_is_known_to_hold(recording: Recording) -> None:
    summary = summarise_recording(recording)
    assert summary["training"]["samples"]["lost"] == 0
    assert summary["ran"]["bytes"]["unaccounted"] == 0
    causes = [s["violations"]["by_cause"] for s in summary["spare"]["sites"].values()]
    assert causes[1]["injected_fault"] >= 1
    assert any("quantum_overran" in by_cause for by_cause in causes)
    (seen,) = [row for row in summary["faults"]["seen"] if "late quantum" in row["what"]]
    assert seen == {
        "at_us": 200_100,
        "where": "south",
        "what": "late quantum held 48 SMs for 2000 us",
    }
    usable = list(summary["spare"]["usable_fraction"].values())
    assert len(usable) == 5
    goals = {goal["name"]: goal["met"] for goal in summary["run"]["goals"]}
    assert goals["training.samples.lost"] is True
    assert goals["spare.violations not injected"] is False


def test_usable_falls_with_the_window(recording: Recording) -> None:
    for figures in summarise_recording(recording)["spare"]["sites"].values():
        fractions = figures["usable_fraction"]
        ordered = [fractions[str(q)] for q in (1000, 2500, 5000, 10_000, 20_000)]
        assert ordered == sorted(ordered, reverse=True)
        assert ordered[0] <= figures["idle_fraction"]


def test_the_same_rows_give_the_same_bytes(live: Fabricated) -> None:
    one = dump_summary(summarise_recording(live.recording()))
    two = dump_summary(summarise_recording(fabricate(1000).recording()))
    assert one == two
    assert json.loads(one)["schema_version"] == 1


def test_the_digest_follows_seed_traffic_and_arrivals_only() -> None:
    def digest(**changes: Any) -> str:
        rows = changes.pop("rows", {"ran_counters": [{"at_us": 1, "arrived_bytes": 5}]})
        return summarise_recording(by_hand(rows, **changes))["run"]["arrivals"]["digest"]

    base = digest()
    assert digest(time_scale=1.0, name="other") == base
    assert digest(seed=2) != base
    assert digest(traffic={"cell 0": {"ul": {"kind": "none"}}}) != base
    assert digest(rows={"ran_counters": [{"at_us": 1, "arrived_bytes": 6}]}) != base
