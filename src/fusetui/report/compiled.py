"""The answer about torch.compile as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fusetui.analysis.compiled.fused import FusedKernel
from fusetui.analysis.compiled.graphs import Why
from fusetui.analysis.compiled.line_times import CompiledLines
from fusetui.analysis.compiled.model import (
    CompileAnswer,
    CompiledKernel,
    CompiledOnce,
    CompiledRegion,
    FrequentGuard,
    NotJoined,
    PassedBreak,
    Remedy,
    SourceLine,
)
from fusetui.report import printed
from fusetui.report.diff import DiffDocument
from fusetui.report.groups import KernelsDocument, OpsDocument
from fusetui.text.figures import count, duration, plural, several
from fusetui.text.printable import printable
from fusetui.text.tables import (
    Column,
    count_or_blank,
    cut_line,
    time_or_blank,
    top_table,
    wrapped_lines,
)
from fusetui.trace.program.functions import Functions

INDENT = "  "
FILE_PARTS = 2
"""The last parts of a path that are shown."""

MAX_LINES = 3
"""Of Python, that a row of the table names; the rest are counted."""

MAX_HINTS = 3
"""Of a graph break, that the text prints."""

MAX_REASONS = 4
"""Why kernels were not joined, that the text prints."""

GENERIC_HINTS = ("Please report an issue to PyTorch.",)
"""Of Dynamo, which say nothing about the program."""

OUTSIDE_OF_REGIONS = (Why.REPLAYED.value,)
"""Why kernels have no line that belong to no region of the answer."""

NO_COMPILE = "This trace contains no work that torch.compile compiled."
NO_LOG = (
    "No compile log was found next to the trace, so the Python lines are "
    "unknown. To write a log, record with TORCH_TRACE=DIR INDUCTOR_PROVENANCE=1. To "
    "use the log, pass --compile-log DIR."
)


class CompileDocument(CompileAnswer, frozen=True):
    """`text`: the answer in sentences."""

    text: tuple[str, ...]


class LinesDocument(Functions, frozen=True):
    """`lines` of a trace with a compile log."""

    compiled: CompiledLines


class LinedKernelsDocument(KernelsDocument, frozen=True):
    """`kernels` of a trace with a compile log."""

    source_lines: dict[str, tuple[SourceLine, ...]]


class LinedOpsDocument(OpsDocument, frozen=True):
    """`ops` of a trace with a compile log."""

    source_lines: dict[str, tuple[SourceLine, ...]]


class FusedDiffDocument(DiffDocument, frozen=True):
    """`diff` of traces of which B has a compile log."""

    fused: tuple[FusedKernel, ...]


def compile_document(answer: CompileAnswer) -> CompileDocument:
    """The answer with its sentences, for --json."""
    return printed(answer, CompileDocument, text=tuple(sentences(answer)))


def format_compile_answer(answer: CompileAnswer, most: int, top: int) -> str:
    """Return the answer of `compile` as text: what was compiled, the lines of each
    kernel, graph breaks, compilations, and what could not be joined.

    `most` is the width in cells. `top` is the number of rows of each table; 0 means
    all.
    """
    sections = [
        _wrap_sentences(describe_compiled(answer), most),
        _format_kernel_table(answer, most, top),
        _format_region_table(answer, most, top),
        _format_breaks(answer, most, top),
        _format_compilation_table(answer, most, top),
        _wrap_sentences(_advice_sentences(answer), most),
        _wrap_sentences(remarks(answer), most),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def sentences(answer: CompileAnswer) -> Iterator[str]:
    """Yield all sentences that the text has outside of its tables."""
    yield from describe_compiled(answer)
    yield from map(describe_break, answer.breaks)
    yield from _advice_sentences(answer)
    yield from remarks(answer)


def describe_compiled(answer: CompileAnswer) -> Iterator[str]:
    """Yield sentences about what was read from the trace and the compile log, and how
    many kernels lead to lines of Python."""
    is_compiled = bool(answer.regions or answer.kernels)
    if answer.recorded and not is_compiled and answer.log is None:
        yield NO_COMPILE
        return
    if answer.recorded and answer.kernels:
        kernel_ns = sum(region.kernel_ns for region in answer.regions)
        kernel_ns += sum(
            one.total_ns for one in answer.not_joined if one.why in OUTSIDE_OF_REGIONS
        )
        kernels = plural(answer.kernels, "kernel")
        take = "takes" if answer.kernels == 1 else "take"
        yield (
            f"{kernels} in compiled regions {take} {duration(kernel_ns)}; "
            f"{_describe_joined(answer)}."
        )
    elif answer.recorded:
        yield "No kernels of compiled regions were recorded."
    if answer.log is not None:
        log = answer.log
        name = _last_part(log.path)
        if log.logs == 1:
            contain = f"The log {name} contains"
        else:
            contain = f"The {plural(log.logs, 'log')} in {name} contain"
        folders = ""
        if log.graph_folders:
            folders = (
                f", with {plural(log.graph_folders, 'folder')} of torch_compile_debug"
            )
        yield (
            f"{contain} {plural(log.graphs, 'graph')}, "
            f"{plural(len(answer.compilations), 'compilation')} and "
            f"{plural(len(answer.breaks), 'graph break')}{folders}."
        )
    else:
        yield NO_LOG


def _last_part(path: str) -> str:
    """Return the last part of a path, also one of Windows."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def _describe_joined(answer: CompileAnswer) -> str:
    """Return a clause about how many of the kernels lead to lines of Python."""
    if answer.kernels == 1:
        is_linked = "is" if answer.joined else "is not"
        text = f"it {is_linked} linked to a Python line"
    elif answer.joined == answer.kernels:
        text = "all are linked to Python lines"
    elif answer.joined:
        text = f"{count(answer.joined)} are linked to Python lines"
    else:
        text = "none of them is linked to a Python line"
    if answer.possible:
        text += f", {count(answer.possible)} to several possible lines"
    return text


def format_place(file: str, line: int) -> str:
    """Return the place of a line with the last parts of its path, such as
    `models/layers.py:12`. Without a file it is "", and without a line the file alone.
    """
    if not file:
        return ""
    short = "/".join(file.replace("\\", "/").split("/")[-FILE_PARTS:])
    return f"{short}:{line}" if line else short


def format_lines(lines: Sequence[SourceLine], most: int = MAX_LINES) -> str:
    """Return lines by file, such as `model.py:10, 11`, with a semicolon between files.
    At most `most` lines of a file are named; the others are counted."""
    of_file: dict[str, list[int]] = {}
    for line in lines:
        of_file.setdefault(line.file, []).append(line.line)
    texts = []
    for file, numbers in of_file.items():
        shown = [str(number) for number in numbers[:most]]
        if len(numbers) > most:
            shown.append(f"and {len(numbers) - most} more")
        texts.append(f"{format_place(file, 0)}:{', '.join(shown)}")
    return "; ".join(texts)


def format_fused_kernels(kernels: Sequence[FusedKernel], most: int, top: int) -> str:
    """Return a sentence for each kernel that computes several lines, with the code of
    those lines; "" if there are none.

    `most` is the width in cells, and `top` the number of kernels; 0 means all.
    """
    shown = kernels[:top] if top else kernels
    lines: list[str] = []
    for kernel in shown:
        lines += _wrap_sentences([describe_fused_kernel(kernel)], most)
        for part in kernel.lines:
            if part.code:
                code = f"{INDENT}{INDENT}{part.line}: {part.code}"
                lines.append(cut_line(printable(code), most))
    if len(shown) < len(kernels):
        lines.append(
            f"... and {plural(len(kernels) - len(shown), 'more fused kernel')}"
        )
    return "\n".join(lines)


def describe_fused_kernel(kernel: FusedKernel) -> str:
    """Return a sentence about a kernel that computes several lines of Python.

    gelu, model.py:10, and mul, model.py:11, compiled to one kernel (...): 4 runs, 12 ms.
    """
    parts = []
    for part in kernel.lines:
        place_name = format_place(part.file, part.line)
        ops = " and ".join(part.ops)
        parts.append(f"{ops}, {place_name}" if ops else place_name)
    if len(parts) > 1:
        text = f"{', '.join(parts[:-1])}, and {parts[-1]}"
    else:
        text = parts[0]
    return (
        f"{text}, compiled to one kernel ({kernel.name}): "
        f"{plural(kernel.runs, 'run')}, {duration(kernel.total_ns)}."
    )


def format_source_lines(
    lines: Mapping[str, Sequence[SourceLine]], most: int, top: int
) -> str:
    """Return a table of the names of kernels or ops, with their lines of Python. `most`
    is the width in cells, and `top` the number of rows; 0 means all."""
    columns = (
        Column(
            "lines of Python", True, cell=lambda row: printable(format_lines(row[1]))
        ),
        Column("compiled", True, cell=lambda row: printable(row[0])),
    )
    return top_table(columns, [*lines.items()], top, most, "name", min_last_cells=16)


def format_line_times(times: CompiledLines, most: int, top: int) -> str:
    """Return a table of the lines of Python with the time of their compiled kernels,
    then the time that has no line. "" if there is no such line.

    `most` is the width in cells, and `top` the number of rows; 0 means all.
    """
    if not times.lines:
        return ""
    columns = (
        Column("compiled", cell=lambda line: duration(line.total_ns)),
        Column("split", spare=1, cell=lambda line: time_or_blank(line.split_ns)),
        Column("possible", spare=2, cell=lambda line: time_or_blank(line.possible_ns)),
        Column("runs", spare=3, cell=lambda line: count(line.runs)),
        Column(
            "line",
            True,
            cell=lambda line: printable(format_place(line.file, line.line)),
        ),
        Column("code", True, cell=lambda line: printable(line.code)),
    )
    table = top_table(
        columns, times.lines, top, most, "line", min_last_cells=20, blank=""
    )
    texts = [SPLIT] if any(line.split_ns for line in times.lines) else []
    if times.unknown_ns:
        texts.append(
            f"{duration(times.unknown_ns)} of the {duration(times.kernel_ns)} of "
            "compiled kernels belongs to no line here. To see why, run fusetui "
            "compile."
        )
    return "\n\n".join(
        [table, *("\n".join(_wrap_sentences([text], most)) for text in texts)]
    )


SPLIT = "The time of a compiled kernel from several lines is split equally among them."


class _Row(CompiledKernel, frozen=True):
    """A kernel with the region that it is of."""

    region: str = ""
    pass_name: str = ""


def _format_kernel_table(answer: CompileAnswer, most: int, top: int) -> list[str]:
    """Return the table of compiled kernels, in a list; empty if there are none. In a
    trace, they are in order of their time."""
    rows = []
    for region in answer.regions:
        for kernel in region.kernels:
            rows.append(
                printed(
                    kernel,
                    _Row,
                    region=region.compile_id or "-",
                    pass_name="" if region.pass_ == "unknown" else region.pass_,
                )
            )
    if not rows:
        return []
    if answer.recorded:
        rows.sort(key=lambda row: -row.total_ns)
    columns = (
        Column("total", cell=lambda row: time_or_blank(row.total_ns)),
        Column("runs", spare=1, cell=lambda row: count_or_blank(row.calls)),
        Column("region", cell=lambda row: row.region),
        Column("pass", True, spare=2, cell=lambda row: row.pass_name),
        Column("lines", True, cell=_format_lines_cell),
        Column("kernel", True, cell=lambda row: printable(row.handle or row.name)),
    )
    return [top_table(columns, rows, top, most, "kernel", min_last_cells=16, blank="")]


def _format_lines_cell(kernel: CompiledKernel) -> str:
    """Return the lines of a compiled kernel; `?` if they are unknown, and a mark if
    they are only possible."""
    if kernel.not_joined:
        return "?"
    text = printable(format_lines(kernel.lines))
    return f"{text} (possible)" if kernel.possible else text


def _format_region_table(answer: CompileAnswer, most: int, top: int) -> list[str]:
    """Return the table of compiled regions, in a list; empty if there are none. A
    region is the code of one compiled graph."""
    if not answer.regions:
        return []
    columns = (
        Column("region", cell=lambda region: region.compile_id or "-"),
        Column("calls", cell=lambda region: count_or_blank(region.calls)),
        Column("kernels", cell=lambda region: time_or_blank(region.kernel_ns)),
        Column("CPU", spare=1, cell=lambda region: time_or_blank(region.cpu_ns)),
        Column("pass", True, spare=2, cell=_pass_cell),
        Column("cache", True, spare=3, cell=lambda region: region.cache),
        Column("compiled function", True, cell=_function_cell),
    )
    return [
        top_table(
            columns, answer.regions, top, most, "region", min_last_cells=16, blank=""
        )
    ]


def _pass_cell(region: CompiledRegion) -> str:
    return "" if region.pass_ == "unknown" else region.pass_


def _function_cell(region: CompiledRegion | CompiledOnce) -> str:
    if not region.function:
        return ""
    return printable(f"{region.function}  {format_place(region.file, region.line)}")


def _format_breaks(answer: CompileAnswer, most: int, top: int) -> list[str]:
    """Return lines with a sentence for each graph break, at most `top` of them; 0 means
    all."""
    shown = answer.breaks[:top] if top else answer.breaks
    lines = []
    for one in shown:
        lines += wrapped_lines(printable(describe_break(one)), most, INDENT)
    if len(shown) < len(answer.breaks):
        more = plural(len(answer.breaks) - len(shown), "more graph break")
        lines.append(f"... and {more} (--top 0 shows all)")
    return lines


def describe_break(one: PassedBreak) -> str:
    """Return sentences about one graph break: where it is, why, what it costs, and what
    the log suggests. Hints that say nothing about the program are left out."""
    place_name = format_place(one.file, one.line) or "an unrecorded place"
    sentence = f"Graph break at {place_name}"
    if one.function:
        sentence += f" in {one.function}"
    if one.reason:
        sentence += f": {one.reason.rstrip('.')}."
    else:
        sentence += ". The reason is not in the trace, only in a compile log."
    if one.code:
        sentence += f" Line: {one.code}."
    if one.passed:
        median_ns = one.median_between_ns or 0
        sentence += (
            f" The program reaches this break {plural(one.passed, 'time')} and spends "
            f"{duration(one.between_ns)} between the two regions in total "
            f"(median {duration(median_ns)})."
        )
    hints = [hint for hint in one.hints if hint not in GENERIC_HINTS]
    for hint in hints[:MAX_HINTS]:
        sentence += f" Hint: {hint}"
    return sentence


def _format_compilation_table(answer: CompileAnswer, most: int, top: int) -> list[str]:
    """Return the table of compilations with the reason of each, in a list; empty if
    there are none."""
    if not answer.compilations:
        return []
    columns = (
        Column("compiled", cell=lambda one: one.compile_id),
        Column("took", cell=lambda one: time_or_blank(one.duration_ns)),
        Column("at", spare=2, cell=_format_start),
        Column("cache", True, spare=3, cell=lambda one: one.cache),
        Column("function", True, spare=1, cell=_function_cell),
        Column("because", True, cell=_reason_cell),
    )
    return [
        top_table(
            columns,
            answer.compilations,
            top,
            most,
            "compilation",
            min_last_cells=24,
            blank="",
        )
    ]


def _format_start(one: CompiledOnce) -> str:
    """Return when a compilation began after the start of the recording. It is `before`
    or `after` for one outside, and "" if unknown."""
    if one.start_ns is None:
        return ""
    if one.in_recording is False:
        return "before" if one.start_ns < 0 else "after"
    return duration(max(0, one.start_ns))


def _reason_cell(one: CompiledOnce) -> str:
    return printable(explain_compilation(one))


def explain_compilation(one: CompiledOnce) -> str:
    """Return why a frame was compiled, in the words of the log, such as the guards that
    failed. "" if only the trace is known."""
    if one.failure:
        return f"failed: {one.failure}"
    if one.backward:
        return "the backward pass"
    if one.guards:
        texts = []
        for guard in one.guards:
            text = " ".join(guard.text.split())
            texts.append(f"{guard.entry}: {text}" if guard.entry else text)
        return "; ".join(texts)
    return "the first call" if one.from_log else ""


def _advice_sentences(answer: CompileAnswer) -> Iterator[str]:
    """Yield sentences about the guard that fails most often, and about changes that
    avoid compilations according to the log."""
    for guard in answer.guards[:1]:
        yield describe_guard(guard)
    yield from map(describe_remedy, answer.remedies)


def describe_guard(guard: FrequentGuard) -> str:
    """Return a sentence about the guard that failed in most compilations."""
    return (
        f"Most frequent guard failure ({plural(guard.compilations, 'compilation')} of "
        f"{guard.function or 'a function'}): {guard.text}."
    )


def describe_remedy(remedy: Remedy) -> str:
    """Return sentences about a change of the program that avoids compilations."""
    avoided = plural(remedy.compilations, "compilation")
    function = remedy.function or "the function"
    values = several(remedy.values, 4)
    if remedy.kind == "mark_dynamic":
        return (
            f"Dimension {remedy.dimension} of {remedy.subject} changed ({values}). To "
            f"avoid {avoided}, call torch._dynamo.mark_dynamic({remedy.subject}, "
            f"{remedy.dimension}) before the first call to {function}, or use "
            "dynamic=True."
        )
    if remedy.kind == "dynamic":
        return (
            f"Several sizes changed ({remedy.subject}). To avoid {avoided}, compile "
            f"{function} with torch.compile(dynamic=True)."
        )
    return (
        f"{remedy.subject} changed ({values}). To avoid {avoided}, pass it to "
        f"{function} as a tensor, or keep it constant."
    )


def remarks(answer: CompileAnswer) -> Iterator[str]:
    """Yield sentences about kernels without lines, and about what could not be read of
    the log. None without a log."""
    if answer.log is not None:
        for one in answer.not_joined[:MAX_REASONS]:
            yield describe_not_joined(one, answer.kernels)
        if len(answer.not_joined) > MAX_REASONS:
            more = plural(len(answer.not_joined) - MAX_REASONS, "more reason")
            yield f"{more} for kernels without lines (--json has all)."
        if answer.log.unread_records:
            records = plural(answer.log.unread_records, "record")
            yield f"{records} of the compile log could not be read."
        yield from answer.log.unread[:MAX_REASONS]


def describe_not_joined(one: NotJoined, kernels: int) -> str:
    """Return a sentence about kernels without lines that have one reason in common.

    3 of 41 kernels have no line: two logs claim the key f2rm...
    """
    detail = f" ({one.detail})" if one.detail else ""
    have = "has" if one.kernels == 1 else "have"
    return (
        f"{count(one.kernels)} of {plural(kernels, 'kernel')} {have} no line: "
        f"{one.why}{detail}."
    )


def _wrap_sentences(texts: Iterable[str], most: int) -> list[str]:
    """Return the sentences as lines of at most `most` cells."""
    lines: list[str] = []
    for text in texts:
        lines += wrapped_lines(printable(text), most, INDENT)
    return lines
