"""The model that is really trained: a small byte-level decoder, or any module that is named."""

from __future__ import annotations

import hashlib
import importlib
import sys
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testbed.executors.block_hooks import ModuleError
from testbed.executors.config import ProxyConfig, TrainerConfig
from testbed.executors.text import VOCABULARY

_INIT_STD = 0.02


class DecoderBlock(nn.Module):
    """Pre-norm causal attention and a feed-forward layer of four times the width."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        batch, length, hidden = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, hidden))
        down: Tensor = self.down(F.gelu(self.up(self.mlp_norm(x))))
        return x + down


class ProxyDecoder(nn.Module):
    """GPT-2's shape in small: learnt positions, pre-norm blocks, optionally tied output."""

    def __init__(self, vocab: int, sequence: int, config: ProxyConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, config.hidden)
        self.position = nn.Embedding(sequence, config.hidden)
        self.blocks = nn.ModuleList(
            DecoderBlock(config.hidden, config.heads) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.hidden)
        self.head = nn.Linear(config.hidden, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_INIT_STD)
        for block in cast("list[DecoderBlock]", self.blocks):
            # GPT-2: residual branches start smaller with depth.
            for layer in (block.projection, block.down):
                nn.init.normal_(layer.weight, std=_INIT_STD / (2 * config.layers) ** 0.5)
        if config.tied:
            self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 [B, T] -> logits [B, T, V]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def build_module(config: TrainerConfig) -> nn.Module:
    """The module that ``config`` names, with parameters that depend on the seed alone.

    Raises ModuleError.
    """
    torch.manual_seed(config.seed)
    if config.module is None:
        return ProxyDecoder(VOCABULARY, config.sequence, config.proxy)
    name, _, factory_name = config.module.partition(":")
    if config.module_path is not None and config.module_path not in sys.path:
        sys.path.insert(0, config.module_path)
    try:
        factory = getattr(importlib.import_module(name), factory_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModuleError(f"module = {config.module!r} cannot be loaded: {error}") from error
    module = factory(VOCABULARY, config.sequence)
    if not isinstance(module, nn.Module):
        raise ModuleError(f"{config.module} returned a {type(module).__name__}, not an nn.Module")
    return module


def digest(module: nn.Module) -> str:
    """Hex blake2b of all parameters in order: equal exactly where the models are."""
    state = hashlib.blake2b(digest_size=16)
    for parameter in module.parameters():
        state.update(parameter.detach().cpu().contiguous().numpy().view("uint8").data)
    return state.hexdigest()
