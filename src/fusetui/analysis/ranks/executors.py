"""Summarizes many ranks at once, in processes on this machine or with any executor.

A task is a pure function of a path, so it can run anywhere, and again when the process
that ran it died.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager

from msgspec.structs import replace

from fusetui.analysis.ranks.model import (
    LeftOut,
    RankSummary,
    decode_summary,
    encode_summary,
)
from fusetui.analysis.ranks.summary import read_cached_summary, read_summary
from fusetui.own_process import calls
from fusetui.trace.cache import tidy
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.source import TYPICAL_RATIO, is_remote
from fusetui.trace.read.workers import core_count

MIN_FILES_FOR_PROCESSES = 4
MIN_BYTES_FOR_PROCESSES = 8 << 20
"""Documents with fewer bytes in all are read in this process."""
MEMORY_PER_BYTE = 3
"""Bytes of memory per byte of a document, with its columns."""
REMOTE_BYTES = 1 << 30
"""A remote document is assumed to have so many."""
MAX_MEMORY_SHARE = 0.7
"""At most this share of the memory that is left is used."""
MAX_TRIES = 3
"""A rank whose process died is read at most so often."""
MAX_WAIT_FOR_SCHEDULER_SECONDS = 10.0
MAX_ERROR_CHARACTERS = 200
DASK = "dask://"

SummaryOrReason = RankSummary | LeftOut


def summarize(
    paths: Sequence[str],
    executor: Executor | None = None,
    *,
    cached: bool = True,
    progress: Progress = silent,
) -> tuple[SummaryOrReason, ...]:
    """Summarize the traces at many paths or URLs at once.

    Args:
        paths: The paths or URLs.
        executor: Runs the work. Its processes must see the same paths and have the same
            version of fusetui. Without one, processes of this machine are used, no more
            than its cores and its memory allow.
        cached: Whether to take summaries from the cache, and to store them.
        progress: Called with the number of finished ranks and of all.

    Returns:
        The summary of each path in their order; a reason for those that could not be
        read.
    """
    if executor is None:
        summaries = _summarize_here(paths, cached, progress)
    else:
        summaries = _summarize_by_executor(executor, paths, cached, progress)
    if cached:
        tidy()
    return summaries


@contextmanager
def executor_at(where: str) -> Iterator[Executor]:
    """Connect to a running scheduler.

    Args:
        where: Its address, `dask://HOST:PORT`.

    Raises:
        CannotReadError: If it is no such address, does not answer, or if distributed is
            not installed.
    """
    address = where.removeprefix(DASK)
    if not where.startswith(DASK) or ":" not in address:
        raise CannotReadError(f"{where} is not a valid executor: use dask://HOST:PORT.")
    try:
        from distributed import Client
    except ImportError:
        raise CannotReadError(
            f"{where} needs distributed: pip install 'fusetui[dask]'."
        ) from None

    try:
        client = Client(
            f"tcp://{address}",
            timeout=MAX_WAIT_FOR_SCHEDULER_SECONDS,
            set_as_default=False,
        )
    except (OSError, TimeoutError) as error:
        why = str(error) or "timeout"
        raise CannotReadError(f"{where} does not answer: {why}.") from None
    with client:
        yield client.get_executor(retries=MAX_TRIES)


def summarize_as_task(path: str, cached: bool) -> bytes | LeftOut:
    """Summarize one trace; this is what runs in other processes.

    Returns:
        The summary as bytes, which any version of pickle carries; a reason if there is
        none.
    """
    try:
        summary = read_summary(path, cached)
    except MemoryError:
        return LeftOut(path, None, f"{path} needs more memory than is available.")
    except Exception as error:  # a fault of ours must not end the whole job
        why = f"{path} could not be summarized: {type(error).__name__}: {error}."
        return LeftOut(path, None, why)
    return encode_summary(summary) if isinstance(summary, RankSummary) else summary


def choose_process_count(paths: Sequence[str]) -> int:
    """Choose how many ranks to read at once, each in a process of its own.

    It is the number of cores, unless there are fewer files, or fewer fit into memory.
    It is at least 1.
    """
    largest_file_bytes = max(map(_estimate_size, paths), default=0)
    bytes_per_process = max(MEMORY_PER_BYTE * largest_file_bytes, 1)
    # other programs of the machine need memory, too
    usable_bytes = int(memory_left() * MAX_MEMORY_SHARE)
    fit_into_memory = usable_bytes // bytes_per_process
    return max(1, min(core_count(), fit_into_memory, len(paths)))


class _SummaryCollector:
    """Collects the summaries of some paths, from the cache and from processes."""

    def __init__(self, paths: Sequence[str], cached: bool, progress: Progress) -> None:
        self._paths = paths
        self._cached = cached
        self._progress = progress
        self._by_path: dict[str, SummaryOrReason] = {}

    def list_missing_paths(self) -> list[str]:
        """Return the paths without a summary."""
        return [path for path in self._paths if path not in self._by_path]

    def take_from_cache(self) -> None:
        """Take the summaries of all paths that the cache has, so that they need not be
        read.

        The progress then counts them as done.
        """
        for path in self._paths:
            summary = read_cached_summary(path)
            if summary is not None:
                self._by_path[path] = summary
        self._report_progress()

    def read_in_this_process(self, paths: Sequence[str]) -> None:
        """Summarize some paths one after the other, in this process."""
        for path in paths:
            self._add(path, summarize_as_task(path, self._cached))

    def read_in_processes(self, paths: Sequence[str], processes: int) -> None:
        """Summarize some paths in several processes.

        If a process dies, the path that it was reading stays missing.
        """
        arguments = [(path, self._cached) for path in paths]
        process_count = min(processes, len(arguments))
        for index, result in calls(summarize_as_task, arguments, process_count):
            self._add(paths[index], result)

    def list_in_order(self) -> tuple[SummaryOrReason, ...]:
        """List the summary of each path, in the order of the paths.

        A path that is still missing gets a reason: its process died too often.
        """
        summaries: list[SummaryOrReason] = []
        for path in self._paths:
            if path in self._by_path:
                summaries.append(self._by_path[path])
            else:
                why = f"The process that read {path} died, possibly for lack of memory."
                summaries.append(LeftOut(path, None, why))
        return tuple(summaries)

    def _add(self, path: str, result: bytes | LeftOut) -> None:
        self._by_path[path] = _decode_for_path(path, result)
        self._report_progress()

    def _report_progress(self) -> None:
        self._progress(len(self._by_path), len(self._paths))


def _summarize_here(
    paths: Sequence[str], cached: bool, progress: Progress
) -> tuple[SummaryOrReason, ...]:
    """Summarize traces on this machine.

    It takes several processes unless that is little work, or there is room for one
    only.
    """
    summaries = _SummaryCollector(paths, cached, progress)
    if cached:
        summaries.take_from_cache()

    missing = summaries.list_missing_paths()
    processes = choose_process_count(missing)
    bytes_to_read = sum(map(_estimate_size, missing))
    is_little = (
        len(missing) < MIN_FILES_FOR_PROCESSES
        or bytes_to_read < MIN_BYTES_FOR_PROCESSES
    )
    if processes == 1 or is_little:
        summaries.read_in_this_process(missing)
        return summaries.list_in_order()

    # A process may die, of too little memory most likely. What it was reading is tried
    # again, and the last time alone.
    for _ in range(MAX_TRIES - 1):
        summaries.read_in_processes(summaries.list_missing_paths(), processes)
    summaries.read_in_processes(summaries.list_missing_paths(), processes=1)
    return summaries.list_in_order()


def _summarize_by_executor(
    executor: Executor, paths: Sequence[str], cached: bool, progress: Progress
) -> tuple[SummaryOrReason, ...]:
    """Summarize traces by the processes of an executor."""
    # Other processes may have another working directory.
    absolute = [path if is_remote(path) else os.path.abspath(path) for path in paths]
    futures = [executor.submit(summarize_as_task, path, cached) for path in absolute]

    summaries: list[SummaryOrReason] = []
    for path, future in zip(paths, futures, strict=True):
        summaries.append(_wait_for_result(path, future))
        progress(len(summaries), len(paths))
    return tuple(summaries)


def _wait_for_result(path: str, future: Future[bytes | LeftOut]) -> SummaryOrReason:
    """Wait for the result of a task.

    If the executor fails, a reason takes the place of the summary.
    """
    try:
        return _decode_for_path(path, future.result())
    except Exception as error:  # whatever an executor raises when its worker is gone
        one_line = " ".join(str(error).split())
        why = one_line[:MAX_ERROR_CHARACTERS] or type(error).__name__
        return LeftOut(path, None, f"{path} could not be read: {why}.")


def _decode_for_path(path: str, result: bytes | LeftOut) -> SummaryOrReason:
    """Decode the summary that a task returned as bytes, and give it the path as the
    user wrote it.

    A task that could not read its trace returns the reason, which gets the path too.
    """
    summary_or_reason = decode_summary(result) if isinstance(result, bytes) else result
    return replace(summary_or_reason, path=path)


def _estimate_size(path: str) -> int:
    """Estimate how many bytes a trace has when it is uncompressed.

    The size of a URL is not known, so it counts as REMOTE_BYTES. Returns 0 for a file
    that is not there.
    """
    if is_remote(path):
        return REMOTE_BYTES
    try:
        file_bytes = os.stat(path).st_size
    except OSError:
        return 0
    is_compressed = path.endswith((".gz", ".zst", ".zip"))
    return file_bytes * TYPICAL_RATIO if is_compressed else file_bytes
