"""Fixtures with traces of the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.corpus.files import corpus_path
from tests.snapshots import MB, Machine, failed, train, trained
from tests.trace.nsys.export import two_processes


def _expandable(folder: Path) -> Path:
    """Of two devices, whose segments grow; the ring has dropped what came first."""
    machines = [Machine(device, total=1 << 30, expandable=True) for device in (0, 1)]
    for machine in machines:
        train(machine, steps=2, activation=3 * MB)
    machines[1].release()
    return machines[0].write(folder / "expandable.pickle", machines[1], lost=5)


SNAPSHOTS = {"trained": trained, "failed": failed, "expandable": _expandable}
"""Memory snapshots by their names, each written into a folder."""


def any_of(*names: str) -> Any:
    """A fixture `any_trace` that is the file of each of these traces in turn.

    A test of it says what holds for any trace with some property. tests/real imports
    such tests, and has a fixture of the same name with real traces.
    """

    @pytest.fixture(scope="module", params=names)
    def any_trace(request: pytest.FixtureRequest) -> Path:
        return corpus_path(request.param)

    return any_trace


@pytest.fixture(scope="module", params=SNAPSHOTS)
def any_snapshot(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Each memory snapshot in turn."""
    return SNAPSHOTS[request.param](tmp_path_factory.mktemp("snapshot"))


@pytest.fixture(scope="module")
def any_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of Nsight Systems."""
    return Path(two_processes(tmp_path_factory.mktemp("export") / "two.sqlite"))
