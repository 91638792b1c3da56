"""``plan`` from the outside: tables, mistakes, JSON, pictures, exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from testbed.coexec.generate import generate
from testbed.coexec_cli import EXPERIMENTS, plan_command
from testbed.coexec_cli.laws import read_laws
from testbed.coexec_cli.tables import read_jobs
from testbed.errors import TraceError

ROOT = Path(__file__).parents[3]
HEADER = "job,params_b,t_rollout_s,t_train_s,slo"
GOOD = [HEADER, "a,7,100,100,1.5", "b,7,100,100,1.5", "c,32,300,80,1.2"]


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(lines) + ("\n" if lines else ""), encoding="utf-8")
    return path


def plan(*arguments: object) -> Result:
    return CliRunner().invoke(plan_command, [str(one) for one in arguments])


def planned(path: Path, tmp_path: Path, *options: object) -> dict:
    out = tmp_path / "plan.json"
    result = plan(path, "--json", out, *options)
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text())


def test_a_good_table(tmp_path: Path) -> None:
    data = planned(table(tmp_path, *GOOD), tmp_path)
    # a and b (200 s + sync 0.9, swaps 0.9 + 4.1) share one pair of nodes; c is alone.
    assert data["usd_per_hour"]["plan"] == pytest.approx(2 * 57.04)
    assert data["usd_per_hour"]["solo_d"] == pytest.approx(3 * 57.04)
    assert data["usd_per_hour"]["colocated_equal_speed"] == pytest.approx(3 * 42.24)
    (pair,) = [group for group in data["groups"] if len(group["jobs"]) == 2]
    pool_s = 2 * (100 + 4.1 + 0.9)  # training, swap, sync
    assert pair["t_meta_s"] == pytest.approx(pool_s)
    assert pair["host_rollout_gb"] == {"0": pytest.approx(551.4)}
    assert pair["host_train_gb"] == pytest.approx(480.0)
    for job in pair["jobs"]:
        assert job["slowdown"] == pytest.approx(210 / 200.9)
        assert job["slack_s"] == pytest.approx(1.5 * 200.9 - 210)
        assert job["reason"]
    (alone,) = [group for group in data["groups"] if len(group["jobs"]) == 1]
    assert any("SLO" in text for text in alone["jobs"][0]["refusals"])


def test_what_the_terminal_shows(tmp_path: Path) -> None:
    output = plan(table(tmp_path, *GOOD)).output
    for text in ("dedicated nodes (Solo-D)", "co-located, equal speed", "slack", "isolated group"):
        assert text in output


def test_options_change_the_plan(tmp_path: Path) -> None:
    path = table(tmp_path, *GOOD)
    assert len(planned(path, tmp_path, "--policy", "dedicated")["groups"]) == 3
    assert len(planned(path, tmp_path, "--max-group", 1)["groups"]) == 3
    assert len(planned(path, tmp_path, "--slo", 1)["groups"]) == 3
    assert len(planned(path, tmp_path, "--slo", 9)["groups"]) == 1
    cheap = planned(path, tmp_path, "--prices", "H20=1,H800=2")
    assert cheap["usd_per_hour"]["solo_d"] == pytest.approx(3 * 24)


def test_the_slo_column_may_be_left_to_the_option(tmp_path: Path) -> None:
    path = table(tmp_path, "job,model,t_rollout_s,t_train_s", "a,7B,100,100")
    assert plan(path, "--slo", 1.5).exit_code == 0
    assert "column slo is missing" in plan(path).output


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_picture(tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"plan.{suffix}"
    assert plan(table(tmp_path, *GOOD), "--picture", picture).exit_code == 0
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("a,7,-5,100,1.5", "row 2, column t_rollout_s: '-5'; allowed: a number > 0"),
        ("a,7,100,nan,1.5", "row 2, column t_train_s: 'nan'; allowed: a number > 0"),
        ("a,7,1e999,100,1.5", "row 2, column t_rollout_s: '1e999'; allowed"),
        ("a,7,100,,1.5", "row 2, column t_train_s: nothing; allowed: a number > 0"),
        ("a,7,100,100,0.9", "row 2, column slo: '0.9'; allowed: a number >= 1"),
        ("a,13,100,100,1.5", "row 2, column params_b: '13'; allowed: 3, 7, 14, 32; or another"),
        (",7,100,100,1.5", "row 2, column job: nothing; allowed: a name"),
        ("a,7,100,100", "row 2: 4 cells; allowed: 5, one per column"),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, line: str, named: str) -> None:
    result = plan(table(tmp_path, HEADER, line))
    assert result.exit_code == 2
    assert named in result.output


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    lines = ["a,7,-5,100,0.5", "a,7,100,100,1.5", "b,99,100,0,1.5"]
    result = plan(table(tmp_path, HEADER, *lines))
    assert result.exit_code == 2
    for text in (
        "row 2, column t_rollout_s",
        "row 2, column slo",
        "row 3, column job: 'a'; allowed: a name used once (row 2 has it)",
        "row 4, column params_b: '99'",
        "row 4, column t_train_s: '0'",
    ):
        assert text in result.output


def test_missing_columns_are_all_named(tmp_path: Path) -> None:
    result = plan(table(tmp_path, "job,t_rollout_s", "a,100"))
    assert result.exit_code == 2
    for name in ("t_train_s", "slo", "model (or params_b)"):
        assert f"column {name} is missing" in result.output


def test_unknown_and_mixed_gpus(tmp_path: Path) -> None:
    header = f"{HEADER},rollout_gpu"
    result = plan(table(tmp_path, header, "a,7,9,9,1.5,H20", "b,7,9,9,1.5,Z9", "c,7,9,9,1.5,H800"))
    assert result.exit_code == 2
    assert "row 3, column rollout_gpu: 'Z9'; allowed: one of" in result.output
    assert "row 4, column rollout_gpu: 'H800'; allowed: H20, as in the rows above" in result.output


def test_a_gpu_without_a_price_asks_for_one(tmp_path: Path) -> None:
    path = table(tmp_path, f"{HEADER},train_gpu", "a,7,100,100,1.5,H200")
    result = plan(path)
    assert result.exit_code == 2
    assert "no price for H200; give --prices H200=DOLLARS" in result.output
    assert plan(path, "--prices", "H200=4").exit_code == 0


@pytest.mark.parametrize(
    ("prices", "named"),
    [("H20", "'H20'; allowed: GPU=DOLLARS"), ("Z9=1", "unknown GPU 'Z9'"), ("H20=-1", "'H20=-1'")],
)
def test_bad_prices(tmp_path: Path, prices: str, named: str) -> None:
    result = plan(table(tmp_path, *GOOD), "--prices", prices)
    assert result.exit_code == 2
    assert named in result.output


def test_a_job_larger_than_a_nodes_memory(tmp_path: Path) -> None:
    path = table(tmp_path, f"{HEADER},host_train_gb", "a,7,100,100,1.5,2048")
    result = plan(path)
    assert result.exit_code == 2
    assert "row 2, column host_train_gb: '2048'; allowed: below 2048 GB" in result.output
    # The bytes of a known model count as well, where the nodes are small.
    result = plan(table(tmp_path, HEADER, "a,32,100,100,1.5"), "--host-gb", 500)
    assert "column host_train_gb: '520.4'; allowed: below 500 GB" in result.output


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ((), "empty; row 1 must name the columns"),
        ((HEADER,), "no rows below the header"),
        ((f"{HEADER},slo", "a,7,1,1,1,1"), "column slo: named twice"),
    ],
)
def test_empty_and_odd_files(tmp_path: Path, lines: tuple[str, ...], named: str) -> None:
    result = plan(table(tmp_path, *lines))
    assert result.exit_code == 2
    assert named in result.output


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    assert "No such file" in plan(tmp_path / "none.csv").output
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x81job")
    result = plan(binary)
    assert result.exit_code == 2
    assert "not a CSV table in UTF-8" in result.output
    assert plan(tmp_path).exit_code == 2


def test_a_flood_of_mistakes_is_cut(tmp_path: Path) -> None:
    lines = [f"{i},7,0,100,1.5" for i in range(80)]
    with pytest.raises(TraceError) as caught:
        read_jobs(table(tmp_path, HEADER, *lines))
    assert str(caught.value).splitlines()[-1] == "... and 30 more mistakes"


def test_columns_of_its_own_are_reported(tmp_path: Path) -> None:
    result = plan(table(tmp_path, f"{HEADER},owner", "a,7,100,100,1.5,me"))
    assert result.exit_code == 0
    assert "columns not used: owner" in result.output


def test_two_thousand_jobs_plan_in_a_second(tmp_path: Path) -> None:
    law = read_laws(ROOT / "topologies" / "weave_replay.toml")["prod"]
    rows = [
        f"{p.job},{p.model.removesuffix('B')},{p.t_rollout_s},{p.t_train_s},{p.slo}"
        for p in (one.profile for one in generate(replace(law, jobs=2000), 7))
    ]
    path = table(tmp_path, HEADER, *rows)
    began = time.process_time()
    data = planned(path, tmp_path)
    took = time.process_time() - began
    assert data["jobs"] == 2000
    assert sum(len(group["jobs"]) for group in data["groups"]) == 2000
    assert data["usd_per_hour"]["plan"] < data["usd_per_hour"]["solo_d"] / 2
    assert took < 5  # about one second; the bench measures it, this only catches a quadratic slip


def test_planning_loads_neither_torch_nor_scipy_nor_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys; from click.testing import CliRunner;"
        "from testbed.coexec_cli import plan_command;"
        f"r = CliRunner().invoke(plan_command, [{str(table(tmp_path, *GOOD))!r}]);"
        "assert r.exit_code == 0, r.output;"
        "print([m for m in ('torch', 'scipy', 'matplotlib', 'zmq', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_replay_of_any_file(tmp_path: Path) -> None:
    lines = [f"{HEADER},arrival_h,solo_duration_h", "a,7,100,100,1.5,0,4", "b,7,100,100,1.5,1,4"]
    path = table(tmp_path, *lines)
    arguments = ["--out", str(tmp_path / "out"), "--jobs", str(path), str(path)]
    result = CliRunner().invoke(EXPERIMENTS["weave-replay"], arguments)
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "out" / "weave-replay.json").read_text())
    assert data["experiment"] == "weave-replay"
    assert set(data) >= {"experiment", "seeds", "rows", "checks"}
    ours = [row for row in data["rows"] if row["policy"] == "ranloom"]
    assert {row["residency"] for row in ours} == {"work-conserving", "fixed"}
    for row in ours:
        assert set(row) >= {
            "trace",
            "ratio_solo",
            "slo_attainment",
            "moves",
            "peak_rollout_nodes",
            "peak_train_nodes",
        }
        assert row["slo_attainment"] == 1
    assert (tmp_path / "out" / "weave-replay.png").exists()


def test_replay_needs_arrivals(tmp_path: Path) -> None:
    path = table(tmp_path, *GOOD)
    result = CliRunner().invoke(
        EXPERIMENTS["weave-replay"], ["--out", str(tmp_path), "--jobs", str(path)]
    )
    assert result.exit_code == 2
    assert "column arrival_h is missing" in result.output
    result = CliRunner().invoke(EXPERIMENTS["weave-replay"], [str(path)])
    assert result.exit_code == 2
    assert "job tables follow --jobs" in result.output


def test_the_newcomers_page_shows_what_plan_prints(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "weave.md").read_text(encoding="utf-8")
    rows = page.split("```csv\n")[1].split("```")[0].strip().splitlines()
    output = plan(table(tmp_path, *rows)).output
    shown = [line for line in page.splitlines() if line.startswith(("  this plan", "  dedicated"))]
    assert len(shown) == 2
    for line in shown:
        assert line in output
