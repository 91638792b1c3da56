"""Checks of what a site's PHY needs on the machine that is to run it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from testbed.topology.mistakes import Mistake
from testbed.topology.schema import Topology


def executor_mistakes(topology: Topology) -> Iterator[Mistake]:
    """Sites whose PHY executor needs a library that is not installed."""
    for name, site in topology.sites.items():
        if site.gnbs and site.phy.executor == "sionna" and find_spec("sionna") is None:
            yield Mistake(
                ("sites", name, "phy", "executor"),
                'needs sionna-no-rt, which is not installed: pip install "ranloom[sionna]"',
                allowed='"kernels" without it',
            )
