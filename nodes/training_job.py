"""One training job at the coordinator: who owns which samples, when a step may be summed, what is
committed, and who takes part.

Per step: ASSIGNED (samples are out) -> SYNCING (all members have arrived; the collective runs, and
the optimiser follows it provisionally) -> committed, and the next step is assigned in the same
breath. Nothing is committed that any member did not sum. When a member is lost, or a collective
has failed, the open step goes on in a new membership epoch: survivors keep their gradients, the
lost samples are given to them, and the sum is made again. A member that comes back is admitted
with the next step: it takes the state from a giver, and joins that step's sum without samples of
its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from nodes.api import Decide, Effect, Fail, Progress, Record, Send
from protocols.messages import (
    BarrierOpen,
    BarrierReached,
    LeaseClose,
    MicroBatchDone,
    StateShare,
    StateShared,
    StepAbandon,
    StepApplied,
    StepAssign,
    StepCommit,
    SyncDone,
)
from testbed.errors import PolicyError
from testbed.record.schema import MemberEvent, SampleEvent, StepEvent
from testbed.topology.views import RunView, node_name
from testbed.training.assignment import AssignmentPolicy
from testbed.training.ledger import SampleLedger, Verdict
from testbed.training.membership import Membership
from testbed.training.ring import ring_allreduce_us, ring_latency_us, transfer_us

ATTEMPTS = 3
"""Sums of one step, or shares of the state, that may fail without anybody lost before the run
does."""


class _Phase(Enum):
    IDLE = "idle"
    ASSIGNED = "assigned"
    SYNCING = "syncing"
    CLOSED = "closed"


@dataclass(slots=True)
class _Applying:
    """A committed step that members are still to report as applied."""

    epoch: int
    expected: set[str]
    digests: dict[str, str] = field(default_factory=dict)


class TrainingJob:
    """State machine of one job; every method returns what follows."""

    def __init__(self, name: str, index: int, view: RunView, policy: AssignmentPolicy) -> None:
        self.name = name
        self._index = index
        self._view = view
        self._policy = policy
        self._site_of = {node_name(site, name, "trainer"): site for site in view.job(name).sites}
        self._members = Membership(self._site_of)
        self._ledger = SampleLedger()
        self._phase = _Phase.IDLE
        self._next_step = 0
        self._arrived: set[str] = set()
        self._synced: dict[str, SyncDone] = {}
        self._shared: dict[str, StateShared] = {}
        self._sharing = 0
        self._failed = 0
        self._losses: dict[int, tuple[int, int]] = {}
        self._applying: dict[int, _Applying] = {}
        self._ending = False

    @property
    def closed(self) -> bool:
        """Nothing is open, and nothing will be."""
        return self._phase is _Phase.CLOSED

    @property
    def _step(self) -> int:
        return self._next_step - 1

    # --- one step -------------------------------------------------------------------------------

    def assign(self, now_us: int) -> list[Effect]:
        """Open the next step, with all who wait for it."""
        admitted = self._members.admit()
        self._next_step += 1
        self._losses.clear()
        self._failed = 0
        effects: list[Effect] = [
            self._member_row(now_us, member, MemberEvent.ADMITTED) for member in admitted
        ]
        effects += self._hand_out(now_us, self._view.job(self.name).global_batch)
        return [*effects, self._step_row(now_us, self._step, StepEvent.ASSIGNED)]

    def _hand_out(self, now_us: int, count: int) -> list[Effect]:
        """Give ``count`` samples of the open step to those who have the state; all members are to
        arrive in this epoch."""
        self._phase = _Phase.ASSIGNED
        self._arrived.clear()
        self._synced.clear()
        effects = self._share_state()
        counts = self._split(count) if count else {}
        epoch, step = self._members.epoch, self._step
        for member in self._members.present:
            samples = self._ledger.issue(member, epoch, step, counts.get(member, 0))
            effects.append(Send(member, StepAssign(self.name, epoch, step, samples)))
            owner = self._members.members.index(member)
            effects += self._sample_rows(now_us, step, samples, owner, SampleEvent.ISSUED)
        return effects

    def _split(self, total: int) -> dict[str, int]:
        workers = self._members.workers
        counts = dict(self._policy.split(total, workers))
        if set(counts) != set(workers) or sum(counts.values()) != total:
            name = type(self._policy).__name__
            raise PolicyError(f"assignment policy {name}: {counts} is not a split of {total}")
        return counts

    def on_sample(self, now_us: int, source: str, done: MicroBatchDone) -> list[Effect]:
        """A gradient is in its owner's sum; anybody else's is refused."""
        verdict = self._ledger.computed(done.sample, source, done.epoch, done.step)
        owner = self._members.members.index(source)
        event, effects = SampleEvent.COMPUTED, list[Effect]()
        if verdict is Verdict.ACCEPTED:
            self._losses[done.sample] = (done.loss_micronats, done.proxy_tokens)
        else:
            event = SampleEvent.DUPLICATE
            reason = f"{verdict.value} result of {source}, step {done.step}, epoch {done.epoch}"
            effects.append(Decide(f"sample {done.sample}", reason))
        return effects + self._sample_rows(now_us, done.step, (done.sample,), owner, event)

    def on_barrier(self, now_us: int, source: str, reached: BarrierReached) -> list[Effect]:
        """A member has computed all its samples."""
        if self._phase is not _Phase.ASSIGNED or not self._current(reached.epoch, reached.step):
            return [Decide(f"barrier {reached.step}", f"stale arrival of {source}")]
        self._arrived.add(source)
        return self._open_if_all_arrived(now_us)

    def _open_if_all_arrived(self, now_us: int) -> list[Effect]:
        members = self._members.present
        if len(self._arrived) < len(members) or self._members.healing:
            return []
        step = self._step
        missing = self._ledger.missing(step)
        if missing:
            what = f"all members arrived at the barrier of step {step}"
            return [Fail(f"job {self.name}: {what}, but samples {missing} are not computed")]
        self._phase = _Phase.SYNCING
        link = self._view.slowest_link([self._site_of[member] for member in members])
        opened = BarrierOpen(
            self.name,
            self._members.epoch,
            step,
            members,
            ring_allreduce_us(
                len(members),
                self._view.gradient_bytes(self.name),
                link.bandwidth_gbps,
                link.latency_us,
            ),
            ring_latency_us(len(members), link.latency_us),
        )
        effects: list[Effect] = [Send(member, opened) for member in members]
        return [*effects, self._step_row(now_us, step, StepEvent.BARRIER_OPEN)]

    def on_sync(self, now_us: int, source: str, done: SyncDone) -> list[Effect]:
        """A member's collective has ended; one that failed is repeated once all have answered, or
        once it is known who is lost."""
        if self._phase is not _Phase.SYNCING or not self._current(done.epoch, done.step):
            return [Decide(f"sync {done.step}", f"stale result of {source}")]
        self._synced[source] = done
        if len(self._synced) < len(self._members.present):
            return []
        failed = [result.reason for result in self._synced.values() if not result.ok]
        if failed:
            return self._repeat(now_us, f"the collective of step {done.step}: {failed[0]}")
        tokens = {result.proxy_tokens for result in self._synced.values()}
        if len(tokens) != 1:
            reason = f"members summed different token counts {sorted(tokens)}"
            return [Fail(f"job {self.name}: {reason}")]
        return self._commit(now_us)

    def _commit(self, now_us: int) -> list[Effect]:
        step, members = self._step, self._members
        samples = self._ledger.commit(step)
        commit = StepCommit(self.name, members.epoch, step)
        effects: list[Effect] = [Send(member, commit) for member in members.present]
        effects += self._sample_rows(now_us, step, samples, -1, SampleEvent.COMMITTED)
        committed = self._step_row(now_us, step, StepEvent.COMMITTED)
        effects += [committed, self._progress(committed)]
        self._applying[step] = _Applying(members.epoch, set(members.present))
        if self._ending:
            self._phase = _Phase.IDLE
        else:
            effects += self.assign(now_us)
        return effects

    def on_applied(self, now_us: int, source: str, applied: StepApplied) -> list[Effect]:
        """A member's parameters after a committed step; they must be the same everywhere."""
        applying = self._applying.get(applied.step)
        if applying is None or applied.epoch != applying.epoch:
            return [Decide(f"applied {applied.step}", f"stale report of {source}")]
        applying.digests[source] = applied.digest
        return self._check_applied(now_us, applied.step)

    def _check_applied(self, now_us: int, step: int) -> list[Effect]:
        applying = self._applying[step]
        digests = {applying.digests.get(member) for member in applying.expected}
        if None in digests:
            return []
        del self._applying[step]
        if len(digests) > 1:
            reason = f"parameters differ between members after step {step}"
            return [Fail(f"job {self.name}: {reason}")]
        effects: list[Effect] = [self._step_row(now_us, step, StepEvent.APPLIED)]
        if self._ending and self._phase is _Phase.IDLE and not self._applying:
            effects += self._close("its last step was applied")
        return effects

    # --- membership -----------------------------------------------------------------------------

    def lost(self, now_us: int, member: str, reason: str) -> list[Effect]:
        """A trainer is gone; the open step goes on without it, if anybody has the state."""
        if member not in self._site_of or self.closed:
            return []
        why = f"{member} is lost ({reason})"
        effects: list[Effect] = [self._member_row(now_us, member, MemberEvent.LOST)]
        if not self._members.lose(member):
            return effects
        for step, applying in list(self._applying.items()):
            applying.expected.discard(member)
            if applying.expected:
                effects += self._check_applied(now_us, step)
        if self.closed:
            return effects
        if not self._members.workers:
            if self._phase is not _Phase.IDLE:
                effects += self._abandon(now_us, why)
            reason = f"{why} and no other trainer holds its parameters"
            return [*effects, Fail(f"job {self.name}: {reason}")]
        if self._phase in (_Phase.ASSIGNED, _Phase.SYNCING):
            effects += self._regroup(now_us, why, self._ledger.give_back(self._step, member))
        return effects

    def joined(self, now_us: int, member: str) -> list[Effect]:
        """A trainer is there again, without any state: it waits for the next step."""
        if member not in self._site_of or self.closed:
            return []
        self._members.join(member)
        return [self._member_row(now_us, member, MemberEvent.JOINED)]

    def on_shared(self, now_us: int, source: str, shared: StateShared) -> list[Effect]:
        """The giver, or one that was healing, has the state of this epoch, or hasn't; one that
        failed is repeated once all have answered, or once it is known who is lost."""
        if not self._current(shared.epoch, shared.step):
            return [Decide(f"state {shared.step}", f"stale report of {source}")]
        self._shared[source] = shared
        if len({answer.digest for answer in self._shared.values() if answer.ok}) > 1:
            reason = f"parameters differ between members after the state for step {shared.step}"
            return [Fail(f"job {self.name}: {reason} was shared")]
        effects: list[Effect] = []
        if shared.ok and source in self._members.healing:
            self._members.heal(source)
            effects.append(self._member_row(now_us, source, MemberEvent.HEALED))
            effects += self._open_if_all_arrived(now_us)
        failed = [answer.reason for answer in self._shared.values() if not answer.ok]
        if failed and self._members.healing and len(self._shared) == self._sharing:
            effects += self._repeat(now_us, f"the state for step {shared.step}: {failed[0]}")
        return effects

    def _share_state(self) -> list[Effect]:
        """Have those who heal take the state from the first who has it."""
        self._shared.clear()
        takers = self._members.healing
        if not takers:
            return []
        giver = self._members.workers[0]
        payload = self._view.shared_state_bytes(self.name)
        links = [self._view.link(self._site_of[giver], self._site_of[taker]) for taker in takers]
        took_us = max(
            [transfer_us(payload, link.bandwidth_gbps, link.latency_us) for link in links]
        )
        members = (giver, *takers)
        self._sharing = len(members)
        share = StateShare(self.name, self._members.epoch, self._step, members, took_us)
        return [Send(member, share) for member in members]

    def _repeat(self, now_us: int, reason: str) -> list[Effect]:
        """Nobody is known to be lost, and yet it failed: once more, but not for ever."""
        self._failed += 1
        if self._failed >= ATTEMPTS:
            return [Fail(f"job {self.name}: {reason} ({self._failed} attempts)")]
        return self._regroup(now_us, reason, ())

    def _regroup(self, now_us: int, reason: str, lost: tuple[int, ...]) -> list[Effect]:
        """Go on with the open step in a new epoch; samples that are ``lost`` are computed anew."""
        step = self._step
        effects: list[Effect] = self._sample_rows(now_us, step, lost, -1, SampleEvent.RETURNED)
        for sample in lost:
            self._losses.pop(sample, None)
        epoch = self._members.next_epoch()
        effects.append(Decide(f"step {step}", f"goes on in epoch {epoch}: {reason}"))
        effects.append(self._step_row(now_us, step, StepEvent.REGROUPED))
        return effects + self._hand_out(now_us, len(lost))

    # --- the end --------------------------------------------------------------------------------

    def end(self, reason: str) -> list[Effect]:
        """No new step; closed at once where none is open."""
        self._ending = True
        if self._phase is _Phase.IDLE and not self._applying:
            return self._close(reason)
        return []

    def give_up(self, now_us: int, reason: str) -> list[Effect]:
        """There is no more time: what is still open is not committed, its samples return."""
        if self.closed:
            return []
        effects = self._abandon(now_us, reason) if self._phase is not _Phase.IDLE else []
        return effects + self._close(reason)

    def _abandon(self, now_us: int, reason: str) -> list[Effect]:
        step = self._step
        abandon = StepAbandon(self.name, self._members.epoch, step, reason)
        effects: list[Effect] = [Send(member, abandon) for member in self._members.present]
        returned = self._ledger.give_back(step)
        effects += self._sample_rows(now_us, step, returned, -1, SampleEvent.RETURNED)
        effects.append(self._step_row(now_us, step, StepEvent.ABANDONED))
        self._phase = _Phase.IDLE
        return effects

    def _close(self, reason: str) -> list[Effect]:
        self._phase = _Phase.CLOSED
        closing = LeaseClose(self.name, reason)
        effects: list[Effect] = [
            Send(node_name(site, "agent"), closing) for site in self._site_of.values()
        ]
        counts = self._ledger.counts()
        summary = (
            f"{reason}; samples issued {counts.issued}, committed {counts.committed}, "
            f"returned {counts.returned}, duplicates refused {counts.duplicated}"
        )
        return [*effects, Decide(f"job {self.name}", summary)]

    # --- rows -----------------------------------------------------------------------------------

    def _current(self, epoch: int, step: int) -> bool:
        return (epoch, step) == (self._members.epoch, self._step)

    def _step_row(self, now_us: int, step: int, event: StepEvent) -> Record:
        tokens = sum(count for _, count in self._losses.values())
        known = [(loss, count) for loss, count in self._losses.values() if loss >= 0]
        loss = -1
        if event is StepEvent.COMMITTED and known and tokens:
            loss = sum(loss * count for loss, count in known) // tokens
        epoch, samples = self._members.epoch, len(self._losses)
        row = (self._index, epoch, step, int(event), now_us, loss, tokens, samples)
        return Record("steps", row)

    def _member_row(self, now_us: int, member: str, event: MemberEvent) -> Record:
        place = self._members.members.index(member)
        step = max(0, self._step)
        row = (self._index, self._members.epoch, step, place, int(event), now_us)
        return Record("membership", row)

    def _progress(self, committed: Record) -> Progress:
        loss_micronats = committed.row[5]
        loss = f", loss {loss_micronats / 1e6:.3f}" if loss_micronats >= 0 else ""
        present, members = len(self._members.present), len(self._members.members)
        away = f", {present} of {members} trainers" if present < members else ""
        return Progress(f"{self.name}: step {self._step}{loss}{away}")

    def _sample_rows(
        self, now_us: int, step: int, samples: tuple[int, ...], owner: int, event: SampleEvent
    ) -> list[Effect]:
        epoch = self._members.epoch
        return [
            Record("samples", (self._index, epoch, step, sample, owner, int(event), now_us))
            for sample in samples
        ]
