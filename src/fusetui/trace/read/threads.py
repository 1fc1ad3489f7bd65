"""Threads that decode parts of a document while the caller continues.

They run at the same time as the caller, because the compiled scanner (scan.c) releases
the GIL while it goes through a part. Where the scanner is missing or leaves a part to
Python, the threads take turns with the caller, and nothing is faster than without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fusetui.debug_log import debug
from fusetui.trace.read import workers

T = TypeVar("T")
MAX_THREADS = 4


@contextmanager
def in_threads(
    task: Callable[[int], T], count: int, is_worth_it: bool
) -> Iterator[Callable[[], list[T]]]:
    """Starts `task(0)` to `task(count - 1)`, and gives a function that waits for their
    results.

    The results are in the order of the numbers; the first error of a task is raised
    again. Without a second core, and where `is_worth_it` is false, that function runs
    the tasks itself, one after the other. When the block ends, tasks that have not
    begun are dropped.
    """
    threads = min(workers.core_count(), count, MAX_THREADS)
    if threads < 2 or not is_worth_it:
        debug("%d parts of the document are read by this thread, on demand", count)
        yield lambda: [task(number) for number in range(count)]
        return
    from concurrent.futures import ThreadPoolExecutor  # imports logging

    debug("%d parts of the document are read by %d threads", count, threads)
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(task, number) for number in range(count)]
        try:
            yield lambda: [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
