"""The gate in a clock that only waits move. Expected times are sums of COSTS by hand."""

from __future__ import annotations

import pytest

from protocols.work import (
    AbandonStep,
    ComputeStep,
    ExecutorStop,
    InjectQuantum,
    LeaseChanged,
    RunSync,
    ShareState,
)
from testbed.executors.gate_engine import StepAbandoned, Stopped, Superseded
from testbed.executors.pace import Pace
from testbed.gpu.gate import Lease, Window
from testbed.gpu.quanta import QuantumKind

from .fakes import ROUND_THE_CLOCK, Bench, spans

FORWARD, HEAD, BACKWARD = QuantumKind.FORWARD, QuantumKind.HEAD, QuantumKind.BACKWARD
FAULT = int(QuantumKind.FAULT)
EMPTY = Lease(0, ())


def run(bench, kind=FORWARD, block=0, work_us=0):
    bench.gate.open(kind, block)
    bench.port.works(work_us)
    bench.gate.close()


def test_quantum_is_held_to_its_modelled_end():
    bench = Bench()
    run(bench, work_us=30)
    (ended,) = bench.port.ended()
    assert spans([ended]) == [(0, 0, 0, 100)]
    assert (ended.real_us, ended.modelled_end_us, ended.sms, ended.lease_epoch) == (30, 100, 40, 1)
    assert bench.port.now == 100


def test_overrun_shows_in_the_report_and_in_the_next_reckoning():
    bench = Bench()
    run(bench, work_us=130)
    (ended,) = bench.port.ended()
    assert (ended.end_us, ended.modelled_end_us, ended.real_us) == (130, 100, 130)
    assert bench.costs.p99_us(FORWARD, 0)[40] == 130
    assert bench.costs.p99_us(FORWARD, 1)[40] == 100


def test_waits_for_the_window_and_for_the_next_one_when_too_little_is_left():
    bench = Bench(Lease(1, (Window(50, 200, 40), Window(500, 700, 40))))
    run(bench)
    run(bench)
    assert spans(bench.port.ended()) == [(0, 0, 50, 150), (0, 0, 500, 600)]


def test_opening_closes_the_open_quantum():
    bench = Bench()
    bench.gate.open(FORWARD, 0)
    bench.port.works(10)
    bench.gate.open(HEAD, 1)
    bench.gate.close()
    assert spans(bench.port.ended()) == [(0, 0, 0, 100), (1, 1, 100, 250)]
    assert bench.port.kinds() == ["QuantumBegun", "QuantumEnded"] * 2


def test_late_wake_up_within_the_guard_uses_the_planned_window():
    # 100 us of model and 20 of guard fill the window exactly; waking 15 late must not lose it.
    bench = Bench(Lease(1, (Window(50, 170, 40),)), guard_us=20, late_us=15)
    run(bench)
    assert spans(bench.port.ended()) == [(0, 0, 65, 165)]


def test_late_wake_up_beyond_the_guard_does_not():
    bench = Bench(Lease(1, (Window(50, 170, 40),)), guard_us=20, late_us=25)
    bench.port.at(200, LeaseChanged(), bench.replace(Lease(2, (Window(200, 400, 40),))))
    run(bench)
    assert spans(bench.port.ended()) == [(0, 0, 200, 300)]


def test_switching_costs_only_where_the_sm_count_changes():
    bench = Bench(Lease(1, (Window(0, 115, 40), Window(115, 1000, 20))), switch_us=7)
    run(bench)  # the first makes its partition: 107
    run(bench)  # 40 SMs no longer fit; both windows grant 20: 7 + 200
    run(bench)
    assert spans(bench.port.ended()) == [(0, 0, 0, 107), (0, 0, 107, 314), (0, 0, 314, 514)]


def test_lease_replaced_while_waiting():
    bench = Bench(EMPTY)
    bench.port.at(300, LeaseChanged(), bench.replace(Lease(7, (Window(320, 900, 20),))))
    run(bench)
    assert spans(bench.port.ended()) == [(0, 0, 320, 520)]
    assert bench.port.ended()[0].lease_epoch == 7


def test_lease_withdrawn_while_waiting_for_its_window():
    bench = Bench(Lease(1, (Window(500, 900, 40),)))
    bench.port.at(100, LeaseChanged(), bench.replace(EMPTY))
    bench.port.at(2000, LeaseChanged(), bench.replace(Lease(2, (Window(2000, 9000, 40),))))
    run(bench)
    assert spans(bench.port.ended()) == [(0, 0, 2000, 2100)]


def test_abandon_while_waiting_leaves_no_quantum_open():
    bench = Bench(EMPTY)
    bench.gate.step, bench.gate.abandonable = 5, True
    bench.port.at(10, AbandonStep(1, 5))
    with pytest.raises(StepAbandoned):
        bench.gate.open(FORWARD, 0)
    bench.gate.close()
    assert bench.port.sent == []


def test_abandon_of_another_step_and_commands_are_kept_in_order():
    bench = Bench(EMPTY)
    bench.gate.step, bench.gate.abandonable = 5, True
    abandon, compute = AbandonStep(1, 4), ComputeStep(1, 6, (1,))
    bench.port.at(10, abandon)
    bench.port.at(11, compute)
    bench.port.at(12, LeaseChanged(), bench.replace(Lease(2, (Window(0, 1000, 40),))))
    run(bench)
    assert [bench.gate.next_command(), bench.gate.next_command()] == [abandon, compute]


def test_stop_while_waiting():
    bench = Bench(EMPTY)
    bench.port.at(10, ExecutorStop())
    with pytest.raises(Stopped):
        bench.gate.open(FORWARD, 0)


def test_messages_do_not_cut_a_running_quantum_short():
    bench = Bench()
    bench.port.at(40, ExecutorStop())
    run(bench)
    assert spans(bench.port.ended()) == [(0, 0, 0, 100)]
    with pytest.raises(Stopped):
        bench.gate.open(FORWARD, 1)


def test_injected_quantum_runs_on_time_without_a_lease():
    bench = Bench(EMPTY)
    bench.port.at(0, InjectQuantum(400, 2000, 60))
    bench.port.at(5000, ExecutorStop())
    with pytest.raises(Stopped):
        bench.gate.open(FORWARD, 0)
    assert spans(bench.port.ended()) == [(FAULT, 0, 400, 2400)]
    assert bench.port.begun()[0].sms == 60


def test_quantum_that_would_run_into_an_injected_one_waits_behind_it():
    bench = Bench()
    bench.port.at(0, InjectQuantum(150, 1000, 60))
    run(bench)  # 0..100: ends before
    run(bench)  # would end at 200
    assert spans(bench.port.ended()) == [(0, 0, 0, 100), (FAULT, 0, 150, 1150), (0, 0, 1150, 1250)]


def test_injected_quantum_runs_while_idle_and_while_pausing():
    bench = Bench()
    bench.port.at(0, InjectQuantum(100, 50, 8))
    bench.port.at(0, InjectQuantum(300, 50, 8))
    bench.port.at(200, ComputeStep(0, 0, ()))
    assert isinstance(bench.gate.next_command(), ComputeStep)
    bench.gate.pause_until(1000)
    assert spans(bench.port.ended()) == [(FAULT, 0, 100, 150), (FAULT, 0, 300, 350)]
    assert bench.port.now == 1000


def test_native_pace_holds_nothing_and_keeps_the_measured_time():
    device = []
    bench = Bench(pace=Pace(held=False, settle=lambda: device[0].works(5)))
    device.append(bench.port)
    run(bench, work_us=30)
    (ended,) = bench.port.ended()
    assert (ended.end_us, ended.modelled_end_us, ended.real_us) == (35, 100, 35)
    assert bench.port.now == 35


def test_one_stall_does_not_starve_the_job_for_ever():
    windows = tuple(Window(start, start + 150, 40) for start in range(0, 20_000, 1000))
    bench = Bench(Lease(1, windows))
    run(bench, work_us=900)  # a stall of the machine: 800 beyond the model
    bench.port.at(950, LeaseChanged())
    run(bench)
    assert spans(bench.port.ended())[1] == (0, 0, 1000, 1100)


def test_no_lease_is_no_reason_to_forget_an_overrun():
    bench = Bench()
    run(bench, work_us=140)
    bench.lease = EMPTY
    for at_us in (200, 300):
        bench.port.at(at_us, LeaseChanged())
    bench.port.at(400, LeaseChanged(), bench.replace(Lease(2, (Window(0, 9000, 40),))))
    run(bench)
    assert bench.port.begun()[1].start_us == 400
    assert bench.costs.p99_us(FORWARD, 0)[40] == 140


def test_abandon_takes_along_what_is_queued_of_the_step_from_later_epochs():
    bench = Bench(EMPTY)
    bench.gate.step, bench.gate.abandonable = 5, True
    other = ComputeStep(2, 6, ())
    for at_us, message in ((8, ComputeStep(2, 5, (1,))), (9, other), (10, AbandonStep(2, 5))):
        bench.port.at(at_us, message)
    with pytest.raises(StepAbandoned):
        bench.gate.open(FORWARD, 0)
    bench.port.at(20, ExecutorStop())
    assert bench.gate.next_command() is other
    with pytest.raises(Stopped):
        bench.gate.next_command()


@pytest.mark.parametrize("newer", [ComputeStep(3, 5, (1,)), ShareState(3, 5, 1, 2, 0, "")])
def test_newer_epoch_of_the_step_supersedes_while_waiting(newer):
    bench = Bench(EMPTY)
    harmless = [ComputeStep(2, 5, ()), ComputeStep(3, 6, ()), RunSync(3, 5, 0, 1, 0, 0, "")]
    for message in harmless:
        bench.port.at(0, message)
    bench.port.at(70, newer)
    with (
        pytest.raises(Superseded, match="step 5 goes on in epoch 3"),
        bench.gate.supersedable(2, 5),
    ):
        bench.gate.pause_until(1000)
    assert bench.port.now == 70
    assert [bench.gate.next_command() for _ in range(4)] == [*harmless, newer]


@pytest.mark.parametrize("queued", [True, False])
def test_what_is_superseded_already_does_not_begin(queued):
    bench = Bench(EMPTY)
    bench.port.at(0, ComputeStep(3, 5, ()))
    if queued:
        bench.gate.pause_until(1)
    with pytest.raises(Superseded), bench.gate.supersedable(2, 5):
        pytest.fail("it began")


def test_state_is_given_while_a_quantum_waits_and_only_by_who_may():
    bench = Bench(EMPTY)
    give, take = ShareState(2, 5, 0, 2, 0, ""), ShareState(2, 5, 1, 2, 0, "")
    extra = ComputeStep(2, 5, (9,))
    for message in (extra, take, give):
        bench.port.at(10, message)
    bench.port.at(50, LeaseChanged(), bench.replace(ROUND_THE_CLOCK))
    given = []
    bench.gate.give = lambda share: given.append((share, bench.port.now))
    run(bench)
    assert given == [(give, 10)]
    assert spans(bench.port.ended()) == [(0, 0, 50, 150)]
    bench.gate.give = None
    bench.port.at(150, give)
    run(bench)
    assert len(given) == 1
    assert [bench.gate.next_command() for _ in range(3)] == [extra, take, give]
