"""``ran``: what the radio's users saw, per site and in total.

Blocks and tasks count by their air slot, SDUs by their arrival; both within the interval. Bytes
that still wait at the end of the drain, when the budget of any arrival is over, are late bytes.
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


_NOT_SETTLED = "the measured time is not longer than the longest delay budget"


def ran(recording: Recording) -> Figures:
    """The section: totals, and the same per site under ``sites``."""
    with_cells = [site for site in recording.scope.sites if site.cells]
    blocks = {site.name: _blocks(recording, site) for site in with_cells}
    sdus = {site.name: _sdus(recording, site) for site in with_cells}
    waiting = {site.name: _waiting(recording, site) for site in with_cells}
    sites = {
        site.name: _figures(
            recording, [site], blocks[site.name], sdus[site.name], waiting[site.name]
        )
        for site in with_cells
    }
    if not with_cells:
        return {"sites": {}, "sites_reason": "no site has a cell"}
    whole = (pl.concat(parts.values()) for parts in (blocks, sdus, waiting))
    return _figures(recording, with_cells, *whole) | {"sites": sites}


def _figures(
    recording: Recording,
    sites: list[SiteScope],
    blocks: pl.DataFrame,
    sdus: pl.DataFrame,
    waiting: pl.DataFrame,
) -> Figures:
    figures: Figures = {}
    for name, direction in DIRECTIONS.items():
        mine = blocks.filter(pl.col("direction") == direction)
        served, left = (part.filter(pl.col("direction") == direction) for part in (sdus, waiting))
        figures[name] = _direction(recording, sites, mine, served, left, direction)
    keys = (
        "deadline_miss_rate",
        "scheduled_blocks",
        "bler",
        "jain",
        "throughput_mbps",
        "settled_bytes",
    )
    for key in keys:
        figures[key] = {name: figures[name].pop(key) for name in DIRECTIONS}
        for name in DIRECTIONS:
            reason = figures[name].pop(f"{key}_reason", None)
            if reason is not None:
                figures[key][f"{name}_reason"] = reason
    put(figures, "throughput_ratio", None, "of two runs' settled_bytes: compare gives it")
    figures["settled_until_us"] = _settled_until_us(recording)
    figures["delay_us"] = _delays(recording, sdus, waiting)
    put(figures, "late_byte_share", _late_share(sdus, waiting), "no SDU was delivered")
    figures["emergencies"] = _emergencies(recording, sites)
    figures["bytes"] = _conservation(recording, sites)
    return figures


def _direction(
    recording: Recording,
    sites: list[SiteScope],
    blocks: pl.DataFrame,
    sdus: pl.DataFrame,
    waiting: pl.DataFrame,
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
    put(figures, "jain", jain(_bytes_by_ue(sdus, waiting)), "no SDU was delivered")
    put(figures, "settled_bytes", _settled_bytes(recording, sdus), _NOT_SETTLED)
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


def _waiting(recording: Recording, site: SiteScope) -> pl.DataFrame:
    """Bytes that wait at the end of the drain, by UE, where they can only be late by then."""
    left = recording.rows("ue_backlogs", site)
    budgets = {qi: recording.scope.budget_us(qi) for qi in left["five_qi"].unique().to_list()}
    budget = pl.col("five_qi").replace_strict(budgets, default=None, return_dtype=pl.Int64)
    return left.filter(pl.col("at_us") >= recording.planned_to_us + budget)


def _bytes_by_ue(sdus: pl.DataFrame, waiting: pl.DataFrame) -> list[int]:
    """Delivered bytes of every UE that had data: some was delivered to it, or some still waits."""
    ue = (NODE, "cell", "ue")
    starved = waiting.select(*ue, pl.lit(0, pl.Int64).alias("bytes"))
    both = pl.concat([sdus.select(*ue, "bytes"), starved])
    return both.group_by(ue).agg(pl.col("bytes").sum())["bytes"].to_list()


def _late_share(sdus: pl.DataFrame, waiting: pl.DataFrame) -> float | None:
    left = int(waiting["buffered_bytes"].sum())
    late = int(sdus.filter(pl.col("late"))["bytes"].sum())
    return ratio(late + left, int(sdus["bytes"].sum()) + left)


def _settled_until_us(recording: Recording) -> int:
    """Arrivals before this had the longest delay budget of the run's classes within it."""
    classes = recording.tables["sdus"]["five_qi"].unique().to_list()
    longest_us = max((recording.scope.budget_us(qi) for qi in classes), default=0)
    return recording.to_us - longest_us


def _settled_bytes(recording: Recording, sdus: pl.DataFrame) -> int | None:
    """Delivered bytes of SDUs that arrived before ``_settled_until_us``."""
    until_us = _settled_until_us(recording)
    if until_us <= recording.from_us:
        return None
    return int(sdus.filter(pl.col("arrival_us") < until_us)["bytes"].sum())


def _emergencies(recording: Recording, sites: list[SiteScope]) -> Figures:
    """How often the RAN took more than it had promised, and by how much at most."""
    nodes = [node for site in sites for node in site.nodes]
    rows = recording.tables["ran_emergencies"].filter(
        pl.col(NODE).is_in(nodes)
        & pl.col("at_us").is_between(recording.from_us, recording.to_us, closed="left")
    )
    excess = rows["taken_sms"] - rows["promised_sms"]
    figures: Figures = {"count": len(rows), "most_sms": int(excess.to_numpy().max(initial=0))}
    per_s = ratio(1e6 * len(rows), recording.measured_us)
    put(figures, "per_s", per_s, "nothing was measured")
    return figures


def _delays(recording: Recording, sdus: pl.DataFrame, waiting: pl.DataFrame) -> Figures:
    """Per 5QI: percentiles over SDUs of both directions, and of each, beside the budget."""
    figures: Figures = {}
    classes = {*sdus["five_qi"].to_list(), *waiting["five_qi"].to_list()}
    for five_qi in sorted(classes):
        mine, left = (part.filter(pl.col("five_qi") == five_qi) for part in (sdus, waiting))
        figures[str(five_qi)] = {
            "ran_delay_budget_us": recording.scope.budget_us(five_qi),
            **_percentiles(mine, left),
            **{
                name: _percentiles(
                    mine.filter(pl.col("direction") == direction),
                    left.filter(pl.col("direction") == direction),
                )
                for name, direction in DIRECTIONS.items()
            },
        }
    return figures


def _percentiles(sdus: pl.DataFrame, waiting: pl.DataFrame) -> Figures:
    delay = sdus["delay_us"].to_numpy()
    figures: Figures = {"n": len(delay)}
    for percent in (50, 95, 99):
        put(figures, f"p{percent}", percentile(delay, percent), "no SDU was delivered")
    put(figures, "late_byte_share", _late_share(sdus, waiting), "no SDU was delivered")
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
