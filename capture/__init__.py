"""Runs the variants of a workload under torch.profiler and writes run folders.

`command.capture` implements `fusetui capture`; `profile` records a training loop.
Importing this package does not need torch and loads almost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session, profile

__all__ = ["Session", "profile"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".session", __name__), name)
