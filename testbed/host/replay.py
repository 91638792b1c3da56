"""``replay``: journals of a run directory, fed to new nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nodes.api import Node
from testbed.errors import RanloomError
from testbed.host.birth import build_node, read_birth
from testbed.host.journal import ReplayResult, replay


def replay_run(run_dir: Path, nodes: Sequence[str] = ()) -> Iterator[ReplayResult]:
    """Replay each journal (or those of ``nodes``). Raises RanloomError: none there."""
    journals = sorted((run_dir / "events").glob("*.mp"))
    chosen = [path for path in journals if not nodes or path.stem in nodes]
    if not chosen:
        known = ", ".join(path.stem for path in journals) or "none"
        raise RanloomError(f"{run_dir}: no such journal; there are: {known}")
    for path in chosen:
        yield replay(path, lambda document: _build(document, run_dir))


def _build(document: dict[str, Any], run_dir: Path) -> Node:
    return build_node(read_birth(document, run_dir / "inputs"))
