"""How a member without the training state gets it from one that has it: bit by bit the same.

Owns the exchange; what the state is, ``training_state`` knows. Nothing that fails here changes the
state of either.
"""

from __future__ import annotations

import torch
from torch.distributed import ReduceOp

from testbed.executors.sync import SiteGroup, SyncFailed
from testbed.executors.training_state import TrainingState

_UNLIKE = (
    "the members' modules differ: {} parameters and {} bytes of state here, {} to {} elsewhere"
)


def share_state(group: SiteGroup, state: TrainingState, rank: int, world: int, store: str) -> None:
    """Rank 0 gives its ``state``, which is left as it is; that of the others is replaced by it.

    No step may be provisional. ``store``: a prefix that is used once; the group is given up
    afterwards. Raises SyncFailed, also where the modules are unlike; then nothing was replaced.
    """
    try:
        _require_alike(group, state, rank, world, store)
        packed = state.pack()
        group.broadcast(packed, rank, world, store)
        # Nobody leaves, and the giver reports no success, before all have everything.
        group.all_reduce(torch.zeros(1), rank, world, store)
    finally:
        group.close()
    if rank > 0:
        state.unpack(packed)


def _require_alike(
    group: SiteGroup, state: TrainingState, rank: int, world: int, store: str
) -> None:
    """All members compare the layouts of all, so that all of them refuse."""
    layout = state.layout()
    bounds = torch.tensor([layout, [-value for value in layout]])
    group.all_reduce(bounds, rank, world, store, ReduceOp.MAX)
    most, least = bounds[0].tolist(), (-bounds[1]).tolist()
    if most != least:
        raise SyncFailed(_UNLIKE.format(layout[0], layout[1], least[:2], most[:2]))
