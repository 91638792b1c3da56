"""Decision time of the planners as JSON: ``decision_time.py [JOBS...]``."""

from __future__ import annotations

import json
import sys

from testbed.coexec_cli.planner_times import decision_rows


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or [100, 1000, 2000]
    rows = [row for size in sizes for row in decision_rows(size, repeats=40)]
    json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
