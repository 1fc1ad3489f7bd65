"""Memory snapshots of what runs on a GPU: at the end, and when memory runs out."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fusetui.trace.new_file import new_file

from .errors import tell
from .folder import numbered
from .options import Options

ENTRIES = 100_000  # the newest; torch would keep all of them in memory
STACKS = "python"
"""Frames of C++, which "all" adds, take torch minutes to name when a snapshot is
written, and only Linux on x86-64 has them."""


def takes_snapshots(options: Options, kind: str) -> bool:
    """Whether memory is asked for and there is a GPU; says why not if it is asked
    for."""
    if options.memory and (kind != "cuda" or options.scrub):
        no_gpu = kind != "cuda"
        why = (
            ": torch takes one only of a GPU"
            if no_gpu
            else " with --scrub: it would hold paths"
        )
        tell(f"No memory snapshot{why}.")
        return False
    return options.memory


@contextmanager
def memory_history(
    is_wanted: bool, path: Path, failed: Path | None = None
) -> Iterator[None]:
    """Writes a snapshot of the block to `path` at its end, and one named `failed` with
    `.pickle` at the first error of memory that ran out, whoever handles it. Raises what
    torch does where the first cannot be written."""
    if not is_wanted:
        yield
        return
    import torch

    memory = torch.cuda.memory
    parent = os.getpid()
    wanted = [failed] if failed else []  # empty once it was written

    def ran_out(*_: int) -> None:
        if os.getpid() != parent or not wanted:
            return
        places = (Path(f"{name}.pickle") for name in numbered(wanted.pop()))
        with suppress(Exception):  # the error itself is told by torch
            place = next(place for place in places if not os.path.lexists(place))
            with new_file(str(place)) as file:
                pickle.dump(memory._snapshot(), file)
            tell(f"GPU memory ran out: fusetui memory {place} tells why.")

    memory._record_memory_history(stacks=STACKS, max_entries=ENTRIES)
    torch._C._cuda_attach_out_of_memory_observer(ran_out)
    try:
        yield
        if os.getpid() == parent:
            memory._dump_snapshot(str(path))
    finally:
        wanted.clear()  # an observer cannot be detached
        memory._record_memory_history(enabled=None)
