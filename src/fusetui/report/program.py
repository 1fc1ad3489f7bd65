"""The tables of `modules` and `lines`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import printable
from fusetui.text.tables import TOP_ALL, Column, left_out, table
from fusetui.trace.model.recording import recorded_with
from fusetui.trace.program.functions import Functions, FunctionTime
from fusetui.trace.program.modules import MODULE, Modules, ModuleTime, Unclaimed
from fusetui.trace.program.origin import Nowhere
from fusetui.trace.program.phases import PhaseTime

MODULE_COLUMNS = (
    Column("GPU"),
    Column("share", spare=1),
    Column("self", spare=2),
    Column("backward", spare=3),
    Column("recompute", spare=3),
    Column("kernels", spare=4),
    Column("CPU", spare=5),
    Column("calls", spare=6),
    Column("module", left=True),
)
FUNCTION_COLUMNS = (
    Column("GPU self"),
    Column("GPU", spare=1),
    Column("backward", spare=4),
    Column("recompute", spare=4),
    Column("kernels", spare=5),
    Column("idle", spare=3),
    Column("CPU self"),
    Column("CPU", spare=2),
    Column("calls", spare=6),
    Column("function", left=True),
)
BACKWARD, RECOMPUTE, IDLE = "backward", "recompute", "idle"  # columns that are blank in many traces
NO_MODULES = (
    "nothing in this trace names a part of the program",
    "with_stack=True records the calls of modules, record_function names any other part",
)
NO_CALLS = "the calls of modules are not in this trace: {} records them"
NO_CALLS_IN_STACKS = (
    "Python stacks were recorded, but no call of a module: record_function names other parts"
)
NO_FUNCTIONS = (
    "no such Python functions in this trace",
    "with_stack=True records functions, --file PATH shows those of a library",
)
INDENT = "  "


def modules_text(
    times: Modules,
    phases: Sequence[PhaseTime],
    top: int,
    width: int,
    *,
    stacks: bool,
    form: str = "json",
) -> str:
    """The tree with its `top` largest paths (0: all), unclaimed GPU time, and the phases. `stacks`:
    whether Python frames were recorded; `form`: the format of the trace."""
    said = NO_CALLS_IN_STACKS if stacks else NO_CALLS.format(recorded_with("with_stack=True", form))
    tree = list(_module_table(times, top, width, said))
    paragraphs = [tree if times.modules else list(NO_MODULES)]
    paragraphs += [list(_unclaimed(times.none, times.gpu_ns, "in no module or annotation"))]
    parts = [
        f"{phase.phase} {duration(phase.gpu_ns)} ({percent(phase.gpu_ns, times.gpu_ns)})"
        for phase in phases
    ]
    paragraphs += [[f"GPU time by phase: {', '.join(parts)}"]] if parts else []
    return _text(paragraphs, width)


def functions_text(times: Functions, top: int, width: int) -> str:
    """The first `top` functions (0: all), and unclaimed GPU time."""
    paragraphs = [
        list(_function_table(times, top, width)) if times.functions else list(NO_FUNCTIONS)
    ]
    paragraphs += [list(_unclaimed(times.none, times.gpu_ns, "in none of these functions"))]
    return _text(paragraphs, width)


def _text(paragraphs: Sequence[Sequence[str]], width: int) -> str:
    """Folds sentences to the width, but not tables, which already fit."""
    shown = [
        "\n".join(_folded(line, width) for line in paragraph)
        for paragraph in paragraphs
        if paragraph
    ]
    return "\n\n".join(shown)


def _folded(line: str, width: int) -> str:
    return line if "\n" in line else fill(line, width, break_on_hyphens=False)


def _module_table(times: Modules, top: int, width: int, no_calls: str) -> Iterator[str]:
    largest = sorted(times.modules, key=lambda time: (-time.gpu_ns, -time.cpu_ns, time.level))
    chosen = set(map(id, largest[:top] if top else largest))
    shown = [time for time in times.modules if id(time) in chosen]
    hidden = _blank(times.modules)
    rows = [_module(time, times.gpu_ns) for time in shown]
    yield _table(MODULE_COLUMNS, rows, hidden, width)
    yield from left_out(len(times.modules) - len(shown), "path", TOP_ALL)
    if all(time.kind != MODULE for time in times.modules):
        yield no_calls


def _function_table(times: Functions, top: int, width: int) -> Iterator[str]:
    shown = times.functions[:top] if top else times.functions
    hidden = _blank(times.functions)
    hidden |= {IDLE} if all(time.idle_ns is None for time in times.functions) else set()
    yield _table(FUNCTION_COLUMNS, [_function(time) for time in shown], hidden, width)
    yield from left_out(len(times.functions) - len(shown), "function", TOP_ALL)


def _blank(times: Sequence[ModuleTime | FunctionTime]) -> set[str]:
    """The columns of passes of which there is no GPU work."""
    hidden = set() if any(time.gpu_backward_ns for time in times) else {BACKWARD}
    return hidden if any(time.gpu_recompute_ns for time in times) else {*hidden, RECOMPUTE}


def _table(
    columns: Sequence[Column], rows: Sequence[tuple[str, ...]], hidden: set[str], width: int
) -> str:
    kept = [n for n, column in enumerate(columns) if column.title not in hidden]
    return table([columns[n] for n in kept], [[row[n] for n in kept] for row in rows], width)


def _unclaimed(none: Sequence[Unclaimed], whole: int, outside: str) -> Iterator[str]:
    """A line for each reason why GPU time belongs to none of the rows."""
    words = {
        Nowhere.NOT_LAUNCHED: "without a recorded launch",
        Nowhere.NO_FORWARD: "backward, of no recorded forward op",
        Nowhere.OUTSIDE: outside,
    }
    for one in none:
        share = percent(one.gpu_ns, whole)
        kernels = plural(one.kernels, "kernel")
        yield f"{duration(one.gpu_ns)} of GPU time ({share}, {kernels}) {words[one.why]}"


def _module(time: ModuleTime, whole: int) -> tuple[str, ...]:
    return (
        _figure(time.gpu_ns),
        percent(time.gpu_ns, whole) if time.gpu_ns else "",
        _figure(time.gpu_self_ns),
        _figure(time.gpu_backward_ns),
        _figure(time.gpu_recompute_ns),
        count(time.kernels) if time.kernels else "",
        _figure(time.cpu_ns),
        count(time.count),
        INDENT * time.level + printable(time.module),
    )


def _function(time: FunctionTime) -> tuple[str, ...]:
    return (
        _figure(time.gpu_self_ns),
        _figure(time.gpu_ns),
        _figure(time.gpu_backward_ns),
        _figure(time.gpu_recompute_ns),
        count(time.kernels) if time.kernels else "",
        _figure(time.idle_self_ns or 0),
        duration(time.cpu_self_ns),
        duration(time.cpu_ns),
        count(time.count),
        printable(f"{time.function}  {_short(time.file)}:{time.line}"),
    )


def _short(path: str) -> str:
    """The name of a file and of its folder."""
    return "/".join(path.split("/")[-2:])


def _figure(ns: int) -> str:
    return duration(ns) if ns else ""
