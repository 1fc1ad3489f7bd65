"""Parts of a trace that are shown while the rest is read."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trace.large import TEXT, same_start

from fusetui.trace import Trace, open_trace
from fusetui.trace.cache.entry import columns_of
from fusetui.trace.read import workers

pytestmark = pytest.mark.usefixtures("small_extents")


def previewed(path: Path) -> tuple[list[Trace], Trace]:
    parts: list[Trace] = []
    return parts, open_trace(str(path), preview=parts.append)


def check(path: Path) -> list[Trace]:
    """Previews are growing prefixes of the trace, which is the same as without them."""
    parts, trace = previewed(path)
    for part in parts:
        assert part.report.prefix is not None
        assert not part.report.complete
        same_start(part, trace)
    lengths = [len(part) for part in parts]
    assert lengths == sorted(set(lengths))
    alone = open_trace(str(path))
    for column in columns_of(Trace):
        assert (getattr(trace, column) == getattr(alone, column)).all(), column
    assert (trace.report, trace.tracks) == (alone.report, alone.tracks)
    return parts


def test_plain_file_gives_growing_previews(write: Callable[[bytes], Path]) -> None:
    parts = check(write(TEXT))
    shares = [
        part.report.prefix.read / len(TEXT) for part in parts if part.report.prefix
    ]
    assert len(shares) >= 2
    assert max(shares) < 0.6  # the whole follows soon


def test_packed_file_gives_previews(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(TEXT, 1))
    assert check(path)


def test_a_small_file_has_none(
    write: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys.modules["fusetui.trace.read.reading"],
        "MIN_BYTES_FOR_PREVIEWS",
        len(TEXT) + 1,
    )
    assert previewed(write(TEXT))[0] == []


@pytest.mark.parametrize("every", [10, 100, 1500])
def test_damaged_file_gives_previews(
    write: Callable[[bytes], Path], every: int
) -> None:
    lines = TEXT.split(b"\n")[:2000]
    for n in range(every // 2, len(lines), every):
        lines[n] = lines[n].replace(b'"name"', b'"name', 1)
    assert check(write(b"\n".join(lines).rstrip(b",") + b"\n]}"))


def test_events_in_pairs_give_previews(write: Callable[[bytes], Path]) -> None:
    events = [
        {
            "ph": "BE"[n % 2],
            "name": f"op{n // 2}",
            "pid": 1,
            "tid": 1,
            "ts": n,
            "args": {},
        }
        for n in range(6_000)
    ]
    parts, _ = previewed(write(json.dumps(events).encode()))
    assert parts


def test_labels_that_follow_late(write: Callable[[bytes], Path]) -> None:
    label = {
        "ph": "M",
        "name": "thread_name",
        "pid": 1,
        "tid": 1,
        "args": {"name": "thread 1 (a)"},
    }
    text = TEXT.replace(b"\n]", b",\n" + json.dumps(label).encode() + b"\n]")
    assert check(write(text))


def test_several_threads_give_previews(
    write: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "core_count", lambda: 2)
    monkeypatch.setattr(workers, "MIN_BYTES_FOR_THREADS", 0)
    check(write(TEXT))
