"""Times of PHY tasks and of quanta, against hand calculations from the profiles' constants.

gb10: a decode takes 60 us and 22 us per code block of ten iterations, on 8 SMs per started ten
code blocks; downlink 30 us and 2 us per code block on 8 SMs. At 29 code blocks a decode takes 600
permille of the memory bandwidth.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.gpu.cost import (
    DOWNLINK,
    UPLINK,
    Segment,
    decoder_iterations,
    duration_us,
    finish_us,
    phy_demand,
)
from testbed.gpu.quanta import (
    QuantumKind,
    micro_batch_quanta,
    optimiser_quanta,
    quantum_costs,
)
from testbed.topology.profiles import gpu_profile, model_profile

GB10 = gpu_profile("gb10")
OPT = model_profile("opt-125m")
FULL_CELL = phy_demand(GB10, UPLINK, 29, 29_000)


def test_one_full_cell_takes_the_published_700_us():
    """Weaver's worst case, 700 us for 273 PRB of MCS 28 (29 code blocks, ten iterations):
    60 + 29 * 22 = 698 us on 24 SMs."""
    assert (FULL_CELL.sms, FULL_CELL.fixed_us, FULL_CELL.work_us) == (24, 60, 638)
    assert FULL_CELL.bandwidth_permille == 600
    assert duration_us(GB10, FULL_CELL, 24) == 698 == pytest.approx(700, abs=2)


@pytest.mark.parametrize(
    ("sms", "expected"),
    [
        (8, 60 + 3 * 638),  # a third of saturation
        (16, 60 + 957),  # two thirds: 638 * 3 / 2
        (24, 698),
        (32, 698),  # more than saturation helps nothing
        (48, 698),
    ],
)
def test_decode_on_fewer_sms_stretches_its_work_and_not_its_fixed_part(sms, expected):
    assert duration_us(GB10, FULL_CELL, sms) == expected


@pytest.mark.parametrize(
    ("code_blocks", "sms", "work_us", "permille"),
    [
        (1, 8, 22, 21),  # 600 / 29 = 20.7
        (10, 8, 220, 207),
        (11, 16, 242, 228),
        (20, 16, 440, 414),
        (21, 24, 462, 434),
        (60, 48, 1320, 600),  # bandwidth is at its peak from 29 code blocks on
    ],
)
def test_demand_grows_by_steps_of_ten_code_blocks(code_blocks, sms, work_us, permille):
    demand = phy_demand(GB10, UPLINK, code_blocks, 1000 * code_blocks)
    assert (demand.sms, demand.work_us, demand.bandwidth_permille) == (sms, work_us, permille)


def test_iterations_scale_the_work():
    """7 iterations instead of 10: work in thousandths 700 per code block."""
    assert phy_demand(GB10, UPLINK, 29, 29 * 700).work_us == pytest.approx(638 * 0.7)


def test_downlink_is_a_constant_chain():
    """30 + 2 * 40 = 110 us on 8 SMs."""
    demand = phy_demand(GB10, DOWNLINK, 40, 12_345)
    assert (demand.sms, demand.bandwidth_permille) == (8, 0)
    assert duration_us(GB10, demand, 8) == 110


@pytest.mark.parametrize(
    ("other_permille", "expected"),
    [
        (0, 698),
        (400, 698),  # 600 + 400: all of it, and no more
        (500, 762),  # 1.1: 60 + 638 * 1.1 = 761.8
        (600, 826),  # 1.2: 60 + 638 * 1.2 = 825.6
        (1000, 1081),  # 1.6: 60 + 638 * 1.6 = 1080.8
    ],
)
def test_contention_begins_when_the_shares_of_bandwidth_exceed_the_whole(other_permille, expected):
    assert duration_us(GB10, FULL_CELL, 24, other_permille) == expected


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        # 60 us fixed until 160, 100 us of work until 260, the other 538 us at half speed.
        (((100, 24), (260, 12)), 260 + 2 * 538),
        # The change comes within the fixed part: all of the work at half speed.
        (((0, 24), (30, 12)), 60 + 2 * 638),
        # Paused from 160 to 500 after 100 us of work.
        (((0, 24), (160, 0), (500, 24)), 500 + 538),
        # Nothing at first: the task begins at the first segment with SMs.
        (((0, 0), (1900, 24)), 1900 + 698),
        # 8 SMs until 690 (210 us of work), 16 until 990 (200 us), then 24: 228 us.
        (((0, 8), (690, 16), (990, 24)), 990 + 228),
        # It ends within its first segment; the later ones do not matter.
        (((0, 24), (698, 8)), 698),
        (((0, 24), (697, 8)), 700),  # 1 us of work left, at a third of the speed
    ],
)
def test_sms_over_time_by_hand(segments, expected):
    assert finish_us(GB10, FULL_CELL, [Segment(at, sms, 0) for at, sms in segments]) == expected


@pytest.mark.parametrize("segments", [(), ((0, 0),), ((0, 24), (100, 0))])
def test_task_that_would_never_end_is_refused(segments):
    with pytest.raises(ValueError, match=r"SMs in its last segment|without segments"):
        finish_us(GB10, FULL_CELL, [Segment(at, sms, 0) for at, sms in segments])


@pytest.mark.parametrize(
    ("rule", "efficiency", "expected"),
    [
        ("fixed", 0.1, 10),
        ("fixed", 7.4, 10),
        ("efficiency", 7.3, 7),
        ("efficiency", 7.2, 10),
        ("efficiency", 0.4, 10),
        ("efficiency", 0.39, 20),
    ],
)
def test_decoder_iterations(rule, efficiency, expected):
    assert decoder_iterations(rule, efficiency) == expected


STEPS = st.lists(st.tuples(st.integers(1, 800), st.integers(0, 48)), max_size=6)


def spread(steps, last):
    at_us, segments = 0, []
    for length_us, sms in steps:
        segments.append(Segment(at_us, sms, 0))
        at_us += length_us
    return [*segments, Segment(at_us, last, 0)]


@settings(max_examples=200)
@given(steps=STEPS, last=st.integers(1, 48), blocks=st.integers(1, 80))
def test_work_is_conserved_over_any_steps(steps, last, blocks):
    """The integral of the speed over the time after the fixed part is the work, within 1 us."""
    demand = phy_demand(GB10, UPLINK, blocks, 1000 * blocks)
    segments = spread(steps, last)
    end_us = finish_us(GB10, demand, segments)
    bounds = [*(segment.from_us for segment in segments[1:]), max(end_us, segments[-1].from_us)]
    fixed, done, slack = demand.fixed_us, 0.0, 0.0
    for segment, until_us in zip(segments, bounds, strict=True):
        span = min(until_us, end_us) - segment.from_us
        if span > 0 and segment.sms:
            spent = min(fixed, span)
            fixed -= spent
            speed = min(1.0, segment.sms / demand.sms)
            done += (span - spent) * speed
            slack = speed
    assert done == pytest.approx(demand.work_us, abs=slack + 1e-6)
    assert done >= demand.work_us - 1e-5


@settings(max_examples=200)
@given(steps=STEPS, last=st.integers(1, 48), blocks=st.integers(1, 80), more=st.integers(1, 8))
def test_more_sms_never_end_later(steps, last, blocks, more):
    demand = phy_demand(GB10, UPLINK, blocks, 1000 * blocks)
    richer = [(length_us, sms + more) for length_us, sms in steps]
    assert finish_us(GB10, demand, spread(richer, last)) <= finish_us(
        GB10, demand, spread(steps, last)
    )


@settings(max_examples=200)
@given(steps=STEPS, last=st.integers(1, 48), blocks=st.integers(1, 80), idle_us=st.integers(1, 900))
def test_what_comes_after_its_end_does_not_matter_to_a_task(steps, last, blocks, idle_us):
    """Not even where rounding would leave a last 1e-14 us of work to do after a pause."""
    demand = phy_demand(GB10, UPLINK, blocks, 1000 * blocks)
    segments = spread(steps, last)
    end_us = finish_us(GB10, demand, segments)
    kept = [segment for segment in segments if segment.from_us < end_us]
    paused = [*kept, Segment(end_us, 0, 0), Segment(end_us + idle_us, 8, 0)]
    assert finish_us(GB10, demand, paused) == end_us


# --- quanta -------------------------------------------------------------------------------------


def test_quanta_of_opt_125m_by_hand():
    """opt-125m (12 blocks, hidden 768, ffn 3072, vocabulary 50 272), 512 tokens, bf16, whole gb10:

    block weights   4 * 768^2 + 2 * 768 * 3072          = 7 077 888
    block FLOP      2 * 7 077 888 * 512 + 4 * 512^2 * 768 = 8 053 063 680
    rate            125 TFLOP/s * 0.35                  = 43.75e6 FLOP per us
    forward         20 + 8 053 063 680 / 43.75e6        = 20 + 184.07 -> 205 us
    backward        20 + 2 * 184.07                     = 388.14      -> 389 us
    head FLOP       6 * 50 272 * 768 * 512              = 118 606 528 512
    chunks          ceil(118.61e9 / (2 * 8.053e9))      = 8
    head chunk      20 + 118 606 528 512 / 8 / 43.75e6  = 358.88      -> 359 us
    a block's share 30 * 125 239 296 / 12 / 273e3       = 1146.88 us, 4 times a backward's 368.14
    optimiser       20 + 1146.88 / 4                    = 306.72      -> 307 us, in 12 * 4 chunks
    """
    costs = quantum_costs(GB10, OPT, 512, 2)
    assert costs.head_chunks == 8
    assert costs.levels == (8, 16, 24, 32, 40, 48)
    whole = {kind: costs.by_level(kind)[48] for kind in list(QuantumKind)[:4]}
    assert list(whole.values()) == [205, 359, 389, 307]
    assert costs.longest_us(48) == 389
    assert costs.optimiser_chunks == 48


def test_quanta_on_fewer_sms_by_hand():
    """8 of 48 SMs: compute at 0.189 of the speed, 184.07 / 0.189 = 973.93 us; memory bandwidth at
    2 * 8 / 48 of 273 GB/s = 91 GB/s, so a chunk of the optimiser takes 313 098 240 / 4 / 91e3 =
    860.16 us. Half of the SMs reach all of the bandwidth."""
    costs = quantum_costs(GB10, OPT, 512, 2)
    assert costs.by_level(QuantumKind.FORWARD)[8] == 994
    optimiser = costs.by_level(QuantumKind.OPTIMISER)
    assert optimiser[8] == 881
    assert optimiser[24] == optimiser[48] == 307


def test_few_tokens_are_bound_by_memory():
    """One token: 20 us, and 14 155 776 bytes of a block's weights / 273e3 = 51.85 us."""
    costs = quantum_costs(GB10, OPT, 1, 2)
    assert costs.by_level(QuantumKind.FORWARD)[48] == 72


def test_micro_batch_runs_forwards_head_and_backwards():
    quanta = list(micro_batch_quanta(3, 2))
    assert [(kind.name, block) for kind, block in quanta] == [
        ("FORWARD", 0),
        ("FORWARD", 1),
        ("FORWARD", 2),
        ("HEAD", 3),
        ("HEAD", 4),
        ("BACKWARD", 2),
        ("BACKWARD", 1),
        ("BACKWARD", 0),
    ]
    assert [(kind.name, block) for kind, block in optimiser_quanta(2)] == [
        ("OPTIMISER", 0),
        ("OPTIMISER", 1),
    ]


@pytest.mark.parametrize("tokens", [512, 2048, 8192])
@pytest.mark.parametrize("gpu", ["gb10", "l40s", "h200"])
def test_no_chunk_of_the_head_is_longer_than_a_backward_pass(gpu, tokens):
    """Where both are bound by compute. With few tokens reading the head's weights three times takes
    a little longer: 3 * 50 272 * 768 weights in 8 chunks, against twice a block's 7 077 888."""
    costs = quantum_costs(gpu_profile(gpu), OPT, tokens, 2)
    head, backward = costs.by_level(QuantumKind.HEAD), costs.by_level(QuantumKind.BACKWARD)
    assert all(head[sms] <= backward[sms] for sms in costs.levels)


@pytest.mark.parametrize("gpu", ["gb10", "l40s", "h200"])
def test_more_sms_never_slow_a_quantum_down(gpu):
    for row in quantum_costs(gpu_profile(gpu), OPT, 512, 2).cost_us:
        assert list(row) == sorted(row, reverse=True)
