"""Traces that this project makes itself, for tests that need a trace with some property
and not a certain one.

`corpus_path("training")` is a file. All of them are made once, by `make_corpus`, into a
folder whose name follows from the programs that make them: so no test reads files of
other programs.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.analysis.replay.invented import invented
from tests.analysis.replay.recording import document
from tests.analysis.replay.simulator import Residuals, simulate
from tests.analysis.servers import MI300, Server
from tests.corpus.graph import annotated_replays
from tests.corpus.recorded import recorded
from tests.corpus.training import training
from tests.places import ROOT

from fusetui import sample_traces
from fusetui.sample_traces import lessons

CORPUS = ROOT / "build" / "corpus"
MADE_BY = (
    "benchmarks/job_maker.py",
    "benchmarks/job_programs.py",
    "benchmarks/job_traces.py",
    "tests/analysis/replay/invented.py",
    "tests/analysis/replay/programs.py",
    "tests/analysis/replay/recording.py",
    "tests/analysis/replay/simulator.py",
    "tests/analysis/servers.py",
    "tests/corpus/files.py",
    "tests/corpus/graph.py",
    "tests/corpus/recorded.py",
    "tests/corpus/training.py",
)
"""The files that say what is in the corpus."""
RESIDUALS = Residuals(seed=1, launch=900, switch=300, event=500)
RANKS_OF_JOB = 4
LATE_RANK = 2
SEED = 7
Document = dict[str, Any]


class Member(NamedTuple):
    """A file of the corpus: its name without the ending, and the text in it."""

    name: str
    make: Callable[[], Document]


def _invented(kind: str) -> Document:
    return document(simulate(invented(kind, SEED), RESIDUALS))


def _serving() -> Document:
    server = Server()
    replays = [
        event
        for number, at in enumerate((0, 500, 1000), 1)
        for event in server.step(4, at, number)
    ]
    return {"deviceProperties": [MI300], "traceEvents": replays}


def _capture() -> Document:
    events = Server().capture(4)
    return {"deviceProperties": [MI300], "traceEvents": events}


MEMBERS = (
    Member("training", lambda: recorded(simulate(training(), RESIDUALS))),
    Member(
        "training-slower",
        lambda: recorded(
            simulate(training(gemm_factor=1.5), replace(RESIDUALS, draw=1))
        ),
    ),
    Member("one-step", lambda: recorded(simulate(training(1), RESIDUALS))),
    Member("graphs", lambda: _invented("graphs")),
    Member("annotated-graph", annotated_replays),
    Member("streams", lambda: _invented("streams")),
    Member("waits", lambda: _invented("waits")),
    Member("collectives", lambda: _invented("collectives")),
    Member("threads", lambda: _invented("threads")),
    Member("workers", lambda: _invented("workers")),
    Member("serving", _serving),
    Member("serving-capture", _capture),
)
GENERATED = tuple(member.name for member in MEMBERS)
RANKS = tuple(f"job/rank{rank}" for rank in range(RANKS_OF_JOB))
LESSONS = tuple(f"lesson-{name}" for name in lessons.names())
SAMPLES = tuple(f"sample-{name}" for name in sample_traces.names())
NAMES = (*GENERATED, *RANKS, *LESSONS, *SAMPLES)
"""Every trace of the corpus: those that ship with the package are part of it."""
WITH_GPU = (*GENERATED, *RANKS, *LESSONS)
WITH_MODULES = ("training", "lesson-mlp-eager", "lesson-mlp-compiled")
"""They have stacks, modules, shapes and the memory of a GPU."""


@cache
def corpus_path(name: str) -> Path:
    """The file of a trace of the corpus."""
    if name.startswith("lesson-"):
        return lessons.path(name.removeprefix("lesson-"))
    if name.startswith("sample-"):
        return sample_traces.path(name.removeprefix("sample-"))
    return make_corpus() / f"{name}.json.gz"


@cache
def make_corpus() -> Path:
    """The folder of the corpus, whose files are made first if they are not there."""
    folder = CORPUS / _digest()
    if folder.is_dir():
        return folder
    CORPUS.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=CORPUS, prefix="part-"))
    try:
        _write(temporary)
        _publish(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _digest() -> str:
    """Of the programs that make the corpus."""
    digest = hashlib.sha256()
    for name in MADE_BY:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()[:16]


def _publish(temporary: Path, folder: Path) -> None:
    """The whole folder gets its name at once. Another process may have been faster; its
    files are the same."""
    try:
        os.rename(temporary, folder)
    except OSError:
        if not folder.is_dir():
            raise


def _write(folder: Path) -> None:
    for member in MEMBERS:
        text = json.dumps(member.make(), indent=0).encode()
        _pack(text, folder / f"{member.name}.json.gz")
    for path in _job_files(folder / "job"):
        _pack(path.read_bytes(), path.with_suffix(".json.gz"))
        path.unlink()


def _pack(text: bytes, path: Path) -> None:
    """Without a time in it, so that the same programs make the same bytes."""
    path.write_bytes(gzip.compress(text, compresslevel=6, mtime=0))


def _job_files(folder: Path) -> Iterator[Path]:
    """The ranks of a job, of which one loads its data late."""
    # stand at the root, which is not on the path when names are imported from here
    from benchmarks.job_maker import Job, play_job
    from benchmarks.job_programs import Fault, Shape, programs
    from benchmarks.job_traces import Clock, Recording, write

    shape = Shape(dp=RANKS_OF_JOB, overlap=True, steps=4, layers=2)
    fault = Fault("loading", 1_500.0)
    job = Job(
        programs=programs(shape, SEED, {LATE_RANK: fault}),
        hosts=(0,) * shape.ranks,
        seed=SEED,
    )
    clocks = [Clock()] * shape.ranks
    how = Recording(groups=shape.groups(), clocks=clocks, names=True)
    write(job, play_job(job).slices, how, folder)
    yield from sorted(folder.glob("*.json"))
