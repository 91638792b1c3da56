"""What a MAC tells a PHY, and what comes back: blocks, plans, results, delivered SDUs.

Named tuples: some are made in every slot, at a third of what a frozen dataclass costs.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from testbed.ran.numerology import Direction


class TransportBlock(NamedTuple):
    """One transmission of one transport block; at most one per UE, slot and direction.

    Attributes:
        ue: UE index within its cell.
        harq_id: HARQ process, 0 to ``harq_processes`` - 1.
        transmission: 1 for new data, up to ``max_transmissions``.
        n_prb: PRBs; a retransmission has those of the first transmission, with its MCS and size.
        layers: spatial layers.
        mcs_index: row of the cell's MCS table.
        tbs_bytes: transport block size, bytes.
        code_blocks: LDPC code blocks (TS 38.212 5.2.2).
        spectral_efficiency_x1000: information bits per RE of one layer, times 1000.
        sinr_cdb: SINR at the air slot of this transmission, centi-dB.
    """

    ue: int
    harq_id: int
    transmission: int
    n_prb: int
    layers: int
    mcs_index: int
    tbs_bytes: int
    code_blocks: int
    spectral_efficiency_x1000: int
    sinr_cdb: int


class CellPlan(NamedTuple):
    """Everything that one cell sends or receives in one air slot; ``blocks`` may be empty."""

    cell: int
    slot: int
    direction: Direction
    blocks: tuple[TransportBlock, ...]

    @property
    def n_prb(self) -> int:
        """PRBs in use."""
        return sum([block.n_prb for block in self.blocks])

    @property
    def code_blocks(self) -> int:
        """LDPC code blocks to encode or decode."""
        return sum([block.code_blocks for block in self.blocks])


class Outcome(Enum):
    """What became of a transmission. LATE: the PHY missed its deadline; the MAC treats it as NACK.

    A block whose result never came is no outcome: the MAC counts it as late feedback.
    """

    ACK = "ack"
    NACK = "nack"
    LATE = "late"


class BlockResult(NamedTuple):
    """Outcome of one block; ``decoded_us`` is when its decoding ended, if the PHY tells."""

    ue: int
    harq_id: int
    outcome: Outcome
    decoded_us: int | None = None


class SduDelivered(NamedTuple):
    """An SDU all of whose bytes have been received."""

    cell: int
    ue: int
    direction: Direction
    five_qi: int
    arrival_us: int
    delivered_us: int
    n_bytes: int
