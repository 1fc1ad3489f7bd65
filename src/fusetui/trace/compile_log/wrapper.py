"""The calls in the Python wrapper that Inductor generates for a graph.

Sources: torch/_inductor/codegen/wrapper.py (`write_provenance_debug_handle`,
`codegen_kernel`-comments) and codegen/triton.py (`# kernel path: FILE`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from fusetui.text.patterns import lazy_pattern

HANDLE = lazy_pattern(
    r"^\s*(?:#|//) \[Provenance debug handles\] (?P<handle>(?P<name>\S{1,2000}):[0-9]{1,9})\s*$"
)
"""`# [Provenance debug handles] cpp_fused_gelu_mul_0:3`, above the call."""
NODES = lazy_pattern(
    r"^\s*(?:#|//) Topologically Sorted Source Nodes: \[(?P<nodes>[^\]]*)\]"
    r"(?:, Original ATen: \[(?P<aten>[^\]]*)\])?"
)
CALL = lazy_pattern(
    r"^\s+(?:[A-Za-z_][\w, ()\[\]]* = )?"
    r"(?P<name>(?:cpp_fused|cpp_\w|triton_|extern_kernels\.|torch\.ops\.|aten\.|inductor_ops\.)"
    r"[\w.]*)\("
)
"""A statement that calls a kernel: `triton_poi_fused_0.run(`, `buf1 = aten.sort(`."""
KERNEL_PATH = lazy_pattern(r"^\s*# kernel path: (?P<path>\S{1,4096})\s*$")
DEFINITION = lazy_pattern(
    r"^(?P<name>[A-Za-z_]\w*) = async_compile\.(?P<language>\w+)\("
)
FUNCTION = lazy_pattern(r"^\s*def (?:call|partition_[0-9]+)\(")
"""The functions of the wrapper that call kernels."""
AOT_ID = lazy_pattern(r"^# AOT ID: \['(?P<id>[^'\n]{1,100})'\]", re.MULTILINE)
MAX_CALLS = 100_000  # of a wrapper
SEPARATOR = ":"  # between the name and the number of a handle


class KernelCall(msgspec.Struct, frozen=True):
    """A call of a kernel in the wrapper."""

    name: str  # cpp_fused_gelu_mul_0, triton_poi_fused_add_0, extern_kernels.mm
    handle: str  # cpp_fused_gelu_mul_0:3; "" without provenance
    line: int  # of the wrapper, from 1 on
    source_nodes: tuple[str, ...]
    aten: tuple[str, ...]


class KernelDefinition(msgspec.Struct, frozen=True):
    """A kernel whose code the wrapper contains."""

    name: str
    language: str  # triton, cpp_pybinding
    first_line: int  # from 1 on, that of its `# kernel path` if it has one
    end_line: int  # the line after its last
    path: str  # of the generated file; "" without one


class Wrapper(msgspec.Struct, frozen=True):
    """What a generated wrapper calls and defines, in its order."""

    aot_id: str  # 0_forward, 0_backward, 1_inference; "" if it is not named
    calls: tuple[KernelCall, ...]
    definitions: tuple[KernelDefinition, ...]

    def definition_of(self, name: str) -> KernelDefinition | None:
        """The code of the kernel with this name; None if the wrapper does not define
        it."""
        for definition in self.definitions:
            if definition.name == name:
                return definition
        return None


def parse_wrapper(text: str) -> Wrapper:
    """Parse the source of a wrapper that Inductor generated, without running any of it."""
    lines = text.split("\n")
    # it stands in the first lines
    aot_id = AOT_ID.search(text[:10_000])
    return Wrapper(
        aot_id=aot_id["id"] if aot_id else "",
        calls=_find_calls(lines),
        definitions=_find_definitions(lines),
    )


def _find_calls(lines: list[str]) -> tuple[KernelCall, ...]:
    """Find the calls of kernels in the functions of the wrapper, MAX_CALLS at most.

    These lines are one call, on line 4, with its handle and its nodes:

        def call(args):
            # Topologically Sorted Source Nodes: [h], Original ATen: [aten.add]
            # [Provenance debug handles] triton_poi_fused_add_0:1
            triton_poi_fused_add_0.run(buf0, 1024, stream=stream0)
    """
    calls: list[KernelCall] = []
    pending = _Comments()
    for number, line in _lines_of_functions(lines):
        if FUNCTION.match(line):
            pending = _Comments()
            continue
        if pending.take(line):
            continue
        name = _called_kernel(line, pending.handle)
        if not name:
            continue
        calls.append(
            KernelCall(
                name=name,
                handle=pending.handle,
                line=number,
                source_nodes=pending.nodes,
                aten=pending.aten,
            )
        )
        pending = _Comments()
        if len(calls) >= MAX_CALLS:
            break
    return tuple(calls)


def _lines_of_functions(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of the functions that call kernels, each with its number.

    Numbers count from 1. The line with `def` is the first of a function; it ends before
    the first line that is indented no more than that and is no comment. Blank lines are
    left out.
    """
    indent_of_function: int | None = None  # outside of functions
    for number, line in enumerate(lines, start=1):
        if FUNCTION.match(line):
            indent_of_function = _measure_indent(line)
            yield number, line
            continue
        is_blank = not line.strip()
        if indent_of_function is None or is_blank:
            continue
        is_comment = line.lstrip().startswith("#")
        if _measure_indent(line) <= indent_of_function and not is_comment:
            indent_of_function = None
            continue
        yield number, line


def _called_kernel(line: str, handle: str) -> str:
    """Return the name of the kernel that a line calls; "" if it calls none.

    The indented line `    buf1 = extern_kernels.mm(a, b)` calls extern_kernels.mm. Lines
    without an indent, and calls of functions that are no kernels, do not count. Below a
    comment with a handle, which has the name of the kernel, there may be lines that
    allocate its output; the call is the first line with that name, or that calls any
    kernel. The result is then the name in the handle.

    Args:
        line: A line of the wrapper.
        handle: The handle in the comment above it: "triton_poi_fused_add_0:1"; "" for
            none.
    """
    call = CALL.match(line)
    if not handle:
        return call["name"].removesuffix(".run") if call else ""
    name = handle.rpartition(SEPARATOR)[0]
    is_named = name.rpartition(".")[2] in line
    return name if call or is_named else ""


class _Comments:
    """The comments above the next call."""

    def __init__(self) -> None:
        """Start without comments."""
        self.handle = ""
        self.nodes: tuple[str, ...] = ()
        self.aten: tuple[str, ...] = ()

    def take(self, line: str) -> bool:
        """Keep what a line says if it is a comment; tell whether it is one."""
        handle = HANDLE.match(line)
        if handle:
            self.handle = handle["handle"]
            return True
        nodes = NODES.match(line)
        if nodes:
            self.nodes = _split_names(nodes["nodes"])
            self.aten = _split_names(nodes["aten"] or "")
            return True
        return line.lstrip().startswith("#")


class _KernelPath(NamedTuple):
    """A comment `# kernel path: PATH` and its line, counted from 1."""

    path: str
    line: int


NO_KERNEL_PATH = _KernelPath(path="", line=0)


def _find_definitions(lines: list[str]) -> tuple[KernelDefinition, ...]:
    """Find the kernels that the wrapper compiles.

    Their code is a string that begins on the line with `async_compile` and ends on the
    line that begins with its closing quotes. The path is in a comment above:

        # kernel path: /tmp/torchinductor_me/ab/cab.py
        triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
        ...
        ''', device_str='cuda')
    """
    definitions: list[KernelDefinition] = []
    above = NO_KERNEL_PATH
    number = 0  # of lines that were looked at
    while number < len(lines):
        line = lines[number]
        number += 1
        named = KERNEL_PATH.match(line)
        if named:
            above = _KernelPath(path=named["path"], line=number)
            continue
        match = DEFINITION.match(line)
        if match is None:
            if line.strip() and not line.startswith("#"):
                above = NO_KERNEL_PATH
            continue
        first_line = above.line or number
        while number < len(lines) and not lines[number].startswith("'''"):
            number += 1
        definitions.append(
            KernelDefinition(
                name=match["name"],
                language=match["language"],
                first_line=first_line,
                end_line=min(number + 2, len(lines) + 1),
                path=above.path,
            )
        )
        above = NO_KERNEL_PATH
        number += 1
    return tuple(definitions)


def _measure_indent(line: str) -> int:
    """The number of blanks before the first character of a line."""
    return len(line) - len(line.lstrip())


def _split_names(text: str) -> tuple[str, ...]:
    """The names in a text with commas between them: ("linear", "h") for `linear, h`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
