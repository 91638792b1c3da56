"""How fast the host's cores ran during the run, and what came of slots in which they were slow.

A sample is the time of a fixed piece of work after a PHY task, over the least that its process
has seen. A sample of at least twice that is *slow*: the core ran below half of its best speed.
These figures say why slots were late; they never make a verdict better.
"""

from __future__ import annotations

import polars as pl

from testbed.record.measure.numbers import Figures, percentile, put
from testbed.record.recording import Recording
from testbed.record.schema import HOST_AT_SPEED_PERMILLE, HOST_SLOW_PERMILLE
from testbed.record.scope import SiteScope
from testbed.record.tables import NODE

SLOWDOWN = "host_slowdown_permille"
_SITE = "site"
_NONE = "no PHY task measured the host's speed"


def samples(recording: Recording) -> pl.DataFrame:
    """(site, at_us, host_slowdown_permille) within the interval, one per site and time, the
    slowest of it, ascending; empty where nothing was measured."""
    measured = recording.tables["lateness"].filter(
        pl.col("at_us").is_between(recording.from_us, recording.to_us, closed="left")
        & (pl.col(SLOWDOWN) > 0)
    )
    by_site = with_site(recording, measured).group_by(_SITE, "at_us").agg(pl.col(SLOWDOWN).max())
    return by_site.sort("at_us", _SITE)


def with_site(recording: Recording, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the site of their node; "" for nodes of the whole run."""
    names = {node: site.name for site in recording.scope.sites for node in site.nodes}
    site = pl.col(NODE).replace_strict(names, default="", return_dtype=pl.String)
    return rows.with_columns(site.alias(_SITE))


def at_speed(recording: Recording, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of ``lateness`` in slots in which no sample of their site was slow.

    A slot without a sample has that of the nearest one, at most a slot away, or none; then it
    counts as at speed.
    """
    measured = samples(recording)
    kept = []
    for site in recording.scope.sites:
        own = with_site(recording, rows).filter(pl.col(_SITE) == site.name).sort("at_us")
        near = own.drop(SLOWDOWN).join_asof(
            measured.filter(pl.col(_SITE) == site.name).drop(_SITE),
            on="at_us",
            strategy="nearest",
            tolerance=site.slot_us,
        )
        slow = (pl.col(SLOWDOWN) >= HOST_SLOW_PERMILLE).fill_null(value=False)
        kept.append(near.filter(~slow.any().over(NODE, "slot")).drop(_SITE, SLOWDOWN))
    return pl.concat(kept) if kept else rows.drop(SLOWDOWN)


def host_speed(recording: Recording) -> Figures:
    """``host_slow_share`` of the samples, and ``host_slowdown`` (1.0: as fast as ever seen)."""
    values = samples(recording)[SLOWDOWN]
    found = not recording.scope.simulated and len(values) > 0
    why = "virtual time" if recording.scope.simulated else _NONE
    figures: Figures = {}
    slow = float((values >= HOST_SLOW_PERMILLE).sum()) / len(values) if found else None
    put(figures, "host_slow_share", slow, why)
    slowdown: Figures = {"n": len(values) if found else 0}
    for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        value = percentile(values.to_numpy(), percent) if found else None
        put(slowdown, name, None if value is None else value / HOST_AT_SPEED_PERMILLE, why)
    figures["host_slowdown"] = slowdown
    return figures


def slowest_between(
    measured: pl.DataFrame, site: SiteScope, from_us: int, to_us: int
) -> float | None:
    """The largest slowdown of a site's samples in [from_us, to_us], or None without one."""
    own = measured.filter((pl.col(_SITE) == site.name) & pl.col("at_us").is_between(from_us, to_us))
    return float(own[SLOWDOWN].to_numpy().max()) / HOST_AT_SPEED_PERMILLE if len(own) else None
