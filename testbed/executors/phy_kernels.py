"""The arithmetic of an uplink and a downlink slot, as torch functions without state.

Uplink: OFDM demodulation, least-squares channel estimate on DMRS with interpolation, per-PRB MMSE,
max-log demapping, sum-product decoding. Downlink: encoding, modulation (TS 38.211 5.1), precoding,
OFDM modulation. Shapes: S symbols, A antennas, L layers, P PRBs, C code blocks.

The LDPC code is a stand-in of 128 bits a block, so that a slot costs a CPU core 1-2 ms and not
hundreds; its cost is proportional to code blocks times iterations, as that of the real one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

SYMBOLS = 14
DMRS_SYMBOLS = (2, 11)
DATA_SYMBOLS = tuple(symbol for symbol in range(SYMBOLS) if symbol not in DMRS_SYMBOLS)
SUBCARRIERS = 12
"""Subcarriers of a PRB."""
CODE_BLOCK_BITS = 8448
"""Largest LDPC code block, base graph 1 (TS 38.212 5.2.2)."""
_COMBS = (2, 4, 6, 12)
_FFT_SIZES = ((8, 128), (17, 256), (34, 512), (68, 1024), (137, 2048))
_LARGEST_FFT = 4096
_TINY = 1e-7
_ALMOST_ONE = 1 - 1e-6


def fft_size(n_prb: int) -> int:
    """The OFDM transform's length for a carrier of ``n_prb`` PRBs (at most 275)."""
    return next((size for most_prb, size in _FFT_SIZES if n_prb <= most_prb), _LARGEST_FFT)


def modulation_order(code_blocks: int, resource_elements: int) -> int:
    """Bits per symbol (2, 4, 6 or 8) that carry that many full code blocks at rates below 0.93."""
    bits = code_blocks * CODE_BLOCK_BITS / max(1, resource_elements)
    return next((order for order in (2, 4, 6) if bits <= 0.93 * order), 8)


# --- modulation -----------------------------------------------------------------------------------


def _amplitude(order: int, bits: Tensor) -> Tensor:
    """Unscaled amplitudes of one axis from bits [..., order / 2], by the recursion of 38.211 5.1:
    QPSK 1-2b0; 16QAM (1-2b0)[2-(1-2b2)]; 64QAM (1-2b0)[4-(1-2b2)[2-(1-2b4)]]; and so on."""
    half = order // 2
    value = torch.ones(bits.shape[:-1])
    for index in reversed(range(half)):
        offset = 0 if index == half - 1 else 1 << (half - 1 - index)
        inner = value if offset == 0 else offset - value
        value = (1 - 2 * bits[..., index]) * inner
    return value


def _scale(order: int) -> float:
    """Factor of unit mean power: 1/sqrt(2), sqrt(10), sqrt(42), sqrt(170)."""
    return float((3 / (2 * (2**order - 1))) ** 0.5)


def constellation(order: int) -> Tensor:
    """complex64 [2**order]: the symbol of each bit string, first bit most significant."""
    labels = torch.arange(1 << order)
    bits = (labels[:, None] >> torch.arange(order - 1, -1, -1)) & 1
    real, imaginary = (_amplitude(order, bits[:, axis::2].float()) for axis in (0, 1))
    return torch.complex(real, imaginary) * _scale(order)


def demap(symbols: Tensor, order: int, out: Tensor | None = None) -> Tensor:
    """LLRs float32 [order / 2, ..., 2] of complex [...]; positive means bit 0.

    Element [k, ..., axis] is bit 2k + axis of a symbol. The piecewise-linear max-log of Gray-mapped
    QAM (Tosato and Bisaglia, ICC 2002), up to the noise's scale: sign and reliability of bit 2k+2
    follow from ``offset - |bit 2k|``. ``out``: a buffer of that shape.
    """
    axes = torch.view_as_real(symbols)
    llr = axes.new_empty((order // 2, *axes.shape)) if out is None else out
    torch.mul(axes, 1 / _scale(order), out=llr[0])
    for index in range(1, order // 2):
        torch.abs(llr[index - 1], out=llr[index])
        llr[index].neg_().add_(1 << (order // 2 - index))
    return llr


# --- channel --------------------------------------------------------------------------------------


def pilot_comb(layers: int) -> int:
    """Every so many subcarriers a layer has its DMRS; the layers stand side by side."""
    return next(comb for comb in _COMBS if comb >= layers)


def estimate_channel(received: Tensor, pilots: Tensor, layers: int) -> Tensor:
    """Least-squares channel per PRB, complex [P, A, L].

    Args:
        received: complex [D, A, 12 P], the DMRS symbols after the transform.
        pilots: complex [12 P], unit modulus, the same in each DMRS symbol.
        layers: layer l occupies subcarriers l, l + comb, ...

    The estimate is averaged over the D symbols, interpolated linearly between a layer's pilots,
    and averaged over each PRB.
    """
    comb = pilot_comb(layers)
    raw = received.mean(0) * pilots.conj()
    antennas, width = raw.shape
    estimates = raw.view(antennas, -1, comb)[..., :layers]
    following = torch.cat((estimates[:, 1:], estimates[:, -1:]), dim=1)
    # The mean over a PRB of straight lines between pilots: weights of each pilot and of the next.
    toward_next = (comb - 1) / (2 * comb)
    smooth = estimates * (1 - toward_next) + following * toward_next
    per_prb = smooth.view(antennas, width // SUBCARRIERS, SUBCARRIERS // comb, layers).mean(2)
    return per_prb.transpose(0, 1)


def mmse_weights(channel: Tensor, noise_variance: float) -> Tensor:
    """(H^H H + s^2 I)^-1 H^H: complex [P, L, A] from [P, A, L]."""
    hermitian = channel.mH
    gram = hermitian @ channel
    gram.diagonal(dim1=-2, dim2=-1).add_(noise_variance)
    if gram.shape[-1] == 1:
        return hermitian / gram
    weights: Tensor = torch.linalg.inv(gram) @ hermitian
    return weights


def per_prb(grid: Tensor, out: Tensor | None = None) -> Tensor:
    """The data symbols, sorted by PRB: complex [P, A, 12, 12] from [14, A, 12 P].

    The last two axes are data symbol and subcarrier. ``out``: a buffer of that shape.
    """
    symbols, antennas, width = grid.shape
    source = grid.view(symbols, antennas, width // SUBCARRIERS, SUBCARRIERS).permute(2, 1, 0, 3)
    data = len(DATA_SYMBOLS)
    if out is None:
        out = grid.new_empty(width // SUBCARRIERS, antennas, data, SUBCARRIERS)
    target = 0
    for first, last in pairwise((-1, *DMRS_SYMBOLS, symbols)):
        length = last - first - 1
        out[:, :, target : target + length] = source[:, :, first + 1 : last]
        target += length
    return out


def equalise(weights: Tensor, data: Tensor) -> Tensor:
    """Symbols of each layer, complex [P, L, 144], from weights [P, L, A] and ``per_prb`` data."""
    return torch.bmm(weights, data.flatten(2))


def ofdm_demodulate(samples: Tensor, width: int) -> Tensor:
    """Time samples complex [S, A, N] -> subcarriers complex [S, A, width]."""
    grid: Tensor = torch.fft.fft(samples)
    return grid[..., :width]


def ofdm_modulate(subcarriers: Tensor, size: int) -> Tensor:
    """Subcarriers complex [S, A, width] -> time samples complex [S, A, size]."""
    samples: Tensor = torch.fft.ifft(subcarriers, n=size)
    return samples


def precode(weights: Tensor, symbols: Tensor, out: Tensor | None = None) -> Tensor:
    """Complex [A, L] and [S, L, width] -> [S, A, width]."""
    return torch.matmul(weights, symbols, out=out)


# --- code -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Code:
    """A (3, 4)-regular LDPC code of ``bits`` bits and 3/4 as many checks.

    Edges in variable order are [3, bits], in check order [4, checks]; each of the two index
    vectors maps one order to the other.
    """

    bits: int
    checks: int
    to_check: Tensor
    to_variable: Tensor


def regular_code(device: torch.device, bits: int = 128, seed: int = 0) -> Code:
    """A Gallager code: three random partitions of the bits into checks of four."""
    draw = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(bits, generator=draw).view(4, -1) + k * bits for k in range(3)]
    to_check = torch.cat(orders, dim=1).flatten()
    return Code(bits, 3 * bits // 4, to_check.to(device), torch.argsort(to_check).to(device))


class SumProductDecoder:
    """Sum-product decoding with flooding, by the tanh rule (Gallager, 1963), for up to ``most``
    code blocks at once.

    All buffers and their views are made once: a pass is eleven calls without allocation, because
    at this size the calls cost as much as the arithmetic.
    """

    def __init__(self, code: Code, most: int) -> None:
        self._code = code
        self._most = most
        self._buffers: dict[int, _Messages] = {}

    def decode(self, llr: Tensor, iterations: int) -> Tensor:
        """Posterior LLRs [bits, C] of channel LLRs [bits, C], C <= ``most``; positive means 0.

        The result is a buffer that the next call overwrites.
        """
        for _ in self.passes(llr, iterations):
            pass
        return self._buffers[llr.shape[1]].total.mul_(2)

    def passes(self, llr: Tensor, iterations: int) -> Iterator[None]:
        """The same pass by pass. Decodings of equally many blocks must not interleave."""
        width = llr.shape[1]
        if width > self._most:
            raise ValueError(f"{width} code blocks at once; at most {self._most}")
        messages = self._buffers.get(width)
        if messages is None:
            messages = self._buffers[width] = _Messages(self._code, width, llr.device)
        messages.start(llr)
        for _ in range(iterations):
            messages.iterate()
            yield


class _Messages:
    """The messages of C code blocks on the edges of one code, in halves of LLRs, and the passes."""

    def __init__(self, code: Code, width: int, device: torch.device) -> None:
        self._code = code
        edges = 3 * code.bits
        self.total = torch.zeros(code.bits, width, device=device)
        self._channel = torch.zeros_like(self.total)
        self._variable = torch.zeros(3, code.bits, width, device=device)
        self._flat = self._variable.view(edges, width)
        self._edges = torch.zeros(edges, width, device=device)
        self._by_check = self._edges.view(4, code.checks, width)
        self._product = torch.zeros(code.checks, width, device=device)

    def start(self, llr: Tensor) -> None:
        torch.mul(llr, 0.5, out=self._channel)
        self.total.copy_(self._channel)
        self._variable.zero_()

    def iterate(self) -> None:
        """Variables to checks, checks to variables, posterior."""
        torch.sub(self.total, self._variable, out=self._variable)
        torch.index_select(self._flat, 0, self._code.to_check, out=self._edges)
        # Never exactly zero: each edge's own factor is divided out of its check's product.
        self._edges.tanh_().add_(_TINY)
        torch.prod(self._by_check, 0, out=self._product)
        torch.div(self._product, self._by_check, out=self._by_check)
        self._edges.clamp_(-_ALMOST_ONE, _ALMOST_ONE).atanh_()
        torch.index_select(self._edges, 0, self._code.to_variable, out=self._flat)
        torch.sum(self._variable, 0, out=self.total)
        self.total.add_(self._channel)


def encode(bits: Tensor, generator: Tensor, out: Tensor | None = None) -> Tensor:
    """Parity bits [C, M] of information bits [C, K] by a generator [K, M]: the product modulo 2.

    All are 0 or 1 in float32, exact for K below 2**24. ``out``: a buffer of the result's shape.
    """
    return torch.matmul(bits, generator, out=out).remainder_(2)
