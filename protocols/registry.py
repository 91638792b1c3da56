"""Tag on the wire to message class, for all messages; PROTOCOL.md lists the same."""

from __future__ import annotations

from protocols import control, messages, work
from protocols.messages import Message

MESSAGES: dict[int, type[Message]] = {
    kind.TAG: kind
    for module in (control, messages, work)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
}
