"""From bytes per interval to arrivals and to profiles."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from testbed.errors import TraceError
from testbed.ran.importers.common import IntervalLoad, LoadLog, ReadOptions
from testbed.ran.importers.formats import read_log
from testbed.ran.importers.profile import profile_of, profile_of_trace
from testbed.ran.importers.spread import MAX_ARRIVALS, SpreadOptions, spread_loads
from testbed.ran.numerology import Direction
from testbed.ran.traces import Trace, TraceArrival, dump_trace, load_trace

from .helpers import DATA

UL, DL = Direction.UL, Direction.DL


def log_of(*loads, chosen=()):
    """A log of (start_us, length_us, cell, rnti, dl_bytes, ul_bytes)."""
    cells = tuple(sorted({load[2] for load in loads}))
    return LoadLog(tuple(IntervalLoad(*load) for load in loads), cells, chosen, len(loads), (), ())


def spread(log, **options):
    return [
        (a.time_us, a.rnti, a.direction, a.n_bytes)
        for a in spread_loads(log, SpreadOptions(**options)).arrivals
    ]


def test_even_spread_by_hand():
    """3500 bytes in files of 1500: at 1/6, 3/6 and 5/6 of the interval, the last holds 500."""
    log = log_of((0, 600_000, "0", 17, 3500, 0), (600_000, 100_000, "0", 17, 0, 20))
    assert spread(log) == [
        (100_000, 17, DL, 1500),
        (300_000, 17, DL, 1500),
        (500_000, 17, DL, 500),
        (650_000, 17, UL, 20),
    ]


def test_a_cells_total_is_dealt_over_ues_in_turn():
    log = log_of((0, 400, "0", None, 40, 0), (400, 400, "0", None, 20, 10))
    assert spread(log, file_bytes=10, ues=3) == [
        (50, 1, DL, 10),
        (150, 2, DL, 10),
        (250, 3, DL, 10),
        (350, 1, DL, 10),
        (500, 2, DL, 10),
        (600, 1, UL, 10),
        (700, 3, DL, 10),
    ]


def test_fractions_of_bytes_add_up():
    """0.4 bytes per interval: whole bytes appear when the sum is nearest to the next one."""
    log = log_of(*((n * 10, 10, "0", 5, 0.4, 0) for n in range(5)))
    # Sums 0.4, 0.8, 1.2, 1.6, 2.0, rounded 0, 1, 1, 2, 2.
    assert spread(log) == [(15, 5, DL, 1), (35, 5, DL, 1)]


loads = st.lists(
    st.tuples(
        st.integers(0, 20).map(lambda n: n * 1000),
        st.integers(1, 1000),
        st.just("0"),
        st.sampled_from([None, 17, 18]),
        st.floats(0, 900),
        st.floats(0, 900),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda load: (load[0], load[3]),
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@settings(max_examples=50)
@given(
    rows=loads,
    kind=st.sampled_from(["even", "poisson"]),
    file_bytes=st.integers(20, 1500),
    seed=st.integers(0, 9),
)
def test_bytes_are_conserved_and_stay_in_their_interval(rows, kind, file_bytes, seed):
    streams = {row[3] for row in rows}
    totals = {
        direction: sum(round(sum(r[index] for r in rows if r[3] == rnti)) for rnti in streams)
        for index, direction in ((4, DL), (5, UL))
    }
    assume(any(totals.values()))
    options = SpreadOptions(file_bytes=file_bytes, spread=kind, seed=seed)
    trace = spread_loads(log_of(*rows), options)
    assert load_trace(dump_trace(trace), "t") == trace
    assert max(a.n_bytes for a in trace.arrivals) <= file_bytes
    assert {direction: trace.total_bytes(direction) for direction in Direction} == totals
    assert all(
        any(start <= a.time_us < start + length for start, length, *_ in rows)
        for a in trace.arrivals
    )


def test_poisson_times_depend_on_their_key_alone():
    first = (0, 10_000, "0", 7, 90_000, 3000)
    second = (10_000, 10_000, "0", 8, 6000, 0)
    both = spread(log_of(first, second), spread="poisson", seed=4)
    assert both == spread(log_of(first, second), spread="poisson", seed=4)
    assert both != spread(log_of(first, second), spread="poisson", seed=5)
    # Less load of one UE leaves the times of the other as they were.
    less = spread(log_of((*first[:4], 1500, 0), second), spread="poisson", seed=4)
    assert [a for a in both if a[1] == 8] == [a for a in less if a[1] == 8]


def test_poisson_times_are_uniform_and_even_ones_are_not():
    """Given their number, a Poisson process's times are uniform: the mean gap of 2000 times in
    [0, 1) is 1/2000 and its coefficient of variation is 1 (exponential); even spread has 0."""
    log = log_of((0, 10**9, "0", 7, 2000, 0))
    gaps = {
        kind: np.diff([t for t, *_ in spread(log, file_bytes=1, spread=kind)])
        for kind in ("even", "poisson")
    }
    assert np.std(gaps["poisson"]) / np.mean(gaps["poisson"]) == pytest.approx(1, abs=0.1)
    assert np.std(gaps["even"]) == 0


def test_window_takes_parts_of_intervals():
    """From 0.25 s to 1.25 s: three quarters of the first interval, a quarter of the second."""
    log = log_of((0, 1_000_000, "0", 5, 400, 0), (1_000_000, 1_000_000, "0", 5, 0, 800))
    assert spread(log, start_s=0.25, length_s=1.0) == [(375_000, 5, DL, 300), (875_000, 5, UL, 200)]
    assert spread(log, start_s=1.5) == [(250_000, 5, UL, 400)]
    with pytest.raises(TraceError, match="no byte from 2 s on; the log lasts 2 s"):
        spread(log, start_s=2.0)


def test_several_cells_must_be_chosen():
    rows = [(0, 100, "a", 17, 10, 0), (0, 100, "b", 17, 20, 0)]
    with pytest.raises(TraceError, match=r"the log has 2 cells, choose one \(--cell\): a, b"):
        spread(log_of(*rows))
    # Taken together by name: the same RNTI in two cells is two UEs.
    assert spread(log_of(*rows, chosen=("a", "b"))) == [(50, 1, DL, 10), (50, 2, DL, 20)]


def test_a_list_of_many_cells_is_cut():
    rows = [(0, 100, f"{n:02}", None, 10, 0) for n in range(30)]
    with pytest.raises(TraceError, match=r"18, 19, \.\.\. \(30 in all\)$"):
        spread(log_of(*rows))


def test_too_many_arrivals_are_refused_before_they_are_made():
    log = log_of((0, 600_000_000, "0", None, 1500.0 * MAX_ARRIVALS * 2, 0))
    with pytest.raises(
        TraceError, match=r"about 1e\+07 arrivals of 1500 bytes, allowed are 5000000"
    ):
        spread(log)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file_bytes": 0}, "file_bytes = 0: allowed is 1 to"),
        ({"ues": 0}, "ues = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"start_s": -1.0}, "start_s = -1.0"),
        ({"length_s": 0.0}, "length_s = 0.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(TraceError, match=message):
        SpreadOptions(**options)


def test_real_base_station_as_a_trace():
    """The slice's own sums: every report's rate times its 249 to 251 ms, rounded once."""
    with (DATA / "commag_bs.csv").open() as file:
        log = read_log("commag-bs", [("bs", file)], ReadOptions())
    trace = spread_loads(log, SpreadOptions(spread="poisson"))
    assert trace.total_bytes(DL) == round(sum(load.dl_bytes for load in log.loads))
    assert trace.total_bytes(UL) == round(sum(load.ul_bytes for load in log.loads))


def test_profile_sums_the_ues_of_a_cell():
    log = log_of(
        (0, 1_000_000, "a", 1, 10, 1),
        (0, 1_000_000, "a", 2, 20, 2),
        (0, 2_000_000, "b", 1, 5, 5),
        (1_000_000, 1_000_000, "a", 1, 7.5, 0),
    )
    profile = profile_of(log)
    assert profile.time_s.tolist() == [0, 0, 1]
    assert profile.length_s.tolist() == [1, 2, 1]
    assert profile.cell.tolist() == ["a", "b", "a"]
    assert profile.dl_bytes.tolist() == [30, 5, 7.5]
    assert profile.ul_bytes.tolist() == [3, 5, 0]


def test_profile_of_a_trace_has_empty_intervals_too():
    trace = Trace(
        (
            TraceArrival(0, 1, DL, 5),
            TraceArrival(999_999, 2, UL, 6),
            TraceArrival(2_000_000, 1, DL, 7),
        )
    )
    profile = profile_of_trace(trace, 1.0)
    assert profile.time_s.tolist() == [0, 1, 2]
    assert profile.cell.tolist() == ["0"] * 3
    assert profile.dl_bytes.tolist() == [5, 0, 7]
    assert profile.ul_bytes.tolist() == [6, 0, 0]
