import csv

import pytest

from testbed.errors import TraceError
from testbed.ran.nr_scope import REQUIRED_COLUMNS, parse_nr_scope
from testbed.ran.numerology import Direction
from testbed.ran.traces import dump_trace, load_trace

from .helpers import DATA

UL, DL = Direction.UL, Direction.DL


@pytest.fixture(scope="module")
def real_lines():
    return (DATA / "nr_scope_dci.csv").read_text().splitlines(keepends=True)


def test_real_log(real_lines):
    result = parse_nr_scope(real_lines, "nr_scope_dci.csv")
    report = result.report
    # Counted in the file: 2600 lines, 6 of them headers, 604 rows without a block.
    assert report.data_rows == 2594
    assert report.repeated_header_lines == (2, 3, 4, 5, 6)
    assert len(report.undecodable_lines) == 604
    assert report.undecodable_lines[:3] == (8, 9, 12)
    assert report.arrivals + report.retransmissions == 1990
    # 81 blocks have NDI and size of the last of their process, nearly all long after it.
    assert 0 < report.retransmissions < 81

    repeats = set(report.retransmission_lines)
    skipped = repeats | set(report.undecodable_lines) | set(report.repeated_header_lines)
    names = real_lines[0].strip().split(",")
    counted = {"0_1": 0, "1_1": 0}
    for number, line in enumerate(real_lines, start=1):
        if number > 1 and number not in skipped:
            row = dict(zip(names, line.strip().split(","), strict=True))
            counted[row["dci_format"]] += int(row["transport_block_size"]) // 8
    assert (report.ul_bytes, report.dl_bytes) == (counted["0_1"], counted["1_1"])
    assert load_trace(dump_trace(result.trace), "t") == result.trace


def test_both_clocks_agree(real_lines):
    # The cell has 10 slots per frame, 15 kHz. Its frame numbers wrap 20 times within the log.
    stamps = parse_nr_scope(real_lines, "log").trace.arrivals
    frames = parse_nr_scope(real_lines, "log", clock="frame", scs_khz=15).trace.arrivals
    assert len(stamps) == len(frames)
    assert frames[-1].time_us == pytest.approx(stamps[-1].time_us, abs=20_000)


def log(*rows):
    """Lines of a log with the needed columns only."""
    return [",".join(REQUIRED_COLUMNS), *(",".join(str(value) for value in row) for row in rows)]


def dci(time_s, rnti=100, fmt="0_1", prbs=8, bits=800, rv=0, ndi=0, harq=0, sfn=0, slot=0):
    return (time_s, sfn, slot, rnti, fmt, prbs, bits, rv, ndi, harq)


def arrivals(lines, **options):
    trace = parse_nr_scope(lines, "log", **options).trace
    return [(a.time_us, a.rnti, a.direction, a.n_bytes) for a in trace.arrivals]


def test_format_0_is_uplink_and_format_1_downlink_from_the_first_row_on():
    lines = log(dci(2.5, fmt="0_0"), dci(2.501, rnti=101, fmt="1_1", bits=96))
    assert arrivals(lines) == [(0, 100, UL, 100), (1000, 101, DL, 12)]


@pytest.mark.parametrize(
    ("second", "is_new"),
    [
        ({"ndi": 1}, True),  # toggled: new data
        ({"ndi": 0}, False),  # not toggled, same size, at once: the same block again
        ({"ndi": 0, "bits": 808}, True),  # another size cannot be the same block
        ({"ndi": 0, "time_s": 0.2}, True),  # long after: a grant between them was missed
        ({"ndi": 1, "rv": 2}, False),  # redundancy version 2 is never the first transmission
        ({"ndi": 0, "harq": 1}, True),  # another process
        ({"ndi": 0, "rnti": 101}, True),  # another UE
        ({"ndi": 0, "fmt": "1_1"}, True),  # another direction
    ],
)
def test_new_data_or_retransmission(second, is_new):
    lines = log(dci(0.0), dci(**({"time_s": 0.008} | second)))
    assert len(arrivals(lines)) == (2 if is_new else 1)


def test_undecodable_rows_are_counted_not_fatal():
    lines = log(dci(0, prbs=0), dci(0.001, prbs=""), dci(0.002, bits=0), dci(0.003, bits=""))
    lines.insert(3, lines[0])
    report = parse_nr_scope(lines, "log").report
    assert report.undecodable_lines == (2, 3, 5, 6)
    assert report.repeated_header_lines == (4,)
    assert report.arrivals == 0


def test_rows_out_of_order_are_sorted():
    lines = log(dci(1.0, harq=1), dci(0.9, harq=2))
    assert [time_us for time_us, *_ in arrivals(lines)] == [0, 100_000]


def test_frame_clock_unwraps_with_and_without_timestamps():
    # Frame 1023 slot 19, then frame 0 slot 1 at 30 kHz: two slots of 500 us later.
    lines = log(dci("", sfn=1023, slot=19), dci("", sfn=0, slot=1, harq=1))
    assert [t for t, *_ in arrivals(lines, clock="frame", scs_khz=30)] == [0, 1000]
    # The same with 3 x 10.24 s between, which the timestamp alone can tell.
    lines = log(dci(5.0, sfn=1023, slot=19), dci(35.721, sfn=0, slot=1, harq=1))
    assert [t for t, *_ in arrivals(lines, clock="frame", scs_khz=30)] == [0, 30_721_000]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,b,c", "1,2,3"], r"log, line 1: not an NR-Scope DCI log: no column 'timestamp'"),
        ([], r"log, line 1: not an NR-Scope DCI log"),
        (log((1, 2, 3)), r"log, line 2: 3 columns, allowed are 10"),
        (log(dci("noon")), r"line 2, column timestamp: value 'noon', allowed is seconds"),
        (log(dci("nan")), r"line 2, column timestamp: value 'nan'"),
        (log(dci(0), dci(0, rnti="x")), r"line 3, column rnti: value 'x', .*0 to 65535"),
        (log(dci(0, fmt="2_0")), r"column dci_format: value '2_0', allowed is 0_0 or 0_1"),
        (log(dci(0, bits="-8")), r"column transport_block_size: value '-8'"),
        (log(dci(0, ndi=2)), r"column new_data_indicator: value '2', .*0 to 1"),
        (log(dci(0, rv="?")), r"column redundancy_version: value '\?'"),
        (log(dci(0, harq=99)), r"column harq_id: value '99'"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(lines, message):
    with pytest.raises(TraceError, match=message):
        parse_nr_scope(lines, "log")


def test_slot_index_must_fit_the_spacing():
    lines = log(dci(0, slot=10))
    with pytest.raises(TraceError, match=r"column slot_index: value '10', .*0 to 9"):
        parse_nr_scope(lines, "log", clock="frame", scs_khz=15)


def test_columns_may_stand_in_any_order():
    lines = log(dci(0), dci(0.001, ndi=1))
    rows = list(csv.reader(lines))
    turned = [",".join(row[:1] + row[:0:-1]) for row in rows]
    assert arrivals(turned) == arrivals(lines)


def test_bad_rows_can_be_skipped():
    lines = log(
        dci(0), dci(0.001, rnti="x"), dci("?"), dci(0.002, harq=99), (1,), dci(0.003, ndi=1)
    )
    result = parse_nr_scope(lines, "log", bad_rows="skip")
    assert [a.time_us for a in result.trace.arrivals] == [0, 3000]
    assert [message[: len("log, line N")] for message in result.report.bad_rows] == [
        f"log, line {number}" for number in (3, 4, 5, 6)
    ]
    assert result.report.data_rows == 6


def test_a_bad_row_does_not_move_the_frame_clock():
    """Frames 0 and 600 are 6 s apart, which without a timestamp is read as 4.24 s back. A bad row
    between them, at frame 300, would make 6 s of it."""
    rows = (dci("", sfn=0), dci("", sfn=300, rnti="x"), dci("", sfn=600, harq=1))
    options = {"clock": "frame", "scs_khz": 15}
    skipped = arrivals(log(*rows), bad_rows="skip", **options)
    assert skipped == arrivals(log(rows[0], rows[2]), **options)
    assert [time_us for time_us, *_ in skipped] == [0, 4_240_000]
