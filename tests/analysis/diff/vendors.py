"""A trace of an NVIDIA GPU as one of AMD's would have written it, and whether a diff of
both finds the partner of every kernel."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.analysis.diff.planting import ENCODE, Answer, Editor, Event, Subject, number

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Row
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role

GEMMS = re.compile(r"aten::(mm|addmm|bmm|baddbmm|linear|matmul)\Z")
CONVOLUTIONS = re.compile(r"aten::.*convolution")
ATTENTION = re.compile(r"flash_fwd|fmha")
MULTIPLIES = re.compile(
    r"gemm|gemv|cutlass|nvjet|xmma|dot_kernel|splitK_", re.IGNORECASE
)
CONVOLVES = re.compile(r"fprop|dgrad|wgrad|convolve|scudnn|gemm", re.IGNORECASE)
HELPS = re.compile(
    r"Memset|Memcpy|[rR]educe|Offsets|To(Nhwc|Nchw)|epilogue::|scalePacked|winograd\w*[A-Z]\w+4x4|Tiles|fft2d|scal_|split_k_"
)
PASSES = {"dgrad": "bwd", "wgrad": "wrw"}
BEFORE = ("SubTensorOpWithScalar1d", "batched_transpose_32x32_half")
"""What MIOpen runs before a convolution."""

SHARES = (0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
"""A kernel takes so much of its time, and each helper before it a tenth: nothing else
moves."""

WAS = "was"  # of an event: the place of the original in its file


def as_amd(subject: Subject) -> list[Event] | None:
    """None for a trace without products or convolutions of NVIDIA's libraries under
    their ops."""
    editor, trace = Editor(subject), subject.trace
    for place, event in enumerate(editor.events):
        name = str(event.get("name", ""))
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and name.startswith(
            "cuda"
        ):
            editor.events[place] = {**event, "name": "hip" + name.removeprefix("cuda")}
        elif name == "aten::cudnn_convolution":
            editor.events[place] = {**event, "name": "aten::miopen_convolution"}
    main = 0
    for row in trace.gpu_rows[trace.launch[trace.gpu_rows] >= 0].tolist():
        op = int(trace.op[row])
        main += _convert(editor, row, trace.name_of(op) if op >= 0 else "")
    amd = re.search("hip[A-Z]|Cijk_", " ".join(trace.names))
    return editor.finished() if main and not amd else None


def _convert(editor: Editor, row: int, op: str) -> bool:
    """Whether this is the main kernel of a product, a convolution or attention."""
    trace = editor.subject.trace
    name, place = trace.name_of(row), int(trace.order[row])
    product, convolution = GEMMS.match(op), CONVOLUTIONS.match(op)
    if (product or convolution) and HELPS.search(name):
        editor.drop(row)
        editor.drop(int(trace.launch[row]))
        return False
    event = editor.edit(row)
    event["args"][WAS] = place
    if trace.role[row] != Role.KERNEL:
        return False
    size = sum(map(ord, name)) % len(SHARES)
    if product and MULTIPLIES.search(name):
        event["name"] = (
            f"Cijk_Alik_Bljk_BBS_BH_MT{16 << size}x128x64_MI16x16x1_SN_LDSB1"
        )
    elif convolution and CONVOLVES.search(name):
        way = next((amd for nvidia, amd in PASSES.items() if nvidia in name), "fwd")
        event["name"] = (
            f"igemm_{way}_gtcx3_nhwc_bf16_bx0_ex1_bt128x{16 << size}x32_wt32x32x8"
        )
        _helpers(editor, row, event)
    elif ATTENTION.search(name):
        event["name"] = "attn_fwd"
    elif op.startswith("aten::"):
        event["name"] = name.replace(
            "elementwise_kernel<128, 4", "elementwise_kernel<512, 1"
        )
    event["dur"] = (
        Decimal(int(number(event["dur"]) * 1000 * Decimal(SHARES[size]))) / 1000
    )
    return event["name"] != name and "elementwise" not in name


def _helpers(editor: Editor, row: int, main: Event) -> None:
    """Launched before the main kernel, in the first thirds of its launch call and of
    its time."""
    call = editor.edit(int(editor.subject.trace.launch[row]))
    ends = number(call["ts"]) + number(call["dur"])
    tenth, third = _part_of(main["dur"], 10), _part_of(call["dur"], 3)
    for name in BEFORE:
        args = {**main["args"], "correlation": editor.next_id}
        del args[WAS]
        editor.more.append({**main, "name": name, "dur": tenth, "args": args})
        editor.more.append({**call, "dur": third, "args": {**call["args"], **args}})
        main["ts"], call["ts"] = number(main["ts"]) + tenth, number(call["ts"]) + third
        editor.next_id += 1
    call["dur"] = ends - call["ts"]


def _part_of(us: Any, parts: int) -> Decimal:
    """In whole ns."""
    return Decimal(int(number(us) * 1000) // parts) / 1000


def judge_vendors(subject: Subject, events: list[Event], into: Path) -> Answer:
    """Is every kernel that is on both sides in one row with itself; helpers may be in a
    row with what else their op does, not with other work."""
    into.write_bytes(ENCODE.encode({**subject.document, "traceEvents": events}))
    other = open_trace(str(into))
    found = diff(subject.trace, other)
    was = {
        row: events[int(other.order[row])]["args"].get(WAS)
        for row in other.gpu_rows.tolist()
    }
    wrong = [
        _said(row)
        for row in found.rows
        if row.counts and not row.on_cpu and not _fits(subject.trace, other, row, was)
    ]
    return Answer(
        not wrong, "; ".join([f"{len(wrong)} of {len(found.rows)} rows", *wrong[:3]])
    )


def _fits(a: Trace, b: Trace, row: Row, was: dict[int, int | None]) -> bool:
    before = {int(a.order[each]) for each in row.a_rows} & {*was.values()}
    after = {was[each] for each in row.b_rows} - {None}
    ops = (
        {_begins(a, each) for each in row.a_rows},
        {_begins(b, each) for each in row.b_rows},
    )
    return before == after and (ops[0] == ops[1] or not all(ops))


def _begins(trace: Trace, row: int) -> int:
    """Of the op around the launch, which the conversion does not move."""
    op = int(trace.op[row])
    return int(trace.start[op]) if op >= 0 else -1


def _said(row: Row) -> str:
    return f"{row.kind} {row.op} {row.a[:2]} -> {row.b[:3]} {row.why}"
