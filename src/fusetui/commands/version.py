"""`fusetui --version --verbose`: shows the components of this installation."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from fusetui import __version__

LIBRARIES = ("numpy", "orjson", "msgspec", "textual", "rich", "torch")
"""Whose versions matter in a bug report; torch only where it is installed."""


def format_version() -> str:
    """Return the versions of fusetui, Python and its libraries as lines. They end with
    whether the compiled parts are in use."""
    lines = [
        f"fusetui {__version__}",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        *(
            f"{name} {installed}"
            for name in LIBRARIES
            if (installed := _installed_version(name))
        ),
        f"compiled JSON scanner: {_describe_use(_has_scanner())}",
        f"compiled slice nesting: {_describe_use(_has_nesting())}",
    ]
    return "\n".join(lines) + "\n"


def _installed_version(library: str) -> str:
    """Return the version of a library, or "" if it is not installed."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def _describe_use(is_compiled: bool) -> str:
    """Return whether a compiled part is in use, in words."""
    return "in use" if is_compiled else "not compiled; slower Python code is used"


def _has_scanner() -> bool:
    from fusetui.trace.read import scanned

    return scanned.scan is not None


def _has_nesting() -> bool:
    from fusetui.trace.layout import nesting

    return nesting.nested is not None
