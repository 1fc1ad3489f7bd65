"""The Python API of fusetui: `import fusetui as ft; t = ft.open("trace.json.gz")`.

docs/python.md describes it, and docs/stability.md says what of it may change when.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fusetui import Error
from fusetui.analysis.questions.launches import wants_capture
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.commands.loading import (
    called,
    captures_named,
    notices,
    with_compile_log,
)
from fusetui.commands.sources import is_shipped, one_trace
from fusetui.report.output import notes_of
from fusetui.tables.files import MissingPackageError, UnknownFormatError
from fusetui.tables.public import Table
from fusetui.tables.sources import TABLES, trace_table
from fusetui.tables.table import NoColumnError
from fusetui.text.figures import duration, plural
from fusetui.text.printable import printable, printable_lines
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError, NotATraceError, TraceError
from fusetui.trace.model.memo import memo
from fusetui.trace.model.report import Report
from fusetui.trace.new_file import CannotWriteError

if TYPE_CHECKING:
    from fusetui.analysis.diff.model import Diff
    from fusetui.analysis.hang.model import HangAnswer
    from fusetui.analysis.memory.answer import MemoryAnswer
    from fusetui.analysis.questions.summary import Summary
    from fusetui.analysis.ranks.model import JobAnswer
    from fusetui.analysis.replay.path import Path as CriticalPath
    from fusetui.analysis.replay.whatif import WhatIf
    from fusetui.analysis.serving.answer import Serving
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
    "hang",
    "memory",
    "open",
    "ranks",
]

Source = str | os.PathLike[str] | bytes
"""A path, a URL, `sample:NAME`, `lesson:NAME`, a folder with one trace; or the bytes of
a file."""

NAME_OF_BYTES = "bytes"
"""How sentences call a source that is no file."""

HTML_WIDTH = 100  # characters of a line of the account
HTML_ROWS = 5  # of each table


class _Reading(NamedTuple):
    """A trace, joined with captures as on the command line, and sentences about what
    could not be read or joined."""

    trace: Trace
    notices: tuple[str, ...]


def _read(
    source: Source, cached: bool, captured_by: Sequence[str], compile_log: str
) -> _Reading:
    """Open a trace as `open` does, and collect the sentences about what it lacks.

    Args:
        source: The trace. Raises Error if it cannot be read.
        cached: Whether the cache may be used.
        captured_by: The captures of its CUDA graphs; if there are none, they are looked
            for beside the trace.
        compile_log: The log of torch.compile, "" for none.
    """
    if isinstance(source, bytes):
        recorded_trace = _trace_of_bytes(source)
    else:
        recorded_trace = _trace_of_path(os.fspath(source), cached)
    trace = with_compile_log(recorded_trace, compile_log)
    sentences = [*notices(trace.report)]

    captures = captures_named(captured_by)
    if captures or wants_capture(trace):
        from fusetui.analysis.graphs.opening import (  # many modules
            join_sentences,
            with_captures,
        )

        def read_capture(path: str) -> Trace:
            return open_trace(path, cached=cached)

        trace, joins = with_captures(trace, captures, read_capture)
        sentences += join_sentences(joins)

    sentences += notes_of(trace)
    return _Reading(trace=trace, notices=tuple(sentences))


def _trace_of_path(name: str, cached: bool) -> Trace:
    """The trace of a path, a URL, `sample:NAME` or `lesson:NAME`. Raises Error."""
    trace = open_trace(one_trace(name), cached=cached)
    # Sentences call a sample by its name, and any other trace by its file.
    shown_name = name if is_shipped(name) else ""
    return called(trace, shown_name)


def _trace_of_bytes(source: bytes) -> Trace:
    """Read a trace from the bytes of a file; sentences call it NAME_OF_BYTES.

    They are written to a file, which is removed at once: it stays open as long as the
    trace, and needs no name. Raises Error.
    """
    with tempfile.TemporaryDirectory(prefix="fusetui-") as folder:
        path = Path(folder, "trace")
        path.write_bytes(source)
        try:
            return called(open_trace(str(path), cached=False), NAME_OF_BYTES)
        except TraceError as error:
            sentence = str(error).replace(str(path), NAME_OF_BYTES)
            raise type(error)(sentence) from None


def open(  # noqa: A001
    source: Source,
    *,
    cached: bool = True,
    captured_by: Sequence[str] = (),
    compile_log: str | os.PathLike[str] = "",
) -> OpenTrace:
    """Open a trace. Raises Error with one plain sentence if it cannot be read.

    Args:
        source: The trace.
        cached: Whether it may be taken from the cache of earlier readings.
        captured_by: Traces of the captures of its CUDA graphs, which replays are joined
            with. By default, those beside the trace are used.
        compile_log: What torch.compile logged: a log of TORCH_TRACE, a folder of them,
            or torch_compile_debug. By default, it is looked for beside the trace.
    """
    return OpenTrace(source, cached, tuple(captured_by), os.fspath(compile_log))


def ranks(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> JobAnswer:
    """Explain a job by the traces of its ranks; `fusetui ranks`.

    Args:
        paths: The traces: files, folders, patterns or URLs. Raises Error if none of
            them can be used.

    Returns:
        The answer. Its `left_out` has the files that are no ranks of the job.
    """
    from fusetui.analysis.ranks.answer import explained
    from fusetui.analysis.ranks.executors import summarize
    from fusetui.commands.ranks import files, without_passwords

    path_list = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not path_list:
        raise Error(
            "ranks needs the traces of a job: files, folders, patterns or URLs."
        )
    trace_files = files([os.fspath(path) for path in path_list])
    summaries = summarize(trace_files)
    answer = without_passwords(explained(summaries).answer)
    if not answer.ranks:
        first_left_out = answer.left_out[0]
        raise Error(first_left_out.reason)
    return answer


def memory(path: str | os.PathLike[str], at: str | int = "peak") -> MemoryAnswer:
    """Explain what holds memory, by a memory snapshot of torch; `fusetui memory`.

    Raises Error if the snapshot cannot be read, or has no such moment.

    Args:
        path: The snapshot.
        at: The moment: its "peak", its "end", the failed allocation "oom", or the
            number of an event, for the moment after it.
    """
    from fusetui.analysis.memory.answer import NoMomentError
    from fusetui.analysis.memory.answer import memory as explain_memory
    from fusetui.trace.snapshot.reading import read_snapshot

    snapshot = read_snapshot(os.fspath(path))
    try:
        return explain_memory(snapshot, at)
    except NoMomentError as error:
        raise Error(str(error)) from None


def hang(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> HangAnswer:
    """Explain why a job hangs, by the dumps of torch's flight recorder; `fusetui hang`.

    Args:
        paths: The dumps: files, or folders of them. Raises Error if none of them can be
            read.
    """
    from fusetui.analysis.hang.answer import why_it_hangs
    from fusetui.commands.hang import dump_files
    from fusetui.trace.flight.reading import read_dumps

    path_list = [paths] if isinstance(paths, str | os.PathLike) else paths
    dumps = read_dumps(dump_files([os.fspath(path) for path in path_list]))
    if dumps.ranks:
        return why_it_hangs(dumps)
    reasons = [unread.reason for unread in dumps.unread[:1]]
    raise Error(" ".join(["No dump could be read.", *reasons]))


def decode(name: str) -> KernelName | None:
    """Decode the name of a GPU kernel; None if nothing is known of such names."""
    from fusetui.gpu.kernel_names import decode

    return decode(name)


class OpenTrace:
    """An open trace, which `fusetui.open` returns. Tables and answers are made when
    they are first asked for; tables are kept.

    It is a context manager, and it can be pickled: another process opens the source
    again.
    """

    def __init__(
        self,
        source: Source,
        cached: bool,
        captured_by: tuple[str, ...],
        compile_log: str = "",
    ) -> None:
        self._arguments = (source, cached, captured_by, compile_log)
        reading = _read(source, cached, captured_by, compile_log)
        self._trace: Trace | None = reading.trace
        self.notices = reading.notices
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
        return _table(self.trace, "kernels")

    @property
    def ops(self) -> Table:
        """CPU ops by name; `fusetui ops`."""
        return _table(self.trace, "ops")

    @property
    def modules(self) -> Table:
        """The tree of modules and annotations, each after its parent; `fusetui
        modules`."""
        return _table(self.trace, "modules")

    @property
    def lines(self) -> Table:
        """The user's own Python functions; `fusetui lines`."""
        return _table(self.trace, "lines")

    @property
    def compile(self) -> Table:
        """Kernels of compiled regions with their lines of Python, by the log of
        torch.compile; `fusetui compile`. Raises Error if a log that was named cannot be
        read."""
        return _table(self.trace, "compile")

    @property
    def gaps(self) -> Table:
        """All gaps in which a GPU was idle, the longest first; `fusetui gaps --all`."""
        return _table(self.trace, "gaps")

    @property
    def launches(self) -> Table:
        """Launch calls by thread and name; `fusetui launches`."""
        return _table(self.trace, "launches")

    @property
    def collectives(self) -> Table:
        """All collectives, in the order in which they were issued."""
        return _table(self.trace, "collectives")

    @property
    def findings(self) -> Table:
        """What `fusetui why` finds, the most time at stake first."""
        return _table(self.trace, "findings")

    @property
    def steps(self) -> Table:
        """The steps; `fusetui steps`."""
        return _table(self.trace, "steps")

    @property
    def slices(self) -> Table:
        """All slices; `fusetui slices`."""
        return _table(self.trace, "slices")

    def why(self) -> Why:
        """Explain where the time went, and why the GPU was idle; `fusetui why`."""
        from msgspec.structs import replace

        from fusetui.analysis.replay.worth import with_worth
        from fusetui.analysis.why.answer import why

        answer = with_worth(self.trace, why(self.trace))
        return replace(answer, _wanted=())  # which hold columns as long as the trace

    def summary(self) -> Summary:
        """Return key figures of the whole trace; `fusetui summary`."""
        from fusetui.analysis.questions.summary import summary

        return summary(self.trace)

    def whatif(self, *changes: str, step: int | None = None) -> WhatIf:
        """Estimate the gain of some changes by a replay of the trace; `fusetui whatif`.

        Args:
            changes: The changes, which are made together: "kernel:gemm x0.5". Raises
                Error for a text that is no change, and if nothing matches it.
            step: The number of the step that is replayed; None for all of the trace.
        """
        from fusetui.analysis.replay.whatif import whatif

        return whatif(self.trace, changes, step)

    def critical_path(self) -> CriticalPath:
        """Find the critical path of a step, and what has slack; `fusetui path`."""
        from fusetui.analysis.replay.path import path

        return path(self.trace)

    def serving(self, model_config: str | os.PathLike[str] | None = None) -> Serving:
        """Explain the steps of an inference server; `fusetui serving`.

        Args:
            model_config: The `config.json` of the model, which gives the least time
                that each step can take. Raises Error if it cannot be used.
        """
        from fusetui.analysis.serving.answer import serving
        from fusetui.analysis.serving.config import read_config

        config = None if model_config is None else read_config(os.fspath(model_config))
        return serving(self.trace, config)

    def cut(
        self,
        out: str | os.PathLike[str],
        *,
        begin_ns: int = 0,
        end_ns: int | None = None,
        scrub: bool = False,
    ) -> None:
        """Write a part of the trace to a new file; `fusetui cut`.

        Raises Error if nothing lies in this part.

        Args:
            out: The new file. Raises Error if it exists.
            begin_ns: Where the part begins, in ns since the begin of the trace.
            end_ns: Where it ends; None for the end of the trace.
            scrub: Whether private data is removed.
        """
        from fusetui.commands.cut import Window, write_part
        from fusetui.trace.scrub.document import check_target

        trace = self.trace
        last_ns = trace.end_ns if end_ns is None else trace.begin_ns + end_ns
        window = Window(trace.begin_ns + begin_ns, last_ns)
        target = os.fspath(out)
        check_target(target)
        write_part(trace, window, target, scrub=scrub)

    def diff(self, other: OpenTrace | Source, *, step_by: str | None = None) -> Diff:
        """Compare this trace (A) with another one (B); `fusetui diff`.

        Args:
            other: The other trace. Raises Error if it cannot be read.
            step_by: A pattern; annotations that match it are the steps.
        """
        from fusetui.analysis.diff.compare import diff

        opened_other = other if isinstance(other, OpenTrace) else open(other)
        return diff(self.trace, opened_other.trace, step_by=step_by)

    def reproduce(
        self, op: str = "", *, kernel: str = "", row: int | None = None
    ) -> str:
        """Write a Python script that calls a recorded op again; `fusetui reproduce`.

        Exactly one of the arguments is given. Of several distinct calls, the one with
        the largest total time is taken. Raises Error if there is no such op, or if it
        cannot be called again.

        Args:
            op: The name of the op.
            kernel: The name of a kernel that the op launched.
            row: A row of `slices`: the op, or what it launched.
        """
        from fusetui.analysis.reproduce.model import CallKind
        from fusetui.analysis.reproduce.select import call_asked
        from fusetui.report.reproduce.script import script_of
        from fusetui.report.reproduce.wording import name_of, why_not

        call = call_asked(self.trace, op=op, kernel=kernel, row=row)
        if call.kind is CallKind.NONE:
            raise Error(f"{name_of(call)} has no script: {why_not(call)}.")
        return script_of(call, os.path.basename(self.trace.report.file))

    def close(self) -> None:
        """Free the trace. Tables that were taken stay. It may be closed twice."""
        self._trace = None

    def __enter__(self) -> Self:
        """Return the trace itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the trace."""
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only how the trace is opened, so that another process does it again."""
        return type(self), self._arguments

    def __repr__(self) -> str:
        """Return the file of the trace with its key figures."""
        trace = self._trace
        if trace is None:
            return "<fusetui trace, closed>"
        figures = [
            plural(trace.recorded(), "slice"),
            plural(len(trace.gpu_rows), "GPU event"),
            duration(trace.span_ns),
        ]
        if self.notices:
            figures.append(plural(len(self.notices), "notice"))
        return f"<fusetui trace {printable(trace.report.file)}: {', '.join(figures)}>"

    def _repr_html_(self) -> str:
        """Describe the trace as HTML, for notebooks.

        These are its key figures, where the time of its GPUs went, the notices, and the
        first rows of three tables.
        """
        from fusetui.analysis.why.selection import account_for_selection
        from fusetui.report.why_answer import account_lines
        from fusetui.tables.drawn import table_html

        texts = [repr(self)]
        account = account_for_selection(self.trace)
        if account.devices:
            texts.append("\n".join(account_lines(account, HTML_WIDTH)))
        texts += self.notices
        paragraphs = []
        for text in texts:
            if text:
                paragraphs.append(f"<pre>{escape(printable_lines(text))}</pre>")
        for table in (self.kernels, self.ops, self.gaps):
            has_rows = len(table) > 0
            if has_rows:
                paragraphs.append(table_html(table, HTML_ROWS))
        return "".join(paragraphs)


@memo(len(TABLES))
def _table(trace: Trace, name: str) -> Table:
    """A table of TABLES, which is kept as long as the trace."""
    return trace_table(name, trace)
