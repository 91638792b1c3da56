"""What arrives at a cell's buffers: files, packets, frames, a full buffer, a replayed trace.

``specs`` says what a cell may ask for, ``modulation`` how the intensity of Poisson arrivals moves,
``processes`` draws the arrivals, ``source`` hands them out by slot. Nothing here knows of buffers,
grants or policies: arrivals are a pure function of (seed, cell, direction, slot), so two runs that
differ in a policy alone see the same bytes.
"""

from testbed.ran.traffic.source import (
    Arrival,
    ArrivalArrays,
    ArrivalSource,
    arrival_source,
    arrivals_array,
)
from testbed.ran.traffic.specs import (
    Diurnal,
    Fgn,
    Ftp3,
    FullBuffer,
    Imix,
    Mixed,
    NoTraffic,
    Part,
    Periodic,
    Replay,
    TrafficSpec,
    Xr,
)

__all__ = [
    "Arrival",
    "ArrivalArrays",
    "ArrivalSource",
    "Diurnal",
    "Fgn",
    "Ftp3",
    "FullBuffer",
    "Imix",
    "Mixed",
    "NoTraffic",
    "Part",
    "Periodic",
    "Replay",
    "TrafficSpec",
    "Xr",
    "arrival_source",
    "arrivals_array",
]
