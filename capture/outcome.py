"""How a capture went."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """The folder that was written, whether every guess was right, and what failed.

    `failed` names variants, and in a sweep the point before each.
    """

    folder: Path
    right: bool
    failed: tuple[str, ...] = ()
