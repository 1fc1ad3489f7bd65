"""The longest call of each path of modules, which is where to look first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusetui.trace.program.origin import Origins
from fusetui.trace.program.paths import paths_of


def longest_calls(found: Origins) -> Mapping[str, int]:
    """For each path, as in `ModuleTime.path`, the row of its longest call."""
    paths, regions = paths_of(found.trace, found.regions), found.regions
    by_length = np.argsort(found.trace.dur[regions.rows], kind="stable")
    row = np.full(len(paths), -1, dtype=np.intp)
    row[paths.of_place[by_length]] = regions.rows[by_length]  # the last one assigned is kept
    return {paths.text(number): int(row[number]) for number in range(len(paths))}
