"""fusetui in Python: `import fusetui as ft; t = ft.open("trace.json.gz")`.

What is listed here stays as it is within a major version; docs/python.md describes it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fusetui import Error
from fusetui.analysis.questions.launches import wants_capture
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.commands.loading import called, captures_named, notices
from fusetui.commands.sources import is_shipped, one_trace
from fusetui.report.output import notes_of
from fusetui.tables.files import MissingPackageError, UnknownFormatError
from fusetui.tables.public import Table
from fusetui.tables.sources import trace_table
from fusetui.tables.table import NoColumnError
from fusetui.text.figures import duration, plural
from fusetui.text.printable import printable, printable_lines
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError, NotATraceError, TraceError
from fusetui.trace.model.report import Report
from fusetui.trace.new_file import CannotWriteError

if TYPE_CHECKING:
    from fusetui.analysis.diff.model import Diff
    from fusetui.analysis.ranks.model import JobAnswer
    from fusetui.analysis.why.model import Why
    from fusetui.gpu.kernel_names import KernelName

__all__ = [
    "CannotReadError",
    "CannotWriteError",
    "Error",
    "MissingPackageError",
    "NoColumnError",
    "NotATraceError",
    "OpenTrace",
    "Table",
    "TraceError",
    "UnknownFormatError",
    "WrongQueryError",
    "decode",
    "open",
    "ranks",
]

Source = str | os.PathLike[str] | bytes
"""A path, a URL, `sample:NAME`, `lesson:NAME`, a folder with one trace; or the bytes of
a file."""

BYTES = "bytes"  # how sentences call what is no file
WIDTH, ROWS = 100, 5  # as HTML: of the account, of each table


def read(
    source: Source, cached: bool, captured_by: Sequence[str]
) -> tuple[Trace, tuple[str, ...]]:
    """The trace, joined with captures as on the command line, and what could not be
    read or joined. Raises Error."""
    if isinstance(source, bytes):
        trace = _of_bytes(source)
    else:
        name = os.fspath(source)
        trace = called(
            open_trace(one_trace(name), cached=cached), name if is_shipped(name) else ""
        )
    told, paths = [*notices(trace.report)], captures_named(captured_by)
    if paths or wants_capture(trace):
        from fusetui.analysis.graphs.opening import said, with_captures  # many modules

        trace, joins = with_captures(
            trace, paths, lambda path: open_trace(path, cached=cached)
        )
        told += said(joins)
    return trace, (*told, *notes_of(trace))


def _of_bytes(source: bytes) -> Trace:
    """The file keeps what it holds once it is open, so its name is not needed any
    longer."""
    with tempfile.TemporaryDirectory(prefix="fusetui-") as folder:
        path = Path(folder, "trace")
        path.write_bytes(source)
        try:
            return called(open_trace(str(path), cached=False), BYTES)
        except TraceError as error:
            raise type(error)(str(error).replace(str(path), BYTES)) from None


def open(  # noqa: A001
    source: Source, *, cached: bool = True, captured_by: Sequence[str] = ()
) -> OpenTrace:
    """Reads a trace, or takes it from the cache of earlier readings.

    Replays of CUDA graphs are joined with their captures: those that are named, else
    those found beside the trace. Raises Error with one plain sentence.
    """
    return OpenTrace(source, cached, tuple(captured_by))


def ranks(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> JobAnswer:
    """Everything that is known about the job that these traces are of: files, folders,
    patterns or URLs. A file that is no rank is in its `left_out`. Raises Error if no
    file can be used."""
    from fusetui.analysis.ranks.answer import explained
    from fusetui.analysis.ranks.executors import summarize
    from fusetui.commands.ranks import files, without_passwords

    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not given:
        raise Error(
            "ranks needs the traces of a job: files, folders, patterns or URLs."
        )
    explanation = explained(summarize(files([os.fspath(path) for path in given])))
    answer = without_passwords(explanation.answer)
    if not answer.ranks:
        raise Error(answer.left_out[0].reason)
    return answer


def decode(name: str) -> KernelName | None:
    """What the name of a GPU kernel says; None for one that nothing is known of."""
    from fusetui.gpu.kernel_names import decode

    return decode(name)


class OpenTrace:
    """An open trace. Tables and answers are made when they are first asked for, and
    kept.

    It is a context manager, and it can be pickled: another process opens the source
    again.
    """

    def __init__(
        self, source: Source, cached: bool, captured_by: tuple[str, ...]
    ) -> None:
        self._given: tuple[Source, bool, tuple[str, ...]] = (
            source,
            cached,
            captured_by,
        )
        self._tables: dict[str, Table] = {}
        self._trace: Trace | None
        self._trace, self.notices = read(source, cached, captured_by)
        """Sentences about what of the file could not be read or joined."""

    @property
    def trace(self) -> Trace:
        """The columns that everything is computed from. Raises Error once it was
        closed."""
        if self._trace is None:
            raise Error("This trace was closed: open it again.")
        return self._trace

    @property
    def report(self) -> Report:
        """The counts of what was read, and what was not. Raises Error once it was
        closed."""
        return self.trace.report

    @property
    def kernels(self) -> Table:
        """Kernels by name, the largest total first; `fusetui kernels`."""
        return self._table("kernels")

    @property
    def ops(self) -> Table:
        """CPU ops by name; `fusetui ops`."""
        return self._table("ops")

    @property
    def modules(self) -> Table:
        """The tree of modules and annotations, each after its parent; `fusetui
        modules`."""
        return self._table("modules")

    @property
    def lines(self) -> Table:
        """The user's own Python functions; `fusetui lines`."""
        return self._table("lines")

    @property
    def gaps(self) -> Table:
        """All gaps in which a GPU was idle, the longest first; `fusetui gaps --all`."""
        return self._table("gaps")

    @property
    def launches(self) -> Table:
        """Launch calls by thread and name; `fusetui launches`."""
        return self._table("launches")

    @property
    def collectives(self) -> Table:
        """All collectives, in the order in which they were issued."""
        return self._table("collectives")

    @property
    def findings(self) -> Table:
        """What `fusetui why` finds, the most time at stake first."""
        return self._table("findings")

    @property
    def steps(self) -> Table:
        """The steps; `fusetui steps`."""
        return self._table("steps")

    @property
    def slices(self) -> Table:
        """All slices; `fusetui slices`."""
        return self._table("slices")

    def why(self) -> Why:
        """Where the time went, and why the GPU was idle; `fusetui why`."""
        from msgspec.structs import replace

        from fusetui.analysis.replay.worth import with_worth
        from fusetui.analysis.why.answer import why

        return replace(with_worth(self.trace, why(self.trace)), _wanted=())

    def diff(self, other: OpenTrace | Source, *, step_by: str | None = None) -> Diff:
        """What the other trace does differently; `fusetui diff`. Raises Error."""
        from fusetui.analysis.diff.compare import diff

        that = other if isinstance(other, OpenTrace) else open(other)
        return diff(self.trace, that.trace, step_by=step_by)

    def close(self) -> None:
        """Frees what it holds; it may be called again. Tables that were taken stay."""
        self._trace = None
        self._tables.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given

    def __repr__(self) -> str:
        if self._trace is None:
            return "<fusetui trace, closed>"
        trace, told = self._trace, self.notices
        figures = [
            plural(trace.recorded(), "slice"),
            plural(len(trace.gpu_rows), "GPU event"),
            duration(trace.span_ns),
            *([plural(len(told), "notice")] if told else []),
        ]
        return f"<fusetui trace {printable(trace.report.file)}: {', '.join(figures)}>"

    def _repr_html_(self) -> str:
        from fusetui.analysis.why.selection import accounted
        from fusetui.report.why_answer import account_lines
        from fusetui.tables.drawn import table_html

        found = accounted(self.trace)
        account = "\n".join(account_lines(found, WIDTH)) if found.devices else ""
        said = [text for text in (repr(self), account, *self.notices) if text]
        parts = [f"<pre>{escape(printable_lines(text))}</pre>" for text in said]
        tables = (self.kernels, self.ops, self.gaps)
        return "".join([*parts, *(table_html(one, ROWS) for one in tables if len(one))])

    def _table(self, name: str) -> Table:
        trace = self.trace
        if name not in self._tables:
            self._tables[name] = trace_table(name, trace)
        return self._tables[name]
