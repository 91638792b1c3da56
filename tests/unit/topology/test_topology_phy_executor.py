"""Which PHY executor a site may name, where its library is there and where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import TopologyError
from testbed.topology import load_topology, phy_checks

from .topology_texts import GOOD, write

WITH_SIONNA = GOOD.replace('gpu = "gb10"', 'gpu = "gb10"\nphy = { executor = "sionna" }')


def test_without_the_library_a_live_run_is_refused_and_a_simulated_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phy_checks, "find_spec", lambda name: None)
    path = write(tmp_path, WITH_SIONNA)
    with pytest.raises(TopologyError) as caught:
        load_topology(path)
    assert caught.value.mistakes == [
        f'{path}:11: sites.north.phy.executor = "sionna": needs sionna-no-rt, which is not '
        'installed: pip install "ranloom[sionna]" (allowed: "kernels" without it)'
    ]
    assert load_topology(path, slot_wall_ms_min=None).sites["north"].phy.executor == "sionna"


def test_with_the_library_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phy_checks, "find_spec", lambda name: object())
    assert load_topology(write(tmp_path, WITH_SIONNA)).sites["north"].phy.executor == "sionna"
    assert load_topology(write(tmp_path)).sites["north"].phy.executor == "kernels"
