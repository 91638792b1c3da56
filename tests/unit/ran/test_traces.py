import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import TraceError
from testbed.ran.numerology import Direction
from testbed.ran.traces import (
    Trace,
    TraceArrival,
    busiest_window,
    dump_trace,
    load_trace,
    map_rntis,
)

UL, DL = Direction.UL, Direction.DL

arrival_lists = st.lists(
    st.builds(
        TraceArrival,
        time_us=st.integers(0, 10_000),
        rnti=st.integers(0, 0xFFFF),
        direction=st.sampled_from(Direction),
        n_bytes=st.integers(1, 10**6),
    ),
    max_size=30,
).map(lambda arrivals: Trace(tuple(sorted(arrivals, key=lambda a: a.time_us))))


@given(arrival_lists)
def test_a_trace_survives_its_file(trace):
    assert load_trace(dump_trace(trace), "t.csv") == trace


def test_format_is_what_is_documented():
    trace = Trace((TraceArrival(5, 17, UL, 100), TraceArrival(9, 18, DL, 7)))
    assert list(dump_trace(trace)) == [
        "time_us,rnti,direction,bytes\n",
        "5,17,UL,100\n",
        "9,18,DL,7\n",
    ]


HEADER = "time_us,rnti,direction,bytes"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], r"t\.csv, line 1: header is ''"),
        (["time,rnti"], r"line 1: header is 'time,rnti', allowed is 'time_us,rnti,"),
        ([HEADER, "1,2,UL"], r"line 2: 3 columns, allowed are 4"),
        ([HEADER, "x,2,UL,5"], r"line 2, column time_us: value 'x', allowed is an integer"),
        ([HEADER, "9,2,UL,5", "8,2,UL,5"], r"line 3, column time_us: value '8', .*previous row"),
        ([HEADER, "1,70000,UL,5"], r"column rnti: value '70000', .* 0 to 65535"),
        ([HEADER, "1,2,up,5"], r"column direction: value 'up', allowed is DL or UL"),
        ([HEADER, "1,2,UL,0"], r"column bytes: value '0', allowed is an integer from 1"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(lines, message):
    with pytest.raises(TraceError, match=message):
        load_trace(lines, "t.csv")


def test_arrivals_out_of_order_are_no_trace():
    with pytest.raises(ValueError, match="order of time"):
        Trace((TraceArrival(5, 1, UL, 1), TraceArrival(4, 1, UL, 1)))


def test_busiest_window_by_hand():
    times_bytes = [(0, 5), (10, 1), (100, 3), (110, 3), (119, 3), (300, 8)]
    trace = Trace(tuple(TraceArrival(t, 1, UL, n) for t, n in times_bytes))
    assert busiest_window(trace, 20) == 100  # 9 bytes
    assert busiest_window(trace, 19) == 300  # 119 is no longer in [100, 119): 6 bytes against 8
    assert busiest_window(trace, 10**6) == 0
    assert busiest_window(Trace(()), 20) == 0
    with pytest.raises(ValueError, match="length_us = 0"):
        busiest_window(trace, 0)


@given(arrival_lists, st.integers(1, 12_000))
def test_busiest_window_is_the_best_start_of_all(trace, length_us):
    def held(start_us):
        return sum(
            a.n_bytes for a in trace.arrivals if start_us <= a.time_us < start_us + length_us
        )

    best = busiest_window(trace, length_us)
    assert held(best) == max((held(a.time_us) for a in trace.arrivals), default=0)


def test_heaviest_rnti_is_the_first_ue():
    trace = Trace(
        (TraceArrival(0, 30, UL, 5), TraceArrival(1, 20, DL, 9), TraceArrival(2, 10, UL, 5))
    )
    assert map_rntis(trace, 2) == {20: 0, 10: 1, 30: 0}
