"""The report's tables as text: one source for the page and for the terminal.

Every row carries its unit and its scope, every missing value its reason. Owns the words and the
order; computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.record.fates import LOST, REPEATED

Summary = Mapping[str, Any]

WITHIN = "within bounds"

WENT_LABELS = {
    "committed": "quanta of committed steps",
    "wasted": "quanta, work thrown away",
    "leased_fewer_sms": "leased; quantum on fewer SMs",
    "leased_gap": "leased; no quantum fitted or ran",
    "leased_waiting": "leased; waiting for other sites",
    "leased_idle": "leased; trainer had nothing to do",
    "not_leased": "not leased (step, notice, switch)",
}

BRIEF = ("Spare compute", "Where the idle SM-time went", "Radio", "Training")
"""Titles of the tables that the terminal shows; the page shows all."""

REAL = (
    (
        "processes, messages, failures",
        "separate OS processes, ZeroMQ, msgpack",
        "",
        "",
    ),
    (
        "radio",
        "",
        "MAC scheduler per slot, HARQ, queues, transport block sizes by the standard",
        "channel; UE arrivals (or a real trace)",
    ),
    (
        "PHY load",
        "torch kernels in every slot that carries data",
        "SM share, deadlines",
        "time per transport block, by a calibrated cost model",
    ),
    (
        "training",
        "torch forward and backward of a proxy model; its losses",
        "SM share of a lease",
        "duration and bytes of the declared model",
    ),
    (
        "links",
        "the proxy's bytes move",
        "latency and declared bytes / bandwidth; the rest is held",
        "",
    ),
)
SIMULATED = "Virtual time: all of it is modelled; no process, message, kernel or loss is real."


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: its name in words, unit, and a text per column; ``note`` explains a dash."""

    label: str
    unit: str
    values: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title; ``scope`` says over what the figures are."""

    title: str
    scope: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first line: whether the figures may be trusted, and whether the run went through."""

    good: bool
    text: str
    outcome_good: bool
    outcome: str


def verdict(summary: Summary) -> Verdict:
    """``fidelity: within bounds``, or the reason why it is not."""
    trust, run = summary["fidelity"], summary["run"]
    good = trust["verdict"] == WITHIN
    text = f"fidelity: {trust['verdict']}" if good else f"fidelity: {trust['reason']}"
    outcome = run["outcome"]
    ending = f"run: {outcome['status']}"
    if outcome.get("reason"):
        ending += f": {outcome['reason']}"
    return Verdict(good, text, bool(run["complete"]), ending)


def tables(summary: Summary) -> list[Table]:
    """All tables, in the order of the page."""
    found = [_spare(summary), _windows(summary), _went(summary), _wasted(summary)]
    found += [_ran(summary), _delays(summary), _training(summary), _fidelity(summary)]
    found += [_messages(summary)]
    return [table for table in found if table.rows]


def violation_rows(summary: Summary) -> list[Mapping[str, Any]]:
    """Violations of all sites in order of time."""
    sites = summary["spare"]["sites"].values()
    rows = [row for site in sites for row in site["violations"]["rows"]]
    return sorted(rows, key=lambda row: (row["at_us"], row["site"]))


def death_lines(summary: Summary) -> list[str]:
    """Each death of a process and what became of its next life, in order of time, and what is
    missing of it."""
    faults, simulated = summary["faults"], summary["run"]["mode"] == "sim"
    lines = [_death(row, simulated) for row in faults["deaths"]]
    if faults["rows_lost"]:
        lines.append(
            "Rows that a killed trainer had not sent yet (at most one second of wall time) are "
            "missing from its tables."
        )
    return lines


def _death(row: Mapping[str, Any], simulated: bool) -> str:
    who, reason, at = f"{row['node']} (life {row['life']})", row["reason"], row["at_us"] / 1e3
    exited = reason.startswith(("was ", "exited "))
    died = f"{who} {reason} at {at:.1f} ms" if exited else f"{who} died at {at:.1f} ms ({reason})"
    if row["ready_at_us"] is None:
        return f"{died}; {row['ready_at_us_reason']}"
    wall = "wall, assumed" if simulated else "wall"
    ready = f"life {row['life'] + 1} was ready {row['start_wall_ms'] / 1e3:.1f} s ({wall}) after"
    if row["healed_at_us"] is None:
        return f"{died}; {ready} its start; {row['healed_at_us_reason']}"
    return f"{died}; {ready} its start and had the state at {row['healed_at_us'] / 1e3:.1f} ms"


def share(value: float | None) -> str:
    """A fraction in percent."""
    return "–" if value is None else f"{100 * value:.2f}"


def number(value: float | None) -> str:
    """A number with separators; floats with three significant digits or more."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def _scope_text(summary: Summary) -> str:
    run = summary["run"]
    return f"{run['measured_us'] / 1e6:g} s of emulated time after the warm-up"


def _row(
    label: str,
    unit: str,
    columns: list[Mapping[str, Any]],
    key: str,
    show: Callable[[Any], str] = number,
) -> Row:
    values = tuple(show(column.get(key)) for column in columns)
    reasons = {str(column[f"{key}_reason"]) for column in columns if f"{key}_reason" in column}
    return Row(label, unit, values, "; ".join(sorted(reasons)))


def _by_site(section: Mapping[str, Any]) -> tuple[tuple[str, ...], list[Mapping[str, Any]]]:
    """("total", site, ...) and the figures of each."""
    sites = section.get("sites", {})
    return ("total", *sites), [section, *sites.values()]


def _spare(summary: Summary) -> Table:
    columns, each = _by_site(summary["spare"])
    rows = [
        _row("idle: SM-time that the RAN left", "% of all", each, "idle_fraction", share),
        _row("utilisation: in committed quanta", "% of idle", each, "utilisation", share),
        _row("the same, of what was usable", "% of usable", each, "used_of_usable", share),
        _row("efficiency to a dedicated GPU", "ratio", each, "efficiency"),
        _row("changes of the envelope", "per s", each, "envelope_changes_per_s"),
    ]
    for key, label in (("violations", "violations"), ("violation_jitter", "jitter (shorter)")):
        parts = [figures[key] for figures in each]
        rows.append(_row(label, "count", parts, "count"))
        rows.append(_row(f"{label}, duty", "% of time", parts, "duty", share))
    return Table("Spare compute", _scope_text(summary), columns, tuple(rows))


def _windows(summary: Summary) -> Table:
    columns, each = _by_site(summary["spare"])
    rows = []
    headline = summary["spare"]["headline_window_us"]
    for name, label in (
        ("usable_fraction", "usable, in hindsight"),
        ("promised_fraction", "promised ahead"),
    ):
        parts = [figures[name] for figures in each]
        for window in sorted(parts[0], key=lambda key: int(key.split("_")[0])):
            if not window.isdigit():
                continue
            mark = " (quantum_us)" if int(window) == headline else ""
            text = f"{label} for {int(window) / 1000:g} ms{mark}"
            rows.append(_row(text, "% of all", parts, window, share))
    return Table(
        "How long spare SMs stay spare",
        "mean over slot starts; windows that lie wholly within the measured time",
        columns,
        tuple(rows),
    )


def _went(summary: Summary) -> Table:
    columns, each = _by_site(summary["spare"])
    parts = [figures["where_it_went"] for figures in each]
    rows = []
    for key, label in WENT_LABELS.items():
        values = tuple(share(part[key]["share"]) for part in parts)
        rows.append(Row(label, "% of idle", values))
    total = tuple(share(sum(part[key]["share"] or 0.0 for key in WENT_LABELS)) for part in parts)
    rows.append(Row("sum", "% of idle", total))
    scope = "of all SM-time less the RAN's"
    return Table("Where the idle SM-time went", scope, columns, tuple(rows))


def _wasted(summary: Summary) -> Table:
    columns, each = _by_site(summary["spare"])
    parts = [figures["wasted"] for figures in each]
    rows = tuple(
        Row(cause.replace("_", " "), "SM-ms", tuple(number(p[cause]["sm_us"] / 1e3) for p in parts))
        for cause in parts[0]
        if any(part[cause]["sm_us"] for part in parts)
    )
    scope = "SM-time of quanta whose work was not committed"
    if any(part[cause]["sm_us"] for part in parts for cause in (LOST, REPEATED)):
        scope += ", or of what was done again for a step that was"
    return Table("Work thrown away", scope, columns, rows)


def _ran(summary: Summary) -> Table:
    section = summary["ran"]
    if not section["sites"]:
        return Table("Radio", "", (), ())
    columns, each = _by_site(section)
    rows = []
    for key, label, unit, show in (
        ("scheduled_blocks", "transport blocks", "count", number),
        ("deadline_miss_rate", "PHY deadline missed", "% of blocks", share),
        ("bler", "BLER, first transmission", "%", share),
        ("throughput_mbps", "throughput of SDUs", "Mb/s", number),
        ("jain", "Jain's index over UEs", "0..1", number),
    ):
        parts = [figures[key] for figures in each]
        rows += [_row(f"{label}, {way.upper()}", unit, parts, way, show) for way in ("dl", "ul")]
    late = "bytes later than their budget"
    rows.append(_row(late, "% of bytes", each, "late_byte_share", share))
    broken = [figures["emergencies"] for figures in each]
    rows.append(_row("emergencies: more SMs than promised", "count", broken, "count"))
    totals = [figures["bytes"] for figures in each]
    arrived = tuple(number(total["arrived"] / 1e6) for total in totals)
    rows.append(Row("arrived in the whole run", "MB", arrived))
    rows.append(_row("delivered by the end of the drain", "%", totals, "delivered_share", share))
    rows.append(_row("unaccounted for, whole run", "bytes", totals, "unaccounted"))
    return Table("Radio", _scope_text(summary), columns, tuple(rows))


def _delays(summary: Summary) -> Table:
    rows = []
    section = summary["ran"]
    names = ["all sites", *section["sites"]]
    for name, figures in zip(names, [section, *section["sites"].values()], strict=True):
        for five_qi, delay in figures.get("delay_us", {}).items():
            for way in ("dl", "ul"):
                part = delay[way]
                values = (
                    *(number(part[key]) for key in ("p50", "p95", "p99")),
                    number(delay["ran_delay_budget_us"]),
                    share(part["late_byte_share"]),
                    number(part["n"]),
                )
                rows.append(Row(f"{name}, 5QI {five_qi}, {way.upper()}", "µs", values))
    return Table(
        "Delay from arrival to successful decode",
        "SDUs that arrived in the measured time and were delivered by the end of the drain",
        ("p50", "p95", "p99", "budget", "late, % of bytes", "SDUs"),
        tuple(rows),
    )


def _training(summary: Summary) -> Table:
    section = summary["training"]
    jobs = section["jobs"]
    each = list(jobs.values())
    if not each:
        return Table("Training", "", (), ())
    rows = [
        _row("declared tokens, emulated time", "tokens/s", each, "tokens_per_s"),
        _row("proxy tokens, emulated time", "tokens/s", each, "proxy_tokens_per_s"),
        _row("steps committed, measured time", "count", each, "steps_committed"),
        _row("steps committed, whole run", "count", each, "steps_committed_in_run"),
        _row("steps abandoned", "count", each, "steps_abandoned"),
        *_members(each),
        _row("waiting at the barrier", "% of time", each, "barrier_time_share", share),
        _row("in the collective", "% of time", each, "sync_time_share", share),
    ]
    for key, label in (("first", "first"), ("last", "last"), ("mean_last_3", "mean of last three")):
        losses = [job["loss"] or {} for job in each]
        reasons = {str(job.get("loss_reason")) for job in each if job["loss"] is None}
        values = tuple(number(loss.get(key)) for loss in losses)
        rows.append(Row(f"loss, {label}", "nats/byte", values, "; ".join(sorted(reasons))))
    rows.append(_row("unigram entropy of the text", "nats/byte", each, "unigram_entropy_nats"))
    for key in ("issued", "committed", "returned", "duplicated", "duplicates_refused", "lost"):
        samples = [job["samples"] for job in each]
        label = f"samples {key.replace('_', ' ')}, whole run"
        rows.append(_row(label, "count", samples, key))
    return Table("Training", _scope_text(summary), tuple(jobs), tuple(rows))


def _members(jobs: list[Mapping[str, Any]]) -> list[Row]:
    """What became of trainers, where any was lost or a step had to go on in another epoch."""
    rows = []
    if any(job["steps_regrouped"] for job in jobs):
        label = "steps that went on in another epoch"
        rows.append(_row(label, "count", jobs, "steps_regrouped"))
    if all(job["members"] is None for job in jobs):
        return rows
    each = [job["members"] or {} for job in jobs]
    rows += [_row(f"members {key}", "count", each, key) for key in ("lost", "joined", "healed")]
    took = [figures.get("heal_us") or {} for figures in each]
    for key, label in (("p50", "p50"), ("max", "longest")):
        if any(took):
            rows.append(_row(f"from joined to healed, {label}", "µs", took, key))
    return rows


def _fidelity(summary: Summary) -> Table:
    trust = summary["fidelity"]
    late = trust["lateness_us"]
    rows = [
        Row(
            "slots on time, worst process",
            "%",
            (share(trust["slots_on_time"]),),
            trust.get("slots_on_time_reason", trust.get("slots_on_time_worst_node") or ""),
        ),
        *(
            Row(f"lateness of wake-ups, {key}", "µs", (number(late[key]),))
            for key in ("p50", "p99", "max")
        ),
        Row("wake-ups", "count", (number(late["n"]),)),
        Row(
            "host below half of its best speed", "% of samples", (share(trust["host_slow_share"]),)
        ),
        Row("host at its slowest", "x slower", (number(trust["host_slowdown"]["max"]),)),
        Row("slots on time while it was not", "%", (share(trust["slots_on_time_at_speed"]),)),
        Row("lateness, p99, while it was not", "µs", (number(trust["lateness_p99_at_speed_us"]),)),
        Row("taken by the host's hypervisor", "% of CPU time", (share(trust["host_steal_share"]),)),
        Row("PHY work beyond its hold", "count", (number(trust["overruns"]),)),
        Row("quanta beyond their model", "count", (number(trust["quanta_overruns"]),)),
        Row("feedback after its slot", "count", (number(trust["late_feedback"]),)),
        Row("tolerance of violations", "µs", (number(trust["tolerance_us"]),)),
        Row("clock", "", (str(trust["clock_source"]),)),
    ]
    return Table(
        "Fidelity", "emulated time; on time: at most 10 % of a slot late", ("value",), tuple(rows)
    )


def _messages(summary: Summary) -> Table:
    section = summary["messages"]
    rows = [
        Row(f"round trip, {pair}", "µs", (number(rtt["p50"]), number(rtt["p99"]), number(rtt["n"])))
        for pair, rtt in sorted((section["rtt_us"] or {}).items())
    ]
    return Table("Messages", "wall time", ("p50", "p99", "n"), tuple(rows))
