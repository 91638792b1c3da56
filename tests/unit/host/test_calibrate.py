"""Calibration with a bench whose times are known, and the profile that comes out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import run
from protocols.errors import RanloomError
from testbed.executors.phy_bench import DeviceFacts
from testbed.gpu.cost import DOWNLINK, UPLINK
from testbed.host import calibrate as subject
from testbed.topology.profiles import file_profile, gpu_profile

CPU = DeviceFacts("A CPU", 4, None, 32.0, 0.4, 20.0)
GPU = DeviceFacts("NVIDIA A GPU", 60, (8, 6), 24.0, 100.0, 900.0)

TOPOLOGY = """\
name = "calibrated"
[sites.north]
gpu = "own.toml"
[[sites.north.gnbs.g1.cells]]
count = 2
[sites.north.gnbs.g1.cells.ul_traffic]
kind = "ftp3"
load = 0.2
[sites.north.gnbs.g1.cells.dl_traffic]
kind = "none"
"""


class FakeBench:
    """Uplink 100 us + 7 us x iterations / 10, downlink 40 us + 3 us a block; every fifth is late.

    The median of the rounds is the time itself.
    """

    def __init__(self, device: DeviceFacts = CPU) -> None:
        self._device = device

    def facts(self) -> DeviceFacts:
        return self._device

    def measure_us(self, tasks, seconds, min_rounds):
        return [[self._time_us(task) * late for late in (1, 1, 1, 1, 2)] for task in tasks]

    @staticmethod
    def _time_us(task):
        if task.direction == UPLINK:
            return 100 + 7 * task.decode_iterations / 10
        return 40 + 3 * task.code_blocks


def test_known_constants_are_found_exactly():
    found = subject.calibrate(FakeBench(), subject.QUICK)
    phy = found.profile.phy
    assert (phy.ul_fixed_us, phy.ul_code_block_us) == pytest.approx((100, 7))
    assert (phy.dl_fixed_us, phy.dl_code_block_us) == pytest.approx((40, 3))
    assert found.uplink.fit.r_squared == pytest.approx(1)
    assert found.downlink.fit.worst_residual < 1e-9
    assert found.uplink.p99_us == pytest.approx([2 * time for time in found.uplink.median_us])


def test_the_iteration_rule_of_the_profile_weighs_the_code_blocks():
    """Aerial's rule: MCS 0 of table 2 (120/1024 x 2 = 0.23 bit/s/Hz) takes 20 iterations, MCS 27
    (948/1024 x 8 = 7.4) takes 7, the rest 10."""
    points = subject.grid(subject.FULL, UPLINK, "efficiency")
    each = {point.mcs: point.iterations / point.code_blocks for point in points}
    assert each == {0: 20, 4: 10, 10: 10, 16: 10, 22: 10, 27: 7}
    found = subject.calibrate(FakeBench(GPU), subject.FULL, gpu_profile("gh200"))
    assert found.profile.phy.ul_code_block_us == pytest.approx(7)


def test_the_grid_has_the_code_blocks_of_the_standard():
    """py3gpp (facts of TS 38.214): 273 PRB, table 2 MCS 27, 4 layers, 132 RE per PRB: 129."""
    points = subject.grid(subject.FULL, DOWNLINK, "fixed")
    assert len(points) == 6 * 6 * 3
    (largest,) = [p for p in points if (p.mcs, p.n_prb, p.layers) == (27, 273, 4)]
    assert (largest.code_blocks, largest.iterations) == (129, 1290)


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
def test_the_written_profile_loads_and_checks(tmp_path, monkeypatch, device):
    monkeypatch.setattr(subject, "_open_bench", lambda effort: FakeBench(device))
    output = tmp_path / "own.toml"
    lines = subject.run_calibration(None, True, output)
    assert any("R2 1.000" in line for line in lines)
    gpu = file_profile(output)
    assert gpu.sms == device.units
    assert gpu.phy.ul_code_block_us == 7.0
    sources = dict(gpu.sources)
    assert sources["phy.ul_fixed_us"].startswith(f"measured by calibrate on {device.name}, ")
    assert sources["phy.contention_slope"] == "assumed: as gb10, not measured"
    assert set(sources) == set(dict(gpu_profile("gb10").sources))
    (tmp_path / "topology.toml").write_text(TOPOLOGY)
    done = CliRunner().invoke(run.main, ["check", str(tmp_path / "topology.toml")])
    assert done.exit_code == 0, done.output
    assert f"own of own.toml, {device.units} SMs" in done.output


def test_cores_stand_for_sms_and_it_says_so(tmp_path):
    found = subject.calibrate(FakeBench(), subject.QUICK)
    profile = found.profile
    assert (profile.sms, profile.sm_step, profile.min_sms) == (4, 1, 1)
    assert profile.speed_points[-1] == (4, 1.0)
    assert (profile.hbm_gib, profile.host_gib, profile.pcie_gb_per_s) == (16.0, 16.0, 10.0)
    assert "4 cores, which stand for SMs" in found.lines()[0]
    assert found.text().splitlines()[0] == f"# {found.lines()[0]}"


def test_a_gpu_is_known_by_the_longest_name_in_its_own():
    found = subject.calibrate(
        FakeBench(DeviceFacts("NVIDIA GH200 480GB", 132, (9, 0), 95.0, 700.0, 3000.0)),
        subject.QUICK,
    )
    gh200 = gpu_profile("gh200")
    assert found.profile.bf16_tflops == gh200.bf16_tflops
    assert found.profile.phy.ran_sm_cap == gh200.phy.ran_sm_cap
    assert found.profile.phy.ul_fixed_us == pytest.approx(100)


def test_an_unknown_gpu_has_its_own_sms_and_the_documented_step():
    profile = subject.own_profile(GPU)
    assert (profile.sms, profile.sm_step, profile.min_sms, profile.hbm_gib) == (60, 2, 4, 24.0)
    assert profile.phy.ran_sm_cap == 60


def test_bad_options_are_named():
    with pytest.raises(RanloomError, match=r"-o x.txt: allowed is a file NAME.toml"):
        subject.run_calibration(None, True, Path("x.txt"))
    with pytest.raises(RanloomError, match=r"-o nowhere/x.toml: allowed .* that is there"):
        subject.run_calibration(None, True, Path("nowhere/x.toml"))
    with pytest.raises(RanloomError, match="'gb11': not a GPU profile"):
        subject.run_calibration("gb11", True, None)
