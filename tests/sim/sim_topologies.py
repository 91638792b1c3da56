"""Small topologies for whole runs in virtual time, and how to read what such a run leaves.

Budgets are short (5QI 80: 8 ms at the radio), so that a drain is too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from testbed.record.schema import TABLES
from testbed.record.spool import MemorySpool
from testbed.sim import SimResult, Simulator
from testbed.topology import Topology, load_topology

CELL = """
[[sites.{site}.gnbs.{gnb}.cells]]
count = {count}
ues = {ues}
five_qi = 3
mcs_table = {mcs_table}
sinr_mean_db = {sinr_db}
sinr_sd_db = {sinr_sd_db}

[sites.{site}.gnbs.{gnb}.cells.ul_traffic]
{ul}

[sites.{site}.gnbs.{gnb}.cells.dl_traffic]
{dl}
"""

JOB = """
[jobs.pretrain]
kind = "pretraining"
sites = [{sites}]
model = "opt-125m"
tokens = 128
global_batch = {batch}
"""

FAULT = """
[[faults]]
kind = "late_quantum"
site = "north"
at_us = {at_us}
duration_us = {duration_us}
sms = {sms}
"""

FULL = 'kind = "full_buffer"'
NONE = 'kind = "none"'


def ftp3(load: float, file_bytes: int) -> str:
    """FTP model 3 as a traffic table."""
    return f'kind = "ftp3"\nload = {load}\nfile_bytes = {file_bytes}'


def head(name: str, measured_us: int, warmup_us: int = 10_000) -> str:
    """Name, seed and time."""
    time = f"[time]\nscale = 20\nwarmup_us = {warmup_us}\nmeasured_us = {measured_us}\n"
    return f'name = "{name}"\nseed = 3\n\n{time}'


def cell(site: str, gnb: str, ul: str, dl: str, **changes: object) -> str:
    """A group of cells; 5QI 80, 64QAM or better, a mean SINR at which few blocks fail."""
    values = {"count": 1, "ues": 4, "mcs_table": 2, "sinr_db": 18.0, "sinr_sd_db": 4.0}
    return CELL.format(site=site, gnb=gnb, ul=ul, dl=dl, **(values | changes))


def job(*sites: str, batch: int = 2) -> str:
    """One job over the sites; its micro-batches are short."""
    quoted = ", ".join(f'"{site}"' for site in sites)
    return JOB.format(sites=quoted, batch=batch)


def two_sites(measured_us: int = 60_000) -> str:
    """Two sites with unlike load train one model."""
    return (
        head("two", measured_us)
        + '\n[sites.north]\ngpu = "gb10"\n'
        + cell("north", "g1", ftp3(0.3, 20_000), ftp3(0.3, 50_000), count=2)
        + '\n[sites.south]\ngpu = "gb10"\n'
        + cell("south", "g1", ftp3(0.5, 20_000), ftp3(0.2, 50_000))
        + job("north", "south")
    )


def one_site(measured_us: int = 20_000, ul: str = "", dl: str = "", batch: int = 1) -> str:
    """One cell, one job: the smallest thing that has a lease."""
    return (
        head("tiny", measured_us, warmup_us=2_500)
        + '\n[sites.north]\ngpu = "gb10"\n'
        + cell("north", "g1", ul or ftp3(0.5, 10_000), dl or ftp3(0.3, 30_000), ues=3)
        + job("north", batch=batch)
    )


def loaded(
    directory: Path,
    text: str,
    sets: Sequence[str] = (),
    policies: Sequence[str] = (),
    seed: int = 3,
) -> Topology:
    """The text as a checked topology, resolved beside ``directory``."""
    path = directory / "topology.toml"
    path.write_text(text, encoding="utf-8")
    return load_topology(path, sets, policies, seed, None, slot_wall_ms_min=None)


def simulate(topology: Topology, **options: object) -> SimResult:
    """A run at scale 20, as the topologies here have it."""
    return Simulator(topology, 20.0, **options).run()  # type: ignore[arg-type]


def rows(result: SimResult, table: str) -> list[dict[str, int]]:
    """All rows of a table with the node that wrote them, in the order of arrival."""
    return _tables(result.spool)[table]


@lru_cache(maxsize=8)
def _tables(spool: MemorySpool) -> dict[str, list[dict[str, int]]]:
    found: dict[str, list[dict[str, int]]] = {table: [] for table in TABLES}
    for batch in spool.contents().batches:
        names = TABLES[batch.table]
        columns = [batch.columns[name].tolist() for name in names]
        for values in zip(*columns, strict=True):
            found[batch.table].append({"node": batch.node, **dict(zip(names, values, strict=True))})
    return found


def reasons(result: SimResult) -> list[str]:
    """Every decision as ``node: subject: reason``."""
    return [f"{d.node}: {d.subject}: {d.reason}" for d in result.spool.contents().decisions]
