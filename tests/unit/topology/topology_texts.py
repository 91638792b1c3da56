"""A small correct topology for the tests to break."""

from __future__ import annotations

from pathlib import Path

GOOD = """\
name = "base"
seed = 7

[time]
scale = 20
warmup_us = 100_000
measured_us = 400_000

[sites.north]
gpu = "gb10"

[[sites.north.gnbs.g1.cells]]
count = 2
scs_khz = 30
bandwidth_mhz = 100

[sites.north.gnbs.g1.cells.ul_traffic]
kind = "ftp3"
load = 0.2

[sites.north.gnbs.g1.cells.dl_traffic]
kind = "none"

[sites.south]
gpu = "l40s"

[jobs.pretrain]
kind = "pretraining"
sites = ["north", "south"]
model = "opt-125m"
tokens = 512
quantum_us = 5000

[jobs.pretrain.proxy]
layers = 4
"""


def write(directory: Path, text: str = GOOD, name: str = "base.toml") -> Path:
    """The text as a file; returns its path."""
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def edited(old: str, new: str) -> str:
    """The good topology with one replacement, which must apply."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)
