"""``ran``: what the radio's users saw, per site and in total.

Blocks and tasks count by their air slot, SDUs by their arrival; both within the interval.
"""

from __future__ import annotations

import polars as pl

from protocols.messages import DOWNLINK, UPLINK
from testbed.record.measure.numbers import Figures, jain, percentile, put, ratio
from testbed.record.recording import Recording
from testbed.record.scope import SiteScope
from testbed.record.tables import NODE

DIRECTIONS = {"dl": DOWNLINK, "ul": UPLINK}

NACK, ACK, LATE, NO_FEEDBACK = range(4)
_RESULTS = {"ack": ACK, "nack": NACK, "late": LATE, "no_feedback": NO_FEEDBACK}


def ran(recording: Recording) -> Figures:
    """The section: totals, and the same per site under ``sites``."""
    with_cells = [site for site in recording.scope.sites if site.cells]
    blocks = {site.name: _blocks(recording, site) for site in with_cells}
    sdus = {site.name: _sdus(recording, site) for site in with_cells}
    sites = {
        site.name: _figures(recording, [site], blocks[site.name], sdus[site.name])
        for site in with_cells
    }
    if not with_cells:
        return {"sites": {}, "sites_reason": "no site has a cell"}
    total = _figures(recording, with_cells, pl.concat(blocks.values()), pl.concat(sdus.values()))
    return total | {"sites": sites}


def _figures(
    recording: Recording, sites: list[SiteScope], blocks: pl.DataFrame, sdus: pl.DataFrame
) -> Figures:
    figures: Figures = {}
    for name, direction in DIRECTIONS.items():
        mine = blocks.filter(pl.col("direction") == direction)
        figures[name] = _direction(
            recording, sites, mine, sdus.filter(pl.col("direction") == direction), direction
        )
    keys = ("deadline_miss_rate", "scheduled_blocks", "bler", "jain", "throughput_mbps")
    for key in keys:
        figures[key] = {name: figures[name].pop(key) for name in DIRECTIONS}
        for name in DIRECTIONS:
            reason = figures[name].pop(f"{key}_reason", None)
            if reason is not None:
                figures[key][f"{name}_reason"] = reason
    figures["delay_us"] = _delays(recording, sdus)
    late = int(sdus.filter(pl.col("late"))["bytes"].sum())
    put(
        figures,
        "late_byte_share",
        ratio(late, int(sdus["bytes"].sum())),
        "no SDU was delivered",
    )
    figures["bytes"] = _conservation(recording, sites)
    return figures


def _direction(
    recording: Recording,
    sites: list[SiteScope],
    blocks: pl.DataFrame,
    sdus: pl.DataFrame,
    direction: int,
) -> Figures:
    figures: Figures = {"scheduled_blocks": len(blocks)}
    missed = int(blocks["missed"].sum())
    none = "no block was scheduled"
    put(figures, "deadline_miss_rate", ratio(missed, len(blocks)), none)
    figures["deadline_misses"] = missed
    figures["blocks_without_task"] = int(blocks["missed"].is_null().sum())
    counts = dict(blocks["result"].value_counts().iter_rows())
    figures["results"] = {name: counts.get(code, 0) for name, code in _RESULTS.items()}
    figures["retransmissions"] = int((blocks["transmission"] > 1).sum())
    first = blocks.filter((pl.col("transmission") == 1) & pl.col("result").is_in([NACK, ACK]))
    nacks = int((first["result"] == NACK).sum())
    put(figures, "bler", ratio(nacks, len(first)), "no first transmission was decoded")
    served = sdus.group_by(NODE, "cell", "ue").agg(pl.col("bytes").sum())["bytes"].to_list()
    users = sum(cell.ues for site in sites for cell in site.cells)
    padded = served + [0] * max(0, users - len(served))
    put(figures, "jain", jain(padded), "no SDU was delivered")
    delivered = _delivered_bytes(recording, sites, direction)
    put(
        figures,
        "throughput_mbps",
        ratio(8.0 * delivered, recording.measured_us),
        "nothing was measured",
    )
    return figures


def _blocks(recording: Recording, site: SiteScope) -> pl.DataFrame:
    """Blocks whose air slot is in the interval, with ``missed``: modelled end after the deadline.

    Null where no task of that cell and slot was recorded.
    """
    key = ["cell", "air_slot", "direction"]
    tasks = recording.rows("ran_tasks", site).select(
        *key, (pl.col("modelled_end_us") > pl.col("deadline_us")).alias("missed")
    )
    slot_us = {cell.cell: cell.slot_us for cell in site.cells}
    at_us = pl.col("air_slot") * pl.col("cell").replace_strict(
        slot_us, default=site.slot_us, return_dtype=pl.Int64
    )
    blocks = recording.rows("blocks", site).filter(
        at_us.is_between(recording.from_us, recording.to_us, closed="left")
    )
    return blocks.join(tasks.unique(key, keep="first", maintain_order=True), on=key, how="left")


def _sdus(recording: Recording, site: SiteScope) -> pl.DataFrame:
    """SDUs that arrived in the interval, with ``delay_us`` and ``late`` (beyond the budget)."""
    sdus = recording.rows("sdus", site).filter(
        pl.col("arrival_us").is_between(recording.from_us, recording.to_us, closed="left")
    )
    budgets = {qi: recording.scope.budget_us(qi) for qi in sdus["five_qi"].unique().to_list()}
    delay = pl.col("delivered_us") - pl.col("arrival_us")
    budget = pl.col("five_qi").replace_strict(budgets, default=None, return_dtype=pl.Int64)
    return sdus.with_columns(delay.alias("delay_us"), (delay > budget).alias("late"))


def _delays(recording: Recording, sdus: pl.DataFrame) -> Figures:
    """Per 5QI: percentiles over SDUs of both directions, and of each, beside the budget."""
    figures: Figures = {}
    for five_qi in sorted(sdus["five_qi"].unique().to_list()):
        mine = sdus.filter(pl.col("five_qi") == five_qi)
        figures[str(five_qi)] = {
            "ran_delay_budget_us": recording.scope.budget_us(five_qi),
            **_percentiles(mine),
            **{
                name: _percentiles(mine.filter(pl.col("direction") == direction))
                for name, direction in DIRECTIONS.items()
            },
        }
    return figures


def _percentiles(sdus: pl.DataFrame) -> Figures:
    delay = sdus["delay_us"].to_numpy()
    late = int(sdus.filter(pl.col("late"))["bytes"].sum())
    figures: Figures = {"n": len(delay)}
    for percent in (50, 95, 99):
        put(figures, f"p{percent}", percentile(delay, percent), "no SDU was delivered")
    share = ratio(late, int(sdus["bytes"].sum()))
    put(figures, "late_byte_share", share, "no SDU was delivered")
    return figures


def _delivered_bytes(recording: Recording, sites: list[SiteScope], direction: int) -> int:
    """Bytes of SDUs whose last byte was delivered within the interval."""
    nodes = [node for site in sites for node in site.nodes]
    return int(
        recording.tables["sdus"]
        .filter(
            pl.col(NODE).is_in(nodes)
            & (pl.col("direction") == direction)
            & pl.col("delivered_us").is_between(recording.from_us, recording.to_us, closed="left")
        )["bytes"]
        .sum()
    )


def _conservation(recording: Recording, sites: list[SiteScope]) -> Figures:
    """Totals of the whole run, and what does not add up: arrived - delivered - held, want 0."""
    nodes = [node for site in sites for node in site.nodes]
    last = (
        recording.tables["ran_counters"]
        .filter(pl.col(NODE).is_in(nodes))
        .sort("at_us")
        .group_by(NODE, "cell", "direction", maintain_order=True)
        .last()
    )
    names = ("arrived", "delivered", "buffered", "in_flight", "rlc_retx")
    total = {name: int(last[f"{name}_bytes"].sum()) for name in names}
    held = total["delivered"] + total["buffered"] + total["in_flight"]
    figures: Figures = total | {
        "unaccounted": total["arrived"] - held,
        "as_of_us": int(last["at_us"].to_numpy().max(initial=0)),
    }
    put(figures, "delivered_share", ratio(total["delivered"], total["arrived"]), "nothing arrived")
    return figures
