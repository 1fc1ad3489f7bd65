"""The calls in the Python wrapper that Inductor generates for a graph.

Sources: torch/_inductor/codegen/wrapper.py (`write_provenance_debug_handle`,
`codegen_kernel`-comments) and codegen/triton.py (`# kernel path: FILE`).
"""

from __future__ import annotations

import re

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
        """The code of a kernel; None for one that is not defined here."""
        for definition in self.definitions:
            if definition.name == name:
                return definition
        return None


def wrapper_of(text: str) -> Wrapper:
    """Reads the text of a wrapper, without running any of it."""
    lines = text.split("\n")
    aot_id = AOT_ID.search(text[:10_000])
    return Wrapper(
        aot_id=aot_id["id"] if aot_id else "",
        calls=_calls(lines),
        definitions=_definitions(lines),
    )


def _calls(lines: list[str]) -> tuple[KernelCall, ...]:
    """The calls in the functions `call` and `partition_N`."""
    calls: list[KernelCall] = []
    pending = _Comments()
    indent_of_function = -1  # outside of one
    for number, line in enumerate(lines, start=1):
        if FUNCTION.match(line):
            indent_of_function = _indent(line)
            pending = _Comments()
            continue
        if indent_of_function < 0 or not line.strip():
            continue
        if _indent(line) <= indent_of_function and not line.lstrip().startswith("#"):
            indent_of_function = -1
            continue
        if pending.take(line):
            continue
        match = CALL.match(line)
        if pending.handle:
            name = pending.handle.rpartition(SEPARATOR)[0]
            # what lies between the comment and the call: allocations of its output
            if name.rpartition(".")[2] not in line and match is None:
                continue
        elif match is None:
            continue
        else:
            name = match["name"].removesuffix(".run")
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


class _Comments:
    """The comments above the next call."""

    def __init__(self) -> None:
        self.handle = ""
        self.nodes: tuple[str, ...] = ()
        self.aten: tuple[str, ...] = ()

    def take(self, line: str) -> bool:
        """Whether a line is one of these comments; then what it says is kept."""
        handle = HANDLE.match(line)
        if handle:
            self.handle = handle["handle"]
            return True
        nodes = NODES.match(line)
        if nodes:
            self.nodes = _names(nodes["nodes"])
            self.aten = _names(nodes["aten"] or "")
            return True
        return line.lstrip().startswith("#")


def _definitions(lines: list[str]) -> tuple[KernelDefinition, ...]:
    """The kernels that the wrapper compiles; one ends at the line with its closing
    quotes."""
    definitions: list[KernelDefinition] = []
    path, path_line = "", 0
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        named = KERNEL_PATH.match(line)
        if named:
            path, path_line = named["path"], number
            continue
        match = DEFINITION.match(line)
        if match is None:
            if line.strip() and not line.startswith("#"):
                path, path_line = "", 0
            continue
        first_line = path_line or number
        while number < len(lines) and not lines[number].startswith("'''"):
            number += 1
        definitions.append(
            KernelDefinition(
                name=match["name"],
                language=match["language"],
                first_line=first_line,
                end_line=min(number + 2, len(lines) + 1),
                path=path,
            )
        )
        path, path_line = "", 0
        number += 1
    return tuple(definitions)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _names(text: str) -> tuple[str, ...]:
    """`linear, h` -> ("linear", "h")."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
