"""Finds the blocks of any nn.Module and marks their forward and backward passes on a cursor.

The module is not changed. Backward marks hang on the gradient of a block's output, not on
``register_full_backward_hook``: that one wraps inputs and outputs in views, on which a model with
an in-place residual or activation raises, and does not fire where no input needs a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from protocols.errors import RanloomError
from testbed.executors.quantum_cursor import QuantumCursor


class ModuleError(RanloomError):
    """A module that cannot be trained in quanta: what is wrong, and what would be allowed."""


def find_blocks(module: nn.Module, path: str | None, declared_layers: int) -> list[nn.Module]:
    """The children of the ModuleList or Sequential at ``path``.

    Without a path: of the one with the most children, of equal ones the outermost, then the first.
    Raises ModuleError, with the candidates, where there is none or its size does not divide
    ``declared_layers``.
    """
    candidates = {
        name: found
        for name, found in module.named_modules()
        if isinstance(found, nn.ModuleList | nn.Sequential) and len(found)
    }
    listing = ", ".join(f"{name or '(root)'} ({len(c)})" for name, c in candidates.items())
    listing = listing or "none"
    if path is None:
        if not candidates:
            raise ModuleError("no ModuleList or Sequential to take blocks from; name one by blocks")
        path = max(candidates, key=lambda name: (len(candidates[name]), -_depth(name)))
    if path not in candidates:
        raise ModuleError(f"blocks = {path!r} is no ModuleList or Sequential; there are: {listing}")
    blocks = list(candidates[path])
    if declared_layers % len(blocks):
        raise ModuleError(
            f"{len(blocks)} blocks at {path or '(root)'} do not divide the declared "
            f"{declared_layers} layers; there are: {listing}"
        )
    return blocks


def attach(blocks: Sequence[nn.Module], cursor: QuantumCursor) -> list[RemovableHandle]:
    """Make every pass through ``blocks`` move ``cursor``."""
    handles = []
    for index, block in enumerate(blocks):
        handles.append(block.register_forward_pre_hook(partial(_before, cursor, index)))
        last = index == len(blocks) - 1
        handles.append(block.register_forward_hook(partial(_after, cursor, index, last)))
    return handles


def _before(cursor: QuantumCursor, index: int, _block: nn.Module, _inputs: object) -> None:
    cursor.forward(index)


def _after(
    cursor: QuantumCursor,
    index: int,
    last: bool,
    _block: nn.Module,
    _inputs: object,
    output: object,
) -> None:
    for tensor in _tensors(output):
        if tensor.requires_grad:
            mark = partial(_gradient_arrived, cursor, index)
            tensor.register_hook(mark)  # type: ignore[no-untyped-call]
    if last:
        cursor.head()


def _gradient_arrived(cursor: QuantumCursor, index: int, _gradient: Tensor) -> None:
    cursor.backward(index)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _depth(path: str) -> int:
    return path.count(".") + bool(path)
