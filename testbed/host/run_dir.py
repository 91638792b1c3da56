"""A run's directory, its ledger of processes, and the clean-up of what a dead run left.

Everything that is removed or killed stands in a ledger, with the process's start time beside its
pid: nothing is ever found by pattern.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import RanloomError

LEDGER = "ledger.jsonl"
_RUNTIME_PREFIX = "ranloom-"
_SUBDIRECTORIES = ("events", "logs", "tables", "figures")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for good: its pid, and when it started (clock ticks since boot)."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Whether that very process still runs (a zombie does not)."""
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int:
    """When a process started; -1 where there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    fields = stat.rpartition(")")[2].split()
    return -1 if fields[0] in "ZX" else int(fields[19])


class RunDirectory:
    """The directory of one run, being written."""

    def __init__(self, path: Path, name: str) -> None:
        """Make it. Raises RanloomError where it cannot be written, or holds a run already."""
        self.path = path.absolute()
        self.token = secrets.token_hex(4)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / LEDGER).exists():
                raise RanloomError(f"{path} holds a run already; name another with --run-dir")
            for sub in _SUBDIRECTORIES:
                (self.path / sub).mkdir(exist_ok=True)
            self._ledger = (self.path / LEDGER).open("a", encoding="utf-8")
        except OSError as error:
            raise RanloomError(
                f"the run directory {path} cannot be written: {error.strerror}; "
                "name another with --run-dir"
            ) from error
        self.runtime = Path(tempfile.mkdtemp(prefix=_RUNTIME_PREFIX, dir=_runtime_root()))
        self._entry = _registry() / f"{name}-{self.token}.json"
        own = ProcessId(os.getpid(), start_ticks(os.getpid()))
        self.note(
            what="launcher", pid=own.pid, start_ticks=own.start_ticks, runtime=str(self.runtime)
        )
        try:
            self._entry.parent.mkdir(parents=True, exist_ok=True)
            self._entry.write_text(json.dumps({"name": name, "run_dir": str(self.path)}))
        except OSError:
            pass  # then `down` needs the directory instead of the name

    def note(self, **facts: Any) -> None:
        """Append one line to the ledger; it is on disk when this returns."""
        self._ledger.write(json.dumps(facts) + "\n")
        self._ledger.flush()

    def note_process(self, what: str, node: str, pid: int) -> None:
        """Enter a process (and, with it, its process group) into the ledger."""
        self.note(what=what, node=node, pid=pid, start_ticks=start_ticks(pid))

    def close(self) -> None:
        """The run is over and nothing of it is left outside its directory."""
        shutil.rmtree(self.runtime, ignore_errors=True)
        self.note(what="end")
        self._ledger.close()
        self._entry.unlink(missing_ok=True)


def _runtime_root() -> str:
    """A short path for sockets (their names may have 107 characters)."""
    root = os.environ.get("XDG_RUNTIME_DIR", "")
    return root if root and os.access(root, os.W_OK) and len(root) < 40 else "/tmp"


def _registry() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "ranloom" / "runs"


def read_ledger(run_dir: Path) -> list[dict[str, Any]]:
    """The ledger's entries; a torn last line is left out. Raises RanloomError: not a run."""
    try:
        lines = (run_dir / LEDGER).read_text(encoding="utf-8").splitlines()
    except OSError:
        raise RanloomError(f"{run_dir} is not a run directory: it has no {LEDGER}") from None
    entries = []
    for line in lines:
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return entries


def find_run(run: str) -> Path:
    """A run by its directory, or by its topology's name. Raises RanloomError."""
    path = Path(run)
    if (path / LEDGER).is_file():
        return path.absolute()
    known = {entry.stem: facts for entry in _entries() if (facts := _facts(entry))}
    matches = [
        Path(facts["run_dir"]) for stem, facts in known.items() if run in (stem, facts["name"])
    ]
    if len(matches) == 1:
        return matches[0]
    if len(matches) > 1:
        listed = ", ".join(str(match) for match in matches)
        raise RanloomError(f"{run!r} names {len(matches)} runs; give a directory: {listed}")
    running = ", ".join(sorted(known)) or "none"
    raise RanloomError(f"{run!r} is neither a run directory nor a run that is going on ({running})")


def launcher_of(run_dir: Path) -> ProcessId | None:
    """The launcher of a run, if it still lives."""
    for entry in read_ledger(run_dir):
        if entry["what"] == "launcher":
            process = ProcessId(entry["pid"], entry["start_ticks"])
            return process if process.alive else None
    return None


def clean_up(run_dir: Path) -> list[str]:
    """Remove what a dead run left: its processes by pid and start time, its runtime directory.

    Returns what was done, one line each. A run whose launcher lives is left alone.
    """
    if launcher_of(run_dir) is not None:
        return []
    done = []
    for entry in read_ledger(run_dir):
        if entry["what"] == "launcher":
            runtime = Path(entry["runtime"])
            if runtime.name.startswith(_RUNTIME_PREFIX) and runtime.is_dir():
                shutil.rmtree(runtime, ignore_errors=True)
                done.append(f"removed {runtime}")
        elif "pid" in entry and ProcessId(entry["pid"], entry["start_ticks"]).alive:
            (os.killpg if entry["what"] == "node" else os.kill)(entry["pid"], signal.SIGKILL)
            done.append(f"killed {entry['node']} (pid {entry['pid']})")
    for registered in _entries():
        if _facts(registered).get("run_dir") == str(run_dir):
            registered.unlink(missing_ok=True)
    return done


def clean_up_dead_runs() -> list[str]:
    """``clean_up`` for every run of the registry whose launcher is gone."""
    done = []
    for entry in _entries():
        run_dir = Path(_facts(entry).get("run_dir", ""))
        try:
            done += clean_up(run_dir)
        except RanloomError:
            entry.unlink(missing_ok=True)  # its directory is gone, and the ledger with it
    return done


def _facts(entry: Path) -> dict[str, str]:
    """What a registry file says; nothing where it is torn or gone."""
    try:
        found = json.loads(entry.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _entries() -> list[Path]:
    registry = _registry()
    return sorted(registry.glob("*.json")) if registry.is_dir() else []
