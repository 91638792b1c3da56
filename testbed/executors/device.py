"""Where the real work runs, and how its end is known: at once on a CPU, by an event on CUDA."""

from __future__ import annotations

import torch

from protocols.errors import RanloomError
from testbed.executors.config import ComputeConfig
from testbed.executors.pace import Pace


class DeviceError(RanloomError):
    """The configured device is not there."""


def open_device(config: ComputeConfig) -> torch.device:
    """The device of ``config``. Raises DeviceError."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise DeviceError('device = "cuda", but torch sees no CUDA device; use "cpu"')
    return torch.device(config.device)


def make_pace(config: ComputeConfig) -> Pace:
    """How quanta and tasks end on that device.

    CUDA launches are asynchronous: waiting for an event behind the work keeps at most one quantum
    in flight, and the time after it is the quantum's end.
    """
    held = config.pace == "emulated"
    if config.device == "cpu":
        return Pace(held)
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def settle() -> None:
        event.record(torch.cuda.current_stream())
        event.synchronize()

    return Pace(held, settle)
