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
    """Reads a source, or takes it from the cache. Raises Error."""
    if isinstance(source, bytes):
        trace = _trace_of_bytes(source)
    else:
        trace = _trace_of_path(os.fspath(source), cached)
    trace = with_compile_log(trace, compile_log)
    sentences = [*notices(trace.report)]
    captures = captures_named(captured_by)
    if captures or wants_capture(trace):
        from fusetui.analysis.graphs.opening import (  # many modules
            join_sentences,
            with_captures,
        )

        trace, joins = with_captures(
            trace, captures, lambda path: open_trace(path, cached=cached)
        )
        sentences += join_sentences(joins)
    sentences += notes_of(trace)
    return _Reading(trace=trace, notices=tuple(sentences))


def _trace_of_path(name: str, cached: bool) -> Trace:
    """The trace of a path, a URL, `sample:NAME` or `lesson:NAME`. Raises Error."""
    trace = open_trace(one_trace(name), cached=cached)
    return called(trace, name if is_shipped(name) else "")


def _trace_of_bytes(source: bytes) -> Trace:
    """The file stays open as long as its trace, so it needs no name once it is read.
    Raises Error."""
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
    """Reads a trace, or takes it from the cache of earlier readings.

    Replays of CUDA graphs are joined with their captures: those that are named, else
    those found beside the trace. So is what torch.compile logged: `compile_log` is a log
    of TORCH_TRACE, a folder of them, or torch_compile_debug. Raises Error with one plain
    sentence.
    """
    return OpenTrace(source, cached, tuple(captured_by), os.fspath(compile_log))


def ranks(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> JobAnswer:
    """Everything that is known about the job that these traces are of: files, folders,
    patterns or URLs. A file that is no rank is in its `left_out`. Raises Error if no
    file can be used."""
    from fusetui.analysis.ranks.answer import explained
    from fusetui.analysis.ranks.executors import summarize
    from fusetui.commands.ranks import files, without_passwords

    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if not paths:
        raise Error(
            "ranks needs the traces of a job: files, folders, patterns or URLs."
        )
    traces = files([os.fspath(path) for path in paths])
    answer = without_passwords(explained(summarize(traces)).answer)
    if not answer.ranks:
        raise Error(answer.left_out[0].reason)
    return answer


def memory(path: str | os.PathLike[str], at: str | int = "peak") -> MemoryAnswer:
    """What a memory snapshot of torch holds at a moment: at its "peak", at its "end", at
    the failed allocation "oom", or after an event by its number; `fusetui memory`.
    Raises Error."""
    from fusetui.analysis.memory.answer import NoMomentError
    from fusetui.analysis.memory.answer import memory as answered
    from fusetui.trace.snapshot.reading import read_snapshot

    try:
        return answered(read_snapshot(os.fspath(path)), at)
    except NoMomentError as error:
        raise Error(str(error)) from None


def hang(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> HangAnswer:
    """Why a job hangs, by the dumps of torch's flight recorder: files, or folders of
    them; `fusetui hang`. Raises Error if none can be read."""
    from fusetui.analysis.hang.answer import why_it_hangs
    from fusetui.commands.hang import dump_files
    from fusetui.trace.flight.reading import read_dumps

    names = [paths] if isinstance(paths, str | os.PathLike) else paths
    dumps = read_dumps(dump_files([os.fspath(name) for name in names]))
    if not dumps.ranks:
        reason = f" {dumps.unread[0].reason}" if dumps.unread else ""
        raise Error(f"No readable dump.{reason}")
    return why_it_hangs(dumps)


def decode(name: str) -> KernelName | None:
    """What the name of a GPU kernel says; None for one that nothing is known of."""
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
        """Where the time went, and why the GPU was idle; `fusetui why`."""
        from msgspec.structs import replace

        from fusetui.analysis.replay.worth import with_worth
        from fusetui.analysis.why.answer import why

        answer = with_worth(self.trace, why(self.trace))
        return replace(answer, _wanted=())  # which hold columns as long as the trace

    def summary(self) -> Summary:
        """Key figures of the whole trace; `fusetui summary`."""
        from fusetui.analysis.questions.summary import summary

        return summary(self.trace)

    def whatif(self, *changes: str, step: int | None = None) -> WhatIf:
        """What some changes together would be worth, such as "kernel:gemm x0.5", by a
        replay of the trace; of one step if its number is given; `fusetui whatif`. Raises
        Error for what is no change, and where nothing matches it."""
        from fusetui.analysis.replay.whatif import whatif

        return whatif(self.trace, changes, step)

    def critical_path(self) -> CriticalPath:
        """What a step waits for from its begin to its end, and what has slack; `fusetui
        path`."""
        from fusetui.analysis.replay.path import path

        return path(self.trace)

    def serving(self, model_config: str | os.PathLike[str] | None = None) -> Serving:
        """The steps of an inference server. With the `config.json` of the model, also
        the least time that they can take; `fusetui serving`. Raises Error if that cannot
        be used."""
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
        """Writes what lies between two times as a trace of its own, in ns since the
        begin of this one; `end_ns` None is its end. With `scrub`, without private data;
        `fusetui cut`. Raises Error if nothing lies there, or `out` exists."""
        from fusetui.commands.cut import Window, write_part
        from fusetui.trace.scrub.document import check_target

        trace = self.trace
        end = trace.end_ns if end_ns is None else trace.begin_ns + end_ns
        target = os.fspath(out)
        check_target(target)
        write_part(trace, Window(trace.begin_ns + begin_ns, end), target, scrub=scrub)

    def diff(self, other: OpenTrace | Source, *, step_by: str | None = None) -> Diff:
        """What the other trace does differently; `fusetui diff`. Raises Error."""
        from fusetui.analysis.diff.compare import diff

        if not isinstance(other, OpenTrace):
            other = open(other)
        return diff(self.trace, other.trace, step_by=step_by)

    def reproduce(
        self, op: str = "", *, kernel: str = "", row: int | None = None
    ) -> str:
        """The Python script that makes an op again: the one with this name that took
        the most time, the one that launched a kernel, or the one of a row of `slices`;
        `fusetui reproduce`. Raises Error, also for a call that cannot be made again."""
        from fusetui.analysis.reproduce.model import CallKind
        from fusetui.analysis.reproduce.select import call_asked
        from fusetui.report.reproduce.script import script_of
        from fusetui.report.reproduce.wording import name_of, why_not

        call = call_asked(self.trace, op=op, kernel=kernel, row=row)
        if call.kind is CallKind.NONE:
            raise Error(f"{name_of(call)} has no script: {why_not(call)}.")
        return script_of(call, os.path.basename(self.trace.report.file))

    def close(self) -> None:
        """Frees what it holds; it may be called again. Tables that were taken stay."""
        self._trace = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def __repr__(self) -> str:
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
        """For notebooks: its repr, the account, the notices, and the first rows of
        three tables."""
        from fusetui.analysis.why.selection import accounted
        from fusetui.report.why_answer import account_lines
        from fusetui.tables.drawn import table_html

        texts = [repr(self)]
        account = accounted(self.trace)
        if account.devices:
            texts.append("\n".join(account_lines(account, HTML_WIDTH)))
        texts += self.notices
        html = [f"<pre>{escape(printable_lines(text))}</pre>" for text in texts if text]
        for table in (self.kernels, self.ops, self.gaps):
            if len(table):
                html.append(table_html(table, HTML_ROWS))
        return "".join(html)


@memo(len(TABLES))
def _table(trace: Trace, name: str) -> Table:
    """A table of TABLES, which is kept as long as the trace."""
    return trace_table(name, trace)
