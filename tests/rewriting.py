"""Shares the rewriting of assertions among the workers of pytest-xdist.

Each worker collects all tests, in the same order. In a new clone each would rewrite all
of them, at the same time as the others, and one of the results would be kept. Here each
rewrites its share first, and then finds those of the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

try:
    from _pytest.assertion.rewrite import (
        PYC_TAIL,
        _rewrite_test,
        _write_pyc,
        assertstate_key,
        get_cache_dir,
    )
except ImportError:  # another pytest: then each worker rewrites all of them
    PYC_TAIL = ""


def rewrite_share(config: pytest.Config, number: int, count: int) -> None:
    """Rewrites the tests that are the share of worker `number` of `count`."""
    if not PYC_TAIL or sys.dont_write_bytecode:
        return
    state = config.stash.get(assertstate_key, None)
    if state is None:  # assertions stay as they are
        return
    asked = [Path(argument.partition("::")[0]) for argument in config.args]
    found = {path for folder in asked for path in folder.rglob("test_*.py")}
    for path in sorted(found)[number::count]:
        kept = get_cache_dir(path) / (path.name[:-3] + PYC_TAIL)
        if not _is_newer(kept, path):
            kept.parent.mkdir(parents=True, exist_ok=True)
            source_stat, code = _rewrite_test(path, config)
            _write_pyc(state, code, source_stat, kept)


def _is_newer(kept: Path, source: Path) -> bool:
    return kept.exists() and kept.stat().st_mtime >= source.stat().st_mtime
