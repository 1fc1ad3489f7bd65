"""The tables of `modules` and `lines`, with the time of each part of the program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill

from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import printable
from fusetui.text.tables import (
    TOP_ALL,
    Column,
    count_or_blank,
    omitted_line,
    record_table,
    time_or_blank,
    top_table,
)
from fusetui.trace.model.report import recorded_with
from fusetui.trace.program.functions import Functions, FunctionTime
from fusetui.trace.program.modules import MODULE, Modules, ModuleTime, Unclaimed
from fusetui.trace.program.origin import NOWHERE_IN_WORDS, Nowhere, PhaseTime

INDENT = "  "
"""Of a module below the one that calls it."""

FILE_PARTS = 2
"""The last parts of a path that are shown: the folder and the name of the file."""


def _format_function(time: FunctionTime) -> str:
    """Return a function and its place, such as `forward  models/layers.py:12`."""
    file = "/".join(time.file.split("/")[-FILE_PARTS:])
    return printable(f"{time.function}  {file}:{time.line}")


PASSES = (
    Column("backward", spare=4, cell=lambda time: time_or_blank(time.gpu_backward_ns)),
    Column(
        "recompute", spare=4, cell=lambda time: time_or_blank(time.gpu_recompute_ns)
    ),
    Column("kernels", spare=5, cell=lambda time: count_or_blank(time.kernels)),
)
FUNCTION_COLUMNS = (
    Column("GPU self", cell=lambda time: time_or_blank(time.gpu_self_ns)),
    Column("GPU", spare=1, cell=lambda time: time_or_blank(time.gpu_ns)),
    *PASSES,
    Column("idle", spare=3, cell=lambda time: time_or_blank(time.idle_self_ns or 0)),
    Column("CPU self", cell=lambda time: duration(time.cpu_self_ns)),
    Column("CPU", spare=2, cell=lambda time: duration(time.cpu_ns)),
    Column("calls", spare=6, cell=lambda time: count(time.count)),
    Column("function", left=True, cell=_format_function),
)


def format_modules(
    times: Modules,
    phases: Sequence[PhaseTime],
    top: int,
    width: int,
    *,
    stacks: bool,
    form: str,
) -> str:
    """Return the tree of modules with its `top` largest paths (0: all), then unclaimed
    GPU time, then the time of each phase.

    `stacks` is whether Python frames were recorded, and `form` the format of the trace.
    If there is no module, the text says what records them.
    """
    with_stack = recorded_with("with_stack=True", form)
    if times.modules:
        tree = _format_module_table(times, top, width)
        if all(time.kind != MODULE for time in times.modules):
            tree += _wrap_sentences([_explain_no_calls(stacks, with_stack)], width)
    else:
        tree = _wrap_sentences(explain_no_modules(form), width)
    unclaimed = _wrap_sentences(describe_outside_modules(times), width)
    by_phase = _wrap_sentences(_describe_phases(phases, times.gpu_ns), width)
    return _join_paragraphs(tree, unclaimed, by_phase)


def explain_no_modules(form: str) -> tuple[str, str]:
    """Return two sentences: that a trace has neither modules nor annotations, and what
    records them. `form` is the format of the trace."""
    with_stack = recorded_with("with_stack=True", form)
    record_function = recorded_with("record_function", form)
    return (
        "no modules or annotations in this trace",
        f"{with_stack} records modules; {record_function} adds annotations",
    )


def format_functions(times: Functions, top: int, width: int, form: str) -> str:
    """Return a table of the first `top` functions (0: all), then unclaimed GPU time.
    `form` is the format of the trace."""
    if times.functions:
        table = [_format_function_table(times.functions, top, width)]
    else:
        with_stack = recorded_with("with_stack=True", form)
        sentences = (
            "no such Python functions in this trace",
            f"{with_stack} records functions; --file PATH shows functions of a library",
        )
        table = _wrap_sentences(sentences, width)
    unclaimed = _wrap_sentences(describe_outside_functions(times), width)
    return _join_paragraphs(table, unclaimed)


def describe_outside_modules(times: Modules) -> tuple[str, ...]:
    """Return a sentence for each reason why GPU time belongs to no path of the module
    tree, with how much it is."""
    return tuple(
        _describe_unclaimed(part, times.gpu_ns, NOWHERE_IN_WORDS[Nowhere.OUTSIDE])
        for part in times.none
    )


def describe_outside_functions(times: Functions) -> tuple[str, ...]:
    """Return a sentence for each reason why GPU time belongs to no function, with how
    much it is."""
    return tuple(
        _describe_unclaimed(part, times.gpu_ns, "outside these functions")
        for part in times.none
    )


def _describe_unclaimed(part: Unclaimed, whole_ns: int, outside: str) -> str:
    """Return how much GPU time is unclaimed for one reason, such as `1.2 ms of GPU time
    (3 %, 12 kernels): outside modules`. `outside` names the reason where the time is
    merely outside."""
    time = duration(part.gpu_ns)
    share = percent(part.gpu_ns, whole_ns)
    kernels = plural(part.kernels, "kernel")
    is_outside = part.why is Nowhere.OUTSIDE
    reason = outside if is_outside else NOWHERE_IN_WORDS[part.why]
    return f"{time} of GPU time ({share}, {kernels}): {reason}"


def _explain_no_calls(stacks: bool, with_stack: str) -> str:
    """Return why a trace has annotations but no modules. `with_stack` names the option
    that records calls of modules."""
    if stacks:
        return (
            "no modules in this trace, although Python stacks were recorded; "
            "record_function adds annotations"
        )
    return f"no modules in this trace: {with_stack} records them"


def _describe_phases(phases: Sequence[PhaseTime], whole_ns: int) -> list[str]:
    """Return a sentence in a list about the GPU time of each phase; empty without
    phases.

        GPU time by phase: forward 3 ms (30 %), backward 7 ms (70 %)
    """
    if not phases:
        return []
    times = []
    for part in phases:
        share = percent(part.gpu_ns, whole_ns)
        times.append(f"{part.phase} {duration(part.gpu_ns)} ({share})")
    return [f"GPU time by phase: {', '.join(times)}"]


def _format_module_table(times: Modules, top: int, width: int) -> list[str]:
    """Return lines with the table of the `top` largest paths (0: all), in the order of
    the tree, and how many are left out."""
    largest_first = sorted(
        times.modules, key=lambda time: (-time.gpu_ns, -time.cpu_ns, time.level)
    )
    largest = largest_first[:top] if top else largest_first
    shown_ids = {id(time) for time in largest}
    shown = [time for time in times.modules if id(time) in shown_ids]
    hidden = _find_empty_passes(times.modules)
    columns = [
        column
        for column in _make_module_columns(times.gpu_ns)
        if column.title not in hidden
    ]
    omitted_lines = omitted_line(len(times.modules) - len(shown), "path", TOP_ALL)
    return [record_table(columns, shown, width), *_wrap_sentences(omitted_lines, width)]


def _make_module_columns(whole_ns: int) -> list[Column]:
    """Return the columns of the table of modules. Shares are of `whole_ns` of GPU time."""

    def share(time: ModuleTime) -> str:
        return percent(time.gpu_ns, whole_ns) if time.gpu_ns else ""

    def indented_name(time: ModuleTime) -> str:
        return INDENT * time.level + printable(time.module)

    return [
        Column("GPU", cell=lambda time: time_or_blank(time.gpu_ns)),
        Column("share", spare=1, cell=share),
        Column("self", spare=2, cell=lambda time: time_or_blank(time.gpu_self_ns)),
        *PASSES,
        Column("CPU", spare=6, cell=lambda time: time_or_blank(time.cpu_ns)),
        Column("calls", spare=7, cell=lambda time: count_or_blank(time.count)),
        Column("module", left=True, cell=indented_name),
    ]


def _format_function_table(
    functions: Sequence[FunctionTime], top: int, width: int
) -> str:
    """Return a table of the first `top` functions (0: all), and how many are left out.
    Columns without any figure are dropped."""
    hidden = _find_empty_passes(functions)
    if all(time.idle_ns is None for time in functions):
        hidden.add("idle")
    columns = [column for column in FUNCTION_COLUMNS if column.title not in hidden]
    return top_table(columns, functions, top, width, "function")


def _find_empty_passes(times: Sequence[ModuleTime | FunctionTime]) -> set[str]:
    """Return the titles of the columns, backward and recompute, in which no row has GPU
    work."""
    hidden = set()
    if not any(time.gpu_backward_ns for time in times):
        hidden.add("backward")
    if not any(time.gpu_recompute_ns for time in times):
        hidden.add("recompute")
    return hidden


def _wrap_sentences(sentences: Iterable[str], width: int) -> list[str]:
    """Return sentences as lines of at most `width` cells."""
    return [fill(sentence, width, break_on_hyphens=False) for sentence in sentences]


def _join_paragraphs(*paragraphs: Sequence[str]) -> str:
    """Return the paragraphs that have lines as one text, with an empty line between
    two."""
    texts = ["\n".join(lines) for lines in paragraphs if lines]
    return "\n\n".join(texts)
