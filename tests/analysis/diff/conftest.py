"""Builds small traces of steps from a list of what each step does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import Trace, open_trace

STARTS = 1_000_000  # us: where the clock of a built trace begins


@dataclass(frozen=True)
class Piece:
    """Ops, outer / inner, and the kernel that the inner one launches; without one, a
    CPU op."""

    ops: str
    kernel: str | None = None
    us: float = 10.0
    stream: int = 7
    dims: Sequence[Any] = ()
    dtype: str = "c10::BFloat16"


@dataclass(frozen=True)
class Under:
    """Pieces inside one op."""

    op: str
    pieces: Sequence[Piece]


class Builder:
    """Writes events; every step lasts until its last GPU event, as after a
    synchronization."""

    def __init__(self, shift: int, tid: int, first_id: int) -> None:
        self.now = float(STARTS + shift)
        self.tid = tid
        self.ids = count(first_id)
        self.events: list[dict[str, Any]] = []

    def slice(self, cat: str, name: str, ts: float, dur: float, **more: Any) -> None:
        place = {"pid": 100, "tid": self.tid, **more}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **place}
        )

    def step(
        self, number: int, pieces: Sequence[Piece | Under], slower: float, named: bool
    ) -> None:
        begins = self.now
        busy: dict[int, float] = {}
        for piece in pieces:
            if isinstance(piece, Under):
                self._under(piece, slower, busy)
            else:
                self._piece(piece, slower, busy)
        self.now = max([self.now, *busy.values()]) + 1
        if named:
            self.slice(
                "user_annotation", f"ProfilerStep#{number}", begins, self.now - begins
            )
        self.now += 5

    def _under(self, outer: Under, slower: float, busy: dict[int, float]) -> None:
        begins = self.now
        self.now += 5
        for piece in outer.pieces:
            self._piece(piece, slower, busy)
        self.slice("cpu_op", outer.op, begins, self.now - begins)
        self.now += 1

    def _piece(self, piece: Piece, slower: float, busy: dict[int, float]) -> None:
        names = [name.strip() for name in piece.ops.split(" / ") if name.strip()]
        dur = 6.0 if piece.kernel else piece.us * slower
        args = {
            "Input Dims": list(piece.dims),
            "Input type": [piece.dtype] * len(piece.dims),
        }
        for depth, name in enumerate(names):
            outside = len(names) - 1 - depth
            self.slice("cpu_op", name, self.now + depth, dur + 2 * outside, args=args)
        self.now += len(names) - 1 if names else 0
        if piece.kernel is not None:
            self._launch(piece, slower, busy)
        self.now += dur + len(names) + 2

    def _launch(self, piece: Piece, slower: float, busy: dict[int, float]) -> None:
        args = {"correlation": next(self.ids), "stream": piece.stream}
        self.slice("cuda_runtime", "cudaLaunchKernel", self.now + 1, 2.0, args=args)
        begins = max(self.now + 4, busy.get(piece.stream, 0.0))
        cat = "gpu_memset" if piece.kernel == "Memset (Device)" else "kernel"
        gpu = {"pid": 0, "tid": piece.stream, "args": args}
        self.slice(cat, str(piece.kernel), begins, piece.us * slower, **gpu)
        busy[piece.stream] = begins + piece.us * slower


def _piece(fields: Sequence[Any]) -> Piece | Under:
    """(op, [pieces]) is one op around several, anything else the fields of a piece."""
    if len(fields) == 2 and isinstance(fields[1], list):
        return Under(fields[0], [Piece(*inner) for inner in fields[1]])
    return Piece(*fields)


Build = Callable[..., Trace]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Pieces -> a trace that does them in every step.

    A piece is a tuple of the fields of Piece; (op, [pieces]) puts several inside one
    op.

    `factors` are how much slower than written each step is, one for each step; `named`:
    with ProfilerSteps around them; `odd`: what single steps do instead. Other keywords
    become keys of the file.
    """
    folder = tmp_path_factory.mktemp("built")
    numbers = count()

    def made(
        pieces: Sequence[Any],
        factors: Sequence[float] = (1.0,) * 5,
        *,
        named: bool = True,
        shift: int = 0,
        tid: int = 1,
        first_id: int = 1,
        odd: Mapping[int, Sequence[Any]] | None = None,
        **keys: Any,
    ) -> Trace:
        builder = Builder(shift, tid, first_id)
        for number, slower in enumerate(factors):
            found = [_piece(fields) for fields in (odd or {}).get(number, pieces)]
            builder.step(number, found, slower, named)
        path = Path(folder, f"built{next(numbers)}.json")
        path.write_text(json.dumps({**keys, "traceEvents": builder.events}))
        return open_trace(str(path))

    return made


@pytest.fixture
def trace_of_op(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> Callable[..., Trace]:
    """One op that launches these kernels, each (name, us), in each of five steps."""

    def made(op: str, kernels: Sequence[tuple[str, float]]) -> Trace:
        events: list[dict[str, Any]] = []
        for step in range(5):
            begin, clock = 10_000 * step, 10_000 * step + 200
            plain = {"ph": "X", "pid": 1, "tid": 1, "ts": begin}
            name = f"ProfilerStep#{step}"
            events.append(
                {**plain, "cat": "user_annotation", "name": name, "dur": 9_000}
            )
            events.append({**plain, "cat": "cpu_op", "name": op, "dur": 100})
            for n, (kernel, us) in enumerate(kernels):
                number = 1 + 100 * step + n
                events += launched(number, begin + 2 + 5 * n, clock, us, kernel)
                clock += int(us) + 1
        return trace_of(events)

    return made


@pytest.fixture(scope="session")
def work() -> Callable[[Diff], list[Row]]:
    """The rows of a diff that are work, not dispatch."""
    return lambda found: [row for row in found.rows if not row.on_cpu]


@pytest.fixture(scope="session")
def kinds(work: Callable[[Diff], list[Row]]) -> Callable[[Diff], list[RowKind]]:
    """The kinds of those rows, in order."""
    return lambda found: [row.kind for row in work(found)]
