"""The recorder: batches of rows from all nodes go to the run's spool, in the order of arrival.

It must not look into the rows: what they mean is testbed.record's business, after the run.
"""

from __future__ import annotations

from nodes.api import Effect, Event, NodeContext, Received, Store
from protocols.messages import Decision, TableBatch


class Recorder:
    """State machine of the recorder; its state is a count."""

    def __init__(self, context: NodeContext) -> None:
        self._batches = 0

    def step(self, now_us: int, event: Event) -> list[Effect]:
        """Store what arrives."""
        if isinstance(event, Received) and isinstance(event.message, TableBatch | Decision):
            self._batches += 1
            return [Store(event.source, event.message)]
        return []
