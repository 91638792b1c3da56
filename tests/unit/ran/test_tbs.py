import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.ran.tables import CQI_TABLES, MCS_TABLES, mcs_entry
from testbed.ran.tbs import block_sizes, segmentation, total_re, transport_block_size_bits

from .helpers import DATA

BITS_PER_SYMBOL = {"QPSK": 2, "16QAM": 4, "64QAM": 6, "256QAM": 8}


def tbs_of(mcs_table, mcs_index, n_prb, re_per_prb, layers):
    entry = mcs_entry(mcs_table, mcs_index)
    bits = transport_block_size_bits(
        total_re(n_prb, re_per_prb), entry.rate_x1024, entry.qm, layers
    )
    return bits, segmentation(bits, entry.rate)


def test_every_vector_on_which_py3gpp_and_sionna_agree():
    with (DATA / "tbs_vectors.csv").open() as file:
        rows = [{key: int(text) for key, text in row.items()} for row in csv.DictReader(file)]
    assert len(rows) == 399
    for row in rows:
        bits, cut = tbs_of(
            row["mcs_table"], row["mcs_index"], row["prbs"], row["re_per_prb"], row["layers"]
        )
        assert bits == row["tbs_bits"], row
        assert cut.base_graph == row["base_graph"], row
        assert cut.code_blocks == row["code_blocks"], row
        assert cut.lifting_size == row["lifting_size"], row


def test_every_decoded_dci_of_a_live_cell():
    with (DATA / "nr_scope_dci.csv").open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["rnti"] != "rnti"
            and row["frequency_length"] != "0"
            and row["transport_block_size"] != "0"
        ]
    assert len(rows) == 1990
    for row in rows:
        # The log holds the rate to six decimals; the tables hold it in steps of 1/2048.
        rate_x1024 = round(float(row["code_rate"]) * 2048) / 2
        qm = BITS_PER_SYMBOL[row["modulation"]]
        bits = transport_block_size_bits(int(row["nof_re"]), rate_x1024, qm)
        assert bits == int(row["transport_block_size"]), row


@pytest.mark.parametrize(
    ("mcs_table", "mcs", "n_prb", "re", "layers", "bits", "code_blocks"),
    [
        (2, 27, 273, 132, 4, 1_081_512, 129),
        (2, 27, 273, 144, 2, 590_128, 71),
        (1, 28, 273, 156, 1, 237_776, 29),
        (1, 16, 273, 156, 1, 108_552, 13),
        (1, 9, 273, 156, 1, 56_368, 7),
        (1, 28, 106, 156, 1, 92_200, 11),
    ],
)
def test_published_sizes(mcs_table, mcs, n_prb, re, layers, bits, code_blocks):
    assert tbs_of(mcs_table, mcs, n_prb, re, layers)[0] == bits
    assert tbs_of(mcs_table, mcs, n_prb, re, layers)[1].code_blocks == code_blocks


def test_smallest_block():
    # 1 PRB of 12 RE at QPSK, 120/1024: N_info = 2.8, raised to 24 bits by the standard.
    assert transport_block_size_bits(12, 120, 2) == 24


def test_a_step_of_the_standard_by_hand():
    # N_RE 156 * 10, rate 378/1024, 16QAM: N_info = 2303.4 <= 3824, n = max(3, 11 - 6) = 5,
    # 32 * floor(71.98) = 2272, and the next entry of table 5.1.3.2-1 is 2280.
    assert transport_block_size_bits(1560, 378, 4) == 2280


def test_re_per_prb_is_capped_at_156():
    assert total_re(10, 168) == 1560


@pytest.mark.parametrize(
    ("bits", "rate", "base_graph"),
    # TS 38.212 6.2.2: the edges of the choice between the two base graphs.
    [
        (288, 0.9, 2),
        (304, 0.9, 1),
        (3824, 0.67, 2),
        (3824, 0.68, 1),
        (8000, 0.25, 2),
        (8000, 0.26, 1),
    ],
)
def test_base_graph(bits, rate, base_graph):
    assert segmentation(bits, rate).base_graph == base_graph


def test_a_block_that_just_fits_one_code_block():
    # B = 8424 + 24 = 8448 is the largest for base graph 1; 8 bits more make two code blocks.
    assert segmentation(8424, 0.9).code_blocks == 1
    assert segmentation(8424, 0.9).lifting_size == 384
    assert segmentation(8432, 0.9).code_blocks == 2


@pytest.mark.parametrize(
    "arguments", [(0, 120, 2, 1), (100, 0, 2, 1), (100, 120, 0, 1), (100, 120, 2, 0)]
)
def test_sizes_of_nothing_are_refused(arguments):
    with pytest.raises(ValueError, match="all must be positive"):
        transport_block_size_bits(*arguments)


@given(
    n_re=st.integers(1, 273 * 156),
    entry=st.sampled_from([row for rows in MCS_TABLES.values() for row in rows]),
    layers=st.integers(1, 4),
)
def test_invariants_of_every_block(n_re, entry, layers):
    bits = transport_block_size_bits(n_re, entry.rate_x1024, entry.qm, layers)
    assert bits % 8 == 0
    assert bits >= 24
    cut = segmentation(bits, entry.rate)
    crc = 24 if bits > 3824 else 16
    block_crc = 24 * cut.code_blocks if cut.code_blocks > 1 else 0
    # All code blocks are equally long (the size was made for that), and fit Z_c times K_b.
    assert (bits + crc + block_crc) % cut.code_blocks == 0
    columns = 22 if cut.base_graph == 1 else 10
    assert (bits + crc + block_crc) // cut.code_blocks <= columns * cut.lifting_size


@pytest.mark.parametrize("re", [84, 132, 156])
def test_more_prbs_never_carry_less(re):
    # The scheduler finds the PRBs for a backlog by bisection, which needs this.
    for table, rows in MCS_TABLES.items():
        for row in rows[::3]:
            sizes = [size.tbs_bytes for size in block_sizes(273, re, table, row.index, 1)]
            assert sizes == sorted(sizes)


def test_tables_have_the_rows_of_the_standard():
    assert [len(MCS_TABLES[table]) for table in (1, 2)] == [29, 28]
    assert [len(CQI_TABLES[table]) for table in (1, 2)] == [15, 15]
    # The efficiency that the standard prints beside the rate, to four decimals.
    for row, printed in (
        (MCS_TABLES[1][28], 5.5547),
        (MCS_TABLES[2][20], 5.3320),
        (CQI_TABLES[1][0], 0.1523),
        (CQI_TABLES[2][14], 7.4063),
    ):
        assert row.spectral_efficiency == pytest.approx(printed, abs=6e-5)


@pytest.mark.parametrize(("table", "index"), [(3, 0), (1, 29), (2, 28), (1, -1)])
def test_reserved_mcs_is_refused(table, index):
    with pytest.raises(ValueError, match="allowed"):
        mcs_entry(table, index)
