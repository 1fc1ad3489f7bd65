"""What the system says about available memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fusetui.trace import CannotReadError, load, open_trace
from fusetui.trace.read.memory import ASSUMED_BYTES, memory_left

MEMINFO = "MemTotal:       100 kB\nMemAvailable:   50 kB\n"


def system(root: Path, **files: str) -> Path:
    """A tree like that of /proc and /sys; double underscores stand for slashes."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def group(limit: str, used: str) -> dict[str, str]:
    return {
        "sys__fs__cgroup__memory.max": limit,
        "sys__fs__cgroup__memory.current": used,
    }


def test_available_memory_is_that_of_meminfo(tmp_path: Path) -> None:
    assert memory_left(system(tmp_path, proc__meminfo=MEMINFO)) == 50 * 1024


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert memory_left(tmp_path) == ASSUMED_BYTES


@pytest.mark.parametrize(
    ("limit", "used", "left"),
    [("30000\n", "10000\n", 20_000), ("max\n", "10000\n", 51_200), ("10\n", "20\n", 0)],
)
def test_limit_of_a_container_bounds_available_memory(
    tmp_path: Path, limit: str, used: str, left: int
) -> None:
    assert (
        memory_left(system(tmp_path, proc__meminfo=MEMINFO, **group(limit, used)))
        == left
    )


def test_file_cache_of_a_container_counts_as_memory_left(tmp_path: Path) -> None:
    stat = "anon 4000\ninactive_file 5000\nactive_file 1000\ntotal_inactive_file 9\n"
    files = {**group("30000\n", "10000\n"), "sys__fs__cgroup__memory.stat": stat}
    assert memory_left(system(tmp_path, proc__meminfo=MEMINFO, **files)) == 26_000


def test_a_trace_for_which_memory_does_not_suffice_is_refused_in_one_sentence(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(load, "lay_out", too_much)
    with pytest.raises(
        CannotReadError, match=r"needs more memory than is available\.$"
    ):
        open_trace(str(write('[{"ph":"X"}]')), cached=False)
