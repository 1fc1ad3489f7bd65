"""What a compiled Triton kernel is: registers, spills, widths of its loads, tensor
cores, its loop.

Triton compiles for any GPU on any machine, and its wheel brings NVIDIA's own
disassembler. The opcodes are those of SASS (CUDA Binary Utilities, "Instruction Set
Reference") and of AMD's instruction set manuals.
"""

from __future__ import annotations

import re
import subprocess
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import triton
from tests.kernels.launches import KERNELS, Launch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fusetui.kernels.tiles import has_tf32

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SHARED = {
    **{
        "sm_75": 65_536,
        "sm_80": 166_912,
        "sm_86": 101_376,
        "sm_89": 101_376,
        "sm_90": 232_448,
    },
    **{"sm_100": 232_448, "sm_120": 101_376, "gfx942": 65_536, "gfx950": 163_840},
}
"""Shared memory that a block may have, in bytes (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability"; CDNA 3 and CDNA 4 white papers)."""


@dataclass(frozen=True)
class Loop:
    """The innermost loop with most of the arithmetic: matrix instructions, or without
    those, FFMA; `masks` are the predicates of its copies, without the one that the
    pipeline itself needs."""

    instructions: int = 0
    arithmetic: int = 0
    masks: int = 0


@dataclass(frozen=True)
class Code:
    """`stack` and `shared` are bytes, `local` counts accesses to the stack. `loads`,
    `copies` (to shared memory, asynchronous) and `stores` count instructions by their
    width in bits, `matrix` those of tensor cores by name."""

    registers: int
    stack: int
    local: int
    shared: int
    loads: Mapping[int, int]
    copies: Mapping[int, int]
    stores: Mapping[int, int]
    matrix: Mapping[str, int]
    loop: Loop
    warps: int

    @property
    def width(self) -> int:
        """The narrowest copy to shared memory, in bits; without any, the load that
        moves most: a bias is loaded once, in the layout of the sums, and is not aligned
        if its size is odd."""
        return min(
            self.copies or [max(self.loads, key=lambda bits: bits * self.loads[bits])]
        )

    @property
    def stored(self) -> int:
        """The width of the stores, in bits: the narrowest of a GEMM, and the widest of
        a pointwise kernel, which has a branch of its own for the last block."""
        return (min if self.matrix or self.copies else max)(self.stores, default=0)


def compiled(launch: Launch, architecture: str) -> Code:
    """The code of a launch. Raises whatever Triton raises if it cannot be compiled."""
    return _compiled(launch.code, architecture)


@cache
def _compiled(code: tuple[Any, ...], architecture: str) -> Code:
    name, signature, constants, aligned, options = code
    module, attribute = KERNELS[name]
    kernel = getattr(module, attribute)
    place = {key: (kernel.arg_names.index(key),) for key in kernel.arg_names}
    source = ASTSource(
        kernel,
        dict(signature),
        {place[key]: value for key, value in constants},
        {place[key]: [["tt.divisibility", 16]] for key in aligned},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = triton.compile(
            source, target=target(architecture), options=dict(options)
        )
    read = _amd if architecture.startswith("gfx") else _nvidia
    return read(made)


def target(architecture: str) -> GPUTarget:
    """Triton's name of an architecture."""
    if architecture.startswith("gfx"):
        return GPUTarget("hip", architecture, 64)
    return GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32)


def violations(
    launch: Launch, code: Code, architecture: str, precision: str
) -> list[str]:
    """Which bounds the code violates, with the figure; docs/experiments.md states
    them."""
    found = [f"{code.stack} B spilled"] if code.stack or code.local else []
    if code.shared > SHARED[architecture]:
        found.append(f"{code.shared} B of shared memory")
    if code.stored < 128:
        found.append(f"{code.stored}-bit stores")
    if not launch.kernel.endswith("_gemm"):
        widest = max(code.loads, default=0)
        return found + ([f"{widest}-bit loads"] if widest < 128 else [])
    if architecture.startswith("sm_") and not code.copies:
        found.append("synchronous loads")
    if code.width < 128:
        found.append(f"{code.width}-bit loads")
    exact = precision == "fp32" or (precision == "tf32" and not has_tf32(architecture))
    if not exact and not code.matrix:
        found.append("no tensor cores")
    whole = dict(launch.constants).get("WHOLE", True)
    if whole and code.loop.masks:
        found.append(f"{code.loop.masks} masks in the loop")
    return found


_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
_LINE = re.compile(
    r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?(?P<op>[A-Z][\w.]*)(?P<rest>.*)"
)
_FFMA = re.compile(r"FFMA")
_PREDICATE = re.compile(r"U?P\d")
_LABEL = re.compile(r"(\.L_x_\d+):")
_MATRIX = re.compile(r"[HIDQ]MMA|[HIQ]GMMA|UTC[A-Z]*MMA")


def _nvidia(made: Any) -> Code:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(made.asm["cubin"])
        usage = _USAGE.search(_output("cuobjdump", "-res-usage", path))
        listing = _output("nvdisasm", "-c", path)
    assert usage is not None
    lines = listing.splitlines()
    found = [match for line in lines if (match := _LINE.match(line))]
    opcodes = Counter(match["op"] for match in found)
    return Code(
        registers=int(usage[1]),
        stack=int(usage[2]),
        local=sum(n for op, n in opcodes.items() if op.startswith(("LDL", "STL"))),
        shared=made.metadata.shared,
        loads=_widths(opcodes, ("LDG",)),
        copies=_widths(opcodes, ("LDGSTS", "UBLKCP", "UTMALDG")),
        stores=_widths(opcodes, ("STG",)),
        matrix={op: n for op, n in opcodes.items() if _MATRIX.match(op)},
        loop=_loop(lines),
        warps=made.metadata.num_warps,
    )


def _output(tool: str, *args: object) -> str:
    command = [str(TOOLS / tool), *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def _widths(opcodes: Mapping[str, int], names: Sequence[str]) -> dict[int, int]:
    """`LDG.E.128` moves 128 bits for each thread, `LDG.E.U16` 16, `LDG.E` 32."""
    found: Counter[int] = Counter()
    for opcode, count in opcodes.items():
        name, *words = opcode.split(".")
        if name in names:
            sizes = [
                int(word.lstrip("US")) for word in words if word.lstrip("US").isdigit()
            ]
            found[max(sizes, default=32)] += count
    return dict(found)


def _loop(lines: Sequence[str]) -> Loop:
    """From a label to a branch back to it; of those, the shortest with most of the
    arithmetic."""
    labels: dict[str, int] = {}
    loops: list[Sequence[str]] = []
    for number, line in enumerate(lines):
        if label := _LABEL.match(line.strip()):
            labels[label[1]] = number
        match = _LINE.match(line)
        if match is None or not match["op"].startswith("BRA"):
            continue
        back = next(
            (labels[name] for name in labels if f"({name})" in match["rest"]), None
        )
        if back is not None:
            loops.append(lines[back : number + 1])
    is_arithmetic = _MATRIX if any(map(_MATRIX.search, lines)) else _FFMA
    counted = [_counted(loop, is_arithmetic) for loop in loops]
    return max(
        counted, key=lambda one: (one.arithmetic, -one.instructions), default=Loop()
    )


def _counted(lines: Sequence[str], arithmetic: re.Pattern[str]) -> Loop:
    opcodes = [match["op"] for line in lines if (match := _LINE.match(line))]
    copies = [line for line in lines if " LDGSTS" in line]
    predicates = {found for line in copies for found in _PREDICATE.findall(line)}
    return Loop(
        len(opcodes),
        sum(arithmetic.match(op) is not None for op in opcodes),
        max(len(predicates) - 1, 0),
    )


_AMD_FACT = re.compile(
    r"\.(vgpr_count|vgpr_spill_count|sgpr_spill_count|private_segment_fixed_size):\s+(\d+)"
)
_AMD_ACCESS = re.compile(
    r"^\s+(?:global|buffer|flat)_(load|store)_(\w+?)(?:_d16)?(?:\s(.*))?$", re.MULTILINE
)
_AMD_MATRIX = re.compile(r"^\s+(v_(?:mfma|smfmac|wmma)\w*)", re.MULTILINE)
_AMD_BITS = {
    "dwordx4": 128,
    "dwordx3": 96,
    "dwordx2": 64,
    "dword": 32,
    "lds_dwordx4": 128,
    "lds_dword": 32,
}


def _amd(made: Any) -> Code:
    text = made.asm["amdgcn"]
    facts: Counter[str] = Counter()
    for name, value in _AMD_FACT.findall(text):
        facts[name] += int(value)
    widths: dict[str, Counter[int]] = {
        "load": Counter(),
        "store": Counter(),
        "copy": Counter(),
    }
    for way, kind, rest in _AMD_ACCESS.findall(text):
        copied = "lds" in kind or rest.endswith(" lds")
        bits = _AMD_BITS.get(kind, 8 if "byte" in kind else 16)
        widths["copy" if copied else way][bits] += 1
    return Code(
        registers=facts["vgpr_count"],
        stack=facts["private_segment_fixed_size"],
        local=facts["vgpr_spill_count"],
        shared=made.metadata.shared,
        loads=dict(widths["load"]),
        copies=dict(widths["copy"]),
        stores=dict(widths["store"]),
        matrix=dict(Counter(_AMD_MATRIX.findall(text))),
        loop=Loop(),
        warps=made.metadata.num_warps,
    )
