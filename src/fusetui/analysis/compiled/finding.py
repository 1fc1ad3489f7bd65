"""Finds the compile log of a trace."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from fusetui.trace.compile_log.files import check_log_path, logs_beside
from fusetui.trace.compile_log.log import CompileLog, read_compile_log
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.memo import memo
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.read.source import is_remote

FOLDER_ENDING = ".compile_log"
"""`TRACE.compile_log/` beside `TRACE.json.gz` has the log of that trace alone."""
FOLDER = "compile_log"
"""Of a folder of traces: the logs of all of them."""
TRACE_ENDINGS = (".gz", ".zst", ".json", ".pftrace", ".sqlite")
MAX_LOGS_BESIDE = 64
"""That are looked at beside a trace."""


@memo()
def find_compile_log(trace: Trace) -> CompileLog | None:
    """Return the compile log of a trace.

    It is the log that was named when the trace was opened, else the one that lies next
    to its file. Returns None if there is none.

    Raises:
        TraceError: The log that was named cannot be read.
    """
    named_path = trace.report.compile_log
    if named_path:
        return read_compile_log(named_path)

    path = find_log_beside(trace)
    if not path:
        return None

    try:
        return read_compile_log(path)
    except TraceError:
        return None


def attach_log(trace: Trace, path: str) -> Trace:
    """Return the trace with the compile log at a path, which is read when it is needed.

    Raises:
        TraceError: There is no log at this path.
    """
    report = replace(trace.report, compile_log=check_log_path(path))
    return replace(trace, report=report)


def find_log_beside(trace: Trace) -> str:
    """Return the folder or file with the log of a trace, if it lies next to the trace.

    It is recognized by its name or by its content. Returns "" if there is none, and
    without looking if the trace has no compiled region.
    """
    path = trace.report.path
    if is_remote(path) or not has_compiled_code(trace):
        return ""
    return _find_log_next_to(Path(path))


def has_compiled_code(trace: Trace) -> bool:
    """Return whether a trace has code of torch.compile. That is so if any of its names
    is one that torch.compile gives, such as `triton_poi_fused_add_0`."""
    return any(map(is_compiler, trace.names))


def _find_log_next_to(path: Path) -> str:
    """Return the folder or file with the log next to the file of a trace.

    Returns "" if there is none, or if it is not clear which of several it is; also if
    the trace does not exist, and if the only log has the name of another trace. Folders
    that are links do not count.

    Args:
        path: The file of the trace, which may not exist.
    """
    if not path.is_file():
        return ""

    folder = path.parent
    stem = strip_trace_endings(path.name)
    for log_folder in (folder / f"{stem}{FOLDER_ENDING}", folder / FOLDER):
        if log_folder.is_dir() and not log_folder.is_symlink():
            return str(log_folder)

    # Else a file with the name of the trace, if it is the only one.
    log_files = logs_beside(folder, MAX_LOGS_BESIDE)
    files_with_stem = [
        log for log in log_files if os.path.basename(log).startswith(f"{stem}.")
    ]
    if len(files_with_stem) == 1:
        return files_with_stem[0]

    # Else the only file, unless it has the name of another trace.
    if len(log_files) != 1:
        return ""
    stem_of_log, _, _ = os.path.basename(log_files[0]).partition(".")
    other_stems = _list_stems_of_traces(folder) - {stem}
    return "" if stem_of_log in other_stems else log_files[0]


def _list_stems_of_traces(folder: Path) -> set[str]:
    """Return the names, without endings, of the traces in a folder."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(TRACE_ENDINGS)]
    except OSError:
        return set()
    return {strip_trace_endings(name) for name in names}


def strip_trace_endings(name: str) -> str:
    """Return the name of a trace without its endings: `eager` for `eager.json.gz`."""
    stem = name
    while stem.endswith(TRACE_ENDINGS):
        for ending in TRACE_ENDINGS:
            stem = stem.removesuffix(ending)
    return stem
