"""How often and when a dead node is started again; seconds by hand."""

from __future__ import annotations

import pytest

from testbed.host.restarts import RestartBook, Return
from testbed.topology.bounds import Restart, Restarts

NODE, KIND = "north.pretrain.trainer", "trainer"
START_LIMIT_S = 60.0


def book(most: int = 3, backoff_wall_ms: int = 200) -> RestartBook:
    limits = Restarts(trainer=Restart(max=most, backoff_wall_ms=backoff_wall_ms))
    return RestartBook(limits, START_LIMIT_S)


def test_backoff_doubles_until_the_restarts_are_used_up():
    restarts = book()
    told = []
    for second in (10, 20, 30):
        grant = restarts.grant(NODE, KIND, second)
        told.append((grant.number, grant.most, grant.after_s))
        assert restarts.due(second + grant.after_s) == [NODE]
        restarts.ready(NODE, second + 5)
    assert told == [(1, 3, 0.2), (2, 3, 0.4), (3, 3, 0.8)]
    assert restarts.left(NODE, KIND) == 0
    assert restarts.grant(NODE, KIND, 40) is None
    assert (
        restarts.used_up(NODE, KIND) == "; it had been restarted 3 times (host.restart.trainer.max)"
    )


def test_grant_says_what_follows():
    assert (
        str(book().grant(NODE, KIND, 0))
        == "it is started again in 0.2 s (restart 1 of 3; host.restart.trainer)"
    )


def test_nothing_is_due_before_its_backoff_and_each_once():
    restarts = book(backoff_wall_ms=1000)
    restarts.grant(NODE, KIND, 100.0)
    assert restarts.due(100.99) == []
    assert restarts.due(101.0) == [NODE]
    assert restarts.due(200.0) == []


def test_time_away_runs_from_the_death_and_start_from_the_spawn():
    restarts = book(backoff_wall_ms=1000)
    restarts.grant(NODE, KIND, 100.0)
    restarts.due(101.5)
    assert restarts.ready(NODE, 107.5) == Return(away_s=7.5, start_s=6.0)
    assert restarts.ready(NODE, 108.0) is None, "said once"


def test_death_during_the_start_counts_and_the_time_away_goes_on():
    restarts = book(backoff_wall_ms=1000)
    restarts.grant(NODE, KIND, 100.0)
    restarts.due(101.0)
    assert restarts.grant(NODE, KIND, 103.0).number == 2
    assert restarts.overdue(1000.0) == [], "nobody is starting"
    assert restarts.due(104.9) == [], "two seconds by now"
    assert restarts.due(105.0) == [NODE]
    assert restarts.ready(NODE, 110.0) == Return(away_s=10.0, start_s=5.0)
    restarts.grant(NODE, KIND, 200.0)
    restarts.due(204.0)
    assert restarts.ready(NODE, 205.0) == Return(away_s=5.0, start_s=1.0), "of the last death"


def test_newcomer_has_the_start_limit_from_its_spawn():
    restarts = book()
    restarts.grant(NODE, KIND, 100.0)
    restarts.due(101.0)
    assert restarts.overdue(161.0) == []
    assert restarts.overdue(161.1) == [NODE]
    assert restarts.overdue(162.0) == [], "told once"
    assert restarts.ready(NODE, 163.0) is None


@pytest.mark.parametrize("kind", ["coordinator", "recorder", "site_agent", "gnb_mac", "gnb_phy"])
def test_other_kinds_are_not_restarted(kind):
    restarts = book()
    assert restarts.left("node", kind) == 0
    assert restarts.grant("node", kind, 0.0) is None
    assert restarts.used_up("node", kind) == ""


def test_max_of_zero_is_no_restart_and_says_nothing_of_any():
    restarts = book(most=0)
    assert restarts.grant(NODE, KIND, 0.0) is None
    assert restarts.used_up(NODE, KIND) == ""


def test_single_restart_reads_well():
    restarts = book(most=1)
    restarts.grant(NODE, KIND, 0.0)
    told = "; it had been restarted once (host.restart.trainer.max)"
    assert restarts.used_up(NODE, KIND) == told


def test_nodes_are_counted_apart():
    restarts = book(most=1)
    assert restarts.grant("north.a.trainer", KIND, 0.0) is not None
    assert restarts.left("south.a.trainer", KIND) == 1
    assert restarts.used_up("south.a.trainer", KIND) == ""


def test_end_of_the_run_gives_up_what_waits_and_what_starts():
    restarts = book(backoff_wall_ms=0)
    restarts.grant("north.a.trainer", KIND, 0.0)
    restarts.due(0.0)
    restarts.grant("south.a.trainer", KIND, 0.0)
    restarts.cancel()
    assert restarts.due(10.0) == []
    assert restarts.overdue(1000.0) == []
    assert restarts.ready("north.a.trainer", 1.0) is None
