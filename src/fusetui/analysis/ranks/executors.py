"""Summaries of many ranks at once: processes of this machine, or any executor.

A task is a pure function of a path, so it can run anywhere, and again when the process
that ran it died.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager

from msgspec.structs import replace

from fusetui.analysis.ranks.model import LeftOut, RankSummary, decoded, encoded
from fusetui.analysis.ranks.summary import known_summary, summary_of
from fusetui.own_process import calls
from fusetui.trace.cache import tidy
from fusetui.trace.model.errors import CannotRead
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.remote import is_remote
from fusetui.trace.read.source import PACKED
from fusetui.trace.read.workers import core_count

FEWEST = 4  # files that are worth starting processes for
SMALL = 8 << 20  # bytes of documents in all; less is read at once
PER_BYTE = 3  # bytes of memory per byte of a document, with its columns
REMOTE = 1 << 30  # bytes that a remote document is assumed to have
SHARE = 0.7  # of the memory that is left
TRIES = 3  # of a rank whose process died
PATIENCE_S = 10.0  # for a scheduler to answer
DASK = "dask://"

SummaryOrNot = RankSummary | LeftOut


def summarize(
    paths: Sequence[str],
    executor: Executor | None = None,
    *,
    cached: bool = True,
    progress: Progress = silent,
) -> tuple[SummaryOrNot, ...]:
    """The summary of each path or URL, in their order; LeftOut with a reason for those
    that could not be read.

    Without an executor, processes of this machine are used, no more than its cores and
    its memory allow. With one, its processes must see the same paths and have the same
    version of fusetui. `progress` is called with the number of finished ranks and of
    all.
    """
    asked = paths, cached, progress
    found = _here(*asked) if executor is None else _through(executor, *asked)
    if cached:
        tidy()
    return found


@contextmanager
def executor_at(where: str) -> Iterator[Executor]:
    """The executor of a running scheduler: `dask://HOST:PORT`. Raises CannotRead."""
    if not where.startswith(DASK) or ":" not in where.removeprefix(DASK):
        raise CannotRead(f"{where} is no place to run: use dask://HOST:PORT.")
    try:
        from distributed import Client
    except ImportError:
        raise CannotRead(
            f"{where} needs distributed: pip install 'fusetui[dask]'."
        ) from None
    address = where.removeprefix(DASK)
    try:
        client = Client(f"tcp://{address}", timeout=PATIENCE_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise CannotRead(
            f"{where} does not answer: {str(error) or 'timeout'}."
        ) from None
    with client:
        yield client.get_executor(retries=TRIES)


def task(path: str, cached: bool) -> bytes | LeftOut:
    """What runs elsewhere: the summary as bytes, which any version of pickle
    carries."""
    try:
        found = summary_of(path, cached)
    except MemoryError:
        return LeftOut(path, None, f"{path} needs more memory than there is.")
    except Exception as error:  # a fault of ours must not end the whole job
        why = f"{path} could not be summarized: {type(error).__name__}: {error}."
        return LeftOut(path, None, why)
    return encoded(found) if isinstance(found, RankSummary) else found


def processes_for(paths: Sequence[str]) -> int:
    """How many ranks are read at once: as many as there are cores, if they fit into
    memory."""
    need = max((PER_BYTE * _likely_size(path) for path in paths), default=0)
    fit = int(memory_left() * SHARE) // max(need, 1)
    return max(1, min(core_count(), fit, len(paths)))


def _here(
    paths: Sequence[str], cached: bool, progress: Progress
) -> tuple[SummaryOrNot, ...]:
    known: dict[str, SummaryOrNot] = {}
    if cached:  # what lies in the cache needs no process
        summaries = ((path, known_summary(path)) for path in paths)
        known = {path: found for path, found in summaries if found is not None}
        progress(len(known), len(paths))
    rest = [path for path in paths if path not in known]
    processes = processes_for(rest)
    if processes == 1 or len(rest) < FEWEST or sum(map(_likely_size, rest)) < SMALL:
        for path in rest:
            known[path] = _unpacked(path, task(path, cached))
            progress(len(known), len(paths))
    # A process may die, of too little memory most likely. What it read is tried again,
    # alone the last time.
    for attempt in range(TRIES):
        missing = [path for path in paths if path not in known]
        asked = [(path, cached) for path in missing]
        at_once = min(processes, len(asked)) if attempt < TRIES - 1 else 1
        for number, result in calls(task, asked, at_once):
            path = missing[number]
            known[path] = _unpacked(path, result)
            progress(len(known), len(paths))
    died = "The process that read {0} died: too little memory?"
    return tuple(
        known.get(path) or LeftOut(path, None, died.format(path)) for path in paths
    )


def _through(
    executor: Executor, paths: Sequence[str], cached: bool, progress: Progress
) -> tuple[SummaryOrNot, ...]:
    # Other processes may have another working directory.
    places = [path if is_remote(path) else os.path.abspath(path) for path in paths]
    futures = [executor.submit(task, place, cached) for place in places]
    found: list[SummaryOrNot] = []
    for path, future in zip(paths, futures, strict=True):
        try:
            found.append(_unpacked(path, future.result()))
        except (
            Exception
        ) as error:  # whatever an executor raises when its worker is gone
            text = " ".join(str(error).split())[:200] or type(error).__name__
            found.append(LeftOut(path, None, f"{path} could not be read: {text}."))
        progress(len(found), len(paths))
    return tuple(found)


def _unpacked(path: str, result: bytes | LeftOut) -> SummaryOrNot:
    """The result, about the path as it was given."""
    return replace(decoded(result) if isinstance(result, bytes) else result, path=path)


def _likely_size(path: str) -> int:
    """Bytes of the document, roughly."""
    if is_remote(path):
        return REMOTE
    try:
        stored = os.stat(path).st_size
    except OSError:
        return 0
    return stored * (PACKED if path.endswith((".gz", ".zst", ".zip")) else 1)
