"""Where the compile log of a trace is."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from fusetui.trace.compile_log.files import checked_path, logs_beside
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
def compile_log_of(trace: Trace) -> CompileLog | None:
    """The log that was named when the trace was opened, else the one that lies beside
    its file; None if there is none. Raises TraceError if the log that was named cannot
    be read."""
    named = trace.report.compile_log
    if named:
        return read_compile_log(named)
    path = log_beside(trace)
    if not path:
        return None
    try:
        return read_compile_log(path)
    except TraceError:
        return None


def with_log_at(trace: Trace, path: str) -> Trace:
    """The trace with the compile log at a path, which is read when it is needed. Raises
    TraceError if there is no log there."""
    report = replace(trace.report, compile_log=checked_path(path))
    return replace(trace, report=report)


def log_beside(trace: Trace) -> str:
    """The folder or file with the log of a trace, by its name or by its content; "" if
    there is none. Nothing is looked for if the trace has no compiled region."""
    path = trace.report.path
    if is_remote(path) or not is_compiled(trace):
        return ""
    return _beside(Path(path))


def is_compiled(trace: Trace) -> bool:
    """Whether any name of the trace is one that torch.compile gives."""
    return any(map(is_compiler, trace.names))


def _beside(path: Path) -> str:
    """As `log_beside`, of a path that may not exist."""
    if not path.is_file():
        return ""
    folder = path.parent
    for place in (folder / f"{stem_of(path.name)}{FOLDER_ENDING}", folder / FOLDER):
        if place.is_dir() and not place.is_symlink():
            return str(place)
    loose = logs_beside(folder, MAX_LOGS_BESIDE)
    stem = stem_of(path.name)
    named = [log for log in loose if os.path.basename(log).startswith(f"{stem}.")]
    if named:
        return named[0] if len(named) == 1 else ""
    others = _stems_beside(folder) - {stem}
    if len(loose) != 1 or os.path.basename(loose[0]).partition(".")[0] in others:
        return ""
    return loose[0]


def _stems_beside(folder: Path) -> set[str]:
    """The names without endings of the files in a folder that are named as traces."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(TRACE_ENDINGS)]
    except OSError:
        return set()
    return {stem_of(name) for name in names}


def stem_of(name: str) -> str:
    """`eager.json.gz` -> `eager`."""
    shorter = name
    for ending in TRACE_ENDINGS:
        shorter = shorter.removesuffix(ending)
    return shorter if shorter == name else stem_of(shorter)
