"""What a site agent leases to whom: the jobs that want SMs and have a trainer, and their shares.

It must not decide what is spare: the agent tells it, and what is leased never exceeds that.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodes.api import Decide, Effect, Record, Send
from protocols.messages import LeaseGrant
from testbed.errors import PolicyError
from testbed.gpu.envelope import MAX_LEASE_WINDOWS
from testbed.gpu.gate import Window
from testbed.gpu.lease_policy import LeasePolicy
from testbed.gpu.partitions import Outlook, Partition
from testbed.gpu.promise import WorstCase
from testbed.topology.views import SiteView, node_name


class SiteLeases:
    """Leases of one site's GPU; each grant replaces all that was leased before."""

    def __init__(self, view: SiteView, policy: LeasePolicy, worst: WorstCase) -> None:
        self._view = view
        self._policy = policy
        self._worst = worst
        self._partition = Partition(view.partition)
        self._trainers = {job: node_name(view.site, job, "trainer") for job in view.jobs}
        self._permille = {job: view.job(job).bandwidth_permille for job in view.jobs}
        self._wanted = set(view.jobs)
        self._present = set(view.jobs)
        self._epochs = dict.fromkeys(view.jobs, 0)
        self._known_until_us = 0

    def job_of(self, trainer: str) -> str | None:
        """The job of a trainer of this site."""
        return next((job for job, node in self._trainers.items() if node == trainer), None)

    def close(self, job: str) -> None:
        """The job asks for no more SMs."""
        self._wanted.discard(job)

    def present(self, job: str, there: bool) -> None:
        """Whether the job has a trainer here that could use a lease."""
        (self._present.add if there else self._present.discard)(job)

    def grant(self, now_us: int, known_until_us: int, spare: tuple[Window, ...]) -> list[Effect]:
        """Divide the spare windows; ``known_until_us`` is how far the RAN's plans reach."""
        granted_until_us = self._known_until_us
        self._known_until_us = max(granted_until_us, known_until_us)
        active = [job for job in self._trainers if job in self._wanted & self._present]
        if not active:
            return []
        effects: list[Effect] = []
        if self._view.spec.partition != "green_context":  # there each quantum switches by itself
            spare, effects = self._parted(max(0, now_us), known_until_us, spare)
        shares = [self._divide(window.sms, active) for window in spare]
        for job in active:
            rows = tuple(
                [
                    (window.start_us, window.end_us, sms)
                    for window, share in zip(spare, shares, strict=True)
                    if (sms := share.get(job, 0)) > 0
                ]
            )
            effects += self._lease(now_us, job, rows, granted_until_us)
        return effects

    def _parted(
        self, now_us: int, known_until_us: int, spare: tuple[Window, ...]
    ) -> tuple[tuple[Window, ...], list[Effect]]:
        """What the GPU's partition can lend of the spare windows, to the end of the run: beyond
        what is known, as much as the worst case leaves."""
        end_us = max(self._view.run.end_us + self._view.run.drain_us, known_until_us)
        known_us = max(known_until_us, spare[-1].end_us if spare else 0)
        worst_sms = self._worst.within(0, end_us)
        beyond_sms = self._view.gpu.round_down(max(0, self._view.gpu.sms - worst_sms))
        plan = self._partition.plan(now_us, end_us, Outlook(spare, known_us, beyond_sms))
        switches: list[Effect] = [
            Decide(
                "partition",
                f"{self._view.spec.partition}: training goes from {switch.old.sms} to "
                f"{switch.new.sms} SMs in [{switch.start_us}, {switch.end_us}) us",
            )
            for switch in plan.begun
        ]
        return plan.windows[:MAX_LEASE_WINDOWS], switches

    def _divide(self, sms: int, jobs: list[str]) -> Mapping[str, int]:
        shares = self._policy.divide(sms, jobs, self._view.gpu)
        given = shares.values()
        if sum(given) > sms or any([part != self._view.gpu.round_down(part) for part in given]):
            allowed = f"at most {sms} SMs in steps of {self._view.gpu.sm_step}"
            raise PolicyError(f"lease policy {type(self._policy).__name__}: {shares}: {allowed}")
        return shares

    def _lease(
        self, now_us: int, job: str, rows: tuple[tuple[int, int, int], ...], granted_until_us: int
    ) -> list[Effect]:
        """A lease of these windows: start_us, end_us, SMs."""
        epoch = self._epochs[job] = self._epochs[job] + 1
        grant = LeaseGrant(job, epoch, self._permille[job], rows)
        effects: list[Effect] = [Send(self._trainers[job], grant)]
        for from_us, to_us, sms in rows:
            if to_us <= granted_until_us:
                continue
            start_us = max(from_us, granted_until_us)
            end_us = min(to_us, self._known_until_us)  # what lies beyond may still change
            if start_us < end_us:
                effects.append(Record("leases", (epoch, now_us, start_us, end_us, sms)))
        return effects
