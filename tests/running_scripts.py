"""Runs a script that `fusetui reproduce` wrote, in this process: a process of its own
would import torch again, for more than a second."""

from __future__ import annotations

import io
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest


class RanScript(NamedTuple):
    """How a script ended, and what it printed."""

    code: int
    out: str
    err: str


def run_script(path: Path, *options: str) -> RanScript:
    """Runs it as `python PATH OPTIONS`."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(path), *options])
        with redirect_stdout(out), redirect_stderr(err):
            try:
                runpy.run_path(str(path), run_name="__main__")
            except SystemExit as ended:
                code = ended.code or 0
    if not isinstance(code, int):  # Python prints what is no number
        return RanScript(1, out.getvalue(), f"{err.getvalue()}{code}\n")
    return RanScript(code, out.getvalue(), err.getvalue())
