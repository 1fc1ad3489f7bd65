"""Patterns, each compiled when it is needed first: most traces need few of them."""

from __future__ import annotations

import re
from functools import lru_cache

compiled = lru_cache(maxsize=None)(re.compile)
