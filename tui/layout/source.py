"""The source of a slice as lines of text, with the places to which a key jumps."""

from __future__ import annotations

from collections.abc import Iterator

from fusetui.analysis.compiled.source import SliceSource
from fusetui.report.compiled import format_place
from fusetui.tui.layout.text_layout import Language, ShownLine, SourceShown

LANGUAGES: dict[str, Language] = {"triton": "python", "cpp_pybinding": "cpp"}
"""By the method of async_compile that compiles a kernel."""
CONTEXT_LINES = 3
"""Of the wrapper, before and after a call."""


def list_source_lines(source: SliceSource) -> SourceShown:
    """Return the source of a compiled slice as the lines of an overlay, divided into
    sections.

    Sections are, as far as known: the Python lines, the kernels and nodes of the graph,
    the code of the kernel, its calls, and the whole wrapper. The position of each
    section is included, so that a key can jump to the next. Empty sections are left
    out.
    """
    lines = [*_describe_slice(source)]
    sections = []
    for section in (
        _list_python_lines(source),
        _list_graph_kernels(source),
        _list_graph_nodes(source),
        _list_kernel_code(source),
        _list_calls(source),
        _list_wrapper(source),
    ):
        section_lines = [*section]
        if section_lines:
            lines.append(ShownLine(""))
            sections.append(len(lines))
            lines += section_lines
    return SourceShown(
        title=f"source of {source.kernel or source.name}",
        lines=tuple(lines),
        sections=tuple(sections),
    )


def _describe_slice(source: SliceSource) -> Iterator[ShownLine]:
    """Generate the first lines: the compiled region of a slice, how it was found in the
    compile log, and which of its lines are uncertain or unknown."""
    origin_texts = []
    if source.compile_id is not None:
        origin_texts.append(f"compiled region {source.compile_id}")
    if source.join is not None and source.join.by is not None:
        origin_texts.append(f"found in the log by its {source.join.by.value}")
    if origin_texts:
        yield ShownLine(", ".join(origin_texts), "faint")
    if source.kernel and source.kernel != source.name:
        yield ShownLine(f"recorded as {source.name}", "faint")
    if source.why_not:
        yield ShownLine(f"Its lines are unknown: {source.why_not}.")
    if source.is_possible:
        yield ShownLine(
            "The wrapper calls it several times, but the number of recorded runs differs, "
            "so these are the lines of all its calls."
        )
    if source.kernel_file:
        yield ShownLine(f"kernel file {source.kernel_file}", "faint")


def _list_python_lines(source: SliceSource) -> Iterator[ShownLine]:
    """Generate the section with the lines of the Python program that a slice was
    compiled from. Each line is preceded by its file and function."""
    if source.lines:
        yield ShownLine("Lines of Python", "heading")
    for line in source.lines:
        yield ShownLine(
            f"{format_place(line.file, line.line)} in {line.function}", "faint"
        )
        if line.code:
            yield ShownLine(line.code, "code", "python", number=line.line)


def _list_graph_kernels(source: SliceSource) -> Iterator[ShownLine]:
    """Generate the section with the kernels of a compiled graph, each with the Python
    lines that it was compiled from."""
    if source.kernels:
        yield ShownLine("Kernels of the graph", "heading")
    for kernel in source.kernels:
        yield ShownLine(kernel.name)
        for line in kernel.lines:
            place = format_place(line.file, line.line)
            yield ShownLine(f"  {place} in {line.function}", "faint")
            if line.code:
                yield ShownLine(line.code, "code", "python", number=line.line)


def _list_graph_nodes(source: SliceSource) -> Iterator[ShownLine]:
    """Generate the section with the nodes of the graph (FX) that a slice was compiled
    from."""
    if source.nodes:
        yield ShownLine("Nodes of the graph", "heading")
    for node in source.nodes:
        yield ShownLine(node, "code", "python")


def _list_kernel_code(source: SliceSource) -> Iterator[ShownLine]:
    """Generate the section with the code of the kernel (Triton or C++), as it is
    defined in the wrapper that the compiler wrote. Nothing is generated if the
    definition is not known."""
    definition = source.definition
    if definition is None:
        return
    language = LANGUAGES.get(definition.language, "python")
    what = "C++" if language == "cpp" else "Triton"
    yield ShownLine(f"Generated code ({what})", "heading")
    lines = source.code.split("\n")
    for number in range(definition.first_line, definition.end_line):
        # a definition may reach beyond the end of incomplete code
        if number <= len(lines):
            yield ShownLine(lines[number - 1], "code", language, number)


def _list_calls(source: SliceSource) -> Iterator[ShownLine]:
    """Generate the section with each call of the kernel in the wrapper, with
    CONTEXT_LINES lines before and after it. The line of the call is marked."""
    lines = source.code.split("\n")
    if source.call_lines:
        plural_ending = "s" if len(source.call_lines) > 1 else ""
        yield ShownLine(f"Call{plural_ending} in the wrapper", "heading")
    for call in source.call_lines:
        first_line = max(1, call - CONTEXT_LINES)
        end_line = min(len(lines), call + CONTEXT_LINES) + 1
        for number in range(first_line, end_line):
            yield ShownLine(
                lines[number - 1], "code", "python", number, is_marked=number == call
            )


def _list_wrapper(source: SliceSource) -> Iterator[ShownLine]:
    """Generate the section with the whole wrapper that the compiler wrote. The lines
    that call the kernel are marked."""
    if not source.code:
        return
    yield ShownLine(f"The whole wrapper {source.wrapper_path}", "heading")
    marked = set(source.call_lines)
    for number, line in enumerate(source.code.split("\n"), start=1):
        yield ShownLine(line, "code", "python", number, is_marked=number in marked)
