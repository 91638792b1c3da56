"""Memory of a process: its proportional set size."""

from __future__ import annotations

from pathlib import Path


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process: its own pages, and its part of shared ones; 0 if gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
