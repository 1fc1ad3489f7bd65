"""Takes memory snapshots on a GPU: at the end of a run, and when memory runs out."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fusetui.trace.new_file import new_file

from .errors import print_message
from .folder import numbered_paths
from .options import Options

MAX_HISTORY_ENTRIES = 100_000
"""Allocations and frees that torch remembers, the newest; without a limit it would keep
all of them in memory."""
STACK_FRAMES = "python"
"""The frames that torch records of each allocation. Frames of C++, which "all" adds,
take torch minutes to name when a snapshot is written, and only Linux on x86-64 has
them."""


def takes_snapshots(options: Options, device_kind: str) -> bool:
    """Return whether the run writes memory snapshots: they were asked for, the device
    is a GPU, and nothing has to be scrubbed. If they were asked for in vain, the reason
    is printed."""
    if not options.memory:
        return False
    if device_kind != "cuda":
        print_message("No memory snapshot: torch records snapshots only for GPUs.")
        return False
    if options.scrub:
        print_message("No memory snapshot with --scrub: it would contain paths.")
        return False
    return True


@contextmanager
def record_memory(
    is_wanted: bool, at_end: Path, at_failure: Path | None = None
) -> Iterator[None]:
    """Record the GPU allocations of the block and write snapshots of them, unless
    `is_wanted` is False.

    `at_end` is written when the block ends without an exception. `at_failure.pickle` is
    written the first time that memory runs out, even if the program handles the error;
    a number avoids an existing file. A forked process writes neither. Raises what torch
    raises if `at_end` cannot be written.
    """
    if not is_wanted:
        yield
        return

    import torch

    memory = torch.cuda.memory
    owner = os.getpid()
    awaits_failure = at_failure is not None

    def on_out_of_memory(*_: int) -> None:
        """Writes a snapshot at the first failure, in this process only."""
        nonlocal awaits_failure
        if os.getpid() != owner or at_failure is None or not awaits_failure:
            return
        awaits_failure = False
        with suppress(Exception):  # torch raises the error itself
            path = _find_free_path(at_failure)
            with new_file(str(path)) as file:
                pickle.dump(memory._snapshot(), file)
            print_message(f"GPU memory ran out: fusetui memory {path} explains why.")

    memory._record_memory_history(stacks=STACK_FRAMES, max_entries=MAX_HISTORY_ENTRIES)
    torch._C._cuda_attach_out_of_memory_observer(on_out_of_memory)

    try:
        yield
        if os.getpid() == owner:
            memory._dump_snapshot(str(at_end))
    finally:
        awaits_failure = False  # an observer cannot be detached
        memory._record_memory_history(enabled=None)


def _find_free_path(stem: Path) -> Path:
    """Return the first path that does not exist of `NAME.pickle`, `NAME-2.pickle`,
    `NAME-3.pickle` and so on."""
    for path in numbered_paths(stem):
        snapshot = Path(f"{path}.pickle")
        if not os.path.lexists(snapshot):
            return snapshot
    raise AssertionError("numbered_paths() never ends")
