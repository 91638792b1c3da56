"""Parameters, gradients in one flat buffer, and the optimiser of one trainer.

``local`` is this member's sum and changes only with its own samples; ``summed`` is what the
collective made of a copy of it, and the optimiser's step on that is provisional until it is kept.
A collective that fails, or that must be repeated among other members, therefore costs nothing.
"""

from __future__ import annotations

import hashlib
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.adamw import adamw

from testbed.executors.block_hooks import ModuleError
from testbed.executors.config import TrainerConfig
from testbed.executors.sync import COUNT_DIGITS, read_count, write_count
from testbed.rng import generator

_BETA1, _BETA2, _ADAM_EPSILON = 0.9, 0.999, 1e-8
"""torch's defaults."""
_EPSILON = 1e-6
_HASH_BYTES = 7
"""Fits an int64 of either sign."""


class TrainingState:
    """Sums of token losses' gradients, and AdamW on their mean."""

    def __init__(self, config: TrainerConfig, module: nn.Module, device: torch.device) -> None:
        self.module = module.to(device).train()
        self.tokens = 0
        self._config = config
        self._device = device
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and parameter.dtype != torch.float32:
                raise ModuleError(f"parameter {name} is {parameter.dtype}; float32 is needed")
        size = sum(parameter.numel() for parameter in self._parameters)
        if size == 0:
            raise ModuleError("the module has no parameter that requires a gradient")
        self.local = torch.zeros(size, device=device)
        self.summed = torch.zeros(size + COUNT_DIGITS)
        """Sum of all members, and the token count in digits (``sync.read_count``); on the host."""
        # Backward adds up in place.
        for parameter, gradient in zip(self._parameters, self._views(self.local), strict=True):
            parameter.grad = gradient
        self._mean, self._square = torch.zeros_like(self.local), torch.zeros_like(self.local)
        self._means, self._squares = self._views(self._mean), self._views(self._square)
        self._steps = [torch.zeros((), device=device) for _ in self._parameters]
        self._gradient = torch.zeros_like(self.local)
        self._gradients = self._views(self._gradient)
        self._applied = 0
        self._changing = (*self._parameters, self._mean, self._square, *self._steps)
        """All that an optimiser step changes."""
        self._before = tuple(torch.zeros_like(tensor) for tensor in self._changing)
        self._provisional = False

    @property
    def parameter_count(self) -> int:
        """Parameters that are trained."""
        return self.local.numel()

    def forward(self, sample: int, inputs: Tensor) -> Tensor:
        """Logits of one micro-batch of int64 [B, T].

        The seed of dropout depends on the sample, so that who computes it makes no difference.
        """
        draw = generator(self._config.seed, "training.dropout", sample)
        torch.manual_seed(int(draw.integers(2**62)))
        logits: Tensor = self.module(inputs.to(self._device))
        return logits

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Sum over tokens of the cross-entropy, in nats."""
        flat = logits.reshape(-1, logits.shape[-1])
        return F.cross_entropy(flat, targets.to(self._device).reshape(-1), reduction="sum")

    def drop(self) -> None:
        """Forget the gradients of the open step."""
        self.local.zero_()
        self.tokens = 0

    def stage(self) -> Tensor:
        """A copy of the local sum and count, for the collective to sum in place."""
        self.summed[:-COUNT_DIGITS].copy_(self.local)
        write_count(self.summed[-COUNT_DIGITS:], self.tokens)
        return self.summed

    def summed_tokens(self) -> int:
        """Tokens behind the gradients in ``summed``."""
        return read_count(self.summed[-COUNT_DIGITS:])

    @torch.no_grad()
    def apply(self) -> None:
        """One AdamW step on the mean gradient per token of all members, until kept or undone."""
        self.undo()
        for before, tensor in zip(self._before, self._changing, strict=True):
            before.copy_(tensor)
        self._provisional = True
        schedule = self._config.schedule
        warm = min(1.0, (self._applied + 1) / max(1, schedule.warmup_steps))
        self._gradient.copy_(self.summed[:-COUNT_DIGITS]).div_(max(1, self.summed_tokens()))
        if schedule.clip_norm is not None:
            norm = float(self._gradient.norm())
            self._gradient.mul_(min(1.0, schedule.clip_norm / (norm + _EPSILON)))
        self._adamw(self._config.learning_rate * warm)

    def keep(self) -> None:
        """The provisional step stands; the sums start anew."""
        self._applied += self._provisional
        self._provisional = False
        self.drop()

    @torch.no_grad()
    def undo(self) -> None:
        """Take a provisional step back, to the bit; without one, nothing happens."""
        if self._provisional:
            for before, tensor in zip(self._before, self._changing, strict=True):
                tensor.copy_(before)
        self._provisional = False

    def layout(self) -> list[int]:
        """[parameters that are trained, bytes of the whole state, a hash of its tensors' shapes and
        types]: where they are equal, one's packed state is of use to the other."""
        tensors = self._whole()
        shapes = repr([(tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors])
        shape_hash = hashlib.blake2b(shapes.encode(), digest_size=_HASH_BYTES).digest()
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return [self.parameter_count, size, int.from_bytes(shape_hash)]

    @torch.no_grad()
    def pack(self) -> Tensor:
        """All that later steps depend on, without the open step's gradients, as bytes on the host.

        No step may be provisional.
        """
        return torch.cat([_as_bytes(tensor) for tensor in self._whole()])

    @torch.no_grad()
    def unpack(self, packed: Tensor) -> None:
        """Become what another state of the same layout has packed, with no open step."""
        self.undo()
        self.drop()
        whole = self._whole()
        pieces = torch.split(packed, [t.numel() * t.element_size() for t in whole])
        for tensor, piece in zip(whole, pieces, strict=True):
            # A copy of its own is aligned as the type needs it.
            tensor.copy_(piece.clone().view(tensor.dtype).view_as(tensor))
        self._applied = int(whole[0])

    def _whole(self) -> tuple[Tensor, ...]:
        """The number of applied steps, what an optimiser step changes, and the module's buffers."""
        return (torch.tensor(self._applied), *self._changing, *self.module.buffers())

    def warm_up_optimiser(self) -> None:
        """Take one step and undo it: all buffers are touched, no parameter is changed."""
        self.stage()
        self.apply()
        self.undo()

    @torch.no_grad()
    def _adamw(self, learning_rate: float) -> None:
        # The functional form: torch.optim's classes import torch._dynamo, two seconds of start-up.
        adamw(
            cast("list[Tensor]", self._parameters),
            self._gradients,
            self._means,
            self._squares,
            [],
            self._steps,
            fused=True,
            amsgrad=False,
            beta1=_BETA1,
            beta2=_BETA2,
            lr=learning_rate,
            weight_decay=self._config.schedule.weight_decay,
            eps=_ADAM_EPSILON,
            maximize=False,
        )

    def _views(self, flat: Tensor) -> list[Tensor]:
        """A flat buffer as one tensor per parameter."""
        sizes = [parameter.numel() for parameter in self._parameters]
        pieces = torch.split(flat, sizes)
        return [
            piece.view_as(parameter)
            for piece, parameter in zip(pieces, self._parameters, strict=True)
        ]


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
