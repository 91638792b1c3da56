"""Traffic tables and classes of UEs: what is refused, what is read, and what the cells get."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.ran.capacity import nominal_bytes_per_s, offered_load
from testbed.ran.config import CellConfig
from testbed.ran.numerology import Direction
from testbed.ran.traffic import (
    Diurnal,
    Fgn,
    Ftp3,
    FullBuffer,
    Imix,
    Mixed,
    NoTraffic,
    Part,
    Periodic,
    Xr,
)
from testbed.ran.traffic.specs import COMMAG, mean_bytes_per_s
from testbed.record.from_topology import scope_of
from testbed.topology import Topology, describe_check, dump_toml, init_template, load_topology
from testbed.topology.cell_traffic import LoadError, cell_traffic
from testbed.topology.radio import CellGroup
from testbed.topology.views import GnbView, RunView, trace_paths

from .test_topology_mistakes import mistakes
from .topology_texts import edited, write

TOPOLOGIES = Path(__file__).parents[3] / "topologies"
USABLE = TOPOLOGIES / "weaver_usable.toml"
GROUP = "sites.site.gnbs.g1.cells[0]"
UL, DL = Direction.UL, Direction.DL

PLAIN = """
[sites.north.gnbs.g1.cells.ul_traffic]
kind = "ftp3"
load = 0.2

[sites.north.gnbs.g1.cells.dl_traffic]
kind = "none"
"""
PACKETS = '{ kind = "periodic", bytes_min = 100, bytes_max = 300, period_us = 10_000 }'


def classes(*tables: tuple[str, str], keys: str = "five_qi = 9\nues = 2") -> str:
    """The good topology with one class per (uplink, downlink) table in place of its traffic."""
    text = "\n"
    for uplink, downlink in tables:
        text += f"[[sites.north.gnbs.g1.cells.classes]]\n{keys}\n"
        text += f"ul_traffic = {uplink}\ndl_traffic = {downlink}\n"
    return edited(PLAIN, text)


def files(**keys: object) -> str:
    body = ", ".join(f"{key} = {value}" for key, value in keys.items())
    return f'{{ kind = "ftp3", {body} }}'


NONE = '{ kind = "none" }'
UL_OF_CELLS = "sites.north.gnbs.g1.cells[0].ul_traffic"
OF_CLASS = "sites.north.gnbs.g1.cells[0].classes"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            edited("load = 0.2", "load = 0.2\nfgn = { step_us = 499 }"),
            [f"base.toml:20: {UL_OF_CELLS}.fgn.step_us = 499: shorter than a slot (allowed: at le"],
        ),
        (
            edited("load = 0.2", "load = 0.2\nfgn = { hurst = 1.0 }"),
            [f"base.toml:20: {UL_OF_CELLS}.fgn.hurst = 1.0: too large (allowed: a number of at "
             "least 0.5 and below 1)"],
        ),
        (
            edited("load = 0.2", "load = 0.2\nfgn = { hrust = 0.8 }"),
            [f"base.toml:20: {UL_OF_CELLS}.fgn.hrust = 0.8: unknown key; did you mean hurst? "
             "(allowed: hurst, cv, step_us)"],
        ),
        (
            edited("load = 0.2", "load = 0.2\ndiurnal = { period_s = 10 }"),
            [f"base.toml:20: {UL_OF_CELLS}.diurnal: no profile (allowed: peak_to_trough or p"],
        ),
        (
            edited("load = 0.2", "load = 0.2\ndiurnal = { points = [1, 2], peak_to_trough = 2 }"),
            [f"base.toml:20: {UL_OF_CELLS}.diurnal: both peak_to_trough and points"],
        ),
        (
            edited("load = 0.2", "load = 0.2\ndiurnal = { points = [0, 0] }"),
            [f"base.toml:20: {UL_OF_CELLS}.diurnal.points = [0, 0]: all are 0"],
        ),
        (
            edited('kind = "ftp3"\nload = 0.2', 'kind = "periodic"\nbytes_min = 9\nbytes_max = 8'
                   "\nperiod_us = 1000"),
            [f"base.toml:20: {UL_OF_CELLS}.bytes_max = 8: below bytes_min = 9"],
        ),
        (
            edited(PLAIN, ""),
            ["base.toml:12: sites.north.gnbs.g1.cells[0].ul_traffic: missing (allowed: a table "
             "with a kind, or classes)",
             "base.toml:12: sites.north.gnbs.g1.cells[0].dl_traffic: missing"],
        ),
        (
            classes((NONE, NONE)).replace("count = 2", "ues = 4"),
            ["base.toml:13: sites.north.gnbs.g1.cells[0].ues = 4: beside classes, each of which "
             "has its own (allowed: ues in the classes alone)"],
        ),
        (
            classes((NONE, NONE), keys="five_qi = 10\nues = 2"),
            [f"base.toml:18: {OF_CLASS}[0].five_qi = 10: not a 5QI"],
        ),
        (
            classes((NONE, NONE), (NONE, NONE), keys="five_qi = 9\nues = 200"),
            [f"base.toml:17: {OF_CLASS}: 400 UEs in all (allowed: at most 256)"],
        ),
        (
            classes((NONE, '{ kind = "full_buffer" }')),
            [f'base.toml:21: {OF_CLASS}[0].dl_traffic.kind = "full_buffer": is for all UEs'],
        ),
        (
            classes((NONE, '{ kind = "ftp4" }')),
            [f'base.toml:21: {OF_CLASS}[0].dl_traffic.kind = "ftp4": no such kind; did you mean '
             '"ftp3"?'],
        ),
        (
            classes((NONE, '{ kind = "trace", path = "no.csv" }')),
            [f'base.toml:21: {OF_CLASS}[0].dl_traffic.path = "no.csv": cannot be read'],
        ),
        (
            classes((files(load=0.3, load_of='"cell"'), NONE), (files(load=0.1, load_of='"cell"'),
                    NONE)),
            [f'base.toml:25: {OF_CLASS}[1].ul_traffic.load_of = "cell": only one class'],
        ),
        (
            classes((files(load=0.001, load_of='"cell"'), NONE), (PACKETS, NONE)),
            # 2 UEs x 100 packets/s x 200 bytes, over 400 U slots/s of 192,624 bits: by hand from
            # TS 38.214 5.1.3.2 at MCS 17 of table 2, 273 PRBs, 156 RE, one layer.
            [f"base.toml:20: {OF_CLASS}[0].ul_traffic.load = 0.001: the other classes alone offer "
             "0.0042"],
        ),
        (
            classes((files(load=0.3, load_of='"cell"'), NONE), ('{ kind = "full_buffer" }', NONE)),
            [f"base.toml:20: {OF_CLASS}[0].ul_traffic.load = 0.3: another class has full_buffer",
             f'base.toml:25: {OF_CLASS}[1].ul_traffic.kind = "full_buffer"'],
        ),
        (
            classes((files(load=0.3, load_of='"cell"'), NONE),
                    (PACKETS.replace("= 300", "= 30"), NONE)),
            [f"base.toml:25: {OF_CLASS}[1].ul_traffic.bytes_max = 30: below bytes_min = 100"],
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_the_traffic_is_named(tmp_path: Path, text: str, expected: list[str]) -> None:
    found = mistakes(tmp_path, text)
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start), line


def test_loads_that_add_up_to_more_than_the_cell_carries_are_doubted(tmp_path: Path) -> None:
    text = classes((files(load=0.6), NONE), (files(load=0.7), NONE))
    (line,) = load_topology(write(tmp_path, text)).warnings
    assert line.endswith(f"{OF_CLASS}: loads of ul_traffic add up to 1.3: queues grow without end")


def test_a_run_longer_than_the_noise_is_doubted(tmp_path: Path) -> None:
    """32,768 steps of 10 ms are 327.68 s; the run lasts 0.1 s and what --duration says."""
    path = write(tmp_path, edited("load = 0.2", "load = 0.2\nfgn = { step_us = 10_000 }"))
    assert load_topology(path, duration_s=327.5).warnings == ()
    (line,) = load_topology(path, duration_s=328.0).warnings
    assert "fgn.step_us = 10000: the noise keeps its correlation for 327.68 s" in line


def test_what_a_group_leaves_out() -> None:
    tables = {key: {"kind": "none"} for key in ("ul_traffic", "dl_traffic")}
    group = CellGroup.model_validate(tables)
    assert (group.ues, group.five_qi, group.n_ues, group.five_qis) == (8, 9, 8, (9,) * 8)
    classed = CellGroup.model_validate(
        {"classes": [{"ues": 2, **tables}, {"ues": 1, "five_qi": 80, **tables}]}
    )
    assert (classed.ues, classed.five_qi, classed.n_ues) == (None, None, 3)
    assert classed.five_qis == (9, 9, 80)


def test_the_scenario_of_record_gets_what_it_names() -> None:
    topology = load_topology(USABLE)
    assert topology.warnings == ()
    cells = GnbView(topology, "site", "g1").cell_configs({})
    assert [cell.cell_id for cell in cells] == [0, 1, 2, 3]
    cell = cells[0]
    assert (cell.n_ues, cell.n_prb, cell.ul_layers, cell.dl_layers) == (16, 273, 2, 4)
    assert cell.five_qi == (9,) * 12 + (80,) * 4
    assert (cell.sinr_mean_db, cell.sinr_sd_db, cell.mcs_table) == (18.0, 6.0, 2)
    assert (cell.k2_slots, cell.lookahead_slots, str(cell.tdd)) == (3, 3, "DDDSU")
    for direction in (UL, DL):
        traffic = cell.traffic(direction)
        assert isinstance(traffic, Mixed)
        moved, packets = traffic.parts
        assert (moved.first_ue, moved.n_ues, packets.first_ue, packets.n_ues) == (0, 12, 12, 4)
        assert packets.spec == Periodic(250, 1500, 10_000)
        assert isinstance(moved.spec, Ftp3)
        assert (moved.spec.file_bytes, moved.spec.fgn) == (100_000, Fgn(0.85, 0.45, 2_500))
        # 4 UEs x 875 bytes x 100 per second are 350,000 bytes/s; files make up the rest of 0.3.
        rest = 0.3 * nominal_bytes_per_s(cell, direction) - 350_000
        assert 12 * moved.spec.files_per_s_per_ue * 100_000 == pytest.approx(rest)
        offered = mean_bytes_per_s(traffic, 16)
        assert offered is not None
        assert offered_load(cell, direction, offered) == pytest.approx(0.3)


def test_the_keys_that_the_scenario_names_change_load_and_cells() -> None:
    sets = [f"{GROUP}.count=8"]
    sets += [f"{GROUP}.classes[0].{key}.load=0.7" for key in ("ul_traffic", "dl_traffic")]
    cells = GnbView(load_topology(USABLE, sets=sets), "site", "g1").cell_configs({})
    assert len(cells) == 8
    for direction in (UL, DL):
        offered = mean_bytes_per_s(cells[7].traffic(direction), 16)
        assert offered is not None
        assert offered_load(cells[7], direction, offered) == pytest.approx(0.7)


def test_loads_of_classes_are_of_the_whole_cell_and_add_up() -> None:
    def files(ues: int, load: float) -> dict[str, object]:
        return {"ues": ues, "ul_traffic": {"kind": "ftp3", "load": load}, "dl_traffic": NO}

    NO = {"kind": "none"}
    mix = {"ues": 1, "ul_traffic": {"kind": "imix", "load": 0.05}, "dl_traffic": NO}
    group = CellGroup.model_validate({"classes": [files(3, 0.1), files(5, 0.2), mix]})
    cell = CellConfig(0, n_ues=9)
    spec = cell_traffic(group, cell, UL, pytest.fail)
    offered = mean_bytes_per_s(spec, 9)
    assert offered is not None
    assert offered_load(cell, UL, offered) == pytest.approx(0.35)
    assert cell_traffic(group, cell, DL, pytest.fail) == Mixed(
        (Part(0, 3, NoTraffic()), Part(3, 5, NoTraffic()), Part(8, 1, NoTraffic()))
    )


def test_every_kind_becomes_what_it_says() -> None:
    day = {"period_s": 60.0, "phase": 0.25, "points": [1.0, 2.0]}
    kinds = [
        ({"kind": "xr", "rate_mbps": 45.0, "fps": 90, "jitter": False}, Xr(45.0, 90, False)),
        ({"kind": "commag", "service": "embb-4"}, COMMAG["embb-4"]),
        ({"kind": "full_buffer"}, FullBuffer()),
    ]
    cell = CellConfig(0)
    for table, spec in kinds:
        group = CellGroup.model_validate({"ul_traffic": table, "dl_traffic": {"kind": "none"}})
        assert cell_traffic(group, cell, UL, pytest.fail) == spec
    table = {"kind": "imix", "load": 0.1, "diurnal": day}
    group = CellGroup.model_validate({"ul_traffic": table, "dl_traffic": {"kind": "none"}})
    spec = cell_traffic(group, cell, UL, pytest.fail)
    assert isinstance(spec, Imix)
    assert spec.diurnal == Diurnal(60.0, 0.25, None, (1.0, 2.0))


def test_a_load_of_the_cell_that_nothing_is_left_of_is_refused_when_it_is_built() -> None:
    none = {"kind": "none"}
    whole = {"kind": "ftp3", "load": 0.1, "load_of": "cell"}
    xr = {"kind": "xr", "rate_mbps": 45.0}
    tables = [
        {"ues": 1, "ul_traffic": whole, "dl_traffic": none},
        {"ues": 7, "ul_traffic": xr, "dl_traffic": none},
    ]
    group = CellGroup.model_validate({"classes": tables})
    with pytest.raises(LoadError, match="the other classes alone offer"):
        cell_traffic(group, CellConfig(0), UL, pytest.fail)


def test_a_cell_needs_the_ues_that_its_traffic_is_for() -> None:
    mixed = Mixed((Part(0, 4, NoTraffic()), Part(4, 5, NoTraffic())))
    assert replace(CellConfig(4, n_ues=9), ul_traffic=mixed).ul_traffic == mixed
    with pytest.raises(ValueError, match=r"cell 4: ul_traffic = 'parts of 9 UEs': allowed is"):
        CellConfig(4, n_ues=8, ul_traffic=mixed)


def test_classes_reach_the_drain_the_traces_and_the_record(tmp_path: Path) -> None:
    write(tmp_path, "time_us,rnti,direction,bytes\n", "trace.csv")
    trace = '{ kind = "trace", path = "trace.csv" }'
    text = classes((trace, NONE), (NONE, NONE)).replace("five_qi = 9", "five_qi = 80", 1)
    topology = load_topology(write(tmp_path, text))
    assert list(trace_paths(topology)) == ["trace.csv"]
    # 5QI 9: 300 ms less the core's 20.
    assert RunView(topology).drain_us == 280_000
    cell = scope_of(topology, {}).traffic["cell 0"]
    assert cell["ues"] == 4
    assert [of_class["five_qi"] for of_class in cell["classes"]] == [80, 9]


def test_check_shows_the_classes_within_a_terminal() -> None:
    lines = describe_check(load_topology(USABLE))
    assert max(map(len, lines)) <= 100
    assert lines[0] == "weaver-usable: 1 site, 1 gNB, 4 cells, 64 UEs, 0 jobs"
    where = next(number for number, line in enumerate(lines) if "12 UEs, 5QI 9" in line)
    assert [line.strip() for line in lines[where : where + 4]] == [
        "12 UEs, 5QI 9: UL FTP-3 0.3 (with the other classes, fGn H 0.85, cv 0.45)",
        "DL FTP-3 0.3 (with the other classes, fGn H 0.85, cv 0.45)",
        "4 UEs, 5QI 80: UL 250-1500 B each 10 ms",
        "DL 250-1500 B each 10 ms",
    ]


def test_check_shows_long_traffic_on_lines_of_its_own(tmp_path: Path) -> None:
    text = edited("load = 0.2", "load = 0.2\nfgn = {}\ndiurnal = { peak_to_trough = 2 }")
    lines = describe_check(load_topology(write(tmp_path, text)))
    (line,) = (line for line in lines if "UL FTP-3" in line)
    assert line.strip() == ("8 UEs, 5QI 9: UL FTP-3 0.2 (fGn H 0.85, cv 0.45, a day in 86400 s)")


def test_the_classes_in_the_template_load_once_uncommented(tmp_path: Path) -> None:
    examples = init_template("my-run").partition("# UEs that differ")[2].partition("\n\n")[0]
    lines = examples.split("\n")[1:]
    text = edited(PLAIN, "\n" + "\n".join(line.removeprefix("# ") for line in lines) + "\n")
    group = load_topology(write(tmp_path, text)).sites["north"].gnbs["g1"].cells[0]
    assert [of_class.ul_traffic.kind for of_class in group.classes] == [
        "ftp3",
        "periodic",
        "commag",
    ]
    assert [of_class.dl_traffic.kind for of_class in group.classes] == ["imix", "xr", "none"]


def test_the_resolved_scenario_reads_back_as_the_same(tmp_path: Path) -> None:
    topology = load_topology(USABLE)
    assert load_topology(write(tmp_path, dump_toml(topology))) == topology
    assert Topology.model_validate_json(topology.model_dump_json()) == topology
