"""`fusetui --version`, alone and with --verbose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fusetui import __version__
from fusetui.trace.read import scanned

Run = Callable[..., Any]


@pytest.mark.parametrize(
    "order", [("--version", "--verbose"), ("--verbose", "--version")]
)
def test_verbose_names_the_libraries(fusetui: Run, order: tuple[str, str]) -> None:
    code, out, err = fusetui(*order)
    first, python, numpy, *_ = out.splitlines()
    assert (code, err, first) == (0, "", f"fusetui {__version__}")
    assert python.startswith("Python 3.")
    assert numpy.startswith("numpy ")


def is_compiled(module: ModuleType, extension: str) -> bool:
    """Whether a compiled part of this name lies beside the module."""
    folder = Path(str(module.__file__)).parent
    return any(path.suffix in (".so", ".pyd") for path in folder.glob(f"{extension}.*"))


def test_verbose_says_that_the_scanner_is_in_use(fusetui: Run) -> None:
    if not is_compiled(scanned, "scan"):
        pytest.skip("the scanner was not compiled")
    assert "compiled JSON scanner: in use\n" in fusetui("--version", "--verbose")[1]


def test_verbose_says_that_there_is_no_scanner(
    fusetui: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanned, "scan", None)
    assert "compiled JSON scanner: not compiled" in fusetui("--version", "--verbose")[1]
