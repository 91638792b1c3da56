"""Topologies: schema, loading, checks, profiles, and the plan of a run's processes.

Everything that a user writes comes in here and leaves as frozen values, or as one TopologyError
that lists every mistake. Imports no torch, no scipy and nothing that runs.
"""

from __future__ import annotations

from testbed.topology.checks import check_topology
from testbed.topology.describe import describe_check
from testbed.topology.load import load_topology
from testbed.topology.node_config import NodePlan, plan_nodes
from testbed.topology.profiles import (
    effective_gpu,
    gpu_profile,
    list_gpus,
    list_models,
    model_profile,
)
from testbed.topology.resolved import dump_toml
from testbed.topology.schema import CellRef, Topology
from testbed.topology.sizes import time_scale
from testbed.topology.template import init_template

__all__ = [
    "CellRef",
    "NodePlan",
    "Topology",
    "check_topology",
    "describe_check",
    "dump_toml",
    "effective_gpu",
    "gpu_profile",
    "init_template",
    "list_gpus",
    "list_models",
    "load_topology",
    "model_profile",
    "plan_nodes",
    "time_scale",
]
