"""What a cell can carry, and the traffic that asks for a given share of it.

**Offered load** of one direction = offered bytes per second / nominal capacity, where the nominal
capacity is the transport block of the whole carrier at the *mean MCS* (what link adaptation picks
at ``sinr_mean_db``) in every slot of that direction. It is a property of the configuration, the
same for every seed: 1.0 saturates a cell whose UEs all stand at the mean SINR. Retransmissions, and
UEs drawn better or worse than the mean, move the real saturation point somewhat. Loads of parts of
a cell's UEs are shares of the same capacity, so they add up.
"""

from __future__ import annotations

from testbed.ran.channel import adapt_mcs
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction, res_per_prb
from testbed.ran.tbs import block_sizes
from testbed.ran.traffic import Ftp3
from testbed.ran.traffic.specs import IMIX_MEAN_BYTES, Imix


def nominal_bytes_per_s(config: CellConfig, direction: Direction) -> float:
    """Bytes per second of full-carrier blocks at the mean MCS; S slots count for what they hold."""
    mean_mcs = adapt_mcs(round(100 * config.sinr_mean_db), config.mcs_table)
    per_period = 0
    for kind in config.tdd.kinds:
        re = res_per_prb(kind, direction)
        if re:
            sizes = block_sizes(
                config.n_prb, re, config.mcs_table, mean_mcs, config.layers(direction)
            )
            per_period += sizes[config.n_prb].tbs_bytes
    return per_period * 1e6 / config.tdd.period_us(config.scs_khz)


def offered_load(config: CellConfig, direction: Direction, bytes_per_s: float) -> float:
    """Share of the nominal capacity that a mean byte rate of the whole cell asks for."""
    return bytes_per_s / nominal_bytes_per_s(config, direction)


def files_per_s_per_ue(
    config: CellConfig, direction: Direction, load: float, file_bytes: int, n_ues: int | None = None
) -> float:
    """FTP-3 rate per UE at which ``n_ues`` UEs (by default all) offer ``load`` of the cell."""
    senders = config.n_ues if n_ues is None else n_ues
    return load * nominal_bytes_per_s(config, direction) / (file_bytes * senders)


def ftp3_at_load(
    config: CellConfig,
    direction: Direction,
    load: float,
    file_bytes: int = 500_000,
    n_ues: int | None = None,
) -> Ftp3:
    """FTP-3 traffic of that load for this cell; put it in with ``dataclasses.replace``."""
    return Ftp3(files_per_s_per_ue(config, direction, load, file_bytes, n_ues), file_bytes)


def imix_at_load(
    config: CellConfig, direction: Direction, load: float, n_ues: int | None = None
) -> Imix:
    """IMIX packets of that load for this cell, from ``n_ues`` UEs (all by default)."""
    senders = config.n_ues if n_ues is None else n_ues
    return Imix(load * nominal_bytes_per_s(config, direction) / (IMIX_MEAN_BYTES * senders))
