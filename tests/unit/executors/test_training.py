"""Text, proxy, gradients in one buffer, counts: what a step sums and applies."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.executors.block_hooks import ModuleError
from testbed.executors.config import ProxyConfig, Schedule, TrainerConfig
from testbed.executors.proxy import build_module, digest
from testbed.executors.state_share import share_state
from testbed.executors.sync import COUNT_DIGITS, SiteGroup, read_count, write_count
from testbed.executors.text import TextError, TrainingText, load_text
from testbed.executors.training_state import TrainingState

CPU = torch.device("cpu")
COST_US = ((200, 100), (300, 150), (400, 200), (60, 30))


def small(**changes):
    values = {
        "seed": 3,
        "declared_layers": 4,
        "levels": (20, 40),
        "cost_us": COST_US,
        "micro_batch": 2,
        "sequence": 16,
        "proxy": ProxyConfig(layers=2, hidden=16, heads=2),
        "text_bytes": 20_000,
        "schedule": Schedule(warmup_steps=0, clip_norm=None, weight_decay=0.0),
    }
    return TrainerConfig(**(values | changes))


def make_text(config):
    return TrainingText(
        config.seed,
        load_text(config.text, config.text_bytes),
        config.micro_batch,
        config.sequence,
    )


def add_samples(state, text, samples):
    for sample in samples:
        inputs, targets = (torch.from_numpy(array) for array in text.sample(sample))
        state.loss(state.forward(sample, inputs), targets).backward()
        state.tokens += targets.numel()


class TestText:
    def test_standard_library_in_a_fixed_order(self):
        data = load_text("stdlib", 50_000)
        assert len(data) == 50_000
        # "__future__.py" sorts first, and begins with its docstring.
        assert bytes(data[:20]) == b'"""Record of phased-'

    def test_sample_depends_on_seed_and_id_alone(self):
        data = np.arange(200, dtype=np.uint8)
        first, again = TrainingText(1, data, 3, 8), TrainingText(1, data, 3, 8)
        first.sample(4)
        inputs, targets = first.sample(9)
        np.testing.assert_array_equal(inputs, again.sample(9)[0])
        np.testing.assert_array_equal(targets, inputs + 1)
        assert inputs.shape == (3, 8)
        assert not np.array_equal(inputs, first.sample(10)[0])
        assert not np.array_equal(inputs, TrainingText(2, data, 3, 8).sample(9)[0])

    def test_large_ids(self):
        assert TrainingText(1, np.zeros(99, np.uint8), 1, 8).sample(2**53)[0].shape == (1, 8)

    def test_entropy_by_hand(self):
        data = np.frombuffer(b"aabb" * 4, dtype=np.uint8)
        assert TrainingText(0, data, 1, 4).unigram_entropy_nats() == pytest.approx(math.log(2))

    def test_file_and_directory(self, tmp_path):
        (tmp_path / "b.txt").write_bytes(b"world")
        (tmp_path / "a.txt").write_bytes(b"hello ")
        assert bytes(load_text(str(tmp_path), 100)) == b"hello world"
        assert bytes(load_text(str(tmp_path), 7)) == b"hello w"
        assert bytes(load_text(str(tmp_path / "b.txt"), 100)) == b"world"

    def test_missing_and_short(self, tmp_path):
        with pytest.raises(TextError, match="neither 'stdlib' nor"):
            load_text(str(tmp_path / "none"), 10)
        with pytest.raises(TextError, match="need at least 10"):
            TrainingText(0, np.zeros(9, np.uint8), 1, 8)


class TestModule:
    def test_parameters_depend_on_the_seed_alone(self):
        digests = [digest(build_module(small(seed=seed))) for seed in (1, 1, 2)]
        assert digests[0] == digests[1] != digests[2]

    def test_default_proxy_size_and_causality(self):
        model = build_module(small(proxy=ProxyConfig())).eval()
        assert 0.5e6 < sum(p.numel() for p in model.parameters()) < 2e6
        tokens = torch.randint(0, 256, (1, 16), generator=torch.Generator().manual_seed(0))
        changed = tokens.clone()
        changed[0, 10] = (changed[0, 10] + 1) % 256
        same = torch.isclose(model(tokens), model(changed), atol=1e-6).all(-1)[0]
        assert same[:10].all()
        assert not same[10:].any()

    def test_named_factory(self, tmp_path):
        (tmp_path / "my_model_for_a_test.py").write_text(
            "from torch import nn\n"
            "def make(vocab, sequence):\n"
            "    return nn.Sequential(nn.Embedding(vocab, 8), nn.Linear(8, vocab))\n"
        )
        config = small(module="my_model_for_a_test:make", module_path=str(tmp_path))
        assert build_module(config)(torch.zeros(1, 4, dtype=torch.int64)).shape == (1, 4, 256)

    @pytest.mark.parametrize("name", ["nowhere_at_all:make", "math:make", "math", "math:floor"])
    def test_factory_that_cannot_be_loaded(self, name):
        with pytest.raises((ModuleError, TypeError), match=r"module|argument"):
            build_module(small(module=name))

    def test_parameters_must_be_float32(self):
        with pytest.raises(ModuleError, match="float32 is needed"):
            TrainingState(small(), torch.nn.Linear(2, 2).double(), CPU)


class TestState:
    def test_sum_of_any_split_is_that_of_one_process(self):
        config = small()
        text = make_text(config)
        whole, left, right = (TrainingState(config, build_module(config), CPU) for _ in range(3))
        add_samples(whole, text, range(6))
        add_samples(left, text, [5, 0])
        add_samples(right, text, [3, 1, 4, 2])
        total = left.stage() + right.stage()
        torch.testing.assert_close(total, whole.stage(), rtol=1e-5, atol=1e-4)
        assert read_count(total[-COUNT_DIGITS:]) == 6 * 2 * 16

    def test_gradient_is_of_the_sum_of_token_losses(self):
        config = small()
        text = make_text(config)
        state, module = TrainingState(config, build_module(config), CPU), build_module(config)
        add_samples(state, text, [7])
        inputs, targets = (torch.from_numpy(array) for array in text.sample(7))
        loss = torch.nn.CrossEntropyLoss()(module(inputs).transpose(1, 2), targets)
        (loss * targets.numel()).backward()
        expected = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
        torch.testing.assert_close(state.local, expected, rtol=1e-4, atol=1e-5)

    def test_staging_leaves_the_local_sum_alone(self):
        config = small()
        state = TrainingState(config, build_module(config), CPU)
        add_samples(state, make_text(config), [1])
        before = state.local.clone()
        state.stage().fill_(float("nan"))
        assert torch.equal(state.local, before)
        assert torch.isfinite(state.stage()).all()

    def test_applies_adamw_on_the_mean_and_starts_anew(self):
        config = small(learning_rate=0.01)
        text = make_text(config)
        state, module = TrainingState(config, build_module(config), CPU), build_module(config)
        state.warm_up_optimiser()
        assert digest(state.module) == digest(module)
        reference = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.0)
        for step in range(3):
            add_samples(state, text, [2 * step, 2 * step + 1])
            state.stage()
            state.apply()
            state.keep()
            reference.zero_grad()
            for sample in (2 * step, 2 * step + 1):
                inputs, targets = (torch.from_numpy(array) for array in text.sample(sample))
                loss = torch.nn.CrossEntropyLoss()(module(inputs).transpose(1, 2), targets)
                (loss / 2).backward()
            reference.step()
        assert state.tokens == 0
        assert not state.local.any()
        for ours, theirs in zip(state.module.parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-5)

    def test_provisional_step_is_undone_to_the_bit_and_can_be_repeated(self):
        config = small(learning_rate=0.01)
        text = make_text(config)
        state, straight = (TrainingState(config, build_module(config), CPU) for _ in range(2))
        for each in (state, straight):
            add_samples(each, text, [0])
            each.stage()
            each.apply()
            each.keep()
        before = digest(state.module)
        for each in (state, straight):
            add_samples(each, text, [1])
        state.stage()
        state.apply()
        assert digest(state.module) != before
        state.undo()
        assert digest(state.module) == before
        for each in (state, straight):  # summed again, for instance among other members
            each.stage()
            each.apply()
            each.keep()
        assert digest(state.module) == digest(straight.module)

    def test_warm_up_and_clipping(self):
        schedule = Schedule(warmup_steps=4, clip_norm=1e-3, weight_decay=0.0)
        config = small(schedule=schedule, learning_rate=1.0)
        state = TrainingState(config, torch.nn.Linear(3, 1, bias=False), CPU)
        before = state.module.weight.detach().clone()
        state.local.fill_(100.0)
        state.tokens = 1
        state.stage()
        state.apply()
        # Adam's first step is the learning rate (1/4 of it) in the gradient's direction.
        torch.testing.assert_close(state.module.weight, before - 0.25, rtol=0, atol=1e-4)

    def test_packed_state_is_whole_and_exact(self):
        config = small(schedule=Schedule(warmup_steps=100), learning_rate=0.1)

        def make():
            torch.manual_seed(0)
            return TrainingState(
                config,
                torch.nn.Sequential(
                    torch.nn.Embedding(256, 3), torch.nn.BatchNorm1d(16), torch.nn.Linear(3, 256)
                ),
                CPU,
            )

        text = make_text(config)
        old, new = make(), make()
        for sample in range(3):
            add_samples(old, text, [sample])
            old.stage()
            old.apply()
            old.keep()
        add_samples(old, text, [7])
        summed = old.local.clone()
        add_samples(new, text, [8])
        new.stage()
        new.apply()  # provisional: void
        new.unpack(old.pack())
        assert torch.equal(old.local, summed)
        assert new.tokens == 0
        assert not new.local.any()
        assert digest(new.module) == digest(old.module)
        pairs = zip(old.module.buffers(), new.module.buffers(), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
        # The same step from here on: moments, counts and the learning rate's warm-up agree.
        for state in (old, new):
            state.drop()
            add_samples(state, text, [9])
            state.stage()
            state.apply()
            state.keep()
        assert digest(new.module) == digest(old.module)
        assert torch.equal(new.pack(), old.pack())

    def test_layouts_differ_where_modules_do(self):
        def layout(module):
            return TrainingState(small(), module, CPU).layout()

        linear = torch.nn.Linear
        assert layout(linear(2, 3)) == layout(linear(2, 3))
        unlike = [linear(2, 3), linear(3, 2), torch.nn.Embedding(3, 3), torch.nn.BatchNorm1d(4)]
        layouts = {tuple(layout(module)) for module in unlike}
        assert len(layouts) == len(unlike)
        assert all(abs(value) < 2**63 for values in layouts for value in values)

    def test_share_of_one_changes_nothing(self):
        state = TrainingState(small(), build_module(small()), CPU)
        before = state.pack()
        share_state(SiteGroup(1.0, "job"), state, 0, 1, "")
        assert torch.equal(state.pack(), before)

    def test_dropout_is_the_samples_not_the_sites(self):
        config = small()
        text = make_text(config)

        def stack():
            torch.manual_seed(0)
            return torch.nn.Sequential(
                torch.nn.Embedding(256, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 256)
            )

        first, second = (TrainingState(config, stack(), CPU) for _ in range(2))
        add_samples(first, text, [1, 2])
        add_samples(second, text, [2, 1])
        torch.testing.assert_close(first.local, second.local, rtol=1e-5, atol=1e-5)


@given(counts=st.lists(st.integers(0, 2**36), min_size=1, max_size=64))
def test_token_counts_sum_exactly_in_float32(counts):
    total = torch.zeros(COUNT_DIGITS)
    for count in counts:
        slots = torch.empty(COUNT_DIGITS)
        write_count(slots, count)
        total += slots
    assert read_count(total) == sum(counts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": (40, 20)}, "do not ascend"),
        ({"cost_us": COST_US[:3]}, "3 rows, not 4"),
        ({"cost_us": ((1,), (1, 2), (1, 2), (1, 2))}, "must have 2 values"),
        ({"pace": "native"}, 'needs device = "cuda"'),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_bad_configuration_is_named(changes, message):
    with pytest.raises(ValidationError, match=message):
        small(**changes)


def test_proxy_heads_divide_its_width():
    with pytest.raises(ValidationError, match="hidden 10 is not a multiple of heads 4"):
        ProxyConfig(hidden=10, heads=4)
