"""What the name of a GPU kernel says: decode(name) gives a KernelName, or None for an unknown name.

One module for each naming family, each a pure function of the name. docs/kernel-names.md has the
vocabulary of the fields and how to add a family.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from .record import DecodedName, KernelName, Part

__all__ = ["KernelName", "Part", "decode", "decoded", "short_name"]

# Kernel names are ASCII; the longest seen in a trace has some 5,000 characters.
_MAX_NAME: Final = 65_536

# More than any trace was seen to have: with fewer, passes over all names would forget each before
# it is asked for again.
_MOST_NAMES: Final = 1 << 20


@lru_cache(maxsize=_MOST_NAMES)
def decode(name: str) -> KernelName | None:
    """What the name determines, or None if no family recognizes it.

    >>> decode("ampere_sgemm_128x64_tn").tile_m
    128
    """
    if not name.isascii() or len(name) > _MAX_NAME:
        return None
    from .families import decode_body  # with all patterns of all families

    body = name.removesuffix(" [clone .kd]").removesuffix(".kd")  # what ROCm's tools append
    found = decode_body(body)
    if found is None or body is name:
        return found
    return msgspec.structs.replace(found, name=name)


def decoded(name: str) -> DecodedName:
    """What `decode --json` has of any name, also of one of no known family."""
    return decode(name) or DecodedName(name=name, short=short_name(name), family=None, parts=())


@lru_cache(maxsize=_MOST_NAMES)
def short_name(name: str) -> str:
    """A short readable text for any name: at most 48 characters, no control characters.

    >>> short_name("void my::kernel<int, 4>(int*)")
    'my::kernel'
    """
    from .cxx import base_text

    found = decode(name)
    return found.short if found is not None and found.short else base_text(name)
