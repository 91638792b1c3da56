"""The table of log formats, and the one way to read any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from testbed.errors import TraceError
from testbed.ran.importers.commag import read_commag_bs, read_commag_ue
from testbed.ran.importers.common import LoadLog, ReadOptions, Source
from testbed.ran.importers.milan import read_milan
from testbed.ran.importers.plain import read_plain
from testbed.ran.importers.srsran import read_srsran


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A reader, and which of the options that not every format has it takes."""

    read: Callable[[Sequence[Source], ReadOptions], LoadLog]
    takes: tuple[str, ...]


FORMATS: Mapping[str, LogFormat] = MappingProxyType(
    {
        "commag-ue": LogFormat(read_commag_ue, ("interval_s",)),
        "commag-bs": LogFormat(read_commag_bs, ("interval_s",)),
        "milan": LogFormat(read_milan, ("peak_mbps", "ul_share")),
        "srsran": LogFormat(read_srsran, ("interval_s",)),
        "plain": LogFormat(read_plain, ("interval_s",)),
    }
)


def read_log(kind: str, sources: Sequence[Source], options: ReadOptions) -> LoadLog:
    """Read one log, in one file or several, in the format of that name.

    Raises:
        TraceError: an unknown format, an option that it does not have, or a log that cannot be
            read (file, line, column, value and what is allowed).
    """
    known = FORMATS.get(kind)
    if known is None:
        raise TraceError(f"format {kind!r}: allowed are {', '.join(FORMATS)}")
    for option in ("interval_s", "peak_mbps", "ul_share"):
        if getattr(options, option) is not None and option not in known.takes:
            takers = [name for name, other in FORMATS.items() if option in other.takes]
            raise TraceError(f"{option} is not for format {kind}, only for {', '.join(takers)}")
    return known.read(sources, options)
