"""Any nn.Module in quanta: the order of quanta is the declared model's, whatever its shape."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from testbed.executors.block_hooks import ModuleError, attach, find_blocks
from testbed.executors.gate_engine import StepAbandoned
from testbed.executors.quantum_cursor import QuantumCursor
from testbed.gpu.quanta import QuantumKind, micro_batch_quanta


class RecordingGate:
    """Opens at once; keeps the order, and which parameters had a gradient at each opening."""

    def __init__(self, module=None, stop_at=None):
        self.opened = []
        self.closed = 0
        self.grads = []
        self._module = module
        self._stop_at = stop_at
        self._open = False

    def open(self, kind, block):
        self.close()
        if (kind, block) == self._stop_at:
            raise StepAbandoned
        self._open = True
        self.opened.append((kind, block))
        if self._module is not None:
            self.grads.append({n for n, p in self._module.named_parameters() if p.grad is not None})

    def close(self):
        self.closed += self._open
        self._open = False


def one_pass(module, inputs, declared, gate=None, head_chunks=1):
    gate = gate or RecordingGate(module)
    blocks = find_blocks(module, None, declared)
    cursor = QuantumCursor(gate, declared, len(blocks), head_chunks)
    handles = attach(blocks, cursor)
    try:
        cursor.begin()
        output = module(inputs)
        cursor.head()
        output.square().sum().backward()
        cursor.end()
    finally:
        for handle in handles:
            handle.remove()
    return gate


class InPlaceResidual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x += 1
            x = x.relu_()
        return x


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class TupleBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return {"hidden": self.linear(x), "aux": (None, 3)}


class TupleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(TupleBlock() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)["hidden"]
        return x


def linear_stack():
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))


def in_place_stack():
    return nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True)) for _ in range(3)))


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


@pytest.mark.parametrize(
    "factory", [linear_stack, in_place_stack, encoder, InPlaceResidual, Recomputed, TupleModel]
)
@pytest.mark.parametrize("per_block", [1, 4])
def test_every_quantum_once_in_order(factory, per_block):
    torch.manual_seed(0)
    module, declared = factory(), 3 * per_block
    gate = one_pass(module, torch.randn(2, 5, 8), declared)
    assert gate.opened == list(micro_batch_quanta(declared, 1))
    assert gate.closed == len(gate.opened)


def test_real_work_is_in_the_first_declared_block_of_each():
    gate = one_pass(linear_stack(), torch.randn(4, 8), 6)
    grads = dict(zip(gate.opened, gate.grads, strict=True))
    # Declared 5 and 4 are proxy block 2: its gradient exists once quantum 5 is over.
    assert grads[QuantumKind.BACKWARD, 5] == set()
    assert grads[QuantumKind.BACKWARD, 4] == {"2.weight", "2.bias"}
    assert grads[QuantumKind.BACKWARD, 3] == {"2.weight", "2.bias"}
    assert grads[QuantumKind.BACKWARD, 2] == {"2.weight", "2.bias", "1.weight", "1.bias"}


def test_gradients_are_those_of_the_module_without_hooks():
    torch.manual_seed(1)
    module, inputs = encoder().eval(), torch.randn(2, 5, 8)
    module(inputs).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    one_pass(module, inputs, 3)
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_the_whole_real_head_is_in_its_first_chunk():
    module = nn.Sequential(nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))), nn.Linear(8, 8))
    gate = one_pass(module, torch.randn(4, 8), 3, head_chunks=2)
    assert gate.opened == list(micro_batch_quanta(3, 2))
    grads = dict(zip(gate.opened, gate.grads, strict=True))
    assert grads[QuantumKind.HEAD, 3] == set()
    assert grads[QuantumKind.HEAD, 4] == {"1.weight", "1.bias"}


@given(stop=st.integers(0, 12))
def test_unwinds_from_any_gate_and_works_again(stop):
    order = list(micro_batch_quanta(6, 1))
    module, inputs = linear_stack(), torch.randn(4, 8)
    gate = RecordingGate(stop_at=order[stop])
    with pytest.raises(StepAbandoned):
        one_pass(module, inputs, 6, gate=gate)
    assert gate.opened == order[:stop]
    assert gate.closed == stop
    assert one_pass(module, inputs, 6).opened == order


def test_frozen_blocks_get_their_quanta_as_holds():
    module = linear_stack()
    module[0].requires_grad_(False)
    assert one_pass(module, torch.randn(4, 8), 3).opened == list(micro_batch_quanta(3, 1))


class TestFindBlocks:
    def test_takes_the_most_children_then_the_outermost(self):
        inner = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        module = nn.ModuleDict({"body": nn.ModuleList([inner, nn.Identity(), nn.Identity()])})
        assert find_blocks(module, None, 3) == list(module["body"])

    def test_by_path(self):
        module = InPlaceResidual()
        assert find_blocks(module, "layers", 6) == list(module.layers)

    def test_no_candidate(self):
        with pytest.raises(ModuleError, match="no ModuleList or Sequential"):
            find_blocks(nn.Linear(2, 2), None, 2)

    def test_wrong_path_lists_the_candidates(self):
        with pytest.raises(ModuleError, match=r"blocks = 'h'.*layers \(3\)"):
            find_blocks(InPlaceResidual(), "h", 3)

    def test_indivisible_lists_the_candidates(self):
        with pytest.raises(ModuleError, match=r"3 blocks at layers do not divide.* 4 .*layers"):
            find_blocks(InPlaceResidual(), None, 4)
