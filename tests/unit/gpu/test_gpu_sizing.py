"""How many SMs PHY tasks that become ready together get: by the cost model, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import PolicyError
from testbed.gpu.cost import DOWNLINK, UPLINK, phy_demand
from testbed.gpu.phy_tasks import PhyBudgetUs, deadline_us, ready_us
from testbed.gpu.promise import CellWorst, WorstCase
from testbed.gpu.sizing import Deadline, PhyGroup, Saturation
from testbed.gpu.timeline import RanTimeline, TaskKey, TaskRequest
from testbed.topology.profiles import gpu_profile

GB10 = gpu_profile("gb10")
SLOT_US = 500
BUDGET = PhyBudgetUs(1500, 125)


def request(cell, blocks, direction=UPLINK, air_slot=0, *, budget_us=None):
    ready = ready_us(direction, air_slot, SLOT_US)
    deadline = deadline_us(
        direction, air_slot, SLOT_US, BUDGET.ul_decode_us, BUDGET.fronthaul_lead_us
    )
    if budget_us is not None:
        deadline = ready + budget_us
    demand = phy_demand(GB10, direction, blocks, 1000 * blocks)
    return TaskRequest(TaskKey(cell, air_slot, direction), ready, deadline, demand)


def placed(sizing, *requests, timeline=None):
    """(steps, end) of each, times from the moment at which they are ready."""
    timeline = timeline or RanTimeline(GB10, sizing=sizing)
    return [
        ([(at - r.request.ready_us, sms) for at, sms in r.steps], r.end_us - r.request.ready_us)
        for r in timeline.reserve(requests)
    ]


@pytest.mark.parametrize(
    ("blocks", "sms", "end_us"),
    [
        (20, 8, 940),  # saturates 16: 60 + 22 * 20 * 2
        (21, 8, 1446),  # saturates 24: 60 + 22 * 21 * 3
        (22, 16, 786),  # 60 + 22 * 22 * 3 = 1512 on 8 is too late; 60 + 484 * 1.5 on 16
        (29, 16, 1017),  # 60 + 638 * 1.5
    ],
)
def test_decode_is_stretched_to_its_deadline_of_1500_us(blocks, sms, end_us):
    """t = 60 + 22 C max(1, S_sat / S), S_sat = 8 ceil(C / 10): facts of the gb10 profile."""
    assert placed(Deadline(), request(0, blocks)) == [([(0, sms)], end_us)]


def test_end_on_the_deadline_itself_is_in_time():
    assert placed(Deadline(), request(0, 20, budget_us=940))[0][1] == 940
    assert placed(Deadline(), request(0, 20, budget_us=939)) == [([(0, 16)], 500)]


def test_group_shares_the_smallest_level_on_which_all_are_in_time():
    """Two decodes of 20 blocks on 16 SMs: 8 each, 60 + 880 = 940 us. On 8 the first has all of
    them until 940, and the second ends at 940 + 940."""
    pair = placed(Deadline(), request(0, 20), request(1, 20))
    assert pair == [([(0, 8)], 940), ([(0, 8)], 940)]


def test_tasks_may_follow_one_another_within_their_deadline():
    """Two decodes of 5 blocks (8 SMs, 60 + 110 us) on 8 SMs: one after the other, 340 us."""
    assert placed(Deadline(), request(0, 5), request(1, 5)) == [
        ([(0, 8)], 170),
        ([(0, 0), (170, 8)], 340),
    ]


def test_deadline_that_cannot_be_met_gets_the_whole_gpu():
    """29 blocks take 698 us at saturation: a budget of 600 us cannot be kept, and is not given up
    on."""
    late = request(0, 29, budget_us=600)
    assert placed(Deadline(), late) == placed(Saturation(), late) == [([(0, 24)], 698)]


def test_level_counts_beside_what_is_reserved_already():
    """Downlink of five cells has 40 SMs in [500, 630) us (30 + 2 * 50 us). A decode of 22 blocks,
    ready at 500 too, is limited to 16 SMs, and has 8 of them for 130 us: 60 us fixed, then 70 / 3
    of its 484 us. The other 460.67 us take 691 us on 16."""
    timeline = RanTimeline(GB10, sizing=Deadline())
    timeline.reserve(request(cell, 50, DOWNLINK, 2, budget_us=130) for cell in range(5))
    assert timeline.ran_steps(500, None) == [(500, 630, 40)]
    assert placed(None, request(0, 22), timeline=timeline) == [([(0, 8), (130, 16)], 821)]


def test_policy_sees_the_group_and_may_choose_any_limit():
    """29 blocks on 8 of their 24 SMs until 170 us: 110 / 3 of 638 us done; 902 us for the rest on
    16."""
    seen: list[PhyGroup] = []

    class Sixteen:
        def most_sms(self, group: PhyGroup) -> int:
            seen.append(group)
            return 16

    assert placed(Sixteen(), request(0, 29), request(1, 5))[0] == ([(0, 8), (170, 16)], 1072)
    (group,) = seen
    assert (group.gpu, group.ready_us, group.deadlines_us) == (GB10, 500, (2000, 2000))
    assert [demand.sms for demand in group.demands] == [24, 8]
    assert group.ends_us(48) == [500 + 698, 500 + 170]


@pytest.mark.parametrize("sms", [0, 7, 49, -8, 16.0, None])
def test_limit_that_cannot_be_is_refused(sms):
    class Odd:
        def most_sms(self, group: PhyGroup) -> int:
            return sms

    with pytest.raises(PolicyError, match=r"PHY sizing Odd: .* SMs: allowed 8 to 48"):
        placed(Odd(), request(0, 5))


@given(
    blocks=st.lists(st.integers(1, 60), min_size=1, max_size=5), budget_us=st.integers(100, 3000)
)
@settings(max_examples=60)
def test_deadline_takes_no_more_than_it_needs(blocks, budget_us):
    """In time wherever the whole GPU is; and on one step less, some task would be late."""
    tasks = [request(cell, n, budget_us=budget_us) for cell, n in enumerate(blocks)]
    limits = []

    class Noted(Deadline):
        def most_sms(self, group: PhyGroup) -> int:
            limits.append(super().most_sms(group))
            return limits[-1]

    ends = [end for _, end in placed(Noted(), *tasks)]
    whole = [end for _, end in placed(Saturation(), *tasks)]
    (limit,) = limits
    if max(whole) <= budget_us:
        assert max(ends) <= budget_us
    if limit > GB10.min_sms and max(ends) <= budget_us:

        class Less:
            def most_sms(self, group: PhyGroup) -> int:
                return limit - GB10.sm_step

        assert max(end for _, end in placed(Less(), *tasks)) > budget_us


# --- the worst case under it --------------------------------------------------------------------


def worst(cells, up=29, down=50):
    return [
        CellWorst(
            cell,
            5,
            (0, 1, 2, 3),
            (4,),
            phy_demand(GB10, DOWNLINK, down, 1000 * down),
            phy_demand(GB10, UPLINK, up, 1000 * up),
        )
        for cell in range(cells)
    ]


def test_worst_case_of_stretched_tasks_lasts_until_their_deadline():
    """One cell, DDDSU: 16 SMs for the decode of slot 4, in slots 5, 6 and 7 (deadline 4000 us);
    8 for downlink in the slot before each of slots 0 to 3, that is in 4, 0, 1 and 2 of a period."""
    promise = WorstCase(GB10, SLOT_US, worst(1), 0, Deadline(), BUDGET)
    by_slot = [promise.within(slot * SLOT_US, (slot + 1) * SLOT_US) for slot in range(5, 10)]
    assert by_slot == [16 + 8, 16 + 8, 16 + 8, 0, 8]


@pytest.mark.parametrize("cells", [1, 2, 4])
@given(data=st.data())
@settings(max_examples=40)
def test_worst_case_bounds_any_stretched_plan(cells, data):
    promise = WorstCase(GB10, SLOT_US, worst(cells), 0, Deadline(), BUDGET)
    timeline = RanTimeline(GB10, sizing=Deadline())
    for air_slot in range(2, 17):
        uplink = air_slot % 5 == 4
        blocks = [data.draw(st.integers(0, 29 if uplink else 50)) for _ in range(cells)]
        direction = UPLINK if uplink else DOWNLINK
        timeline.reserve(
            request(cell, n, direction, air_slot) for cell, n in enumerate(blocks) if n
        )
    for slot in range(17):
        window = (slot * SLOT_US, (slot + 1) * SLOT_US)
        assert timeline.ran_sms_within(*window) <= promise.within(*window), slot
