"""Nodes fed by hand: a topology, one node of it, and questions about its effects."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from nodes.api import Decide, Effect, Event, Fail, Finished, Received, Record, Reported, Send, Work
from protocols.messages import Message
from testbed.host.birth import Birth, build_node
from testbed.record.schema import TABLES
from testbed.topology.node_config import plan_nodes
from testbed.topology.schema import Topology

CELL = """
[[sites.north.gnbs.{gnb}.cells]]
ues = 1
mcs_table = 1
sinr_mean_db = 40.0
sinr_sd_db = 0.0
five_qi = 80
{extra}
[sites.north.gnbs.{gnb}.cells.ul_traffic]
kind = "full_buffer"
[sites.north.gnbs.{gnb}.cells.dl_traffic]
kind = "none"
"""

JOB = """
[jobs.{name}]
kind = "pretraining"
sites = {sites}
model = "opt-125m"
tokens = 128
global_batch = {batch}
"""


def site(*gnbs: str, extra: str = "") -> str:
    """Site north, a gb10, with one cell per gNB: 100 MHz, DDDSU, slots of 500 us."""
    cells = "".join(CELL.format(gnb=gnb, extra=extra) for gnb in gnbs or ("g1",))
    return 'name = "bench"\nseed = 1\n[sites.north]\ngpu = "gb10"\n' + cells


def job(name: str = "pretrain", *, sites: Iterable[str] = ("north",), batch: int = 2) -> str:
    """A pretraining job."""
    quoted = str(list(sites)).replace("'", '"')
    return JOB.format(name=name, sites=quoted, batch=batch)


def parse(text: str) -> Topology:
    """The text as a topology (not checked for what depends on several values)."""
    return Topology.model_validate(tomllib.loads(text)).placed(Path("."))


class Bench:
    """One node of a topology, and every effect that it has had."""

    def __init__(self, topology: Topology, node: str, **facts: str) -> None:
        plan = next(plan for plan in plan_nodes(topology) if plan.node == node)
        self.node = build_node(Birth(plan, 1, topology, facts, "."))
        self.effects: list[Effect] = []

    def feed(self, now_us: int, event: Event) -> list[Effect]:
        """One step; returns its effects."""
        effects = self.node.step(now_us, event)
        self.effects += effects
        return effects

    def receive(self, now_us: int, source: str, message: Message) -> list[Effect]:
        """A message of a peer."""
        return self.feed(now_us, Received(source, message))

    def report(self, now_us: int, message: Message) -> list[Effect]:
        """A packet of the node's executor."""
        return self.feed(now_us, Reported(message))


def sent(effects: Iterable[Effect], kind: type[Message], to: str | None = None) -> list:
    """Messages of one kind that were sent (to one peer)."""
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send)
        and isinstance(effect.message, kind)
        and (to is None or effect.to == to)
    ]


def receivers(effects: Iterable[Effect], kind: type[Message]) -> list[str]:
    """To whom messages of one kind were sent, in order."""
    return [e.to for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def work(effects: Iterable[Effect], kind: type[Message]) -> list:
    """Packets of one kind for the executor."""
    return [e.message for e in effects if isinstance(e, Work) and isinstance(e.message, kind)]


def rows(effects: Iterable[Effect], table: str) -> list[dict[str, int]]:
    """Rows of one table, by column."""
    return [
        dict(zip(TABLES[table], effect.row, strict=True))
        for effect in effects
        if isinstance(effect, Record) and effect.table == table
    ]


def reasons(effects: Iterable[Effect]) -> list[str]:
    """Decisions, as ``subject: reason``."""
    return [f"{e.subject}: {e.reason}" for e in effects if isinstance(e, Decide)]


def failures(effects: Iterable[Effect]) -> list[str]:
    """Why the run cannot go on."""
    return [effect.reason for effect in effects if isinstance(effect, Fail)]


def finished(effects: Iterable[Effect]) -> list[str]:
    """What the node said when it had nothing open any more."""
    return [effect.detail for effect in effects if isinstance(effect, Finished)]
