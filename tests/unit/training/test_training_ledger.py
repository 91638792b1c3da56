"""Every sample is issued and committed exactly once, whatever comes back and in which order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from testbed.training.ledger import LedgerCounts, SampleLedger, Verdict

OWNERS = ("north", "south", "west")


def test_samples_count_up_and_have_one_owner():
    ledger = SampleLedger()
    assert ledger.issue("north", 1, 0, 2) == (0, 1)
    assert ledger.issue("south", 1, 0, 2) == (2, 3)
    assert ledger.missing(0) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("sample", "owner", "epoch", "step", "verdict"),
    [
        (0, "north", 1, 0, Verdict.ACCEPTED),
        (0, "south", 1, 0, Verdict.STALE),
        (0, "north", 0, 0, Verdict.STALE),
        (0, "north", 2, 0, Verdict.STALE),
        (0, "north", 1, 1, Verdict.STALE),
        (9, "north", 1, 0, Verdict.STALE),
        (-1, "north", 1, 0, Verdict.STALE),
    ],
)
def test_only_the_owners_result_of_this_epoch_counts(sample, owner, epoch, step, verdict):
    ledger = SampleLedger()
    ledger.issue("north", 1, 0, 1)
    assert ledger.computed(sample, owner, epoch, step) is verdict
    assert ledger.counts().duplicated == (verdict is not Verdict.ACCEPTED)


def test_second_result_is_a_duplicate_before_and_after_the_commit():
    ledger = SampleLedger()
    ledger.issue("north", 1, 0, 1)
    ledger.computed(0, "north", 1, 0)
    assert ledger.computed(0, "north", 1, 0) is Verdict.DUPLICATE
    ledger.commit(0)
    assert ledger.computed(0, "north", 1, 0) is Verdict.DUPLICATE
    assert ledger.counts() == LedgerCounts(1, 1, 0, 2, 0)


def test_step_with_a_missing_sample_is_not_committed():
    ledger = SampleLedger()
    ledger.issue("north", 1, 0, 2)
    ledger.computed(1, "north", 1, 0)
    with pytest.raises(ValueError, match=r"step 0: samples \(0,\) are not computed"):
        ledger.commit(0)
    assert ledger.counts() == LedgerCounts(2, 0, 0, 0, 2)


def test_returned_samples_go_first_to_the_next_owner_and_the_old_one_is_refused():
    ledger = SampleLedger()
    ledger.issue("north", 1, 0, 2)
    ledger.issue("south", 1, 0, 2)
    assert ledger.give_back(0, "south") == (2, 3)
    assert ledger.issue("west", 2, 0, 3) == (2, 3, 4)
    assert ledger.computed(2, "south", 1, 0) is Verdict.STALE
    assert ledger.computed(2, "west", 2, 0) is Verdict.ACCEPTED
    assert ledger.counts() == LedgerCounts(7, 0, 2, 1, 5)


def test_sample_computed_by_one_who_is_gone_is_computed_again():
    ledger = SampleLedger()
    ledger.issue("north", 1, 0, 1)
    ledger.computed(0, "north", 1, 0)
    ledger.give_back(0)
    assert ledger.issue("south", 2, 1, 1) == (0,)
    assert ledger.missing(1) == (0,)


class Ledger(RuleBasedStateMachine):
    """Issues, results (true, late, foreign, repeated), commits and returns in any order, beside a
    model that knows only: each sample is open with one owner, free, or committed for good."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = SampleLedger()
        self.open: dict[int, tuple[str, int, int]] = {}
        self.done: set[int] = set()
        self.committed: list[int] = []
        self.free: set[int] = set()
        self.history: list[tuple[int, str, int, int]] = []
        self.issued = self.returned = self.refused = 0
        self.highest = -1

    @rule(
        owner=st.sampled_from(OWNERS),
        epoch=st.integers(0, 3),
        step=st.integers(0, 4),
        count=st.integers(0, 4),
    )
    def issue(self, owner, epoch, step, count):
        samples = self.ledger.issue(owner, epoch, step, count)
        again = sorted(self.free)[:count]
        fresh = range(self.highest + 1, self.highest + 1 + count - len(again))
        assert list(samples) == [*again, *fresh]
        for sample in samples:
            assert sample not in self.open
            assert sample not in self.committed
            self.open[sample] = (owner, epoch, step)
            self.done.discard(sample)
            self.history.append((sample, owner, epoch, step))
        self.free -= set(samples)
        self.highest = max([self.highest, *samples])
        self.issued += count

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def result(self, data):
        """A result of any issue that ever was, however old."""
        sample, *token = data.draw(st.sampled_from(self.history))
        self.tell(sample, tuple(token))

    @rule(
        sample=st.integers(0, 12),
        owner=st.sampled_from(OWNERS),
        epoch=st.integers(0, 3),
        step=st.integers(0, 4),
    )
    def made_up_result(self, sample, owner, epoch, step):
        self.tell(sample, (owner, epoch, step))

    def tell(self, sample, token):
        verdict = self.ledger.computed(sample, *token)
        accepted = self.open.get(sample) == token and sample not in self.done
        assert (verdict is Verdict.ACCEPTED) == accepted
        if accepted:
            self.done.add(sample)
        else:
            self.refused += 1

    @rule(step=st.integers(0, 4))
    def commit(self, step):
        members = sorted(s for s, (_, _, of) in self.open.items() if of == step)
        if set(members) <= self.done:
            assert list(self.ledger.commit(step)) == members
            self.committed += members
            for sample in members:
                del self.open[sample]
        else:
            with pytest.raises(ValueError, match="are not computed"):
                self.ledger.commit(step)

    @rule(step=st.integers(0, 4), owner=st.sampled_from([None, *OWNERS]))
    def give_back(self, step, owner):
        members = sorted(
            s for s, (of, _, at) in self.open.items() if at == step and owner in (None, of)
        )
        assert list(self.ledger.give_back(step, owner)) == members
        for sample in members:
            del self.open[sample]
        self.free |= set(members)
        self.returned += len(members)

    @invariant()
    def issued_is_committed_returned_and_open(self):
        counts = self.ledger.counts()
        assert counts.issued == counts.committed + counts.returned + counts.open == self.issued
        assert counts.committed == len(self.committed) == len(set(self.committed))
        assert (counts.returned, counts.duplicated) == (self.returned, self.refused)
        assert not set(self.committed) & (set(self.open) | self.free)


Ledger.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLedger = Ledger.TestCase
