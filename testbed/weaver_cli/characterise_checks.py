"""The characterisation beside what Weaver's paper says. Owns which rows answer which sentence."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from testbed.experiments.experiment import Check, Row, check
from testbed.weaver_cli.characterise_scenarios import ALL_PEAK, FGN_LONG

TYPICAL_LOADS = (0.40 - 0.18, 0.40 + 0.18)
"""The authors' own synthetic load: mean 0.40, deviation 0.18."""

UNUSED = (0.40, 0.85)
"""Share of AI-RAN GPUs that the paper calls unused."""

PAPER_SM_USE = {1: 0.357, 2: 0.462, 4: 0.576, 8: 0.580}
"""SM use by the number of full cells (MCS 28, 273 PRBs) that decode on one GPU."""

CLOSE = 0.15
"""How far from the paper's SM use ours may be."""


def micro_checks(points: Sequence[Row], others: Sequence[Row]) -> list[Check]:
    """Of one GPU.

    Args:
        points: of the scenario of record, over seeds.
        others: runs of other traffic.
    """
    one_layer = [point for point in points if point["ul_layers"] == 1]
    return [
        *_idle_checks(one_layer),
        *_peak_checks([row for row in others if row["traffic"] == ALL_PEAK]),
        *_layer_checks(points),
        *_burst_checks(one_layer, [row for row in others if row["traffic"] == FGN_LONG]),
    ]


def _idle_checks(points: Sequence[Row]) -> list[Check]:
    typical = [p for p in points if TYPICAL_LOADS[0] <= p["load"] <= TYPICAL_LOADS[1]]
    several = sorted({point["cells"] for point in typical if point["cells"] > 1})
    checks = [
        one
        for cells in several
        for one in _band_checks(cells, [p for p in typical if p["cells"] == cells])
    ]
    alone = {point["load"]: point for point in points if point["cells"] == 1}
    return [
        *checks,
        check(
            f"one cell off-peak (load {min(alone):g}), uplink alone: idle fraction",
            alone[min(alone)]["idle_fraction_ul_only"],
            ">=",
            0.90,
            paper="above 0.90 off-peak",
            note="the paper's GPU decodes and does nothing else",
        ),
        check(
            f"one cell at its daytime peak (load {max(alone):g}), uplink alone: idle fraction",
            alone[max(alone)]["idle_fraction_ul_only"],
            ">=",
            UNUSED[1],
            paper="about 0.85 at the daytime peak",
        ),
    ]


def _band_checks(cells: int, points: Sequence[Row]) -> list[Check]:
    """Whether the unshaped RAN works, and what it leaves where it does."""
    working = [point["idle_fraction"] for point in points if point["ran_works"]]
    name = f"{cells} cells, loads {TYPICAL_LOADS[0]:.2f}-{TYPICAL_LOADS[1]:.2f}"
    paper = f"{UNUSED[0]:.2f}-{UNUSED[1]:.2f} unused"
    note = f"{len(working)} of {len(points)} points, those whose RAN keeps its deadlines"
    return [
        check(
            f"{name}: share of points where the unshaped RAN works",
            len(working) / len(points),
            ">=",
            1.0,
            note="else what seems unused is work that came too late",
        ),
        check(
            f"{name}: least idle fraction",
            min(working, default=None),
            ">=",
            UNUSED[0],
            paper=paper,
            note=note,
        ),
        check(
            f"{name}: most idle fraction",
            max(working, default=None),
            "<=",
            UNUSED[1],
            paper=paper,
            note=note,
        ),
    ]


def _peak_checks(rows: Sequence[Row]) -> list[Check]:
    use: dict[int, float] = {row["cells"]: row["sm_share_while_decoding"] for row in rows}
    checks = [
        Check(
            f"all peak, {cells} cell{'s' if cells > 1 else ''}: SM share while decoding",
            use[cells],
            f"{paper:g} +- {CLOSE:g}",
            abs(use[cells] - paper) <= CLOSE,
            paper,
            "over all SMs; what the paper's SM use is a share of is not said",
        )
        for cells, paper in PAPER_SM_USE.items()
    ]
    checks.append(
        check(
            "all peak: SM share of 8 cells over that of one",
            use[8] / use[1],
            "<=",
            2.0,
            paper=round(PAPER_SM_USE[8] / PAPER_SM_USE[1], 3),
            note="the decoder saturates: then time grows, not SMs",
        )
    )
    return checks


def _layer_checks(points: Sequence[Row]) -> list[Check]:
    two = [point for point in points if point["ul_layers"] == 2]
    misses = [point["ul_miss_rate"] for point in two if point["ul_miss_rate"] is not None]
    return [
        check(
            "2 uplink layers, unshaped: share of points where the RAN works",
            sum(bool(point["ran_works"]) for point in two) / len(two) if two else None,
            ">=",
            1.0,
            note="a full carrier's decode of 2 layers alone is longer than its budget on this GPU",
        ),
        check(
            "2 uplink layers, unshaped: least uplink miss rate of a point",
            min(misses, default=None),
            "<=",
            0.05,
        ),
    ]


def _burst_checks(points: Sequence[Row], long: Sequence[Row]) -> list[Check]:
    working = [point for point in points if point["ran_works"] and point["load"] >= 0.3]
    hurst = [point["hurst_by_dfa"] for point in working if point["hurst_by_dfa"] is not None]
    steady = [point["usable_fraction_5_ms"] / point["idle_fraction"] for point in working]
    return [
        check(
            "Hurst parameter of the SM demand, loads from 0.3 on, median",
            statistics.median(hurst) if hurst else None,
            ">=",
            0.6,
            paper="0.85, of the authors' load",
            note="Poisson files of 0.1 MB hide the noise below about a second",
        ),
        *(
            check(
                f"the same, one cell for {row['measured_s']:g} s",
                row["hurst_by_dfa"],
                ">=",
                0.6,
                paper="0.85, of the authors' load",
            )
            for row in long
        ),
        check(
            "idle SM time that 5 ms quanta can use, least share over those points",
            min(steady, default=None),
            "<=",
            0.9,
            paper="54 against 142 TFLOP/s, bursty and steady, at near-equal means",
            note="what burstiness costs before any shaping",
        ),
    ]


def macro_checks(rows: Sequence[Row]) -> list[Check]:
    """Of sites over a day: those whose peaks are apart, and all of a log."""
    checks = []
    for row in rows:
        if row["sites"] < 2:
            continue
        name = f"{row['sites']} sites, {row['source']}"
        checks += [
            check(
                f"{name}: complementarity",
                row["complementarity"],
                ">=",
                0.1,
                paper="complementary; peaks staggered",
                note="0: all peak together",
            ),
            check(
                f"{name}: peak over mean, of the sum over that of a site",
                row["peak_to_mean_sum"] / row["peak_to_mean_site"],
                "<=",
                0.9,
            ),
            check(
                f"{name}: variation, of the sum over that of a site",
                row["cv_ratio"],
                "<=",
                1.5 * row["one_over_sqrt_sites"],
                note=f"independent sites: {row['one_over_sqrt_sites']:.3f}; a shared day stays",
            ),
        ]
    return checks
