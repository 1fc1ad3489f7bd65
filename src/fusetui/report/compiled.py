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

NO_COMPILE = "This trace contains no work compiled by torch.compile."
NO_LOG = (
    "No compile log found next to the trace, so the Python lines are unknown. To "
    "write one, record with TORCH_TRACE=DIR INDUCTOR_PROVENANCE=1; to use it, pass "
    "--compile-log DIR."
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


def compile_text(answer: CompileAnswer, most: int, top: int) -> str:
    """What was compiled and which lines each kernel came from; then graph breaks,
    compilations, and what could not be joined.

    `most`: columns of a line; `top`: rows of each table (0: all)."""
    sections = [
        _folded(headline(answer), most),
        _kernel_table(answer, most, top),
        _region_table(answer, most, top),
        _break_lines(answer, most, top),
        _compilation_table(answer, most, top),
        _folded(_advice(answer), most),
        _folded(remarks(answer), most),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def sentences(answer: CompileAnswer) -> Iterator[str]:
    """All that the text says outside of its tables."""
    yield from headline(answer)
    yield from map(break_sentence, answer.breaks)
    yield from _advice(answer)
    yield from remarks(answer)


def headline(answer: CompileAnswer) -> Iterator[str]:
    """What was read, and how much of it leads to lines."""
    is_compiled = bool(answer.regions or answer.kernels)
    if answer.recorded and not is_compiled and answer.log is None:
        yield NO_COMPILE
        return
    if answer.recorded and answer.kernels:
        kernel_ns = sum(region.kernel_ns for region in answer.regions)
        kernel_ns += sum(
            one.total_ns for one in answer.not_joined if one.why in OUTSIDE_OF_REGIONS
        )
        runs = plural(answer.kernels, "kernel run")
        yield (
            f"{runs} in compiled regions took {duration(kernel_ns)}; {_joined(answer)}."
        )
    elif answer.recorded:
        yield "No kernels of compiled regions were recorded."
    if answer.log is not None:
        log = answer.log
        logs = plural(log.logs, "log") if log.logs != 1 else "the log"
        folders = ""
        if log.graph_folders:
            folders = f", {plural(log.graph_folders, 'folder')} of torch_compile_debug"
        yield (
            f"{logs.capitalize()} {_name_of(log.path)}{folders}: "
            f"{plural(log.graphs, 'graph')}, "
            f"{plural(len(answer.compilations), 'compilation')}, "
            f"{plural(len(answer.breaks), 'graph break')}."
        )
    else:
        yield NO_LOG


def _name_of(path: str) -> str:
    """The last part of a path."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def _joined(answer: CompileAnswer) -> str:
    """How many of the kernels lead to lines."""
    if answer.joined == answer.kernels:
        text = "all are linked to Python lines"
    elif answer.joined:
        text = f"{count(answer.joined)} are linked to Python lines"
    else:
        text = "none is linked to a Python line"
    if answer.possible:
        text += f", {count(answer.possible)} to several possible lines"
    return text


def place_text(file: str, line: int) -> str:
    """`models/layers.py:12`; "" without a file."""
    if not file:
        return ""
    short = "/".join(file.replace("\\", "/").split("/")[-FILE_PARTS:])
    return f"{short}:{line}" if line else short


def lines_text(lines: Sequence[SourceLine], most: int = MAX_LINES) -> str:
    """`model.py:10, 11`; places in further files after a semicolon."""
    of_file: dict[str, list[int]] = {}
    for line in lines:
        of_file.setdefault(line.file, []).append(line.line)
    texts = []
    for file, numbers in of_file.items():
        shown = [str(number) for number in numbers[:most]]
        if len(numbers) > most:
            shown.append(f"and {len(numbers) - most} more")
        texts.append(f"{place_text(file, 0)}:{', '.join(shown)}")
    return "; ".join(texts)


def fused_text(kernels: Sequence[FusedKernel], most: int, top: int) -> str:
    """A sentence for each kernel that several lines became, with their code; ""
    without any. `most`: columns of a line; `top`: kernels (0: all)."""
    shown = kernels[:top] if top else kernels
    lines: list[str] = []
    for kernel in shown:
        lines += _folded([fused_sentence(kernel)], most)
        for part in kernel.lines:
            if part.code:
                code = f"{INDENT}{INDENT}{part.line}: {part.code}"
                lines.append(cut_line(printable(code), most))
    if len(shown) < len(kernels):
        lines.append(
            f"... and {plural(len(kernels) - len(shown), 'more fused kernel')}"
        )
    return "\n".join(lines)


def fused_sentence(kernel: FusedKernel) -> str:
    """`gelu, model.py:10, and mul, model.py:11, became one kernel (...): 4 runs, 12 ms.`"""
    parts = []
    for part in kernel.lines:
        place = place_text(part.file, part.line)
        ops = " and ".join(part.ops)
        parts.append(f"{ops}, {place}" if ops else place)
    if len(parts) > 1:
        text = f"{', '.join(parts[:-1])}, and {parts[-1]}"
    else:
        text = parts[0]
    return (
        f"{text}, compiled to one kernel ({kernel.name}): "
        f"{plural(kernel.runs, 'run')}, {duration(kernel.total_ns)}."
    )


def names_text(lines: Mapping[str, Sequence[SourceLine]], most: int, top: int) -> str:
    """The table of names with their lines of Python. `most`: columns of a line; `top`:
    rows (0: all)."""
    columns = (
        Column("lines of Python", True, cell=lambda row: printable(lines_text(row[1]))),
        Column("compiled", True, cell=lambda row: printable(row[0])),
    )
    return top_table(columns, [*lines.items()], top, most, "name", min_last_cells=16)


def line_times_text(times: CompiledLines, most: int, top: int) -> str:
    """The table of lines with the time of compiled kernels, and what of it has no
    line; "" where there is no such line. `most`: columns of a line; `top`: rows (0:
    all)."""
    if not times.lines:
        return ""
    columns = (
        Column("compiled", cell=lambda line: duration(line.total_ns)),
        Column("split", spare=1, cell=lambda line: time_or_blank(line.split_ns)),
        Column("possible", spare=2, cell=lambda line: time_or_blank(line.possible_ns)),
        Column("runs", spare=3, cell=lambda line: count(line.runs)),
        Column(
            "line", True, cell=lambda line: printable(place_text(line.file, line.line))
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
    return "\n\n".join([table, *("\n".join(_folded([text], most)) for text in texts)])


SPLIT = "The time of a compiled kernel from several lines is split equally among them."


class _Row(CompiledKernel, frozen=True):
    """A kernel with the region that it is of."""

    region: str = ""
    pass_name: str = ""


def _kernel_table(answer: CompileAnswer, most: int, top: int) -> list[str]:
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
        Column("lines", True, cell=_lines_cell),
        Column("kernel", True, cell=lambda row: printable(row.handle or row.name)),
    )
    return [top_table(columns, rows, top, most, "kernel", min_last_cells=16, blank="")]


def _lines_cell(kernel: CompiledKernel) -> str:
    if kernel.not_joined:
        return "?"
    text = printable(lines_text(kernel.lines))
    return f"{text} (possible)" if kernel.possible else text


def _region_table(answer: CompileAnswer, most: int, top: int) -> list[str]:
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
    return printable(f"{region.function}  {place_text(region.file, region.line)}")


def _break_lines(answer: CompileAnswer, most: int, top: int) -> list[str]:
    shown = answer.breaks[:top] if top else answer.breaks
    lines = []
    for one in shown:
        lines += wrapped_lines(printable(break_sentence(one)), most, INDENT)
    if len(shown) < len(answer.breaks):
        more = plural(len(answer.breaks) - len(shown), "more graph break")
        lines.append(f"... and {more} (--top 0 shows all)")
    return lines


def break_sentence(one: PassedBreak) -> str:
    """Where a graph break is, why, what it costs, and what the log suggests."""
    place = place_text(one.file, one.line) or "an unrecorded place"
    sentence = f"Graph break at {place}"
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
            f" Reached {plural(one.passed, 'time')}; the time between the two regions "
            f"is {duration(one.between_ns)} in total, median {duration(median_ns)}."
        )
    hints = [hint for hint in one.hints if hint not in GENERIC_HINTS]
    for hint in hints[:MAX_HINTS]:
        sentence += f" Hint: {hint}"
    return sentence


def _compilation_table(answer: CompileAnswer, most: int, top: int) -> list[str]:
    if not answer.compilations:
        return []
    columns = (
        Column("compiled", cell=lambda one: one.compile_id),
        Column("took", cell=lambda one: time_or_blank(one.duration_ns)),
        Column("at", spare=2, cell=_start_cell),
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


def _start_cell(one: CompiledOnce) -> str:
    if one.start_ns is None:
        return ""
    if one.in_recording is False:
        return "before" if one.start_ns < 0 else "after"
    return duration(max(0, one.start_ns))


def _reason_cell(one: CompiledOnce) -> str:
    return printable(why_compiled(one))


def why_compiled(one: CompiledOnce) -> str:
    """Why a frame was compiled, in the log's own words, the newest entry of the cache
    first; "" where only the trace is known."""
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


def _advice(answer: CompileAnswer) -> Iterator[str]:
    """The guards that fail most often, and what the log proves to avoid that."""
    for guard in answer.guards[:1]:
        yield guard_sentence(guard)
    yield from map(remedy_sentence, answer.remedies)


def guard_sentence(guard: FrequentGuard) -> str:
    """The guard that failed in most compilations."""
    return (
        f"Most frequent guard failure ({plural(guard.compilations, 'compilation')} of "
        f"{guard.function or 'a function'}): {guard.text}."
    )


def remedy_sentence(remedy: Remedy) -> str:
    """What would avoid compilations."""
    avoided = plural(remedy.compilations, "compilation")
    function = remedy.function or "the function"
    values = several(remedy.values, 4)
    if remedy.kind == "mark_dynamic":
        return (
            f"Dimension {remedy.dimension} of {remedy.subject} changed ({values}). To "
            f"avoid {avoided}, call torch._dynamo.mark_dynamic({remedy.subject}, "
            f"{remedy.dimension}) before the first call of {function}, or use "
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
    """What has no line, and what of the log could not be read."""
    if answer.log is not None:
        for one in answer.not_joined[:MAX_REASONS]:
            yield not_joined_sentence(one, answer.kernels)
        if len(answer.not_joined) > MAX_REASONS:
            more = plural(len(answer.not_joined) - MAX_REASONS, "more reason")
            yield f"{more} for kernels without lines (--json has all)."
        if answer.log.unread_records:
            records = plural(answer.log.unread_records, "record")
            yield f"{records} of the compile log could not be read."
        yield from answer.log.unread[:MAX_REASONS]


def not_joined_sentence(one: NotJoined, kernels: int) -> str:
    """`3 of 41 runs of kernels have no line: two logs claim the key f2rm...`."""
    detail = f" ({one.detail})" if one.detail else ""
    have = "has" if one.kernels == 1 else "have"
    return (
        f"{count(one.kernels)} of {plural(kernels, 'kernel run')} {have} no line: "
        f"{one.why}{detail}."
    )


def _folded(texts: Iterable[str], most: int) -> list[str]:
    lines: list[str] = []
    for text in texts:
        lines += wrapped_lines(printable(text), most, INDENT)
    return lines
