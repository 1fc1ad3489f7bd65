"""What was worked out from a document is kept beside the entry of its trace."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.corpus.fixtures import any_of

from fusetui.analysis.replay.worth import with_worth
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import Why
from fusetui.trace import Trace, open_trace
from fusetui.trace.cache import entry_for
from fusetui.trace.cache.folder import opened, own_files
from fusetui.trace.model.events import Events, arguments
from fusetui.trace.program.backward import backward_ops, dependencies
from fusetui.trace.read.document import Document

DIMS = ("Input Dims",)


def op(name: str, ts: int, tid: int, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": 5,
        "args": args,
    }  # fmt: skip


EVENTS = [
    op(
        "aten::mm",
        10,
        1,
        **{"Sequence number": 7, "Fwd thread id": 0, "Input Dims": [[2, 3]]},
    ),
    op(
        "aten::mm",
        20,
        1,
        **{"Sequence number": 8, "Fwd thread id": 0, "Input Dims": [[2, 3]]},
    ),
    op(
        "MmBackward0",
        30,
        2,
        **{"Sequence number": 7, "Fwd thread id": 1, "Input Dims": [[4]]},
    ),
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A packed trace, which takes longest to be read again."""
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    file = tmp_path / "t.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"traceEvents": EVENTS}).encode()))
    return str(file)


@pytest.fixture
def no_text(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, no byte of a document is available."""

    def fail(*_: object) -> bytes:
        raise OSError("no bytes")

    return lambda: monkeypatch.setattr(Document, "part", fail)


def dims(events: Events, orders: list[int]) -> list[tuple[bytes, ...]]:
    found = arguments(events, np.array(orders, dtype=np.int64), DIMS, "inputs")
    return [found.distinct[n] for n in found.number.tolist()]


def test_the_limit_of_the_cache_counts_the_dependencies_of_nodes(path: str) -> None:
    dependencies(open_trace(path))
    dependencies(open_trace(path))  # now the trace has an entry
    place = Path(os.environ["FUSETUI_CACHE"])
    with opened(place) as folder:
        ours = {own.name for own in own_files(folder)}
    assert {item.name for item in place.iterdir()} == ours
    assert any(name.endswith(".dependencies") for name in ours)


def forward(trace: Trace) -> list[int]:
    found: list[int] = backward_ops(trace).forward.tolist()
    return found


def test_args_are_read_once(path: str, no_text: Callable[[], None]) -> None:
    first = dims(open_trace(path).elements, [0, 2])
    assert first == [(b"[[2, 3]]",), (b"[[4]]",)]
    no_text()
    assert dims(open_trace(path).elements, [0, 2]) == first


def test_sequence_numbers_are_read_once(path: str, no_text: Callable[[], None]) -> None:
    assert forward(open_trace(path)) == [0]
    no_text()
    assert forward(open_trace(path)) == [0]


def test_another_question_is_answered_anew(path: str) -> None:
    dims(open_trace(path).elements, [0])
    assert dims(open_trace(path).elements, [2]) == [(b"[[4]]",)]


def test_nothing_is_kept_of_a_document_that_could_not_be_read(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError("no space")

    open_trace(path)
    with monkeypatch.context() as during:
        during.setattr("fusetui.trace.read.source.Stored.room", no_room)
        assert forward(open_trace(path)) == [-1]
    assert forward(open_trace(path)) == [0]


def test_answers_of_a_stopped_reading_are_not_kept(path: str) -> None:
    asked = iter([False])
    backward_ops(open_trace(path), lambda: next(asked, True))
    assert forward(open_trace(path)) == [0]


def test_a_file_that_changed_is_read_again(path: str) -> None:
    assert forward(open_trace(path)) == [0]
    changed = [
        *EVENTS[:2],
        op("MmBackward0", 30, 2, **{"Sequence number": 8, "Fwd thread id": 1}),
    ]
    Path(path).write_bytes(gzip.compress(json.dumps({"traceEvents": changed}).encode()))
    os.utime(path, (1, 1))
    assert forward(open_trace(path)) == [1]


def test_damaged_kept_answers_are_computed_again(path: str) -> None:
    assert forward(open_trace(path)) == [0]
    entry = entry_for(path)
    assert entry
    kept = entry.place.with_name(f"{entry.place.name}.autograd")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert forward(open_trace(path)) == [0]


def test_a_trace_without_an_entry_keeps_nothing(path: str, tmp_path: Path) -> None:
    assert forward(open_trace(path, cached=False)) == [0]
    assert not (tmp_path / "cache").exists()


any_trace = any_of("training", "job/rank0", "lesson-mlp-eager")


def asked(path: str) -> Why:
    """What `why` prints."""
    trace = open_trace(path)
    return replace(with_worth(trace, why(trace)), _wanted=())


def test_why_reads_a_document_once(
    any_trace: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    no_text: Callable[[], None],
) -> None:
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    first = asked(str(any_trace))
    no_text()
    assert asked(str(any_trace)) == first
