"""Names of the log formats, apart from their readers so that naming them imports nothing."""

from __future__ import annotations

INTERVAL_FORMATS = ("commag-ue", "commag-bs", "milan", "srsran", "plain")
"""Formats that hold bytes, rates or activity per interval."""

FORMAT_NAMES = ("nr-scope", *INTERVAL_FORMATS)
"""Every format that can be imported."""
