"""One slot's PHY work, sized by PRBs, layers and code blocks, on buffers made at warm-up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from protocols.messages import UPLINK
from protocols.work import PhyTask
from testbed.executors.config import PhyConfig
from testbed.executors.phy_kernels import (
    DATA_SYMBOLS,
    DMRS_SYMBOLS,
    SUBCARRIERS,
    SYMBOLS,
    SumProductDecoder,
    constellation,
    demap,
    encode,
    equalise,
    estimate_channel,
    fft_size,
    mmse_weights,
    modulation_order,
    ofdm_demodulate,
    ofdm_modulate,
    per_prb,
    precode,
    regular_code,
)
from testbed.executors.phy_work import check_size

_BLOCKS_AT_ONCE = 32
"""Code blocks decoded together: their messages then stay in the second-level cache."""
_NOISE_VARIANCE = 0.05
_INFORMATION_BITS = 128
"""Per downlink code block, as the decoder's stand-in code has."""
_ORDERS = (2, 4, 6, 8)


class SlotWork:
    """Runs tasks on fixed random samples; results are thrown away, the time is what counts."""

    def __init__(self, config: PhyConfig, device: torch.device) -> None:
        self._config = config
        draw = torch.Generator().manual_seed(config.seed)
        width = SUBCARRIERS * config.n_prb
        antennas = config.antennas

        def noise(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, dtype=torch.complex64, generator=draw).to(device)

        self._samples = noise(SYMBOLS * antennas * fft_size(config.n_prb))
        pilots = noise(width)
        self._pilots = pilots / pilots.abs()
        self._precoder = noise(antennas, config.layers) / antennas**0.5

        def bits(*shape: int) -> torch.Tensor:
            return torch.randint(0, 2, shape, generator=draw).float().to(device)

        self._information = bits(config.code_blocks, _INFORMATION_BITS)
        self._generator = bits(_INFORMATION_BITS, _INFORMATION_BITS)
        self._parity = torch.zeros(config.code_blocks, _INFORMATION_BITS, device=device)
        labels = (SYMBOLS * config.layers * width,)
        self._labels = {
            order: torch.randint(0, 1 << order, labels, generator=draw, dtype=torch.int32).to(
                device
            )
            for order in _ORDERS
        }
        self._tables = {order: constellation(order).to(device) for order in _ORDERS}
        code = regular_code(device, seed=config.seed)
        self._decoder = SumProductDecoder(code, _BLOCKS_AT_ONCE)
        # Bits that were sent as zeros, seen through noise of deviation 1.
        self._llr = (torch.randn(code.bits * _BLOCKS_AT_ONCE, generator=draw) + 1.0).to(device)
        self._data = noise(width * antennas * len(DATA_SYMBOLS))
        self._bits = torch.zeros(width * config.layers * len(DATA_SYMBOLS) * 8, device=device)
        self._precoded = noise(SYMBOLS * antennas * width)

    def run(self, *tasks: PhyTask) -> None:
        """The real work of ``tasks``. Raises ProtocolError where one is larger than configured."""
        for _ in self.stages(tasks):
            pass

    @torch.inference_mode()
    def stages(self, tasks: Sequence[PhyTask]) -> Iterator[None]:
        """The same, in stages of some tenths of a millisecond: done as they are asked for.

        Downlink tasks are done as one, of all their PRBs and code blocks.
        """
        for task in tasks:
            check_size(self._config, task)
        for task in tasks:
            if task.direction == UPLINK:
                yield from self._uplink(task)
        downlink = [task for task in tasks if task.direction != UPLINK]
        if downlink:
            self._downlink(downlink)

    def prime(self) -> None:
        """One code block of downlink on one PRB: all of its code has run once then."""
        self.run(PhyTask(0, 1 - UPLINK, 0, 0, 1, 1, 1, 1))

    def _uplink(self, task: PhyTask) -> Iterator[None]:
        n_prb = self._real_prb(task)
        if n_prb:
            layers, antennas = max(1, task.layers), self._config.antennas
            size, width = fft_size(n_prb), SUBCARRIERS * n_prb
            samples = _shaped(self._samples, SYMBOLS, antennas, size)
            grid = ofdm_demodulate(samples, width)
            yield
            dmrs = grid[list(DMRS_SYMBOLS)]
            channel = estimate_channel(dmrs, self._pilots[:width], layers)
            weights = mmse_weights(channel, _NOISE_VARIANCE)
            yield
            shape = (n_prb, antennas, len(DATA_SYMBOLS), SUBCARRIERS)
            symbols = equalise(weights, per_prb(grid, _shaped(self._data, *shape)))
            yield
            order = self._order(task, layers)
            demap(symbols, order, _shaped(self._bits, order // 2, *symbols.shape, 2))
            yield
        yield from self._decode(task.code_blocks, task.decode_iterations)

    def _decode(self, code_blocks: int, decode_iterations: int) -> Iterator[None]:
        """Every block gets the mean number of iterations, one of ``stride``, rounded up."""
        iterations = math.ceil(decode_iterations / max(1, code_blocks) / self._config.stride)
        bits = len(self._llr) // _BLOCKS_AT_ONCE
        for first in range(0, code_blocks, _BLOCKS_AT_ONCE):
            blocks = min(_BLOCKS_AT_ONCE, code_blocks - first)
            yield from self._decoder.passes(_shaped(self._llr, bits, blocks), iterations)

    def _downlink(self, tasks: Sequence[PhyTask]) -> None:
        """Encode, map, precode, transform: few calls, since a small slot has 0.6 ms."""
        blocks = sum(task.code_blocks for task in tasks)
        for first in range(0, blocks, len(self._information)):
            last = min(len(self._information), blocks - first)
            encode(self._information[:last], self._generator, self._parity[:last])
        n_prb = sum(self._real_prb(task) for task in tasks)
        if not n_prb:
            return
        layers = max(1, *(task.layers for task in tasks))
        order = self._order(max(tasks, key=lambda task: task.n_prb), layers)
        while n_prb > 0:  # as many carriers as it takes
            part = min(n_prb, self._config.n_prb)
            self._modulate(part, layers, order)
            n_prb -= part

    def _modulate(self, n_prb: int, layers: int, order: int) -> None:
        width = SUBCARRIERS * n_prb
        labels = self._labels[order][: SYMBOLS * layers * width]
        symbols = self._tables[order].index_select(0, labels).view(SYMBOLS, layers, width)
        precoded = _shaped(self._precoded, SYMBOLS, self._config.antennas, width)
        precode(self._precoder[:, :layers], symbols, precoded)
        ofdm_modulate(precoded, fft_size(n_prb))

    def _real_prb(self, task: PhyTask) -> int:
        """PRBs that the real work is done for."""
        return -(-task.n_prb // self._config.stride)

    @staticmethod
    def _order(task: PhyTask, layers: int) -> int:
        elements = len(DATA_SYMBOLS) * SUBCARRIERS * task.n_prb * layers
        return modulation_order(task.code_blocks, elements)


def _shaped(buffer: torch.Tensor, *shape: int) -> torch.Tensor:
    """The beginning of a flat buffer in that shape."""
    return buffer[: math.prod(shape)].view(shape)
