"""Who owns which sample: each is issued once, and committed once, whatever dies.

A sample (one micro-batch) has one owner and the membership epoch of its issue, a fencing token:
a result that carries another owner, step or epoch is refused and counted, never averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What the ledger says of a result."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    STALE = "stale"


@dataclass(slots=True)
class _Issue:
    owner: str
    epoch: int
    step: int
    computed: bool = False


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """How many samples were issued, committed and returned; refused results; issues now open."""

    issued: int
    committed: int
    returned: int
    duplicated: int
    open: int


class SampleLedger:
    """Ownership of the samples of one job. Sample ids count up from 0; returned ones go first."""

    def __init__(self) -> None:
        self._next = 0
        self._returned: list[int] = []
        self._open: dict[int, _Issue] = {}
        self._committed: set[int] = set()
        self._issued_count = 0
        self._returned_count = 0
        self._duplicates = 0

    def issue(self, owner: str, epoch: int, step: int, count: int) -> tuple[int, ...]:
        """Give ``count`` samples to ``owner``: returned ones in order of id, then new ones."""
        samples = []
        for _ in range(count):
            if self._returned:
                sample = self._returned.pop(0)
            else:
                sample = self._next
                self._next += 1
            self._open[sample] = _Issue(owner, epoch, step)
            samples.append(sample)
        self._issued_count += count
        return tuple(samples)

    def computed(self, sample: int, owner: str, epoch: int, step: int) -> Verdict:
        """A result has arrived; only the present owner's first one of this epoch counts."""
        issue = self._open.get(sample)
        if issue is None or (issue.owner, issue.epoch, issue.step) != (owner, epoch, step):
            self._duplicates += 1
            return Verdict.DUPLICATE if sample in self._committed else Verdict.STALE
        if issue.computed:
            self._duplicates += 1
            return Verdict.DUPLICATE
        issue.computed = True
        return Verdict.ACCEPTED

    def missing(self, step: int) -> tuple[int, ...]:
        """Samples of ``step`` that are issued and not yet computed."""
        return tuple(
            sample
            for sample, issue in sorted(self._open.items())
            if issue.step == step and not issue.computed
        )

    def commit(self, step: int) -> tuple[int, ...]:
        """Commit all samples of ``step``. Raises ValueError where one is not computed."""
        missing = self.missing(step)
        if missing:
            raise ValueError(f"step {step}: samples {missing} are not computed")
        samples = tuple(s for s, issue in sorted(self._open.items()) if issue.step == step)
        for sample in samples:
            del self._open[sample]
        self._committed.update(samples)
        return samples

    def give_back(self, step: int, owner: str | None = None) -> tuple[int, ...]:
        """Return the open samples of ``step`` (of one owner, or of all), to be issued again."""
        samples = tuple(
            sample
            for sample, issue in sorted(self._open.items())
            if issue.step == step and owner in (None, issue.owner)
        )
        for sample in samples:
            del self._open[sample]
        self._returned = sorted([*self._returned, *samples])
        self._returned_count += len(samples)
        return samples

    def counts(self) -> LedgerCounts:
        """Totals so far. Invariant: issued = committed + returned + open."""
        return LedgerCounts(
            self._issued_count,
            len(self._committed),
            self._returned_count,
            self._duplicates,
            len(self._open),
        )
