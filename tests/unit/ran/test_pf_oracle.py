"""Our proportional fair against sionna's, and against a closed form that needs no sionna."""

from __future__ import annotations

import numpy as np
import pytest
from bench.scheduler import ours, rates, sionnas


@pytest.mark.parametrize(("cells", "ues"), [(1, 4), (3, 16)])
def test_the_allocation_is_that_of_sionnas_scheduler(cells, ues):
    """PFSchedulerSUMIMO: argmax R / T per resource, beta 0.98; one UE has the whole carrier."""
    pytest.importorskip("sionna.sys", reason='needs the extra: pip install "ranloom[sionna]"')
    rate = rates(cells, ues, 200)
    winners, _ = ours(rate)
    theirs, _ = sionnas(rate, 5)
    assert np.array_equal(winners, theirs)
    assert len(np.unique(winners)) == ues


def test_equal_rates_are_served_in_turn():
    """By hand: a UE that was served has the larger T, so equal rates give a rotation by index."""
    winners, _ = ours(np.ones((12, 1, 4)))
    assert winners[:, 0].tolist() == [0, 1, 2, 3] * 3
