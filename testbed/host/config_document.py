"""What a node is started with, and the JSON document of CONFIG that tells it the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict


class PeerEntry(BaseModel):
    """A node that this one sends to, or hears from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inbox: str
    site: str
    life: int
    sends_to: bool
    receives_from: bool


class NodeConfig(BaseModel):
    """Everything; ``birth`` goes into the journal as it stands (``testbed.host.birth``)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    birth: dict[str, Any]
    directory: str
    run_dir: str
    wall_ns_per_us: int
    peers: dict[str, PeerEntry]


@dataclass(frozen=True, slots=True)
class NodeArguments:
    """What a node process is started with; everything else comes with CONFIG."""

    kind: str
    node: str
    life: int
    control: str
    inbox: str
    run_token: str
    launcher_pid: int
