"""Where the real traces are, if there are any: the only file that knows.

FUSETUI_TRACES names their folder; without it, it is looked for beside the checkout. They
are not part of the project.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.places import ROOT

# an empty variable counts as unset, as everywhere else
TRACES = Path(os.environ.get("FUSETUI_TRACES") or ROOT.parent / "shared" / "traces")
FRESH = TRACES.parent / "fresh"
"""Traces that nothing was adjusted to."""
PFTRACES = TRACES.parent / "pftrace"
SNAPSHOTS = TRACES.parent / "snapshots"
EXPORTS = TRACES.parent / "nsys"
ENDING = ".json.gz"


def real(name: str) -> Path:
    """The file of a real trace. The test is skipped where it is not there."""
    return existing(TRACES / f"{name}{ENDING}")


def existing(path: Path) -> Path:
    """This file or folder. The test is skipped where it is not there."""
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def listed(
    folder: Path = TRACES, pattern: str = f"*{ENDING}", below_bytes: int | None = None
) -> list[Path]:
    """The files of a folder. Where there are none, one that does not exist, so that a
    test of each of them is skipped and not lost."""
    paths = [
        path
        for path in sorted(folder.glob(pattern))
        if below_bytes is None or path.stat().st_size < below_bytes
    ]
    return paths or [folder / "none"]


def each_of(paths: Sequence[Path]) -> Any:
    """A fixture `any_trace` that is each of these files in turn. It stands beside tests
    that were imported from where they ask the same of the corpus."""

    @pytest.fixture(scope="module", params=paths, ids=short)
    def any_trace(request: pytest.FixtureRequest) -> Path:
        return existing(request.param)

    return any_trace


def each_named(*names: str) -> Any:
    """The same of real traces by their names."""
    return each_of([TRACES / f"{name}{ENDING}" for name in names])


def short(path: Path) -> str:
    """The name of a file without its ending."""
    return path.name.removesuffix(ENDING)
