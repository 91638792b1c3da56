"""The errors of the wire; the base of every named error of the testbed."""

from __future__ import annotations


class RanloomError(Exception):
    """Base of all named errors; its text is written for the person at the terminal."""


class ProtocolError(RanloomError):
    """A message that is refused; ``code`` is stable, the text says what was got and is allowed."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
