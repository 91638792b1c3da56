"""Design section 10, 4: the sum of two processes' gradients is that of one, over a real store."""

from __future__ import annotations

import socket
from datetime import timedelta
from multiprocessing import get_context

import numpy as np
import pytest
import torch
import torch.distributed as dist

from testbed.executors.config import ProxyConfig, TrainerConfig
from testbed.executors.proxy import build_module
from testbed.executors.sync import COUNT_DIGITS, SiteGroup, read_count
from testbed.executors.text import TrainingText, load_text
from testbed.executors.training_state import TrainingState

pytestmark = pytest.mark.live

GROUP_LIMIT_S = 60.0
CONFIG = TrainerConfig(
    seed=3,
    declared_layers=2,
    levels=(20,),
    cost_us=((10,), (10,), (10,), (10,)),
    micro_batch=2,
    sequence=32,
    proxy=ProxyConfig(layers=2, hidden=32, heads=2),
    text_bytes=50_000,
)
SPLITS = (((0, 1, 2), (3, 4, 5)), ((5,), (2, 0, 4, 1, 3)), ((), (0, 1, 2, 3, 4, 5)))


def new_state():
    return TrainingState(CONFIG, build_module(CONFIG), torch.device("cpu"))


def add(state, samples):
    text = TrainingText(CONFIG.seed, load_text("stdlib", CONFIG.text_bytes), 2, 32)
    for sample in samples:
        inputs, targets = (torch.from_numpy(array) for array in text.sample(sample))
        state.loss(state.forward(sample, inputs), targets).backward()
        state.tokens += targets.numel()


def sums(rank, store):
    """One member: the sum of each split, of which it computes its share."""
    torch.set_num_threads(1)
    sync = SiteGroup(GROUP_LIMIT_S, f"rank{rank}")
    state = new_state()
    for epoch, split in enumerate(SPLITS):
        state.drop()
        add(state, split[rank])
        staged = state.stage()
        sync.all_reduce(staged, rank, 2, f"{store}/epoch{epoch}")
        yield staged.clone()
    sync.close()


def other_process(store, pipe):
    """The second member; what it got goes back as bytes."""
    for summed in sums(1, store):
        pipe.send_bytes(summed.numpy().tobytes())


def test_any_split_between_two_processes_equals_one():
    listener = socket.create_server(("127.0.0.1", 0))
    store = dist.TCPStore(
        "127.0.0.1",
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=GROUP_LIMIT_S),
        master_listen_fd=listener.detach(),
    )
    state = new_state()
    add(state, range(6))
    expected = state.stage()
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    address = f"127.0.0.1:{store.port}/job"
    process = context.Process(target=other_process, args=(address, theirs), daemon=True)
    process.start()
    try:
        for summed in sums(0, address):
            assert ours.poll(GROUP_LIMIT_S), "the other member did not answer"
            other = torch.from_numpy(np.frombuffer(ours.recv_bytes(), np.float32).copy())
            assert torch.equal(summed, other)
            assert read_count(summed[-COUNT_DIGITS:]) == 6 * 64
            assert (summed - expected).norm() / expected.norm() < 1e-5
        process.join(GROUP_LIMIT_S)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
