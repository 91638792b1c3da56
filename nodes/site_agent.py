"""The site agent owns a site's GPU: the RAN's timeline, the promise ahead, and the leases.

It must not decide what the radio sends. Plans of the MACs become reservations (RAN first); what
they leave until the plans' horizon, and beyond it the envelope that the MACs promise, becomes
leases; what a late quantum still holds is taken off the allocation that PHY gets, so that its
delay is real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import cast

from nodes.api import (
    Decide,
    Effect,
    Event,
    NodeContext,
    PeerChanged,
    Received,
    Record,
    Send,
    Started,
)
from nodes.site_leases import SiteLeases
from protocols.messages import (
    EnvelopeShare,
    LeaseClose,
    PhyAllocation,
    PhyDone,
    QuantumStarted,
    SlotDemand,
)
from testbed.gpu.cost import Segment, finish_us, phy_demand
from testbed.gpu.envelope import Envelope, GnbPromise, split_sms
from testbed.gpu.lease_policy import LeasePolicy
from testbed.gpu.phy_tasks import deadline_us, known_until_us, ready_us
from testbed.gpu.sizing import PhySizing
from testbed.gpu.timeline import RanTimeline, Reservation, TaskKey, TaskRequest, held_steps
from testbed.record.schema import PROMISE_WINDOWS_US
from testbed.topology.views import SiteView, node_name


@dataclass(frozen=True, slots=True)
class _Held:
    """SMs of a running quantum, until its modelled end."""

    job: str
    start_us: int
    end_us: int
    sms: int


@dataclass(slots=True)
class _Task:
    """What the agent keeps of a task until PHY reports it done.

    ``first`` is its reservation as made, ``reservation`` as it stands since a quantum was late.
    """

    reservation: Reservation
    first: Reservation
    gnb: str
    n_prb: int
    code_blocks: int


class SiteAgent:
    """State machine of one site's agent."""

    def __init__(self, context: NodeContext) -> None:
        view = SiteView(context.topology, context.site)
        self._view = view
        self._gpu = view.gpu
        self._slot_us = view.slot_us
        sizing = cast(PhySizing, context.policies["site.phy"])
        self._timeline = RanTimeline(view.ran_gpu, view.training_bandwidth_permille, sizing)
        self._worst = view.worst_case(sizing)
        self._leases = SiteLeases(
            view, cast(LeasePolicy, context.policies["site.lease"]), self._worst
        )
        self._pool_end_us = view.run.end_us + view.run.drain_us
        """Of the leases of a site without a gNB: no plan will ever come to bound them."""
        self._envelope = Envelope(view.gnbs, view.ran_gpu, view.slot_us)
        self._shares = dict.fromkeys(view.gnbs, view.ran_gpu.sms)
        self._phys = {gnb: node_name(context.site, gnb, "phy") for gnb in view.gnbs}
        self._phy_budget = view.phy
        self._plans: dict[str, SlotDemand] = {}
        self._waiting: list[tuple[TaskRequest, str, int, int]] = []
        self._tasks: dict[TaskKey, _Task] = {}
        self._held: list[_Held] = []
        self._known_until_us = 0

    def step(self, now_us: int, event: Event) -> list[Effect]:
        """Dispatch one event; see the class docstring for what follows from each."""
        match event:
            case Started() if not self._view.gnbs:
                return self._grant(now_us, self._pool_end_us)
            case PeerChanged():
                return self._on_peer(now_us, event)
            case Received(message=message):
                return self._on_message(now_us, message)
        return []

    def _on_message(self, now_us: int, message: object) -> list[Effect]:
        match message:
            case SlotDemand():
                return self._on_demand(now_us, message)
            case PhyDone():
                return self._on_phy_done(now_us, message)
            case QuantumStarted():
                return self._on_quantum(now_us, message)
            case LeaseClose(job=job, reason=reason):
                self._leases.close(job)
                return [Decide(f"lease {job}", f"closed: {reason}")]
        return []

    # --- plans to reservations ------------------------------------------------------------------

    def _on_demand(self, now_us: int, demand: SlotDemand) -> list[Effect]:
        self._plans[demand.gnb] = demand
        for cell, air_slot, direction, n_prb, _layers, code_blocks, work_milli in demand.tasks:
            key = TaskKey(cell, air_slot, direction)
            request = TaskRequest(
                key,
                max(now_us, ready_us(direction, air_slot, self._slot_us)),
                self._deadline_us(key),
                phy_demand(self._gpu, direction, code_blocks, work_milli),
            )
            self._waiting.append((request, demand.gnb, n_prb, code_blocks))
        planned = [plan.slot for plan in self._plans.values()]
        if len(planned) < len(self._view.gnbs) or min(planned) < demand.slot:
            return []  # the other gNBs of this GPU have not planned this slot yet
        return self._close_slot(now_us, demand.slot)

    def _close_slot(self, now_us: int, slot: int) -> list[Effect]:
        self._timeline.drop_before(now_us - 2 * self._slot_us)
        self._held = [held for held in self._held if held.end_us > now_us]
        effects: list[Effect] = []
        details = {request.key: (gnb, prb, blocks) for request, gnb, prb, blocks in self._waiting}
        by_gnb: dict[str, list[tuple[int, ...]]] = {}
        for gnb, plan in self._plans.items():
            self._envelope.promise(gnb, GnbPromise(plan.promise, plan.promised_until_slot))
        reserved = self._reserve()
        planned_sms = self._ran_by_slot(slot)
        for reservation in reserved:
            gnb, n_prb, code_blocks = details[reservation.request.key]
            task = _Task(reservation, reservation, gnb, n_prb, code_blocks)
            self._tasks[reservation.request.key] = task
            self._delay(task, self._as_held(reservation))
            by_gnb.setdefault(gnb, []).extend(self._rows(task.reservation))
        self._waiting.clear()
        for gnb, rows in by_gnb.items():
            effects.append(self._send_allocation(gnb, slot, rows))
        until_us = min(
            [
                known_until_us(plan.dl_known_slot, plan.ul_known_slot, self._slot_us)
                for plan in self._plans.values()
            ]
        )
        effects += self._commit(slot, until_us, planned_sms)
        effects.append(self._promise(slot, until_us))
        effects += self._grant(now_us, until_us)
        return effects + self._split(slot)

    def _reserve(self) -> list[Reservation]:
        """Place what is planned. All gNBs together, so that none is served first; one after the
        other where they promise what each takes, since together they may need more than the sum."""
        if self._envelope.idle:
            return self._timeline.reserve([waiting[0] for waiting in self._waiting])
        return [
            placed
            for gnb in self._view.gnbs
            for placed in self._timeline.reserve(
                request for request, owner, *_ in self._waiting if owner == gnb
            )
        ]

    def _as_held(self, reservation: Reservation) -> Reservation:
        """What a task gets of its reservation: all but the SMs that quanta still hold."""
        if not self._held:
            return reservation
        start_us = reservation.start_us
        late = [
            (held.end_us, held.sms)
            for held in self._held
            if held.start_us < reservation.end_us and held.end_us > start_us
        ]
        if not late:
            return reservation
        beside = self._timeline.ran_steps(start_us, None, without=reservation)
        steps = held_steps(self._gpu, reservation, beside, late)
        permille = self._view.training_bandwidth_permille
        segments = [Segment(from_us, sms, permille) for from_us, sms in steps]
        end_us = finish_us(self._gpu, reservation.request.demand, segments)
        kept = tuple([step for step in steps if step[0] < end_us])
        if kept == reservation.steps:
            return reservation
        return Reservation(reservation.request, kept, end_us)

    def _delay(self, task: _Task, held: Reservation) -> None:
        """Keep the timeline at what the task will do with the SMs that it gets."""
        if held is not task.reservation:
            self._timeline.replace(task.reservation, held)
            task.reservation = held

    def _rows(self, reservation: Reservation) -> list[tuple[int, ...]]:
        """Rows of PhyAllocation for what a task gets."""
        key = reservation.request.key
        permille = self._view.training_bandwidth_permille
        return [
            (key.cell, key.air_slot, key.direction, from_us, sms, permille)
            for from_us, sms in reservation.steps
        ]

    def _send_allocation(self, gnb: str, slot: int, rows: Sequence[tuple[int, ...]]) -> Send:
        return Send(self._phys[gnb], PhyAllocation(slot, tuple(rows)))

    # --- what is promised and leased ------------------------------------------------------------

    def _ran_by_slot(self, slot: int) -> list[int]:
        """The RAN's SMs per slot from ``slot`` on, as far as promises make them matter."""
        return [] if self._envelope.idle else self._timeline.sms_by_slot(slot, self._slot_us)

    def _commit(
        self, slot: int, known_until_us: int, planned_sms: Sequence[int] = ()
    ) -> list[Effect]:
        """Hold the RAN to its promises from ``slot`` on; record where it goes above them, by its
        plans (``planned_sms``) or since a late quantum has moved its tasks."""
        if self._envelope.idle:
            return []
        both = zip_longest(planned_sms, self._ran_by_slot(slot), fillvalue=0)
        ran_sms = [max(planned, moved) for planned, moved in both]
        broken = self._envelope.commit(slot, known_until_us // self._slot_us, ran_sms)
        if broken is None:
            return []
        from_us, to_us = broken.from_slot * self._slot_us, broken.until_slot * self._slot_us
        row = (slot, from_us, to_us, broken.promised_sms, broken.taken_sms)
        reason = (
            f"emergency in [{from_us}, {to_us}) us: the RAN takes {broken.taken_sms} SMs, "
            f"{broken.promised_sms} were promised"
        )
        return [Record("ran_emergencies", row), Decide(f"envelope {slot}", reason)]

    def _promise(self, slot: int, known_until_us: int) -> Record:
        """The largest SM count of the committed envelope within each window from this slot on."""
        slot_us = self._slot_us
        start_us = slot * slot_us
        known_us = max(start_us, known_until_us)
        known_slot = known_us // slot_us
        known = self._timeline.ran_sms_within(start_us, known_until_us)
        committed = self._envelope.most_ahead(known_slot)
        committed_slots = len(committed) - 1
        committed_us = max(known_us, (known_slot + committed_slots) * slot_us)
        row = [slot, start_us]
        for window_us in PROMISE_WINDOWS_US:
            end_us = start_us + window_us
            if end_us <= known_us:
                row.append(self._timeline.ran_sms_within(start_us, end_us))
            else:
                slots = min(-(-end_us // slot_us) - known_slot, committed_slots)
                beyond = self._worst.within(committed_us, end_us)
                row.append(max(known, committed[slots], beyond))
        return Record("promises", tuple(row))

    def _split(self, slot: int) -> list[Effect]:
        """Tell gNBs that share this GPU what each may use, where that changes."""
        if len(self._plans) < 2 or (promised := self._envelope.promised_ahead(slot)) is None:
            return []
        wanted = {gnb: self._plans[gnb].wanted_sms for gnb in self._view.gnbs}
        shares = split_sms(self._view.ran_gpu, wanted, promised)
        changed = {gnb: sms for gnb, sms in shares.items() if sms != self._shares[gnb]}
        self._shares.update(shares)
        return [
            Send(node_name(self._view.site, gnb, "mac"), EnvelopeShare(gnb, sms, slot + 1))
            for gnb, sms in changed.items()
        ]

    def _grant(self, now_us: int, known_until_us: int) -> list[Effect]:
        """Lease the spare of [now, known_until), and what the envelope leaves beyond it."""
        self._known_until_us = max(self._known_until_us, known_until_us)
        from_us = max(0, now_us)
        known = self._timeline.spare_windows(from_us, known_until_us)
        spare = self._envelope.lease(known, from_us, known_until_us // self._slot_us)
        return self._leases.grant(now_us, known_until_us, spare)

    def _on_peer(self, now_us: int, changed: PeerChanged) -> list[Effect]:
        """A dead trainer holds nothing and is leased nothing; one that lives again is."""
        job = self._leases.job_of(changed.node)
        if job is None or changed.status not in ("lost", "joined"):
            return []
        if changed.status == "lost":
            self._held = [held for held in self._held if held.job != job]
        self._leases.present(job, changed.status == "joined")
        return [] if self._view.gnbs else self._grant(now_us, self._pool_end_us)

    # --- what really happens --------------------------------------------------------------------

    def _on_quantum(self, now_us: int, started: QuantumStarted) -> list[Effect]:
        held = _Held(started.job, started.start_us, started.end_us, started.sms)
        self._held.append(held)
        effects: list[Effect] = []
        for key, task in self._tasks.items():
            planned = task.reservation
            if not now_us < planned.start_us < held.end_us or planned.end_us <= held.start_us:
                continue
            left = self._as_held(planned)
            if left is planned:
                continue  # it runs beside the task, as granted
            self._delay(task, left)
            effects.append(self._send_allocation(task.gnb, key.air_slot, self._rows(left)))
            reason = (
                f"a quantum of {held.sms} SMs runs until {held.end_us} us; "
                f"the task begins with {left.steps[0][1]} of {planned.first_sms} SMs"
            )
            effects.append(Decide(f"allocation {key.cell}/{key.air_slot}", reason))
        if effects:
            effects += self._commit(now_us // self._slot_us, self._known_until_us)
            effects += self._grant(now_us, self._known_until_us)
        return effects

    def _on_phy_done(self, now_us: int, done: PhyDone) -> list[Effect]:
        key = TaskKey(done.cell, done.air_slot, done.direction)
        task = self._tasks.pop(key, None)
        if task is None:
            return [Decide(f"phy {done.cell}/{done.air_slot}", "done, but was never planned")]
        planned = task.first
        row = (
            done.cell,
            done.air_slot,
            done.direction,
            task.n_prb,
            task.code_blocks,
            planned.start_us,
            planned.end_us,
            done.start_us,
            done.modelled_end_us,
            done.end_us,
            planned.request.deadline_us,
            done.sms,
            planned.first_sms,
        )
        effects: list[Effect] = [Record("ran_tasks", row)]
        as_run = task.reservation
        if done.end_us > as_run.end_us:
            as_run = replace(as_run, end_us=done.end_us)
        for number, reservation in ((1, planned), (0, as_run)):
            for from_us, to_us, sms in reservation.pieces():
                first_us = max(from_us, done.start_us) if number == 0 else from_us
                if sms > 0 and first_us < to_us:
                    piece = (done.cell, done.air_slot, done.direction, number, first_us, to_us, sms)
                    effects.append(Record("ran_pieces", piece))
        return effects

    def _deadline_us(self, key: TaskKey) -> int:
        budget = self._phy_budget
        return deadline_us(
            key.direction,
            key.air_slot,
            self._slot_us,
            budget.ul_decode_budget_us,
            budget.fronthaul_lead_us,
        )
