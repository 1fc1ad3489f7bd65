"""From what a user gives to a Trace, without a word on any stream."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from fusetui.analysis.questions.launches import wants_capture
from fusetui.analysis.questions.note import note_of
from fusetui.commands.loading import captures_named, notices
from fusetui.commands.sources import is_shipped, one_trace
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError

Source = str | os.PathLike[str] | bytes
"""A path, a URL, `sample:NAME`, `lesson:NAME`, a folder with one trace; or the bytes of a file."""

BYTES = "bytes"  # how sentences call what is no file


def read(source: Source, cached: bool, captured_by: Sequence[str]) -> tuple[Trace, tuple[str, ...]]:
    """The trace, joined with captures as on the command line, and what could not be read or joined.
    Raises Error."""
    if isinstance(source, bytes):
        return _joined(_of_bytes(source), cached, captured_by)
    name = os.fspath(source)
    trace = open_trace(one_trace(name), cached=cached)
    if is_shipped(name):  # told by its name, and not by the path of its file
        trace = replace(trace, report=replace(trace.report, named=name))
    return _joined(trace, cached, captured_by)


def _of_bytes(source: bytes) -> Trace:
    """The file keeps what it holds once it is open, so its name is not needed any longer."""
    with tempfile.TemporaryDirectory(prefix="fusetui-") as folder:
        path = Path(folder, "trace")
        path.write_bytes(source)
        try:
            trace = open_trace(str(path), cached=False)
        except TraceError as error:
            raise type(error)(str(error).replace(str(path), BYTES)) from None
    return replace(trace, report=replace(trace.report, named=BYTES))


def _joined(
    trace: Trace, cached: bool, captured_by: Sequence[str]
) -> tuple[Trace, tuple[str, ...]]:
    told = [*notices(trace.report)]
    paths = captures_named(captured_by)
    if paths or wants_capture(trace):
        from fusetui.analysis.serving.opening import said, with_captures  # many modules

        trace, joins = with_captures(trace, paths, lambda path: open_trace(path, cached=cached))
        told += said(joins)
    return trace, (*told, *filter(None, (note_of(trace),)), *trace.notes)
