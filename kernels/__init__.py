"""The workloads that fusetui captures and compares. Importing this package does not
need torch.

Each workload is a module with a constant `WORKLOAD`. It imports torch and is loaded on
demand.
"""

from __future__ import annotations

from importlib import import_module

from .model import Variant, Workload
from .outlines import OUTLINES, Outline, Shapes

__all__ = ["Outline", "Shapes", "Variant", "Workload", "get", "names", "outline"]


def names() -> tuple[str, ...]:
    """The names of all workloads; does not need torch."""
    return tuple(OUTLINES)


def outline(name: str) -> Outline:
    """The sizes, variants and sweeps of a workload; does not need torch. Raises KeyError
    for an unknown name."""
    return OUTLINES[name]


def get(name: str) -> Workload:
    """Return the workload of that name, and import its module. Raises KeyError for an
    unknown name, and ImportError without torch."""
    if name not in OUTLINES:
        raise KeyError(name)
    module = import_module(f".{name.replace('-', '_')}", __name__)
    workload: Workload = module.WORKLOAD
    return workload
