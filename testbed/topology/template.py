"""The commented topology that ``init`` writes: an example, with what each key means and may hold.

All of the text is the schema's own; a key that is added there appears here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from testbed.errors import TopologyError
from testbed.topology.base import Section
from testbed.topology.bounds import KillNode, LateQuantum, LinkBetween
from testbed.topology.places import Place
from testbed.topology.radio import UeClass
from testbed.topology.resolved import section_lines, toml_value
from testbed.topology.schema import Topology

_WIDTH = 92
_CLASSES: tuple[dict[str, object], ...] = (
    {
        "ues": 4,
        "ul_traffic": {"kind": "ftp3", "load": 0.1, "fgn": {}},
        "dl_traffic": {"kind": "imix", "load": 0.1, "diurnal": {"peak_to_trough": 4.0}},
    },
    {
        "ues": 2,
        "five_qi": 80,
        "ul_traffic": {
            "kind": "periodic",
            "bytes_min": 250,
            "bytes_max": 1500,
            "period_us": 10_000,
        },
        "dl_traffic": {"kind": "xr", "rate_mbps": 30.0},
    },
    {
        "ues": 2,
        "five_qi": 82,
        "ul_traffic": {"kind": "commag", "service": "urllc"},
        "dl_traffic": {"kind": "none"},
    },
)
"""Classes that show the kinds of traffic."""

_HEAD = """\
# A topology: cell sites, each with one GPU, and the jobs that train in its spare time.
# Every key is spelled out with its default; leave out what you do not change.
# `check` validates it, `up` runs it, `sim` runs it in virtual time.
"""


def init_template(name: str) -> str:
    """TOML with comments that ``load_topology`` accepts as it stands.

    Raises:
        TopologyError: a topology cannot have that name.
    """
    try:
        topology = _example(name)
    except ValueError:
        problem = f"name = {name!r}: not a name (allowed: 1 to 32 of a-z, 0-9 and -)"
        raise TopologyError([problem]) from None
    lines = [_HEAD, *section_lines(topology, comment=_comment), *_commented_out(topology)]
    return "\n".join(lines) + "\n"


def _example(name: str) -> Topology:
    def site(ul_load: float, dl_load: float) -> dict[str, object]:
        cells = {
            "count": 2,
            "ul_traffic": {"kind": "ftp3", "load": ul_load},
            "dl_traffic": {"kind": "ftp3", "load": dl_load},
        }
        return {"gpu": "gb10", "gnbs": {"g1": {"cells": [cells]}}}

    job = {"kind": "pretraining", "sites": ["north"], "model": "opt-125m"}
    return Topology.model_validate(
        {"name": name, "sites": {"north": site(0.15, 0.2)}, "jobs": {"pretrain": job}}
    )


def _comment(section: Section, key: str, place: Place) -> list[str]:
    """What a key means, what it may hold, and an example where it has no value."""
    from testbed.topology import guide

    field = type(section).model_fields[key]
    allowed = guide.in_words(_properties(type(section))[key])
    text = field.description or ""
    absent = getattr(section, key) is None
    if absent and not field.examples:
        text = f"{key}: {text}"
    if allowed and not allowed.startswith(("text", '"')):
        text += f" ({allowed})"
    lines = [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
    if absent and field.examples:
        lines.append(f"# {key} = {toml_value(field.examples[0])}")
    return lines


@lru_cache(maxsize=32)
def _properties(model: type[Section]) -> dict[str, dict[str, Any]]:
    properties: dict[str, dict[str, Any]] = model.model_json_schema()["properties"]
    return properties


def _commented_out(topology: Topology) -> Iterator[str]:
    """Examples of tables that a run need not have."""
    yield ""
    yield "# UEs that differ: these take the place of ues, five_qi and the traffic of their cells."
    place = ("sites", "north", "gnbs", "g1", "cells", "classes")
    for of_class in _CLASSES:
        section = UeClass.model_validate(of_class)
        yield from _disabled(section, f"[[{'.'.join(place)}]]", place)
    yield ""
    yield "# A pair of sites whose link differs from the default:"
    yield from _disabled(_from_examples(LinkBetween), "[[links.between]]")
    yield ""
    yield "# Faults, at emulated times:"
    for kind, model in (("late_quantum", LateQuantum), ("kill", KillNode)):
        yield from _disabled(_from_examples(model, kind=kind), "[[faults]]")
    yield ""
    yield "# Numbers of a site's GPU profile, replaced by your own:"
    yield "# [sites.north.gpu_overrides]"
    yield "# usd_per_hour = 0.25"


def _from_examples(model: type[Section], **values: object) -> Section:
    examples = {
        key: field.examples[0] for key, field in model.model_fields.items() if field.examples
    }
    return model.model_validate({**examples, **values})


def _disabled(section: Section, header: str, place: Place = ()) -> Iterator[str]:
    for line in section_lines(section, place, header):
        if line:
            yield f"# {line}"
