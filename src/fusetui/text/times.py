"""Times as users type them."""

from __future__ import annotations

import re

from fusetui.text.figures import UNITS

NS = {unit: size for size, unit in UNITS} | {"µs": 1000, "μs": 1000}
TIME = re.compile(r"(-?)([0-9]{1,18})(?:\.([0-9]{1,18}))? ?(ns|us|µs|μs|ms|s)")
FRACTION = 18  # digits after the point, at most


def parse_time(text: str) -> int | None:
    """`12.5ms`, `-3 us` -> ns; fractions of a ns are dropped. None if it is not a time."""
    found = TIME.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, unit = found.groups()
    digits = (fraction or "").ljust(FRACTION, "0")
    ns: int = int(whole) * NS[unit] + int(digits) * NS[unit] // 10**FRACTION
    return -ns if sign else ns
