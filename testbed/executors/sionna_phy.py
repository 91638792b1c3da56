"""The PHY's real work with sionna: an NR PUSCH receiver and PDSCH transmitter, standard LDPC code.

Slots of a few sizes are built beforehand, since sionna's blocks are made for one size each; a task
gets the next larger one for its layers and modulation order. A CPU core is no GPU, so a task's PRBs
are divided by ``stride``, as those of the kernels are. Needs the extra ``sionna``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from protocols.messages import UPLINK
from protocols.work import PhyTask
from testbed.executors.config import PhyConfig
from testbed.executors.device import DeviceError
from testbed.executors.phy_kernels import modulation_order
from testbed.executors.phy_work import check_size

try:
    from sionna.phy.mapping import Mapper
    from sionna.phy.nr import (
        LayerMapper,
        PUSCHConfig,
        PUSCHReceiver,
        PUSCHTransmitter,
        TBDecoder,
        TBEncoder,
    )
    from sionna.phy.ofdm import OFDMModulator, ResourceGridMapper
except ModuleNotFoundError as error:
    raise DeviceError(
        f'phy.executor = "sionna": no module {error.name}; install the extra: '
        'pip install "ranloom[sionna]"'
    ) from error

MCS_OF_ORDER = {2: 3, 4: 8, 6: 15, 8: 23}
"""Modulation order -> a middling row of MCS table 2 (TS 38.214, table 5.1.3.1-2)."""
_MCS_TABLE = 2
_MOST_LAYERS = 4
"""DMRS type 1 in single symbols has so many ports (TS 38.211 6.4.1.1.3)."""
_DATA_RE_PER_PRB = 144
_DMRS_ADDITIONAL_POSITION = 1
_DMRS_CDM_GROUPS = 2
_DECODER_ITERATIONS = 10
_CHECK_NODE = "minsum"
"""Belief propagation's check-node update; what decoders of base stations do."""
_SNR_DB = 40.0


class NrSlot:
    """One transport block over a whole carrier, both ways, on samples made beforehand.

    Uplink: OFDM demodulation, least-squares channel estimation on DMRS, LMMSE detection, max-log
    demapping, descrambling, LDPC decoding, CRC. Downlink: CRC, LDPC encoding, scrambling, QAM,
    layers, DMRS and resource grid, precoding, OFDM modulation.
    """

    def __init__(
        self, n_prb: int, layers: int, order: int, antennas: int, seed: int, device: torch.device
    ) -> None:
        """``antennas``: of the base station; there are at least as many as layers."""
        where = "cuda:0" if device.type == "cuda" else "cpu"
        draw = torch.Generator().manual_seed(seed)
        carrier = _carrier(n_prb, layers, order)
        transmitter = PUSCHTransmitter(
            carrier, return_bits=False, output_domain="time", device=where
        )
        self._bits = torch.randint(0, 2, (1, 1, carrier.tb_size), generator=draw).float().to(device)
        # For its one codeword PDSCH has the bits and the scrambling of PUSCH (TS 38.211 6.3.1.1 and
        # 7.3.1.1), hence one encoder for both.
        self._encoder = _encoder(carrier, where)
        self._receiver = PUSCHReceiver(
            transmitter,
            tb_decoder=TBDecoder(
                self._encoder, num_bp_iter=_DECODER_ITERATIONS, cn_update=_CHECK_NODE, device=where
            ),
            return_tb_crc_status=True,
            input_domain="time",
            l_min=0,
            device=where,
        )
        # Orthonormal columns: each layer arrives with all of its power, none hides another.
        shape = (max(antennas, layers), layers)
        columns, _ = torch.linalg.qr(torch.randn(shape, dtype=torch.complex64, generator=draw))
        self._spatial = columns.to(device)
        self._noise_variance = torch.tensor(10 ** (-_SNR_DB / 10), device=device)
        sent = transmitter(self._bits)
        clean = torch.einsum("al,btls->btas", self._spatial, sent)
        noise = torch.randn(clean.shape, dtype=torch.complex64, generator=draw).to(device)
        self._received = clean + noise * self._noise_variance.sqrt()
        grid = transmitter.resource_grid
        self._mapper = Mapper("qam", order, device=where)
        self._layer_mapper = LayerMapper(num_layers=layers, device=where)
        self._grid_mapper = ResourceGridMapper(grid, device=where)
        self._modulator = OFDMModulator(grid.cyclic_prefix_length, device=where)

    def receive(self) -> tuple[torch.Tensor, bool]:
        """The decoded bits [tb_size], and whether the transport block's CRC holds."""
        bits, crc_holds = self._receiver(self._received, self._noise_variance)
        return bits.flatten(), bool(crc_holds.all())

    def transmit(self) -> torch.Tensor:
        """Time samples of every antenna, complex [A, samples]."""
        symbols = self._layer_mapper(self._mapper(self._encoder(self._bits)))
        grid = self._grid_mapper(symbols)  # [1, 1, L, 14, subcarriers]
        samples: torch.Tensor = self._modulator(
            torch.einsum("al,btlsk->btask", self._spatial, grid)
        )
        return samples[0, 0]

    @property
    def sent_bits(self) -> torch.Tensor:
        """The transport block, float32 [tb_size]."""
        return self._bits.flatten()


class SionnaWork:
    """The real work of a gNB's PHY with sionna; warm when made. Raises DeviceError.

    The decoder runs ten iterations, whatever a task asks for; the modelled time, to which a task is
    held, depends on what it asks for.
    """

    def __init__(self, config: PhyConfig, device: torch.device) -> None:
        self._config = config
        most = math.ceil(config.n_prb / config.stride)
        counts = config.layer_counts or (1, config.layers)
        self._sizes = sorted({1, most})
        self._layers = sorted({min(count, _MOST_LAYERS) for count in counts})
        self._slots = {
            (n_prb, layers, order): NrSlot(
                n_prb, layers, order, config.antennas, config.seed, device
            )
            for n_prb in self._sizes
            for layers in self._layers
            for order in MCS_OF_ORDER
        }
        self._warm()

    @torch.inference_mode()
    def stages(self, tasks: Sequence[PhyTask]) -> Iterator[None]:
        """One stage per task. Raises ProtocolError where one is larger than configured."""
        for task in tasks:
            slot = self.slot_of(task)
            if task.direction == UPLINK:
                slot.receive()
            else:
                slot.transmit()
            yield

    @torch.inference_mode()
    def prime(self) -> None:
        """Transmit the smallest slot."""
        self._slots[self._sizes[0], self._layers[0], min(MCS_OF_ORDER)].transmit()

    def slot_of(self, task: PhyTask) -> NrSlot:
        """The slot that stands for a task. Raises ProtocolError where it is too large."""
        config = self._config
        check_size(config, task)
        wanted = math.ceil(task.n_prb / config.stride)
        n_prb = next(size for size in self._sizes if size >= wanted)
        layers = next((c for c in self._layers if c >= task.layers), self._layers[-1])
        elements = _DATA_RE_PER_PRB * task.n_prb * max(1, task.layers)
        return self._slots[n_prb, layers, modulation_order(task.code_blocks, elements)]

    @torch.inference_mode()
    def _warm(self) -> None:
        for (n_prb, layers, order), slot in self._slots.items():
            slot.transmit()
            bits, crc_holds = slot.receive()
            if not crc_holds or not torch.equal(bits, slot.sent_bits):
                raise DeviceError(
                    f"sionna's receiver did not decode its own slot at {_SNR_DB:g} dB "
                    f"({n_prb} PRB, {layers} layers, {2**order}-QAM)"
                )


def _carrier(n_prb: int, layers: int, order: int) -> Any:
    """A slot of that size: DMRS type 1 with one additional position, no data beside it."""
    config = PUSCHConfig()
    config.carrier.n_size_grid = n_prb
    config.num_antenna_ports = layers
    config.num_layers = layers
    config.dmrs.dmrs_port_set = list(range(layers))
    config.dmrs.additional_position = _DMRS_ADDITIONAL_POSITION
    config.dmrs.num_cdm_groups_without_data = _DMRS_CDM_GROUPS
    config.tb.mcs_table = _MCS_TABLE
    config.tb.mcs_index = MCS_OF_ORDER[order]
    return config


def _encoder(config: Any, where: str) -> Any:
    """The transport block's encoder."""
    return TBEncoder(
        target_tb_size=config.tb_size,
        num_coded_bits=config.num_coded_bits,
        target_coderate=config.tb.target_coderate,
        num_bits_per_symbol=config.tb.num_bits_per_symbol,
        num_layers=config.num_layers,
        n_rnti=[config.n_rnti],
        n_id=[config.carrier.n_cell_id],
        channel_type="PDSCH",
        device=where,
    )
