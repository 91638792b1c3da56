"""A user's own policy, from the command line: fifteen lines beside the topology file."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from sim_topologies import FULL, NONE, one_site

from run import main

MOST_WAITING = '''\
"""The UE with most bytes waiting goes first."""

from testbed.ran.schedulers import Grant, SlotView, fill


class MostWaiting:
    def schedule(self, view: SlotView) -> list[Grant]:
        return [
            grant
            for cell in view.cells
            for grant in fill(cell, sorted(cell.ues, key=lambda ue: (-ue.backlog_bytes, ue.ue)))
        ]
'''

OVER_GRANTS = """\
from testbed.ran.schedulers import Grant


class Greedy:
    def schedule(self, view):
        return [Grant(cell.cell, ue.ue, 274) for cell in view.cells for ue in cell.ues]
"""

RAISES = """\
class Raises:
    def schedule(self, view):
        raise ZeroDivisionError("no idea")
"""

GENEROUS_LEASE = """\
class Generous:
    def divide(self, sms, jobs, gpu):
        return {job: gpu.sms for job in jobs}
"""

WRONG_SPLIT = """\
class Doubled:
    def split(self, total, members):
        return {member: total + 1 for member in members}
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A directory with a topology in it, away from any run of the user's."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "topology.toml").write_text(one_site(ul=FULL, dl=NONE))
    return tmp_path


def sim(directory, *options, name="run"):
    """``run.py sim`` without a report: (exit status, everything that it printed)."""
    arguments = ["sim", str(directory / "topology.toml"), "--no-report"]
    arguments += ["--run-dir", str(directory / name), *options]
    result = CliRunner().invoke(main, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError("a traceback reached the user") from result.exception
    return result.exit_code, result.output


def effects(directory, name):
    return json.loads((directory / name / "manifest.json").read_text())["effects"]


def test_own_policy_changes_the_schedule(directory):
    (directory / "mine.py").write_text(MOST_WAITING)
    assert len(MOST_WAITING.splitlines()) <= 15
    assert sim(directory, name="default")[0] == 0
    status, output = sim(directory, "--policy", "site.mac=mine:MostWaiting", name="own")
    assert status == 0, output
    default, own = effects(directory, "default"), effects(directory, "own")
    assert default["north.g1.mac"] != own["north.g1.mac"]


def test_own_policy_is_kept_with_the_run(directory):
    (directory / "mine2.py").write_text(MOST_WAITING)
    status, output = sim(directory, "--policy", "site.mac=mine2:MostWaiting")
    assert status == 0, output
    assert (directory / "run" / "inputs" / "mine2.py").read_text() == MOST_WAITING


@pytest.mark.parametrize(
    ("slot", "source", "name", "told"),
    [
        ("site.mac", OVER_GRANTS, "Greedy", ["Greedy", "822 PRBs granted", "allowed are 273"]),
        (
            "site.mac",
            RAISES,
            "Raises",
            ["north.g1.mac at 200 us", "ZeroDivisionError: no idea", ".py:3, in schedule"],
        ),
        ("site.mac", RAISES, "Absent", ["has no class Absent"]),
        ("site.mac", "import nothing_of_that_name\n", "Any", ["nothing_of_that_name"]),
        ("site.mac", "class Any:\n    pass\n", "Any", ["has no method schedule()"]),
        ("site.mac", "class Any:\n    def __init__(self, x): ...\n", "Any", ["without arguments"]),
        ("site.mac", "class Any(:\n", "Any", ["SyntaxError"]),
        ("site.lease", GENEROUS_LEASE, "Generous", ["Generous", "at most", "in steps of 8"]),
        ("coordinator.assignment", WRONG_SPLIT, "Doubled", ["Doubled", "not a split of 1"]),
    ],
)
def test_policy_that_does_wrong_is_a_named_error(request, directory, slot, source, name, told):
    module = f"own_{request.node.callspec.indices['told']}"  # modules are kept by name
    (directory / f"{module}.py").write_text(source)
    status, output = sim(directory, "--policy", f"{slot}={module}:{name}")
    assert status == (1 if name == "Raises" else 2), output  # a run that failed, or bad input
    assert output.startswith("error: ")
    assert "Traceback" not in output
    for part in told:
        assert part in output, output


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("site.mac=round_robbin", "round_robin"),
        ("site.mac=absent_module:Class", "no module absent_module"),
        ("site.mack=round_robin", "mac"),
        ("site.mac", "site.mac=NAME"),
    ],
)
def test_policy_that_is_missing_is_a_named_error(directory, option, told):
    status, output = sim(directory, "--policy", option)
    assert status == 2, output
    assert told in output
    assert not (directory / "run").exists()
