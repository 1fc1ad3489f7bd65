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


def _function_and_place(time: FunctionTime) -> str:
    """`forward  models/layers.py:12`."""
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
    Column("function", left=True, cell=_function_and_place),
)


def modules_text(
    times: Modules,
    phases: Sequence[PhaseTime],
    top: int,
    width: int,
    *,
    stacks: bool,
    form: str,
) -> str:
    """The tree with its `top` largest paths (0: all), unclaimed GPU time, and the
    phases. `stacks`: whether Python frames were recorded; `form`: the format of the
    trace."""
    with_stack = recorded_with("with_stack=True", form)
    if times.modules:
        tree = _module_table(times, top, width)
        if all(time.kind != MODULE for time in times.modules):
            tree += _folded([_no_calls(stacks, with_stack)], width)
    else:
        tree = _folded(no_modules(form), width)
    unclaimed = _folded(outside_modules(times), width)
    by_phase = _folded(_by_phase(phases, times.gpu_ns), width)
    return _paragraphs(tree, unclaimed, by_phase)


def no_modules(form: str) -> tuple[str, str]:
    """That a trace has neither modules nor annotations, and what records them; `form`:
    the format of the trace."""
    with_stack = recorded_with("with_stack=True", form)
    record_function = recorded_with("record_function", form)
    return (
        "no modules or annotations in this trace",
        f"{with_stack} records modules; {record_function} adds annotations",
    )


def functions_text(times: Functions, top: int, width: int, form: str) -> str:
    """The first `top` functions (0: all), and unclaimed GPU time; `form`: the format of
    the trace."""
    if times.functions:
        table = [_function_table(times.functions, top, width)]
    else:
        with_stack = recorded_with("with_stack=True", form)
        sentences = (
            "no such Python functions in this trace",
            f"{with_stack} records functions; --file PATH shows functions of a library",
        )
        table = _folded(sentences, width)
    unclaimed = _folded(outside_functions(times), width)
    return _paragraphs(table, unclaimed)


def outside_modules(times: Modules) -> tuple[str, ...]:
    """Why GPU time belongs to no path of the tree, with how much: a sentence for each
    reason."""
    return tuple(
        _unclaimed(part, times.gpu_ns, NOWHERE_IN_WORDS[Nowhere.OUTSIDE])
        for part in times.none
    )


def outside_functions(times: Functions) -> tuple[str, ...]:
    """Why GPU time belongs to no function, with how much: a sentence for each
    reason."""
    return tuple(
        _unclaimed(part, times.gpu_ns, "outside these functions") for part in times.none
    )


def _unclaimed(part: Unclaimed, whole_ns: int, outside: str) -> str:
    """`1.2 ms of GPU time (3 %, 12 kernels): outside modules`; the last words are
    `outside` unless the reason is another."""
    time = duration(part.gpu_ns)
    share = percent(part.gpu_ns, whole_ns)
    kernels = plural(part.kernels, "kernel")
    is_outside = part.why is Nowhere.OUTSIDE
    reason = outside if is_outside else NOWHERE_IN_WORDS[part.why]
    return f"{time} of GPU time ({share}, {kernels}): {reason}"


def _no_calls(stacks: bool, with_stack: str) -> str:
    """Why there are annotations alone. `with_stack`: what records calls of modules."""
    if stacks:
        return (
            "no modules in this trace, although Python stacks were recorded; "
            "record_function adds annotations"
        )
    return f"no modules in this trace: {with_stack} records them"


def _by_phase(phases: Sequence[PhaseTime], whole_ns: int) -> list[str]:
    """`GPU time by phase: forward 3 ms (30 %), backward 7 ms (70 %)`."""
    if not phases:
        return []
    times = []
    for part in phases:
        share = percent(part.gpu_ns, whole_ns)
        times.append(f"{part.phase} {duration(part.gpu_ns)} ({share})")
    return [f"GPU time by phase: {', '.join(times)}"]


def _module_table(times: Modules, top: int, width: int) -> list[str]:
    """The table of the `top` largest paths (0: all) in the order of the tree, and how
    many are left out."""
    largest_first = sorted(
        times.modules, key=lambda time: (-time.gpu_ns, -time.cpu_ns, time.level)
    )
    largest = largest_first[:top] if top else largest_first
    chosen = {id(time) for time in largest}
    shown = [time for time in times.modules if id(time) in chosen]
    hidden = _passes_without_work(times.modules)
    columns = [
        column for column in _module_columns(times.gpu_ns) if column.title not in hidden
    ]
    rest = omitted_line(len(times.modules) - len(shown), "path", TOP_ALL)
    return [record_table(columns, shown, width), *_folded(rest, width)]


def _module_columns(whole_ns: int) -> list[Column]:
    """`whole_ns`: the GPU time that shares are of."""

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


def _function_table(functions: Sequence[FunctionTime], top: int, width: int) -> str:
    """The first `top` functions (0: all), and how many are left out."""
    hidden = _passes_without_work(functions)
    if all(time.idle_ns is None for time in functions):
        hidden.add("idle")
    columns = [column for column in FUNCTION_COLUMNS if column.title not in hidden]
    return top_table(columns, functions, top, width, "function")


def _passes_without_work(times: Sequence[ModuleTime | FunctionTime]) -> set[str]:
    """The titles of the columns of passes of which there is no GPU work."""
    hidden = set()
    if not any(time.gpu_backward_ns for time in times):
        hidden.add("backward")
    if not any(time.gpu_recompute_ns for time in times):
        hidden.add("recompute")
    return hidden


def _folded(sentences: Iterable[str], width: int) -> list[str]:
    """Sentences in lines of the width."""
    return [fill(sentence, width, break_on_hyphens=False) for sentence in sentences]


def _paragraphs(*paragraphs: Sequence[str]) -> str:
    """Those that have lines, with an empty line between two."""
    texts = ["\n".join(lines) for lines in paragraphs if lines]
    return "\n\n".join(texts)
