"""Read a topology file: all of its mistakes at once, each with its place.

Owns the order of things: text, options, structure, then what depends on several values.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.errors import TopologyError
from testbed.topology import options
from testbed.topology.checks import check_topology
from testbed.topology.mistakes import Mistake, Source, begins
from testbed.topology.places import Place, line_numbers
from testbed.topology.profiles import with_profile_files
from testbed.topology.schema import Topology
from testbed.topology.sizes import DEFAULT_SLOT_WALL_MS

_MOST_BYTES = 1 << 20
_OTHER_FILES = {
    "laws": "laws of job traces, for `reproduce weave-replay --laws`",
    "sms": 'a GPU profile, for `gpu = "FILE"` in a topology',
}
"""What else of ours is TOML, by a key that only it has at the top level."""
_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")


def load_topology(
    path: str | Path,
    sets: Sequence[str] = (),
    policies: Sequence[str] = (),
    seed: int | None = None,
    duration_s: float | None = None,
    *,
    slot_wall_ms_min: float | None = DEFAULT_SLOT_WALL_MS,
) -> Topology:
    """A checked topology from a TOML file.

    Args:
        path: the file; paths inside of it are relative to its directory.
        sets: ``key.key=value``, applied in order; values as TOML, a bare word is text.
        policies: ``site.mac=name`` or ``site.mac=module:Class``.
        seed: replaces ``seed``.
        duration_s: emulated seconds that replace ``time.measured_us``.
        slot_wall_ms_min: the shortest slot that this machine keeps (``doctor``); None for virtual
            time.

    Raises:
        TopologyError: every mistake, one line each, in the order of the file.
    """
    path = Path(path)
    text = _read(path)
    document = _decode(path, text)
    _refuse_other_files(path, document)
    lines = line_numbers(text)
    set_places, refused = options.apply_sets(document, sets)
    policy_places, more = options.apply_policies(document, policies)
    overrides = {**set_places, **policy_places}
    refused += more
    for place, value, option in (
        (("seed",), seed, "--seed"),
        (("time", "measured_us"), _microseconds(duration_s), "--duration"),
    ):
        if value is not None:
            refused += options.apply_value(document, place, value, option)
            overrides[place] = option
    return _checked(
        document, Source(str(path), lines, overrides), path.parent, refused, slot_wall_ms_min
    )


def _checked(
    document: dict[str, Any],
    source: Source,
    directory: Path,
    refused: list[str],
    slot_wall_ms_min: float | None,
) -> Topology:
    topology: Topology | None
    structural: list[Mistake] = []
    repaired: tuple[Place, ...] = ()
    try:
        topology = Topology.model_validate(document)
    except ValueError:
        topology, structural, repaired = _repaired(document)
    errors: list[Mistake] = list(structural)
    warnings: list[Mistake] = []
    if topology is not None:
        topology = with_profile_files(topology.placed(directory))
        found, warnings = check_topology(topology, slot_wall_ms_min)
        errors += [mistake for mistake in found if not _withheld(mistake, repaired)]
    if errors or refused:
        raise TopologyError([*source.render(errors, document), *refused])
    assert topology is not None
    return topology.placed(directory, tuple(source.render(warnings, document)))


def _repaired(
    document: dict[str, Any],
) -> tuple[Topology | None, list[Mistake], tuple[Place, ...]]:
    from testbed.topology.explain import parse  # the schema in words: only where it is needed

    return parse(document)


def _withheld(mistake: Mistake, repaired: tuple[Place, ...]) -> bool:
    """Whether a verdict rests on a value that was made up in place of a mistaken one."""
    return any(begins(place, repaired) for place in (mistake.place, *mistake.depends))


def _read(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            what = "a directory" if path.is_dir() else "not a regular file"
            raise TopologyError([f"{path}: {what}; a topology is a TOML file"])
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TopologyError([f"{path}: cannot be read: {reason.lower()}"]) from None
    if len(raw) > _MOST_BYTES:
        raise TopologyError([f"{path}: larger than 1 MiB; that is no topology"])
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise TopologyError([f"{path}:{line}: not UTF-8 text (byte {error.start})"]) from None


def _refuse_other_files(path: Path, document: dict[str, Any]) -> None:
    """Our other TOML files get one line that says what they are for."""
    if "sites" in document:
        return
    for key, what in _OTHER_FILES.items():
        if key in document:
            raise TopologyError([f"{path}: {what}; a topology has [sites]"])


def _decode(path: Path, text: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT.search(message)
        if at is None:
            line = text.rstrip().count("\n") + 1
            raise TopologyError([f"{path}:{line}: not valid TOML: {message}"]) from None
        where = f"{path}:{at[1]}: not valid TOML: {message[: at.start()]} (column {at[2]})"
        raise TopologyError([where]) from None
    except RecursionError:
        raise TopologyError([f"{path}: nested too deeply"]) from None
    if not document:
        raise TopologyError([f"{path}: empty; `init` writes a topology to start from"])
    return document


def _microseconds(seconds: float | None) -> int | float | None:
    """Whole microseconds; what cannot be one is left for the schema to refuse."""
    if seconds is None or seconds != seconds or abs(seconds) == float("inf"):
        return seconds
    return round(seconds * 1_000_000)
