"""Commands that cost nothing until they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click


class LazyCommand(click.Command):
    """A command whose module is imported when it is used."""

    def __init__(self, name: str, module: str, attribute: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help, add_help_option=False)
        self._where = (module, attribute)

    def _real(self) -> click.Command:
        command = getattr(import_module(self._where[0]), self._where[1])
        assert isinstance(command, click.Command)
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        return self._real().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return self._real().invoke(ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return self._real().get_params(ctx)
