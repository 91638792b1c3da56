"""Transport block size and code-block segmentation.

Pure arithmetic of TS 38.214 5.1.3.2 and TS 38.212 5.2.2 and 6.2.2. Both directions use the same
procedure (TS 38.214 6.1.4.2 refers to 5.1.3.2).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

from testbed.ran.numerology import MAX_RE_PER_PRB
from testbed.ran.tables import mcs_entry

# fmt: off
_SMALL_TBS_BITS = (  # TS 38.214 table 5.1.3.2-1
    24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184,
    192, 208, 224, 240, 256, 272, 288, 304, 320, 336, 352, 368, 384, 408, 432, 456, 480, 504, 528,
    552, 576, 608, 640, 672, 704, 736, 768, 808, 848, 888, 928, 984, 1032, 1064, 1128, 1160, 1192,
    1224, 1256, 1288, 1320, 1352, 1416, 1480, 1544, 1608, 1672, 1736, 1800, 1864, 1928, 2024, 2088,
    2152, 2216, 2280, 2408, 2472, 2536, 2600, 2664, 2728, 2792, 2856, 2976, 3104, 3240, 3368, 3496,
    3624, 3752, 3824,
)
# fmt: on

_LIFTING_SIZES = tuple(  # TS 38.212 table 5.3.2-1
    sorted(a << j for a in (2, 3, 5, 7, 9, 11, 13, 15) for j in range(8) if a << j <= 384)
)


@dataclass(frozen=True, slots=True)
class Segmentation:
    """How a transport block is cut for LDPC: base graph 1 or 2, code blocks, lifting size Z_c."""

    base_graph: int
    code_blocks: int
    lifting_size: int


@dataclass(frozen=True, slots=True)
class BlockSize:
    """Size of one transport block in whole bytes, and its number of LDPC code blocks."""

    tbs_bytes: int
    code_blocks: int


def total_re(n_prb: int, re_per_prb: int) -> int:
    """N_RE of an allocation: min(156, RE per PRB) times PRBs (TS 38.214 5.1.3.2, step 1)."""
    return min(MAX_RE_PER_PRB, re_per_prb) * n_prb


def transport_block_size_bits(n_re: int, rate_x1024: float, qm: int, layers: int = 1) -> int:
    """Transport block size in bits (TS 38.214 5.1.3.2, steps 2 to 4); always a multiple of 8.

    Args:
        n_re: resource elements of the whole allocation (``total_re``).
        rate_x1024: target code rate times 1024.
        qm: bits per modulation symbol.
        layers: spatial layers.

    Raises:
        ValueError: an argument that is not positive.
    """
    if n_re <= 0 or rate_x1024 <= 0 or qm <= 0 or layers <= 0:
        raise ValueError(
            f"n_re = {n_re}, rate_x1024 = {rate_x1024}, qm = {qm}, layers = {layers}: "
            "all must be positive"
        )
    # The rate is a multiple of 1/2048, so n_info and the comparisons below are exact in a double.
    n_info = n_re * qm * layers * rate_x1024 / 1024
    if n_info <= 3824:
        step = 1 << max(3, _floor_log2(n_info) - 6)
        quantised = max(24, step * int(n_info // step))
        return _SMALL_TBS_BITS[bisect_left(_SMALL_TBS_BITS, quantised)]
    step = 1 << (_floor_log2(n_info - 24) - 5)
    # Ties go up (5.1.3.2), unlike Python's round().
    quantised = max(3840, step * int((n_info - 24) / step + 0.5))
    if rate_x1024 <= 256:
        code_blocks = _ceil_div(quantised + 24, 3816)
    elif quantised > 8424:
        code_blocks = _ceil_div(quantised + 24, 8424)
    else:
        code_blocks = 1
    return 8 * code_blocks * _ceil_div(quantised + 24, 8 * code_blocks) - 24


def segmentation(tbs_bits: int, rate: float) -> Segmentation:
    """LDPC segmentation of a transport block (TS 38.212 6.2.2, 5.2.2).

    Args:
        tbs_bits: A, the transport block without its CRC.
        rate: code rate of the initial transmission, 0 to 1.
    """
    if tbs_bits <= 292 or (tbs_bits <= 3824 and rate <= 0.67) or rate <= 0.25:
        base_graph, max_block_bits = 2, 3840
    else:
        base_graph, max_block_bits = 1, 8448
    with_crc = tbs_bits + (24 if tbs_bits > 3824 else 16)
    if with_crc <= max_block_bits:
        code_blocks, block_bits = 1, with_crc
    else:
        code_blocks = _ceil_div(with_crc, max_block_bits - 24)
        block_bits = _ceil_div(with_crc + 24 * code_blocks, code_blocks)
    columns = _systematic_columns(base_graph, with_crc)
    lifting_size = _LIFTING_SIZES[bisect_left(_LIFTING_SIZES, _ceil_div(block_bits, columns))]
    return Segmentation(base_graph, code_blocks, lifting_size)


@lru_cache(maxsize=8192)
def block_sizes(
    max_prb: int, re_per_prb: int, mcs_table: int, mcs_index: int, layers: int
) -> tuple[BlockSize, ...]:
    """Block size for every allocation of 0 to ``max_prb`` PRBs; index 0 holds an empty block."""
    entry = mcs_entry(mcs_table, mcs_index)
    sizes = [BlockSize(0, 0)]
    for prbs in range(1, max_prb + 1):
        bits = transport_block_size_bits(
            total_re(prbs, re_per_prb), entry.rate_x1024, entry.qm, layers
        )
        sizes.append(BlockSize(bits // 8, segmentation(bits, entry.rate).code_blocks))
    return tuple(sizes)


def _systematic_columns(base_graph: int, with_crc_bits: int) -> int:
    """K_b of TS 38.212 5.2.2."""
    if base_graph == 1:
        return 22
    if with_crc_bits > 640:
        return 10
    if with_crc_bits > 560:
        return 9
    return 8 if with_crc_bits > 192 else 6


def _floor_log2(value: float) -> int:
    """floor(log2(value)) without the rounding of math.log2; for values of 1 or more."""
    return max(1, int(value)).bit_length() - 1


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
