"""Descriptions of traffic, one frozen dataclass per model. Owns their ranges; draws nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from testbed.ran.traces import Trace

IMIX_BYTES = (*(40,) * 7, *(576,) * 4, 1500)
"""IP packet sizes of the simple Internet mix, 7:4:1; each entry is equally likely."""

IMIX_MEAN_BYTES = sum(IMIX_BYTES) / len(IMIX_BYTES)


@dataclass(frozen=True, slots=True)
class Fgn:
    """Fractional Gaussian noise g on an intensity: max(0, 1 + cv g) / E[max(0, 1 + cv g)].

    g has mean 0, variance 1 and holds for ``step_us``. The divisor is the exact expectation, so the
    mean load is what was asked for in expectation. It is not so in one short run: the mean of n
    steps has the standard deviation cv n^(hurst - 1), which is what long-range dependence means.

    Attributes:
        hurst: 0.5 (white) to below 1.
        cv: standard deviation over the mean, before the cut at 0.
        step_us: how long one value of the noise holds.
    """

    hurst: float = 0.85
    cv: float = 0.45
    step_us: int = 2_500

    def __post_init__(self) -> None:
        if not 0.5 <= self.hurst < 1:
            raise ValueError(f"hurst = {self.hurst!r}: allowed is 0.5 to below 1")
        _above_zero("cv", self.cv, 2)
        _above_zero("step_us", self.step_us, 86_400_000_000)


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A profile that repeats, as a factor of mean 1 over its period.

    Either a sinusoid with its trough at the start of the period, or points equally spaced over it,
    joined by straight lines (the last to the first) and divided by their mean.

    Attributes:
        period_s: length; 86,400 is a day, less compresses it.
        phase: where in the profile the run begins, 0 to 1 (0.5: the sinusoid's peak).
        peak_to_trough: of the sinusoid; None where there are points.
        points: relative levels; empty for a sinusoid.
    """

    period_s: float = 86_400.0
    phase: float = 0.0
    peak_to_trough: float | None = None
    points: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _above_zero("period_s", self.period_s, 1e7)
        if not 0 <= self.phase <= 1:
            raise ValueError(f"phase = {self.phase!r}: allowed is 0 to 1")
        if (self.peak_to_trough is None) is (not self.points):
            raise ValueError("a diurnal profile needs peak_to_trough or points, and not both")
        if self.peak_to_trough is not None and not 1 <= self.peak_to_trough <= 1e6:
            raise ValueError(f"peak_to_trough = {self.peak_to_trough!r}: allowed is 1 to 1e6")
        if self.points and not (min(self.points) >= 0 and 0 < sum(self.points) < 1e12):
            raise ValueError(f"points = {self.points!r}: allowed are numbers >= 0, not all 0")


@dataclass(frozen=True, slots=True)
class NoTraffic:
    """Nothing arrives."""


@dataclass(frozen=True, slots=True)
class Ftp3:
    """FTP model 3 (TR 36.889): files of one size, a Poisson process per UE.

    Attributes:
        files_per_s_per_ue: mean rate.
        file_bytes: size of each file.
        fgn, diurnal: factors on the rate, common to all UEs that this describes.
    """

    files_per_s_per_ue: float
    file_bytes: int = 500_000
    fgn: Fgn | None = None
    diurnal: Diurnal | None = None

    def __post_init__(self) -> None:
        _rate("files_per_s_per_ue", self.files_per_s_per_ue)
        _bytes("file_bytes", self.file_bytes)


@dataclass(frozen=True, slots=True)
class Imix:
    """Poisson packets of 40, 576 and 1500 bytes in the proportion 7:4:1; else as ``Ftp3``."""

    packets_per_s_per_ue: float
    fgn: Fgn | None = None
    diurnal: Diurnal | None = None

    def __post_init__(self) -> None:
        _rate("packets_per_s_per_ue", self.packets_per_s_per_ue)


@dataclass(frozen=True, slots=True)
class Periodic:
    """A packet per UE and period: sizes uniform in [bytes_min, bytes_max], a random phase per UE.

    With equal sizes it is a constant bit rate.
    """

    bytes_min: int
    bytes_max: int
    period_us: int

    def __post_init__(self) -> None:
        _bytes("bytes_min", self.bytes_min)
        if not self.bytes_min <= self.bytes_max <= 10**9:
            raise ValueError(f"bytes_max = {self.bytes_max!r}: allowed is bytes_min to 1e9")
        if not 100 <= self.period_us <= 86_400_000_000:
            raise ValueError(f"period_us = {self.period_us!r}: allowed is 100 us to one day")


@dataclass(frozen=True, slots=True)
class Xr:
    """Video frames of extended reality or cloud gaming (TR 38.838, clause 5).

    A frame every 1/fps s from a random phase per UE. Its size is a truncated Gaussian around
    rate_mbps / fps (deviation 10.5 %, within 50 to 150 %); its arrival is shifted by a truncated
    Gaussian (deviation 2 ms, within 4 ms) unless ``jitter`` is off.
    """

    rate_mbps: float
    fps: int = 60
    jitter: bool = True

    def __post_init__(self) -> None:
        _above_zero("rate_mbps", self.rate_mbps, 1e5)
        if not 1 <= self.fps <= 240:
            raise ValueError(f"fps = {self.fps!r}: allowed is 1 to 240")

    @property
    def frame_bytes(self) -> float:
        """Mean size of a frame: rate / (8 fps)."""
        return self.rate_mbps * 1e6 / self.fps / 8


@dataclass(frozen=True, slots=True)
class FullBuffer:
    """Each UE always has at least ``backlog_bytes`` waiting.

    The MAC adds one SDU of that size whenever the backlog falls below it, so here the arrivals
    depend on the service: delays mean nothing, and runs of two policies are not paired.
    """

    backlog_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        _bytes("backlog_bytes", self.backlog_bytes)


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace played back; each of its arrivals is one SDU.

    Args:
        trace: both directions; each link takes its own.
        start_s: where in the trace slot 0 is, in seconds of the trace.
        length_s: how much of the trace to play; to its last arrival if None.
        loop: start again at ``start_s`` when that part has been played.
        bytes_scale: factor on every arrival's bytes (never below 1 byte).
        time_compress: 2.0 plays twice as fast.
    """

    trace: Trace
    start_s: float = 0.0
    length_s: float | None = None
    loop: bool = False
    bytes_scale: float = 1.0
    time_compress: float = 1.0

    def __post_init__(self) -> None:
        last_s = self.trace.duration_us / 1e6
        if not 0 <= self.start_s <= last_s:
            raise ValueError(
                f"start_s = {self.start_s!r}: allowed is 0 to {last_s}, the trace's last arrival"
            )
        for key, value in (
            ("length_s", 1.0 if self.length_s is None else self.length_s),
            ("bytes_scale", self.bytes_scale),
            ("time_compress", self.time_compress),
        ):
            if not 0 < value < 1e9:
                raise ValueError(f"{key} = {value!r}: allowed is above 0 and below 1e9")


OneSpec = NoTraffic | Ftp3 | Imix | Periodic | Xr | FullBuffer | Replay


@dataclass(frozen=True, slots=True)
class Part:
    """Traffic of the UEs first_ue to first_ue + n_ues - 1 of a cell."""

    first_ue: int
    n_ues: int
    spec: OneSpec

    def __post_init__(self) -> None:
        if self.first_ue < 0 or self.n_ues < 1:
            raise ValueError(f"UEs from {self.first_ue}, {self.n_ues} of them: no such UEs")
        if isinstance(self.spec, FullBuffer):
            raise ValueError("a full buffer is for a whole cell, not for a part of its UEs")


@dataclass(frozen=True, slots=True)
class Mixed:
    """Different traffic for different UEs of a cell.

    A part's draws are keyed by its place in ``parts``: one that is added at the end, or a change
    within one, leaves the arrivals of all others as they are.
    """

    parts: tuple[Part, ...]

    @property
    def n_ues(self) -> int:
        """UEs that a cell must have for these parts."""
        return max((part.first_ue + part.n_ues for part in self.parts), default=0)


TrafficSpec = OneSpec | Mixed


def mean_bytes_per_s(spec: TrafficSpec, n_ues: int) -> float | None:
    """Expected offered bytes per second of ``n_ues`` UEs, over whole periods of a profile.

    None where the description alone does not say: a full buffer, a trace.
    """
    match spec:
        case NoTraffic():
            return 0.0
        case Ftp3():
            return n_ues * spec.files_per_s_per_ue * spec.file_bytes
        case Imix():
            return n_ues * spec.packets_per_s_per_ue * IMIX_MEAN_BYTES
        case Periodic():
            return n_ues * (spec.bytes_min + spec.bytes_max) / 2 * 1e6 / spec.period_us
        case Xr():
            return n_ues * spec.rate_mbps * 1e6 / 8
        case Mixed():
            rates = [mean_bytes_per_s(part.spec, part.n_ues) for part in spec.parts]
            known = [rate for rate in rates if rate is not None]
            return sum(known) if len(known) == len(rates) else None
        case FullBuffer() | Replay():
            return None


def _above_zero(key: str, value: float, highest: float) -> None:
    if not 0 < value <= highest:
        raise ValueError(f"{key} = {value!r}: allowed is above 0, at most {highest:g}")


def _rate(key: str, value: float) -> None:
    if not 0 <= value < 1e6:
        raise ValueError(f"{key} = {value!r}: allowed is 0 to below 1e6")


def _bytes(key: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{key} = {value!r}: must be at least 1")


COMMAG_PACKET_BYTES = 1500
"""Of the constant bit rates; assumed, the measurements give the rate alone."""

COMMAG: Mapping[str, Ftp3 | Periodic] = MappingProxyType(
    {
        "embb-1": Periodic(COMMAG_PACKET_BYTES, COMMAG_PACKET_BYTES, 8 * COMMAG_PACKET_BYTES),
        "embb-4": Periodic(COMMAG_PACKET_BYTES, COMMAG_PACKET_BYTES, 2 * COMMAG_PACKET_BYTES),
        "mtc": Ftp3(30.0, 125),
        "urllc": Ftp3(10.0, 125),
    }
)
"""Services of the COMMAG and ColO-RAN measurements: eMBB 1 or 4 Mb/s, MTC, URLLC."""
