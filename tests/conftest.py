"""Property tests draw the same examples every time: a suite that failed fails again.

``HYPOTHESIS_PROFILE=explore`` draws others in every run, and more of them where a test sets no
number of its own.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", derandomize=False, deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
