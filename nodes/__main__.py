"""``python -m nodes KIND``: one node as a process of its own; the launcher starts it."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import uvloop

from nodes.kinds import KINDS
from testbed.host.config_document import NodeArguments
from testbed.host.lifeline import tie_to_launcher
from testbed.host.node_process import NodeProcess


def run(arguments: list[str] | None = None) -> int:
    """Parse the command line and live; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m nodes", description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    for name in ("--node", "--control", "--inbox", "--run-token", "--runtime-dir"):
        parser.add_argument(name, required=True)
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--launcher-pid", type=int, required=True)
    given = parser.parse_args(arguments)
    janitor_of = Path(given.runtime_dir) if given.kind == "recorder" else None
    tie_to_launcher(given.launcher_pid, janitor_of)
    named = NodeArguments(
        given.kind,
        given.node,
        given.life,
        given.control,
        given.inbox,
        given.run_token,
        given.launcher_pid,
    )
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )

    async def live() -> int:
        return await NodeProcess(named).run()

    return uvloop.run(live())


if __name__ == "__main__":
    sys.exit(run())
