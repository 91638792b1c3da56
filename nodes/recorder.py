"""The recorder: batches of rows from all nodes go to the run's spool, in the order of arrival.

It must not look into the rows: what they mean is testbed.record's business, after the run.
"""

from __future__ import annotations

from nodes.api import Effect, Event, NodeContext, Received, Store
from protocols.messages import Decision, TableBatch


class Recorder:
    """The recorder has no state."""

    def __init__(self, context: NodeContext) -> None:
        pass

    def step(self, now_us: int, event: Event) -> list[Effect]:
        """Store what arrives."""
        if isinstance(event, Received) and isinstance(event.message, TableBatch | Decision):
            return [Store(event.source, event.message)]
        return []
