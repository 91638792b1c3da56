"""Carries out what a node's steps ask for, and keeps its rows until they go to the recorder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from nodes.api import (
    CancelTimer,
    Decide,
    Effect,
    Fail,
    Finished,
    GrantLease,
    Progress,
    Record,
    Send,
    SetTimer,
    Store,
    Work,
)
from protocols.codec import Frame
from protocols.control import Drained
from protocols.errors import ProtocolError, RanloomError
from protocols.messages import Decision, Message
from testbed.errors import NodeFailed
from testbed.host.executor_child import ExecutorChild
from testbed.host.post import END_OF_ROWS, Post
from testbed.host.recording import RowBuffer
from testbed.host.timers import Timers
from testbed.record.spool import SpoolWriter

log = logging.getLogger("ranloom.node")


class Effects:
    """What is done to the world outside one node.

    Attributes:
        executor: where work goes; None for a node without one.
        spool: the recorder's; None elsewhere.
        progress: what the node last said of itself.
    """

    def __init__(
        self,
        node: str,
        post: Post,
        timers: Timers,
        now_us: Callable[[], int],
        tell: Callable[[Message], None],
        fail: Callable[[RanloomError], None],
    ) -> None:
        """``tell`` sends to the launcher, ``fail`` ends the node."""
        self._node = node
        self._post = post
        self._timers = timers
        self._now_us = now_us
        self._tell = tell
        self._fail = fail
        self._rows = RowBuffer(node)
        self.executor: ExecutorChild | None = None
        self.spool: SpoolWriter | None = None
        self.progress = ""

    def perform(self, now_us: int, effect: Effect, frames: list[Frame] | None) -> None:
        """One effect; ``frames``: the encoded message of those that have one.

        Raises:
            ProtocolError: a peer that takes no more messages.
            NodeFailed: an executor that takes no more work.
        """
        match effect:
            case Send(to=to):
                assert frames is not None
                self._post.send(to, frames)
            case SetTimer(key=key, at_us=at_us):
                self._timers.set(key, at_us)
            case CancelTimer(key=key):
                self._timers.cancel(key)
            case Work():
                assert self.executor is not None
                assert frames is not None
                self.executor.send_frames(frames)
            case GrantLease(lease=lease):
                assert self.executor is not None
                self.executor.grant(lease)
            case Record() as record:
                batch = self._rows.add(record)
                if batch is not None:
                    self._to_recorder(batch)
            case Decide(subject=subject, reason=reason) as decide:
                log.info("%d us: %s: %s", now_us, subject, reason)
                self._to_recorder(self._rows.decision(now_us, decide))
            case Store(message=message):
                assert self.spool is not None
                self.spool.append(message)
            case Progress(text=text):
                self.progress = text
            case Finished(detail=detail):
                self._tell(Drained(self._node, detail))
            case Fail(reason=reason):
                self._fail(NodeFailed(reason))

    def flush_rows(self) -> None:
        """Send the rows that are kept. Raises ChannelFull."""
        for batch in self._rows.flush():
            self._to_recorder(batch)

    async def close(self) -> None:
        """End the executor; send the last rows, and that they were the last."""
        if self.executor is not None:
            await self.executor.stop(2.0)
        with suppress(ProtocolError):  # a recorder that is gone takes no rows
            self.flush_rows()
            if self.spool is None:
                self._to_recorder(Decision(self._node, 0, END_OF_ROWS, ""))
        if self.spool is not None:
            self.spool.close()

    def _to_recorder(self, message: Message) -> None:
        if self.spool is not None:
            self.spool.append(message)
        else:
            self._post.send_rows(message, self._now_us())
