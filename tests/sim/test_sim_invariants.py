"""What must hold in any run: a hundred seeds of a small one, each rule on every row.

The site: two gNBs of one cell each share a gb10 (48 SMs) with a job; load, channel and HARQ differ
from seed to seed, and the mean SINR is low enough that blocks fail.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

import pytest
from sim_topologies import FULL, NONE, cell, ftp3, head, job, loaded, one_site, rows, simulate

from testbed.record.schema import SampleEvent

SMS = 48
MAX_TRANSMISSIONS = 4
LATE, NO_FEEDBACK = 2, 3
SEEDS = range(100)

TEXT = (
    head("hundred", 10_000, warmup_us=2_500)
    + '\n[sites.north]\ngpu = "gb10"\n'
    + cell("north", "g1", ftp3(0.7, 8_000), ftp3(0.4, 20_000), ues=3, sinr_db=10.0)
    + cell("north", "g2", ftp3(0.4, 8_000), ftp3(0.7, 20_000), ues=3, sinr_db=10.0)
    + job("north", batch=1)
)


def most_at_once(intervals: Iterable[tuple[int, int, int]]) -> int:
    """The largest sum of ``sms`` over (start, end, sms) at any time."""
    changes: dict[int, int] = defaultdict(int)
    for start, end, sms in intervals:
        changes[start] += sms
        changes[end] -= sms
    now = most = 0
    for time in sorted(changes):
        now += changes[time]
        most = max(most, now)
    return most


def pieces(run, planned: int) -> list[tuple[int, int, int]]:
    return [
        (row["from_us"], row["to_us"], row["sms"])
        for row in rows(run, "ran_pieces")
        if row["planned"] == planned
    ]


def check_gpu(run) -> None:
    reserved = pieces(run, 1)
    leases = [(r["start_us"], r["end_us"], r["sms"]) for r in rows(run, "leases")]
    quanta = [(r["start_us"], r["end_us"], r["sms"]) for r in rows(run, "quanta")]
    assert reserved
    assert quanta
    assert most_at_once(reserved) <= SMS
    # RAN work is known before a lease reaches it, so this covers "known when it was granted".
    assert most_at_once(reserved + leases) <= SMS
    assert most_at_once(quanta + pieces(run, 0)) <= SMS
    assert sorted(reserved) == sorted(pieces(run, 0)), "no quantum was late: the plan is what ran"
    starts = sorted((start, end) for start, end, _ in quanta)
    assert all(end <= start for (_, end), (start, _) in pairwise(starts))
    granted = defaultdict(list)
    for row in rows(run, "leases"):
        granted[row["epoch"]].append(row["granted_us"])
    assert all(row["start_us"] >= 0 for row in rows(run, "quanta"))
    assert all(len(set(times)) == 1 for times in granted.values())


def check_samples(run) -> None:
    seen: dict[SampleEvent, Counter[int]] = {event: Counter() for event in SampleEvent}
    for row in rows(run, "samples"):
        seen[SampleEvent(row["event"])][row["sample"]] += 1
    issued, committed = seen[SampleEvent.ISSUED], seen[SampleEvent.COMMITTED]
    assert issued
    assert issued == committed + seen[SampleEvent.RETURNED], "issued = committed + returned"
    assert all(times == 1 for times in committed.values())
    assert not seen[SampleEvent.DUPLICATE]
    assert sorted(issued) == list(range(len(issued)))


def check_radio(run) -> None:
    counters = rows(run, "ran_counters")
    assert len(counters) == 2 * 2 * 2  # cells, directions, end of warm-up and of the run
    for row in counters:
        left = row["buffered_bytes"] + row["in_flight_bytes"] + row["delivered_bytes"]
        assert row["arrived_bytes"] == left, row
        assert row["late_feedback"] == 0
    blocks = rows(run, "blocks")
    assert blocks
    assert all(1 <= row["transmission"] <= MAX_TRANSMISSIONS for row in blocks)
    once = Counter((row["cell"], row["air_slot"], row["direction"], row["ue"]) for row in blocks)
    assert max(once.values()) == 1
    prbs: Counter[tuple[int, int, int]] = Counter()
    for row in blocks:
        prbs[row["cell"], row["air_slot"], row["direction"]] += row["n_prb"]
        uplink_slot = row["air_slot"] % 5 == 4
        assert uplink_slot == bool(row["direction"]), "DDDSU"
    assert max(prbs.values()) <= 273
    delivered = sum(row["bytes"] for row in rows(run, "sdus"))
    final = {(row["cell"], row["direction"]): row["delivered_bytes"] for row in counters}
    assert delivered <= sum(final.values())
    assert all(row["delivered_us"] > row["arrival_us"] for row in rows(run, "sdus"))


@pytest.mark.parametrize("first", SEEDS[::20])
def test_rules_hold_for_every_seed(tmp_path, first):
    retransmitted = 0
    for seed in range(first, first + 20):
        run = simulate(loaded(tmp_path, TEXT, seed=seed))
        try:
            check_gpu(run)
            check_samples(run)
            check_radio(run)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        retransmitted += sum(row["transmission"] > 1 for row in rows(run, "blocks"))
    assert retransmitted, "the channel must fail now and then, or HARQ was not put to a test"


def test_full_buffer_runs_and_leaves_the_radio_no_idle_slot(tmp_path):
    run = simulate(loaded(tmp_path, one_site(ul=FULL, dl=FULL)))
    check_gpu(run)
    check_samples(run)
    sent = {row["air_slot"] for row in rows(run, "blocks") if row["direction"] == 1}
    assert set(range(9, 45, 5)) <= sent, "every uplink slot of 22.5 ms but the first carries data"


def test_trace_is_replayed_byte_for_byte(tmp_path):
    """Three arrivals of a trace: 1000 + 2000 bytes up, 5000 down, all delivered."""
    lines = ["time_us,rnti,direction,bytes", "100,7,UL,1000", "4000,7,DL,5000", "6000,9,UL,2000"]
    (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
    trace = 'kind = "trace"\npath = "trace.csv"'
    run = simulate(loaded(tmp_path, one_site(ul=trace, dl=trace)))
    check_samples(run)
    got = sorted((row["direction"], row["arrival_us"], row["bytes"]) for row in rows(run, "sdus"))
    assert got == [(0, 4000, 5000), (1, 100, 1000), (1, 6000, 2000)]


def test_site_without_cells_trains_on_the_whole_gpu(tmp_path):
    text = head("pool", 20_000) + '\n[sites.pool]\ngpu = "gb10"\n' + job("pool")
    run = simulate(loaded(tmp_path, text))
    quanta = rows(run, "quanta")
    gaps = [after["start_us"] - row["end_us"] for row, after in pairwise(quanta)]
    assert len(quanta) > 50
    assert sorted(gaps)[len(gaps) // 2] <= 10, "quanta follow each other, at the hosts' overhead"


def test_without_a_job_the_gpu_is_left_alone(tmp_path):
    text = one_site(ul=FULL, dl=NONE)
    run = simulate(loaded(tmp_path, text[: text.index("[jobs.")]))
    assert rows(run, "ran_tasks")
    assert not rows(run, "quanta")
    assert not rows(run, "leases")
