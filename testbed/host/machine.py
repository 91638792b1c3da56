"""What ``doctor --write`` found of this machine, for ``check``, ``sim`` and ``scale = "auto"``."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.topology.schema import Topology
from testbed.topology.sizes import DEFAULT_SLOT_WALL_MS


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Figures of one machine, in wall time; the defaults are those of an unknown one."""

    slot_wall_ms: float = DEFAULT_SLOT_WALL_MS
    """The shortest slot that it keeps while its cores run at their best speed."""
    steady_slot_wall_ms: float = DEFAULT_SLOT_WALL_MS
    """The shortest slot that holds a slot's work while the cores are as slow as p99.5 of the time:
    for ``scale = "auto"``. A small task's own hold is shorter, and may still be overrun."""
    message_overhead_wall_us: int = 400
    quantum_overhead_wall_us: int = 200


def facts_path() -> Path:
    """Where the figures are kept."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "ranloom" / "machine.json"


def machine_facts() -> MachineFacts:
    """What doctor wrote, or the defaults where it has not, or what it wrote cannot be read."""
    try:
        return MachineFacts(**json.loads(facts_path().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return MachineFacts()


def with_machine_facts(topology: Topology) -> Topology:
    """The topology with this machine's overheads where its file names none."""
    facts = machine_facts()
    host = topology.host
    measured = {
        "message_overhead_wall_us": facts.message_overhead_wall_us,
        "quantum_overhead_wall_us": facts.quantum_overhead_wall_us,
    }
    left_open = {key: value for key, value in measured.items() if key not in host.model_fields_set}
    changed = topology.model_copy(update={"host": host.model_copy(update=left_open)})
    return changed.placed(topology.directory, topology.warnings)


def keep_facts(facts: MachineFacts) -> Path:
    """Write the figures. Raises OSError."""
    path = facts_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(facts)) + "\n", encoding="utf-8")
    return path
