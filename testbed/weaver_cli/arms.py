"""The arms that an experiment compares: which MAC policy with which PHY sizing.

Owns their names; how they are run is ``grid``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """``policy``: of the MAC, ``sizing``: of PHY tasks, by short name; ``label``: in pictures."""

    name: str
    policy: str
    sizing: str
    label: str


UNSHAPED = Arm("a", "proportional_fair", "saturation", "a: PF, saturation")
ROUND_ROBIN = Arm("a2", "round_robin", "saturation", "a2: RR, saturation")
STRETCHED = Arm("b", "proportional_fair", "deadline", "b: PF, deadline")
SHAPED = Arm("c", "spare_compute", "deadline", "c: shaped, deadline")
SMOOTHER = Arm("smoother", "load_smoother", "deadline", "load smoother, deadline")
ARMS = (UNSHAPED, ROUND_ROBIN, STRETCHED, SHAPED, SMOOTHER)
MAIN_ARMS = (UNSHAPED, STRETCHED, SHAPED)

FIXED_SHARE = "fixed"
"""Name of the best fixed training share: a's policy and sizing, confined to the rest of the GPU."""
FIXED_LABEL = "best fixed share"

STEPS = (("a", "b"), ("b", "c"), ("a", "c"))
"""Gains: from which arm to which. What shaping gains is b to c; a to c holds both."""
