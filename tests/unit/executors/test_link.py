"""Timer and link on real descriptors: what is ready, what is late, what EOF means."""

from __future__ import annotations

import select
import socket
import time

import pytest

from protocols.codec import decode, encode
from protocols.errors import ProtocolError
from protocols.work import ApplyStep, ExecutorStop, LeaseChanged
from testbed.executors.clock import EmulatedClock
from testbed.executors.link import HostGone, HostLink
from testbed.executors.timer import DeadlineTimer

FAR_NS = 3_600_000_000_000
WAIT_MS = 5000


@pytest.fixture
def timer():
    with DeadlineTimer() as timer:
        yield timer


def readable(timer, wait_ms=0):
    poll = select.poll()
    poll.register(timer, select.POLLIN)
    return bool(poll.poll(wait_ms))


class TestTimer:
    def test_is_readable_at_its_time_and_not_before(self, timer):
        at_ns = time.monotonic_ns() + 3_000_000
        timer.arm(at_ns)
        assert readable(timer, WAIT_MS)
        assert time.monotonic_ns() >= at_ns
        assert timer.acknowledge()
        assert not timer.acknowledge()

    @pytest.mark.parametrize("at_ns", [-5, 0, 1])
    def test_a_time_that_has_passed_fires_at_once(self, timer, at_ns):
        timer.arm(at_ns)
        assert readable(timer, WAIT_MS)

    def test_rearming_and_disarming_forget_the_expiry(self, timer):
        timer.arm(1)
        assert readable(timer, WAIT_MS)
        timer.arm(time.monotonic_ns() + FAR_NS)
        assert not readable(timer)
        timer.arm(1)
        timer.disarm()
        assert not readable(timer)

    def test_close_is_idempotent(self, timer):
        timer.close()
        timer.close()


def test_clock_floors_before_and_after_the_epoch():
    now_ns = time.monotonic_ns()
    clock = EmulatedClock(now_ns + FAR_NS, 1000)
    assert clock.now_us() < 0
    assert clock.wall_ns(7) == now_ns + FAR_NS + 7000


@pytest.fixture
def host():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(WAIT_MS / 1000)
    link = HostLink(theirs)
    link.start(EmulatedClock(time.monotonic_ns(), 1000))
    yield ours, link
    link.close()
    ours.close()


class TestLink:
    def test_message_before_the_end_of_the_wait(self, host):
        ours, link = host
        ours.send(encode(ApplyStep(1, 2))[0])
        message = link.receive(link.now_us() + FAR_NS)
        assert (message.epoch, message.step) == (1, 2)

    def test_none_at_the_end_of_the_wait(self, host):
        _, link = host
        until_us = link.now_us() + 2000
        assert link.receive(until_us) is None
        assert link.now_us() >= until_us

    def test_message_wins_over_an_end_that_has_passed(self, host):
        ours, link = host
        ours.send(encode(LeaseChanged())[0])
        assert isinstance(link.receive(0), LeaseChanged)
        assert link.receive(0) is None

    def test_hold_leaves_messages_where_they_are(self, host):
        ours, link = host
        ours.send(encode(LeaseChanged())[0])
        until_us = link.now_us() + 2000
        link.hold_until(until_us)
        assert link.now_us() >= until_us
        assert isinstance(link.receive(None), LeaseChanged)

    def test_closed_host_reads_as_stop_and_cannot_be_told(self, host):
        ours, link = host
        ours.close()
        assert isinstance(link.receive(None), ExecutorStop)
        with pytest.raises(HostGone):
            link.send(LeaseChanged())

    def test_reports_arrive_one_per_packet(self, host):
        ours, link = host
        link.send(ApplyStep(1, 1))
        link.send(ApplyStep(1, 2))
        steps = [decode([ours.recv(65536)])[0].step for _ in range(2)]
        assert steps == [1, 2]

    def test_rubbish_is_a_named_error(self, host):
        ours, link = host
        ours.send(b"\xc1")
        with pytest.raises(ProtocolError):
            link.receive(None)

    def test_no_emulated_time_before_the_start(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link = HostLink(theirs)
        with pytest.raises(ProtocolError, match="before ExecutorStart"):
            link.now_us()
        link.close()
        ours.close()
