"""Who takes part in a job's steps: present, away, waiting to be admitted, or still without state.

The epoch is the fencing token of everything that depends on the answer: it grows whenever the
answer changes, and with every collective that has to be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable


class Membership:
    """Members of one job, always in the order in which the job names them.

    A *present* member takes part in the step's sum. One that is *healing* does so too, but has no
    samples in this step: it takes the state from a giver first. One that is *waiting* has a process
    again and is admitted with the next step.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self.members = tuple(members)
        self.epoch = 1
        self._present = set(self.members)
        self._waiting: set[str] = set()
        self._healing: set[str] = set()

    @property
    def present(self) -> tuple[str, ...]:
        """Who takes part in the sum."""
        return self._ordered(self._present)

    @property
    def workers(self) -> tuple[str, ...]:
        """Who has the state, and so can compute samples, or give it."""
        return self._ordered(self._present - self._healing)

    @property
    def healing(self) -> tuple[str, ...]:
        """Who takes part, but has not got the state yet."""
        return self._ordered(self._healing)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Who is to be admitted with the next step."""
        return self._ordered(self._waiting)

    def lose(self, member: str) -> bool:
        """It is gone. Whether it took part: then the open step needs ``next_epoch``."""
        took_part = member in self._present
        for group in (self._present, self._waiting, self._healing):
            group.discard(member)
        return took_part

    def join(self, member: str) -> None:
        """It is there again, without any state. Raises ValueError for one that was never lost."""
        if member not in self.members or member in self._present:
            raise ValueError(f"{member} cannot join {self.present}")
        self._waiting.add(member)

    def admit(self) -> tuple[str, ...]:
        """Those who waited take part from here on, in a new epoch; they are healing."""
        admitted = self.waiting
        if admitted:
            self._present |= self._waiting
            self._healing |= self._waiting
            self._waiting.clear()
            self.next_epoch()
        return admitted

    def heal(self, member: str) -> None:
        """It has got the state."""
        self._healing.discard(member)

    def next_epoch(self) -> int:
        """What was begun in earlier epochs and needs all members is void."""
        self.epoch += 1
        return self.epoch

    def _ordered(self, group: set[str]) -> tuple[str, ...]:
        return tuple([member for member in self.members if member in group])
