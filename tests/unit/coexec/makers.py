"""Jobs and hypothesis strategies that the planner's tests share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from testbed.coexec.jobs import JobProfile
from testbed.coexec.replay import TraceJob


def job(name: str, rollout_s: float, train_s: float, slo: float = 2.0, **more: Any) -> JobProfile:
    """A job of one node per pool with 100 GB on each."""
    fields: dict[str, Any] = {
        "rollout_nodes": 1,
        "train_nodes": 1,
        "host_rollout_gb": 100.0,
        "host_train_gb": 100.0,
    }
    return JobProfile(
        name, "7B", t_rollout_s=rollout_s, t_train_s=train_s, slo=slo, **fields | more
    )


MODELS = (
    (113.4, 156.2, 0.8, 1.9, 0.4),
    (275.7, 240.0, 0.9, 4.1, 0.9),
    (490.3, 520.4, 1.7, 5.9, 3.9),
)


@st.composite
def profiles(draw: st.DrawFn, name: str = "0", *, most_nodes: int = 1) -> JobProfile:
    rollout_gb, train_gb, swap_r, swap_t, sync = draw(st.sampled_from(MODELS))
    return JobProfile(
        job=name,
        model="any",
        rollout_nodes=draw(st.integers(1, most_nodes)),
        train_nodes=draw(st.integers(1, most_nodes)),
        t_rollout_s=float(draw(st.integers(20, 600))),
        t_train_s=float(draw(st.integers(20, 400))),
        slo=draw(st.sampled_from((1.0, 1.05, 1.2, 1.5, 1.8, 2.0))),
        host_rollout_gb=rollout_gb,
        host_train_gb=train_gb,
        swap_rollout_s=swap_r,
        swap_train_s=swap_t,
        sync_s=sync,
    )


@st.composite
def job_lists(
    draw: st.DrawFn, low: int = 1, high: int = 9, *, most_nodes: int = 1
) -> list[JobProfile]:
    count = draw(st.integers(low, high))
    return [draw(profiles(str(i), most_nodes=most_nodes)) for i in range(count)]


@st.composite
def traces(draw: st.DrawFn, low: int = 1, high: int = 8) -> list[TraceJob]:
    return [
        TraceJob(
            profile,
            arrival_h=draw(st.integers(0, 60)) / 4,
            solo_duration_h=draw(st.integers(1, 80)) / 4,
        )
        for profile in draw(job_lists(low, high))
    ]
