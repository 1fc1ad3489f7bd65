"""The kind of inputs that try the reader and every question about a trace."""

from __future__ import annotations

from pathlib import Path

from fuzz.campaign import Kind
from fuzz.case import Case, case
from fuzz.examine import examine
from fuzz.limits import limited
from fuzz.packing import unpacked
from fuzz.shrink import shrunk_bytes
from fuzz.trial import alone


def attempt(seed: int, number: int) -> str:
    return examine(case(seed, number), limited)


def save(seed: int, number: int, what: str, place: Path) -> Path:
    """The name of the file ends with the sizes with which it failed."""
    found = case(seed, number)

    def fails(data: bytes) -> bool:
        return alone(lambda: examine(Case(data, found.sizes), limited)).what == what

    plain = unpacked(found.data)
    data = plain if plain is not None and fails(plain) else found.data
    path = place.with_name(f"{place.name}-{found.sizes}.json")
    path.write_bytes(shrunk_bytes(data, fails))
    return path


KIND = Kind("reader", attempt, save)
