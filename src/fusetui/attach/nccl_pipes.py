"""Dumps of NCCL's flight recorder: the environment that a job needs to write them, and
the named pipes that trigger them.

Source of the names: `ProcessGroupNCCL.cpp` of torch (`DumpPipe`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ENTRIES_OF_A_RANK = 2000
"""That the recorder of a rank keeps, unless the environment says how many."""

PIPE_ENDING = ".pipe"
FILE_PREFIX = "rank_"
"""Of the file and the pipe of a rank; torch appends its number."""


def recorder_environment(
    folder: Path, pipes: str, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables that switch on the flight recorder of NCCL.

    Each rank then writes a dump into `folder` when a collective times out, and listens
    to a pipe in `pipes`. Variables that `given` has already are left out.
    """
    file_prefix = str(folder.absolute() / FILE_PREFIX)
    pipe_prefix = os.path.join(pipes, FILE_PREFIX)
    variables = {
        "TORCH_FR_BUFFER_SIZE": str(ENTRIES_OF_A_RANK),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": str(ENTRIES_OF_A_RANK),
        "TORCH_FR_DUMP_TEMP_FILE": file_prefix,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": file_prefix,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": pipe_prefix,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_ENABLE_MONITORING": "1",
    }
    return {name: value for name, value in variables.items() if name not in given}


def ask_pipes(folder: str) -> int:
    """Ask every rank that listens to a pipe in `folder` for a dump; return how many
    were asked. The rank writes the dump by itself a little later."""
    asked_ranks = 0
    for name in sorted(os.listdir(folder)):
        is_pipe = name.endswith(PIPE_ENDING)
        if is_pipe and _ask_pipe(os.path.join(folder, name)):
            asked_ranks += 1
    return asked_ranks


def _ask_pipe(path: str) -> bool:
    """Ask the rank that listens to the pipe at `path`. False if nobody listens, or
    there is no pipe."""
    with suppress(OSError):  # nobody listens, or it is gone
        mode = os.lstat(path).st_mode
        if not stat.S_ISFIFO(mode):
            return False
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "wb", buffering=0) as pipe:
            written_bytes = pipe.write(b"1")  # torch takes any byte as the request
            return written_bytes == 1
    return False
