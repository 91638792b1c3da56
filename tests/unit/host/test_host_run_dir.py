"""Run directories: what may be written, what is found again, and what a clean-up may touch."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from run import main
from testbed.errors import RanloomError
from testbed.host.run_dir import (
    LEDGER,
    ProcessId,
    RunDirectory,
    clean_up,
    clean_up_dead_runs,
    find_run,
    launcher_of,
    read_ledger,
    start_ticks,
)

NEVER = 2**22 + 1
"""Above the largest process id that Linux gives."""


@pytest.fixture(autouse=True)
def _own_places(tmp_path, monkeypatch):
    """Registry and runtime directories of the test's own; socket paths must be short."""
    with tempfile.TemporaryDirectory(prefix="rl") as runtime:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield


@pytest.fixture
def sleeper():
    """Starts processes that would outlive the test, each the head of a group of its own."""
    started = []

    def start(name="python -m nodes gnb_mac"):
        code = "import sys, time; sys.stdout.write('up\\n'); sys.stdout.flush(); time.sleep(300)"
        process = subprocess.Popen(
            [sys.executable, "-c", code, name], stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout.readline() == b"up\n"
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def dead_run(directory, *entries, runtime="/nonexistent/ranloom-x"):
    """A run directory whose launcher is gone."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [{"what": "launcher", "pid": NEVER, "start_ticks": 1, "runtime": str(runtime)}]
    lines += entries
    (directory / LEDGER).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def entry(process, what="node", ticks=None):
    ticks = start_ticks(process.pid) if ticks is None else ticks
    return {"what": what, "node": "north.g1.mac", "pid": process.pid, "start_ticks": ticks}


# --- writing ------------------------------------------------------------------------------------


def test_new_run_has_its_places_and_knows_its_launcher(tmp_path):
    run = RunDirectory(tmp_path / "run", "quickstart")
    assert {path.name for path in run.path.iterdir()} >= {"events", "logs", "tables", "figures"}
    assert stat.S_IMODE(run.runtime.stat().st_mode) == 0o700
    assert len(str(run.runtime / "control")) < 80, "a socket's name has room for 107 bytes"
    assert launcher_of(run.path) == ProcessId(os.getpid(), start_ticks(os.getpid()))
    run.close()
    assert not run.runtime.exists()


def test_directory_that_holds_a_run_is_refused_and_left_as_it_is(tmp_path):
    first = RunDirectory(tmp_path / "run", "one")
    first.close()
    before = (tmp_path / "run" / LEDGER).read_text()
    with pytest.raises(RanloomError, match="holds a run already; name another with --run-dir"):
        RunDirectory(tmp_path / "run", "two")
    assert (tmp_path / "run" / LEDGER).read_text() == before


@pytest.mark.parametrize("place", ["file/run", "file"])
def test_directory_that_cannot_be_written_is_a_named_error(tmp_path, place):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RanloomError, match=r"cannot be written: .*; name another with --run-dir"):
        RunDirectory(tmp_path / place, "one")


def test_two_runs_of_one_name_are_apart(tmp_path):
    runs = [RunDirectory(tmp_path / name, "same") for name in ("a", "b")]
    assert runs[0].runtime != runs[1].runtime
    assert runs[0].token != runs[1].token
    with pytest.raises(RanloomError, match="names 2 runs; give a directory: "):
        find_run("same")
    for run in runs:
        assert find_run(str(run.path)) == run.path
        run.close()


# --- finding ------------------------------------------------------------------------------------


def test_run_is_found_by_directory_and_by_name_from_anywhere(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "run", "quickstart")
    monkeypatch.chdir("/")
    assert find_run(str(run.path)) == find_run("quickstart") == run.path
    run.close()
    with pytest.raises(RanloomError, match=r"neither a run directory nor a run .* \(none\)"):
        find_run("quickstart")


def test_unknown_run_lists_those_that_are_going_on(tmp_path):
    run = RunDirectory(tmp_path / "run", "quickstart")
    with pytest.raises(RanloomError, match=rf"\(quickstart-{run.token}\)"):
        find_run("quikstart")
    run.close()


@pytest.mark.parametrize("name", ["nothing", "/nonexistent/run", "."])
def test_down_of_something_unknown_is_bad_usage(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["down", name])
    assert result.exit_code == 2
    assert f"error: '{name}' is neither a run directory nor a run that is going on" in result.output


def test_down_of_a_dead_run_cleans_up_and_is_idempotent(tmp_path):
    run = dead_run(tmp_path / "run")
    for _ in range(2):
        result = CliRunner().invoke(main, ["down", str(run)])
        assert result.exit_code == 0
        assert "nothing is left of this run" in result.output


def test_torn_ledger_is_read_up_to_its_last_whole_line(tmp_path):
    run = dead_run(tmp_path / "run", {"what": "node", "pid": 5, "start_ticks": 6})
    with (run / LEDGER).open("a") as ledger:
        ledger.write('{"what": "node", "pi')
    assert [line["what"] for line in read_ledger(run)] == ["launcher", "node"]


def test_directory_without_a_ledger_is_no_run(tmp_path):
    with pytest.raises(RanloomError, match=r"is not a run directory: it has no ledger\.jsonl"):
        read_ledger(tmp_path)


# --- cleaning up --------------------------------------------------------------------------------


def test_clean_up_kills_what_the_ledger_names_and_nothing_else(tmp_path, sleeper):
    ours, decoy = sleeper(), sleeper()
    done = clean_up(dead_run(tmp_path / "run", entry(ours)))
    assert ours.wait(10) == -signal.SIGKILL
    assert done == [f"killed north.g1.mac (pid {ours.pid})"]
    assert decoy.poll() is None, "the same command line, but not in the ledger"


def test_process_that_has_taken_over_a_pid_is_left_alone(tmp_path, sleeper):
    decoy = sleeper()
    earlier = entry(decoy, ticks=start_ticks(decoy.pid) - 1)
    assert clean_up(dead_run(tmp_path / "run", earlier)) == []
    assert decoy.poll() is None


def test_executor_is_killed_without_its_group(tmp_path, sleeper):
    executor = sleeper()
    clean_up(dead_run(tmp_path / "run", entry(executor, "executor")))
    assert executor.wait(10) == -signal.SIGKILL


def test_run_whose_launcher_lives_is_left_alone(tmp_path, sleeper):
    run = RunDirectory(tmp_path / "run", "living")
    process = sleeper()
    run.note_process("node", "north.g1.mac", process.pid)
    assert clean_up(run.path) == []
    assert clean_up_dead_runs() == []
    assert process.poll() is None
    assert run.runtime.is_dir()
    run.close()


def test_runtime_directory_goes_and_directories_of_others_stay(tmp_path):
    ours = Path(tempfile.mkdtemp(prefix="ranloom-", dir=os.environ["XDG_RUNTIME_DIR"]))
    (ours / "control").touch()
    foreign = tmp_path / "ranloomish"
    foreign.mkdir()
    assert clean_up(dead_run(tmp_path / "a", runtime=ours)) == [f"removed {ours}"]
    assert not ours.exists()
    assert clean_up(dead_run(tmp_path / "b", runtime=foreign)) == []
    assert foreign.is_dir()


def test_next_run_cleans_up_after_dead_ones_of_the_registry(tmp_path, sleeper):
    process = sleeper()
    run = RunDirectory(tmp_path / "run", "dead")
    registered = list((tmp_path / "state" / "ranloom" / "runs").iterdir())
    dead_run(run.path, entry(process), runtime=run.runtime)
    done = clean_up_dead_runs()
    assert f"killed north.g1.mac (pid {process.pid})" in done
    assert f"removed {run.runtime}" in done
    assert process.wait(10) == -signal.SIGKILL
    assert not any(path.exists() for path in registered)
    assert clean_up_dead_runs() == []


def test_registered_run_whose_directory_is_gone_is_forgotten(tmp_path):
    registry = tmp_path / "state" / "ranloom" / "runs"
    registry.mkdir(parents=True)
    gone = registry / "gone-1.json"
    gone.write_text(json.dumps({"name": "gone", "run_dir": str(tmp_path / "gone")}))
    assert clean_up_dead_runs() == []
    assert not gone.exists()


def test_process_is_known_by_pid_and_start_time(sleeper):
    process = sleeper()
    known = ProcessId(process.pid, start_ticks(process.pid))
    assert known.alive
    assert not ProcessId(process.pid, known.start_ticks + 1).alive
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not known.alive, "a zombie does not live"
    assert start_ticks(NEVER) == -1


def test_name_with_parentheses_does_not_confuse_the_start_time():
    """/proc/PID/stat holds the name in parentheses, and a name may hold them too."""
    code = (
        "import ctypes, sys, time\n"
        "ctypes.CDLL(None).prctl(15, b') Z 1 2 3', 0, 0, 0)\n"
        "print('up', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"up\n"
        assert ProcessId(process.pid, start_ticks(process.pid)).alive
        assert start_ticks(process.pid) > 0
        process.stdin.close()
