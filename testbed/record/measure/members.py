"""``members``: how often trainers were lost and came back, and how long they were without state."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.record.measure.numbers import Figures, percentile, put
from testbed.record.membership import MemberChange, healings
from testbed.record.schema import MemberEvent

NOBODY_LOST = "no trainer was lost"


def members(changes: Sequence[MemberChange]) -> Figures | None:
    """Counts over the whole run, and the time from joining to healing; None: nobody was lost."""
    if not any(change.event is MemberEvent.LOST for change in changes):
        return None
    figures: Figures = {
        event.name.lower(): sum(change.event is event for change in changes)
        for event in (MemberEvent.LOST, MemberEvent.JOINED, MemberEvent.HEALED)
    }
    took_us = [healed.at_us - joined.at_us for joined, healed in healings(changes)]
    heal_us = {"p50": percentile(took_us, 50), "max": max(took_us)} if took_us else None
    put(figures, "heal_us", heal_us, "no trainer that was lost has taken the state again")
    return figures
