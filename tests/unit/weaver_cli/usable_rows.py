"""Rows of kind ``run``, made by hand."""

from __future__ import annotations

from typing import Any

from testbed.record.schema import PROMISE_WINDOWS_US


def figures(
    usable: float,
    *,
    promised: float = 0.0,
    p50: int | None = 4_000,
    p95: int | None = 9_000,
    p99: int | None = 20_000,
    late: float = 0.0,
    ul_misses: int = 0,
    jain: float | None = 0.9,
    settled: int = 1_000,
) -> dict[str, Any]:
    """Figures of a run with one class, the same at all quanta."""
    return {
        "idle_fraction": usable,
        "usable_fraction": {str(q): usable for q in PROMISE_WINDOWS_US},
        "promised_fraction": {str(q): promised for q in PROMISE_WINDOWS_US},
        "deadline_misses": {"dl": 0, "ul": ul_misses},
        "scheduled_blocks": {"dl": 1_000, "ul": 1_000},
        "jain": {"dl": jain, "ul": jain},
        "late_byte_share": late,
        "settled_bytes": {"dl": settled, "ul": settled},
        "throughput_mbps": {"dl": 10.0, "ul": 1.0},
        "throughput_ratio": settled / 1_000,
        "delay_us": {
            "9": {
                "n": 100,
                "p50": p50,
                "p95": p95,
                "p99": p99,
                "late_byte_share": late,
                "ran_delay_budget_us": 280_000,
            }
        },
    }


def run_row(arm: str, *, seed: int = 1, cells: int = 4, **changed: Any) -> dict[str, Any]:
    """A row of kind ``run``: ``usable`` and the other arguments of ``figures``, or keys."""
    place = {
        "kind": "run",
        "scenario": "made",
        "variant": changed.pop("variant", ""),
        "cells": cells,
        "load": 0.3,
        "seed": seed,
        "overload": changed.pop("overload", False),
        "phy_infeasible": False,
        "arm": arm,
    }
    return place | figures(**changed)
