"""The source of a slice as lines of text, with the places to which a key jumps."""

from __future__ import annotations

from collections.abc import Iterator

from fusetui.analysis.compiled.source import SliceSource
from fusetui.report.compiled import place_text
from fusetui.tui.layout.text_layout import Language, ShownLine, SourceShown

LANGUAGES: dict[str, Language] = {"triton": "python", "cpp_pybinding": "cpp"}
"""By the method of async_compile that compiles a kernel."""
CONTEXT_LINES = 3
"""Of the wrapper, before and after a call."""


def shown_source(source: SliceSource) -> SourceShown:
    """The lines of Python first, then the graph, the code of the kernel, its call, and
    the whole wrapper."""
    lines = [*_head(source)]
    sections = []
    for part in (
        _python_lines(source),
        _kernels(source),
        _nodes(source),
        _kernel_code(source),
        _calls(source),
        _wrapper(source),
    ):
        shown = [*part]
        if shown:
            lines.append(ShownLine(""))
            sections.append(len(lines))
            lines += shown
    return SourceShown(
        title=f"source of {source.kernel or source.name}",
        lines=tuple(lines),
        sections=tuple(sections),
    )


def _head(source: SliceSource) -> Iterator[ShownLine]:
    """What the slice is, and how it was joined with the log."""
    where = []
    if source.compile_id is not None:
        where.append(f"compiled region {source.compile_id}")
    if source.join is not None and source.join.by is not None:
        where.append(f"found in the log by its {source.join.by.value}")
    if where:
        yield ShownLine(", ".join(where), "faint")
    if source.kernel and source.kernel != source.name:
        yield ShownLine(f"recorded as {source.name}", "faint")
    if source.why_not:
        yield ShownLine(f"Its lines are not known: {source.why_not}.")
    if source.is_possible:
        yield ShownLine(
            "The wrapper calls it several times, and fewer or more runs were recorded: "
            "these are the lines of all its calls."
        )
    if source.kernel_file:
        yield ShownLine(f"kernel file {source.kernel_file}", "faint")


def _python_lines(source: SliceSource) -> Iterator[ShownLine]:
    if source.lines:
        yield ShownLine("Lines of Python", "heading")
    for line in source.lines:
        yield ShownLine(
            f"{place_text(line.file, line.line)} in {line.function}", "faint"
        )
        if line.code:
            yield ShownLine(line.code, "code", "python", number=line.line)


def _kernels(source: SliceSource) -> Iterator[ShownLine]:
    if source.kernels:
        yield ShownLine("Kernels of the graph", "heading")
    for kernel in source.kernels:
        yield ShownLine(kernel.name)
        for line in kernel.lines:
            place = place_text(line.file, line.line)
            yield ShownLine(f"  {place} in {line.function}", "faint")
            if line.code:
                yield ShownLine(line.code, "code", "python", number=line.line)


def _nodes(source: SliceSource) -> Iterator[ShownLine]:
    if source.nodes:
        yield ShownLine("Nodes of the graph", "heading")
    for node in source.nodes:
        yield ShownLine(node, "code", "python")


def _kernel_code(source: SliceSource) -> Iterator[ShownLine]:
    """The code of the kernel as the wrapper defines it."""
    definition = source.definition
    if definition is None:
        return
    language = LANGUAGES.get(definition.language, "python")
    what = "C++" if language == "cpp" else "Triton"
    yield ShownLine(f"Generated code ({what})", "heading")
    lines = source.code.split("\n")
    for number in range(definition.first_line, definition.end_line):
        if number <= len(lines):
            yield ShownLine(lines[number - 1], "code", language, number)


def _calls(source: SliceSource) -> Iterator[ShownLine]:
    """Each call of the kernel with the lines around it."""
    lines = source.code.split("\n")
    if source.call_lines:
        several = "s" if len(source.call_lines) > 1 else ""
        yield ShownLine(f"Call{several} in the wrapper", "heading")
    for call in source.call_lines:
        first = max(1, call - CONTEXT_LINES)
        end = min(len(lines), call + CONTEXT_LINES) + 1
        for number in range(first, end):
            yield ShownLine(
                lines[number - 1], "code", "python", number, is_marked=number == call
            )


def _wrapper(source: SliceSource) -> Iterator[ShownLine]:
    if not source.code:
        return
    yield ShownLine(f"The whole wrapper {source.wrapper_path}", "heading")
    marked = set(source.call_lines)
    for number, line in enumerate(source.code.split("\n"), start=1):
        yield ShownLine(line, "code", "python", number, is_marked=number in marked)
