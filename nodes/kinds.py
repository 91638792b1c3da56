"""The kinds of node, by the name under which they are started."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodes.api import Node, NodeContext
from nodes.coordinator import Coordinator
from nodes.gnb_mac import GnbMacNode
from nodes.gnb_phy import GnbPhyNode
from nodes.recorder import Recorder
from nodes.site_agent import SiteAgent
from nodes.trainer import Trainer

KINDS: Mapping[str, Callable[[NodeContext], Node]] = {
    "coordinator": Coordinator,
    "recorder": Recorder,
    "site_agent": SiteAgent,
    "gnb_mac": GnbMacNode,
    "gnb_phy": GnbPhyNode,
    "trainer": Trainer,
}
