"""The short names of policies that a topology may use; what they stand for is in the packages.

The names are here, and not read from those packages, so that ``check`` imports none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

POLICY_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "site.mac": ("proportional_fair", "round_robin", "spare_compute", "load_smoother"),
        "site.phy": ("saturation", "deadline"),
        "site.lease": ("whole_spare",),
        "coordinator.assignment": ("equal",),
    }
)
"""Slot of a policy (``scope.key``) -> its short names, the default first."""

OWN_CLASS = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")
"""``module:Class``, resolved beside the topology file before the installed packages."""
