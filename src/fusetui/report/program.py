"""The tables of `modules` and `lines`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill

from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import printable
from fusetui.text.tables import TOP_ALL, Column, left_out, table_of
from fusetui.trace.model.recording import recorded_with
from fusetui.trace.program.functions import Functions, FunctionTime
from fusetui.trace.program.modules import MODULE, Modules, ModuleTime, Unclaimed
from fusetui.trace.program.origin import Nowhere
from fusetui.trace.program.phases import PhaseTime

FUNCTION_COLUMNS = (
    Column("GPU self", cell=lambda time: _figure(time.gpu_self_ns)),
    Column("GPU", spare=1, cell=lambda time: _figure(time.gpu_ns)),
    Column("backward", spare=4, cell=lambda time: _figure(time.gpu_backward_ns)),
    Column("recompute", spare=4, cell=lambda time: _figure(time.gpu_recompute_ns)),
    Column("kernels", spare=5, cell=lambda time: count(time.kernels) if time.kernels else ""),
    Column("idle", spare=3, cell=lambda time: _figure(time.idle_self_ns or 0)),
    Column("CPU self", cell=lambda time: duration(time.cpu_self_ns)),
    Column("CPU", spare=2, cell=lambda time: duration(time.cpu_ns)),
    Column("calls", spare=6, cell=lambda time: count(time.count)),
    Column("function", left=True, cell=lambda time: function_label(time)),
)
NO_MODULES = (
    "nothing in this trace names a part of the program",
    "{} records the calls of modules, {} names any other part",
)
NO_CALLS = "the calls of modules are not in this trace: {} records them"
NO_CALLS_IN_STACKS = (
    "Python stacks were recorded, but no call of a module: record_function names other parts"
)
NO_FUNCTIONS = (
    "no such Python functions in this trace",
    "{} records functions, --file PATH shows those of a library",
)
INDENT = "  "


def modules_text(
    times: Modules, phases: Sequence[PhaseTime], top: int, width: int, *, stacks: bool, form: str
) -> str:
    """The tree with its `top` largest paths (0: all), unclaimed GPU time, and the phases. `stacks`:
    whether Python frames were recorded; `form`: the format of the trace."""
    said = NO_CALLS_IN_STACKS if stacks else NO_CALLS.format(recorded_with("with_stack=True", form))
    tree = list(_module_table(times, top, width, said))
    parts = [
        f"{phase.phase} {duration(phase.gpu_ns)} ({percent(phase.gpu_ns, times.gpu_ns)})"
        for phase in phases
    ]
    by_phase = [f"GPU time by phase: {', '.join(parts)}"] if parts else []
    none = _unclaimed(times.none, times.gpu_ns, "in no module or annotation")
    missing = _told(NO_MODULES, form, "with_stack=True", "record_function")
    return _text([tree if times.modules else missing, list(none), by_phase], width)


def functions_text(times: Functions, top: int, width: int, form: str) -> str:
    """The first `top` functions (0: all), and unclaimed GPU time; `form`: as above."""
    missing = _told(NO_FUNCTIONS, form, "with_stack=True")
    shown = times.functions[:top] if top else times.functions
    hidden = _blank(times.functions)
    hidden |= {"idle"} if all(time.idle_ns is None for time in times.functions) else set()
    columns = [column for column in FUNCTION_COLUMNS if column.title not in hidden]
    more = left_out(len(times.functions) - len(shown), "function", TOP_ALL)
    none = _unclaimed(times.none, times.gpu_ns, "in none of these functions")
    listed = [table_of(columns, shown, width), *more] if times.functions else missing
    return _text([listed, list(none)], width)


def _told(sentences: Sequence[str], form: str, *options: str) -> list[str]:
    """With what records what is missing."""
    said = [recorded_with(option, form) for option in options]
    return [sentence.format(*said) for sentence in sentences]


def _text(paragraphs: Iterable[Sequence[str]], width: int) -> str:
    """Folds sentences to the width, but not tables, which already fit."""
    return "\n\n".join(
        "\n".join(
            line if "\n" in line else fill(line, width, break_on_hyphens=False) for line in lines
        )
        for lines in paragraphs
        if lines
    )


def _module_table(times: Modules, top: int, width: int, no_calls: str) -> Iterator[str]:
    largest = sorted(times.modules, key=lambda time: (-time.gpu_ns, -time.cpu_ns, time.level))
    chosen = set(map(id, largest[:top] if top else largest))
    shown = [time for time in times.modules if id(time) in chosen]
    hidden, whole = _blank(times.modules), times.gpu_ns
    columns = (
        Column("GPU", cell=lambda time: _figure(time.gpu_ns)),
        Column("share", False, 1, lambda time: percent(time.gpu_ns, whole) if time.gpu_ns else ""),
        Column("self", spare=2, cell=lambda time: _figure(time.gpu_self_ns)),
        Column("backward", spare=3, cell=lambda time: _figure(time.gpu_backward_ns)),
        Column("recompute", spare=3, cell=lambda time: _figure(time.gpu_recompute_ns)),
        Column("kernels", spare=4, cell=lambda time: count(time.kernels) if time.kernels else ""),
        Column("CPU", spare=5, cell=lambda time: _figure(time.cpu_ns)),
        Column("calls", spare=6, cell=lambda time: count(time.count) if time.count else ""),
        Column("module", True, cell=lambda time: INDENT * time.level + printable(time.module)),
    )
    yield table_of([column for column in columns if column.title not in hidden], shown, width)
    yield from left_out(len(times.modules) - len(shown), "path", TOP_ALL)
    if all(time.kind != MODULE for time in times.modules):
        yield no_calls


def _blank(times: Sequence[ModuleTime | FunctionTime]) -> set[str]:
    """The columns of passes of which there is no GPU work."""
    hidden = set() if any(time.gpu_backward_ns for time in times) else {"backward"}
    return hidden if any(time.gpu_recompute_ns for time in times) else {*hidden, "recompute"}


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


def function_label(time: FunctionTime) -> str:
    """Its name, and where it is: the names of the file and of its folder."""
    return printable(f"{time.function}  {'/'.join(time.file.split('/')[-2:])}:{time.line}")


def _figure(ns: int) -> str:
    return duration(ns) if ns else ""
