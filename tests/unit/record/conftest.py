"""One made-up live run and one simulated one, shared by the tests that only read them."""

from __future__ import annotations

import pytest

from testbed.record.recording import Recording

from .fabricate import Fabricated, fabricate


@pytest.fixture(scope="session")
def live() -> Fabricated:
    return fabricate(1000)


@pytest.fixture(scope="session")
def recording(live: Fabricated) -> Recording:
    return live.recording()


@pytest.fixture(scope="session")
def simulated() -> Recording:
    return fabricate(700, live=False).recording()
