"""PROTOCOL.md is the specification: what it says of the wire is what the code does."""

from __future__ import annotations

import re

import pytest
from protocols_sources import SPECIFICATION, refusal_codes

from protocols import channel, codec
from protocols.codec import field_kinds
from protocols.messages import PROTOCOL_VERSION
from protocols.registry import MESSAGES
from testbed.gpu.lease_word import LEASE_BYTES

TEXT = SPECIFICATION.read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
ROWS = {
    int(tag): (name, way, meaning, fields) for tag, name, way, meaning, fields in ROW.findall(TEXT)
}
KINDS = sorted(MESSAGES.values(), key=lambda kind: kind.TAG)
ROLES = {
    "launcher",
    "any node",
    "gNB MAC",
    "PHY",
    "site agent",
    "trainer",
    "coordinator",
    "recorder",
    "node",
    "executor",
    "whoever sent it",
}


def section(title: str) -> str:
    """The text under a heading of the second level."""
    found = re.search(rf"^## \d+\. {title}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found[1]


def test_version_is_the_codes():
    assert re.findall(r"^Protocol version: \*\*(\d+)\*\*$", TEXT, re.MULTILINE) == [
        str(PROTOCOL_VERSION)
    ]


def test_every_message_has_one_row_and_no_row_is_left_over():
    assert {tag: row[0] for tag, row in ROWS.items()} == {
        tag: kind.__name__ for tag, kind in MESSAGES.items()
    }
    assert len(ROW.findall(TEXT)) == len(MESSAGES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fields_of_a_message_are_named_and_described_in_wire_order(kind):
    _, way, meaning, fields = ROWS[kind.TAG]
    expected = [f"`{name}`: {rule.describe()}" for name, rule in field_kinds(kind)]
    assert fields.split("<br>") == (expected or ["none"])
    assert set(way.split(" → ")) <= ROLES
    assert way.count("→") == 1
    assert meaning.endswith((".", "`"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_meaning_is_that_of_the_class(kind):
    """Without the direction that some docstrings begin with, and without marks of markup."""
    plain = " ".join((kind.__doc__ or "").replace("``", "").split())
    meaning = ROWS[kind.TAG][2].replace("`", "").replace("\\|", "|")
    assert plain.lower().endswith(meaning.lower())


def test_limits_are_the_codes():
    told = {
        name: int(value)
        for name, value in re.findall(r"^\| `(\w+)` \| (\d+) \|", TEXT, re.MULTILINE)
    }
    names = {
        name for module in (codec, channel) for name in vars(module) if name.startswith("MAX_")
    }
    assert told.keys() == names | {"HIGH_WATER_MARK"}
    for name, value in told.items():
        assert value == getattr(channel, name, None) or value == getattr(codec, name, None), name


def test_every_refusal_code_is_explained_and_none_is_made_up():
    codes = refusal_codes("protocols", "testbed", "nodes")
    told = re.findall(r"^\| `([a-z-]+)` \|", section("Refusals"), re.MULTILINE)
    assert len(told) == len(set(told))
    assert set(told) == set(codes), {
        code: places for code, places in codes.items() if code not in told
    }
    assert set(refusal_codes("protocols")) <= set(told[:13]), "codes of the wire stand first"


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("`SNDHWM`, `RCVHWM`", f"{channel.HIGH_WATER_MARK:,}".replace(",", " ")),
        ("`LINGER`", f"{channel.LINGER_MS} ms"),
        ("`HANDSHAKE_IVL`", f"{channel.HANDSHAKE_MS // 1000} s"),
        ("`RECONNECT_IVL`, `_MAX`", f"{channel.RECONNECT_MS} ms, 1 s"),
        ("`HEARTBEAT_IVL`, `_TIMEOUT`, `_TTL`", "2 s, 20 s, 20 s"),
        ("`MAXMSGSIZE`", "1 MiB control, 4 MiB data"),
    ],
)
def test_socket_options_are_the_codes(option, told):
    assert f"| {option} | {told} |" in section("Transport")
    assert (channel.RECONNECT_MAX_MS, channel.ZMTP_HEARTBEAT_MS) == (1000, 2000)
    assert channel.ZMTP_TIMEOUT_MS == 20_000


def test_shared_lease_has_the_size_that_is_told():
    told = f"{LEASE_BYTES:,}".replace(",", " ")
    assert f"{told} bytes of shared memory" in section("Executors")


@pytest.mark.parametrize(
    "key",
    [
        "host.start_wall_ms",
        "host.heartbeat_wall_ms",
        "host.missing_wall_ms",
        "host.dead_wall_ms",
        "host.drain_wall_ms",
        "host.stop_wall_ms",
    ],
)
def test_settings_that_bound_a_wait_exist(key):
    from testbed.topology.bounds import Host

    assert f"`{key}`" in section("Life of a run")
    assert key.partition(".")[2] in Host.model_fields


@pytest.mark.parametrize("key", ["max", "backoff_wall_ms"])
def test_settings_of_restarts_exist(key):
    from testbed.topology.bounds import Host, Restart, Restarts

    assert f"host.restart.trainer.{key}" in section("Life of a run")
    assert key in Restart.model_fields
    assert list(Restarts.model_fields) == ["trainer"], "no other kind is told to be restarted"
    assert "restart" in Host.model_fields


@pytest.mark.parametrize(
    ("module", "told", "tags"),
    [
        ("control", "tags 1–19", range(1, 20)),
        ("messages", "tags 20–79", range(20, 80)),
        ("work", "tags 80–119", range(80, 120)),
    ],
)
def test_tags_are_in_the_range_of_their_socket(module, told, tags):
    assert told in TEXT
    found = [kind.TAG for kind in KINDS if kind.__module__ == f"protocols.{module}"]
    assert found
    assert set(found) <= set(tags)
