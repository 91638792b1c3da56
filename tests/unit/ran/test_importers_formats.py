"""Importers of load logs: the real slices, and rows built by the published formats."""

import csv
import json
from itertools import pairwise

import pytest

from testbed.errors import TraceError
from testbed.ran.importers.common import ReadOptions
from testbed.ran.importers.formats import FORMATS, read_log
from testbed.ran.importers.names import INTERVAL_FORMATS

from .helpers import DATA


def read(kind, *texts, **options):
    sources = [
        (f"log{number}" if number else "log", text.splitlines(keepends=True))
        for number, text in enumerate(texts)
    ]
    return read_log(kind, sources, ReadOptions(**options))


def real(name):
    return (DATA / name).read_text()


def rows_of(log):
    return [(x.start_us, x.length_us, x.cell, x.rnti, x.dl_bytes, x.ul_bytes) for x in log.loads]


def test_every_name_has_a_reader():
    assert tuple(FORMATS) == INTERVAL_FORMATS


# COMMAG, ColO-RAN


def test_real_ue_metrics():
    """Sums by hand from the file: the tx rates add up to 0.1620947 Mb/s and eight of the twelve rx
    rates are 0.1; every report covers 250 ms, but row 7 follows a gap, and so do 8, 11 and 12."""
    log = read("commag-ue", real("commag_ue_metrics.csv"))
    assert (log.data_rows, len(log.loads), log.bad_rows) == (12, 12, ())
    assert {(load.cell, load.rnti, load.length_us) for load in log.loads} == {("0", 86, 250_000)}
    assert sum(load.dl_bytes for load in log.loads) == pytest.approx(0.1620947e6 * 0.25 / 8)
    assert sum(load.ul_bytes for load in log.loads) == pytest.approx(8 * 0.1e6 * 0.25 / 8)
    # The first report ends at ...586060 ms, the last at ...613060, 27 s later.
    assert log.loads[0].start_us == 0
    assert log.loads[-1].start_us == 27_000_000
    assert log.notes[0].startswith("2 rows with a negative sum_requested_prbs")
    assert log.notes[1].startswith("4 gaps between reports")


def test_real_base_station_rates():
    """In bit/s. Reports come 249 to 251 ms apart, each covering the time since the one before it;
    the two gaps of the slice (1604109588560 to ...611560, ...611810 to ...615810) hold nothing."""
    text = real("commag_bs.csv")
    rows = [
        (int(row["time"]), float(row["dl_brate"]), float(row["ul_brate"]))
        for row in csv.DictReader(text.splitlines())
    ]
    log = read("commag-bs", text)
    assert len(log.loads) == 20
    for (before, *_), (time_ms, dl, ul), load in zip(rows, rows[1:], log.loads[1:], strict=False):
        length_ms = time_ms - before if time_ms - before < 300 else 250
        assert load.length_us == length_ms * 1000
        assert load.start_us == (time_ms - length_ms - (rows[0][0] - 250)) * 1000
        assert load.dl_bytes == pytest.approx(dl * length_ms / 8000)
        assert load.ul_bytes == pytest.approx(ul * length_ms / 8000)
    assert sum(later[0] - earlier[0] > 375 for earlier, later in pairwise(rows)) == 2
    assert any(note.startswith("2 gaps") for note in log.notes)


def ue_row(time_ms, rnti=70, tx="1.5", rx="0.25", requested="10"):
    """A row of ten columns in the order of the format, separators among them."""
    return f"{time_ms},3,1010123456002,{rnti},,1,{tx},{rx},,{requested}"


UE_HEADER = (
    "Timestamp,num_ues,IMSI,RNTI,,slicing_enabled,tx_brate downlink [Mbps],"
    "rx_brate uplink [Mbps],,sum_requested_prbs"
)


def lines(*rows):
    return "\n".join(rows) + "\n"


def test_ue_files_of_one_cell_come_together():
    """1.5 Mb/s for 250 ms are 46,875 bytes, 0.25 Mb/s 7812.5 (hand calculation)."""
    log = read(
        "commag-ue",
        lines(UE_HEADER, ue_row(1000), ue_row(1251)),
        lines(UE_HEADER, ue_row(1000, rnti=71, tx="0", rx="0")),
    )
    assert rows_of(log) == [
        (0, 250_000, "0", 70, 46_875.0, 7812.5),
        (0, 250_000, "0", 71, 0.0, 0.0),
        (250_000, 251_000, "0", 70, 47_062.5, 7843.75),
    ]
    assert (log.cells, log.chosen) == (("0",), ())


def test_a_repeated_header_and_rows_out_of_order_do_no_harm():
    text = lines(UE_HEADER, ue_row(1250), "", UE_HEADER, ue_row(1000))
    ordered = lines(UE_HEADER, ue_row(1000), ue_row(1250))
    assert rows_of(read("commag-ue", text)) == rows_of(read("commag-ue", ordered))


def test_another_report_interval():
    log = read("commag-bs", "time,nof_ue,dl_brate,ul_brate\n5000,1,8,80\n", interval_s=2.0)
    assert rows_of(log) == [(0, 2_000_000, "0", None, 2.0, 20.0)]


# Milan


def milan(*rows):
    """Rows of (square, interval from 2013-12-01 00:00 in Milan, country, internet)."""
    first_ms = 1_385_852_400_000
    return "".join(
        f"{square}\t{first_ms + 600_000 * turn}\t{country}\t0.2\t\t0.04\t\t{internet}\n"
        for square, turn, country, internet in rows
    )


def test_milan_adds_countries_and_reads_blanks_as_zero():
    """Busiest interval of square 4821: 2 + 6 = 8 units; 80 Mb/s for 600 s are 6e9 bytes, so a unit
    is 7.5e8; a tenth goes up unless told otherwise (hand calculation)."""
    text = milan((4821, 0, 39, "2"), (4821, 0, 33, "6"), (4821, 1, 39, ""), (4821, 2, 39, "1"))
    log = read("milan", text, peak_mbps=80.0)
    assert log.data_rows == 4
    assert [(x.start_us, x.length_us, x.cell) for x in log.loads] == [
        (turn * 600_000_000, 600_000_000, "4821") for turn in range(3)
    ]
    assert [x.dl_bytes for x in log.loads] == pytest.approx([5.4e9, 0, 6.75e8])
    assert [x.ul_bytes for x in log.loads] == pytest.approx([6e8, 0, 7.5e7])
    assert log.notes == ("busiest interval set to 80 Mb/s, 10% of it uplink (assumed)",)


TWO_SQUARES = milan((5, 0, 39, "4"), (6, 0, 39, "0"), (5, 1, 39, "3"), (6, 1, 39, "2"))


@pytest.mark.parametrize(
    ("peak_of", "of_peak"),
    # Loads of (square 5, square 6) in intervals 0 and 1, as parts of the peak, by hand:
    [
        ("sum", [4 / 5, 0, 3 / 5, 2 / 5]),  # interval 1 has the most, 5 units
        ("largest", [1, 0, 3 / 4, 2 / 4]),  # square 5 in interval 0: 4 units
        ("each", [1, 0, 3 / 4, 1]),  # 4 units for square 5, 2 for square 6
    ],
)
def test_whose_peak_milan_is_scaled_to(peak_of, of_peak):
    log = read("milan", TWO_SQUARES, peak_mbps=8.0, ul_share=0.0, peak_of=peak_of)
    assert [x.cell for x in log.loads] == ["5", "6", "5", "6"]
    assert [x.dl_bytes / 6e8 for x in log.loads] == pytest.approx(of_peak)


def test_a_chosen_square_keeps_the_time_of_the_log():
    text = milan((5, 0, 39, "9"), (7, 2, 39, "1"))
    log = read("milan", text, peak_mbps=8.0, ul_share=1.0, cells=("7",))
    assert [(x.start_us, x.dl_bytes, x.ul_bytes) for x in log.loads] == [(1_200_000_000, 0.0, 6e8)]
    assert (log.cells, log.chosen) == (("5", "7"), ("7",))


def test_milan_without_a_unit_is_refused():
    with pytest.raises(TraceError, match="peak_mbps is missing"):
        read("milan", TWO_SQUARES)
    with pytest.raises(TraceError, match="no internet activity in the chosen squares"):
        read("milan", milan((5, 0, 39, "")), peak_mbps=1.0)


# srsRAN


def ue(pci=1, rnti=17921, dl=8000.0, ul=800.0, **changes):
    return {"pci": pci, "rnti": rnti, "cqi": 15, "dl_brate": dl, "ul_brate": ul} | changes


def wrapped(stamp, *ues):
    """A report as the gNB wrote it up to 25.04: one per cell, UEs in containers."""
    return {"timestamp": stamp, "ue_list": [{"ue_container": item} for item in ues]}


def celled(stamp, *cells):
    """A report as it is written since: all cells, and cells without a UE have no list."""
    return {
        "timestamp": stamp,
        "cells": [
            {"cell_metrics": {"average_latency": 9}} | ({"ue_list": list(ues)} if ues else {})
            for ues in cells
        ],
    }


def json_lines(*documents):
    return "".join(json.dumps(document) + "\n" for document in documents)


def test_srsran_reports_in_both_forms():
    """8000 bit/s for the default second are 1000 bytes (hand calculation)."""
    old = json_lines(wrapped(1700671417.0, ue()), wrapped(1700671418.5, ue(ul=0.0)))
    new = json_lines(celled(1700671417.0, [ue()], []), celled(1700671418.5, [ue(ul=0.0)]))
    expected = [
        (0, 1_000_000, "1", 17921, 1000.0, 100.0),
        (1_000_000, 1_500_000, "1", 17921, 1500.0, 0),
    ]
    assert rows_of(read("srsran", old)) == expected
    assert rows_of(read("srsran", new)) == expected


def test_srsran_layouts_of_the_file():
    documents = [wrapped(10.0, ue()), wrapped(11.0, ue(rnti=5))]
    expected = rows_of(read("srsran", json_lines(*documents)))
    assert rows_of(read("srsran", json.dumps(documents))) == expected
    spread = "\n".join(json.dumps(document, indent=2) for document in documents)
    assert rows_of(read("srsran", spread)) == expected


def test_srsran_other_documents_and_iso_times():
    log = read(
        "srsran",
        json_lines(
            {"timestamp": 1.0, "rlc_metrics": {}},
            celled("2026-01-01T00:00:10Z", [ue(), ue(pci=2)]),
            celled("2026-01-01T01:00:11+01:00", [ue()]),
        ),
    )
    assert [(x.start_us, x.cell) for x in log.loads] == [(0, "1"), (0, "2"), (1_000_000, "1")]
    assert log.notes == ("1 documents without a list of UEs left out",)


# Plain


def test_plain_rows_last_until_the_next_of_their_cell():
    text = lines(
        "time_s,cell,dl_bytes,ul_bytes",
        "10,west,100,1",
        "10.5,10,7,7",
        "12,west,200,2",
        "11,10,8,8",
        "15,west,300,3",
    )
    log = read("plain", text)
    assert rows_of(log) == [
        (0, 2_000_000, "west", None, 100, 1),
        (500_000, 500_000, "10", None, 7, 7),
        (1_000_000, 500_000, "10", None, 8, 8),
        (2_000_000, 3_000_000, "west", None, 200, 2),
        (5_000_000, 3_000_000, "west", None, 300, 3),
    ]
    assert log.cells == ("10", "west")
    assert {x.cell for x in read("plain", text, cells=("10",)).loads} == {"10"}
    assert {x.length_us for x in read("plain", text, interval_s=0.1).loads} == {100_000}


def test_a_single_plain_row_needs_its_length():
    text = lines("time_s,cell,dl_bytes,ul_bytes", "3,a,1,2")
    with pytest.raises(TraceError, match=r"cell a has a single row.* interval_s is needed"):
        read("plain", text)
    assert rows_of(read("plain", text, interval_s=1)) == [(0, 1_000_000, "a", None, 1, 2)]


# Bad rows: the same in every format

PLAIN = "time_s,cell,dl_bytes,ul_bytes"
BS = "time,nof_ue,dl_brate,ul_brate"
GOOD = {
    "plain": lines(PLAIN, "0,a,1,2", "1,a,3,4"),
    "commag-bs": lines(BS, "1000,1,8,8", "1250,1,8,8"),
    "commag-ue": lines(UE_HEADER, ue_row(1000), ue_row(1250)),
    "milan": milan((5, 0, 39, "1"), (5, 1, 39, "2")),
    "srsran": json_lines(wrapped(1.0, ue()), wrapped(2.0, ue())),
}


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("plain", "2,a,3", r"3 columns, allowed are 4"),
        ("plain", "soon,a,3,4", r"column time_s: value 'soon', allowed is a number, zero or more"),
        ("plain", "2,a,-3,4", r"column dl_bytes: value '-3'"),
        ("plain", "2,a,3,nan", r"column ul_bytes: value 'nan'"),
        ("plain", "2,,3,4", r"column cell: value '', allowed is a name"),
        ("plain", "1,a,3,4", r"column time_s: value '1', allowed is one row per time for cell a"),
        ("commag-bs", "1500,1,x,8", r"column dl_brate: value 'x'"),
        ("commag-bs", "1500.5,1,8,8", r"column time: value '1500.5', allowed is an integer from 0"),
        ("commag-bs", "1250,1,8,8", r"column time: value '1250', allowed is one row per time"),
        ("commag-ue", ue_row(1500, tx="-1"), r"column tx_brate downlink \[Mbps\]: value '-1'"),
        ("commag-ue", ue_row(1500, rnti=65536), r"column RNTI: value '65536', .*0 to 65535"),
        ("commag-ue", ue_row(1250), r"column Timestamp: .* one row per time for RNTI 70"),
        ("milan", "5\t1385853600000\t39\t0.2", r"4 columns, allowed are 8"),
        ("milan", "0\t1385853600000\t39\t\t\t\t\t1", r"column square: value '0'"),
        ("milan", "5\t1385853600001\t39\t\t\t\t\t1", r"column time_ms: .* multiple of 600000"),
        ("milan", "5\t1385853600000\t39\t\t\t\t\tinf", r"column internet: value 'inf'"),
        (
            "srsran",
            '{"timestamp": 3, "ue_list": [',
            r"field document: value .*allowed is valid JSON",
        ),
        ("srsran", "17", r"field document: value 17, allowed is an object"),
        ("srsran", '{"ue_list": []}', r"field timestamp: value None, allowed is seconds"),
        ("srsran", '{"timestamp": NaN, "ue_list": []}', r"field timestamp: value nan"),
        ("srsran", '{"timestamp": "noon", "ue_list": []}', r"field timestamp: value 'noon'"),
        ("srsran", '{"timestamp": 3, "cells": {}}', r"field cells: value \{\}, .* an array"),
        ("srsran", '{"timestamp": 3, "cells": [4]}', r"field cells\[0\]: value 4, .* an object"),
        ("srsran", '{"timestamp": 3, "ue_list": [0]}', r"field ue_list\[0\]: value 0, .*an object"),
        (
            "srsran",
            json.dumps(wrapped(3.0, ue(pci=1008))),
            r"field ue_list\[0\].pci: value 1008, .*1007",
        ),
        (
            "srsran",
            json.dumps(wrapped(3.0, ue(dl=None))),
            r"field ue_list\[0\].dl_brate: value None",
        ),
        ("srsran", json.dumps(wrapped(3.0, ue(), ue())), r"field ue_list\[1\]: .*one entry per"),
    ],
)
def test_a_bad_row_is_named_and_refused_or_skipped(kind, row, message):
    options = {"peak_mbps": 1.0} if kind == "milan" else {}
    text = GOOD[kind] + row + "\n"
    line = text.count("\n")
    with pytest.raises(
        TraceError, match=rf"^log, line {line}, {message}|^log, line {line}: {message}"
    ):
        read(kind, text, **options)
    good = read(kind, GOOD[kind], **options)
    log = read(kind, text, bad_rows="skip", **options)
    assert len(log.bad_rows) == 1
    assert log.bad_rows[0].startswith(f"log, line {line}")
    # Of a report with one bad entry, the others count.
    partly = 1 if "ue_list\\[1" in message else 0
    assert rows_of(log)[: len(good.loads)] == rows_of(good)
    assert len(log.loads) == len(good.loads) + partly
    assert log.data_rows == good.data_rows + 1 + partly


def test_reading_goes_on_after_a_broken_document():
    text = '{"timestamp": 1, "ue_list"\n' + GOOD["srsran"]
    log = read("srsran", text, bad_rows="skip")
    assert rows_of(log) == rows_of(read("srsran", GOOD["srsran"]))
    assert [message[:11] for message in log.bad_rows] == ["log, line 1"]


@pytest.mark.parametrize(
    ("kind", "text", "options", "message"),
    [
        ("plain", "", {}, "log, line 1: not a plain load log: no column 'time_s'"),
        ("plain", "a,b\n1,2\n", {}, "needed are time_s, cell, dl_bytes, ul_bytes"),
        ("commag-ue", "time,dl_brate\n", {}, "not UE metrics of COMMAG or ColO-RAN"),
        ("commag-bs", "Timestamp\n", {}, "not base-station rates of COMMAG: no column 'time'"),
        ("plain", PLAIN + "\n", {}, "no usable row among 0"),
        (
            "plain",
            lines(PLAIN, "x,a,1,2"),
            {"bad_rows": "skip"},
            "no usable row among 1; log, line 2",
        ),
        ("srsran", "", {}, "no usable row among 0"),
        ("milan", "", {"peak_mbps": 1.0}, "no usable row among 0"),
        ("plain", GOOD["plain"], {"cells": ("b",)}, "cell 'b' is not in the log; allowed are a"),
        ("plain", GOOD["plain"], {"peak_mbps": 1.0}, "peak_mbps is not for format plain, only for"),
        ("milan", GOOD["milan"], {"interval_s": 1.0}, "interval_s is not for format milan"),
        ("pcap", "", {}, "format 'pcap': allowed are commag-ue, commag-bs, milan, srsran, plain"),
        ("plain", "", {"interval_s": 0}, "interval_s = 0: allowed is above 0"),
        ("milan", "", {"peak_mbps": float("nan")}, "peak_mbps = nan: allowed is above 0"),
        ("milan", "", {"ul_share": 1.5}, "ul_share = 1.5: allowed is 0 to 1"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused(kind, text, options, message):
    with pytest.raises(TraceError, match=message):
        read(kind, text, **options)
