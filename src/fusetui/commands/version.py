"""`fusetui --version --verbose`: shows the components of this installation."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from fusetui import __version__

LIBRARIES = ("numpy", "orjson", "msgspec", "textual", "rich", "torch")
"""Whose versions matter in a bug report; torch only where it is installed."""


def version_text() -> str:
    """The version, what it runs on, and whether the compiled parts are in use."""
    lines = [
        f"fusetui {__version__}",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        *(f"{name} {found}" for name in LIBRARIES if (found := _installed(name))),
        f"compiled JSON scanner: {_in_use(_has_scanner())}",
        f"compiled slice nesting: {_in_use(_has_nesting())}",
    ]
    return "\n".join(lines) + "\n"


def _installed(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def _in_use(is_compiled: bool) -> str:
    return "in use" if is_compiled else "not compiled; slower Python code is used"


def _has_scanner() -> bool:
    from fusetui.trace.read import scanned

    return scanned.scan is not None


def _has_nesting() -> bool:
    from fusetui.trace.layout import nesting

    return nesting.nested is not None
