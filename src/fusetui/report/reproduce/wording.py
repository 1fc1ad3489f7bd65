"""Sentences about calls that can, or cannot, be reproduced."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.analysis.reproduce.model import (
    Call,
    CallKind,
    Refusal,
    Remark,
    RemarkKind,
)
from fusetui.text.figures import duration, plural, size
from fusetui.text.printable import printable

REFUSALS = {
    Refusal.NO_OP: (
        "no recorded op launched it: a replayed graph needs the trace of its capture "
        "(--captured-by)"
    ),
    Refusal.NO_INPUTS: (
        "its inputs were not recorded (profile with record_shapes=True)"
    ),
    Refusal.NO_NAME: "its name is not an op name",
    Refusal.NO_FORWARD: (
        "the op whose gradient it computes is not in the trace or not a torch op"
    ),
    Refusal.DAMAGED: "its recorded inputs do not belong to one call",
    Refusal.LONG_LIST: (
        "it takes an empty list or a list of more than 30 tensors, which torch does "
        "not record"
    ),
    Refusal.LAYOUT: (
        "it takes a tensor without strides (sparse or oneDNN), whose layout and "
        "number of values are not recorded"
    ),
    Refusal.DTYPE: "it takes a tensor of a type that scripts cannot create",
    Refusal.TOO_LARGE: "its inputs need more than 1 TiB",
    Refusal.NOT_AN_OP: "it is not an op, but an annotation or a step of a runtime",
}
COMPILED = (
    "its code is not in the trace (--with-generated-code reads it from the "
    "torch.compile log)"
)
CODE_OF_LOG = (
    "{} is code copied unchanged from {}. fusetui has not run or checked it; the "
    "script runs it, so read it first."
)
"""The warning about a copy of generated code."""
REMARKS = {
    RemarkKind.NOTHING: (
        "None, a string, a device, a generator or a nested tensor (not recorded which)"
    ),
    RemarkKind.LIST_DTYPE: (
        "the element types of a list are not recorded; they are taken from tensors "
        "of these shapes elsewhere in the trace"
    ),
    RemarkKind.BOUND: (
        "integers with an unknown bound: 0 and 1 are valid almost everywhere"
    ),
    RemarkKind.STRIDES: "strides are not recorded: all tensors are assumed contiguous",
    RemarkKind.SCALAR_TENSOR: (
        "a tensor without dimensions, assumed to be a Python number in the program"
    ),
    RemarkKind.INDICES: "the indices are taken from the ops inside the call",
    RemarkKind.MACHINE: "the memory is taken from a copy inside the call",
    RemarkKind.EXPANDED: "expanded: a stride of 0 repeats its elements",
    RemarkKind.LONG_LIST: (
        "lists of more than 30 tensors are not recorded; these are taken from ops "
        "around or inside the call"
    ),
    RemarkKind.QUANTIZED: (
        "quantized; neither the scale nor whether it is per channel is recorded: 0.1 "
        "for all channels"
    ),
    RemarkKind.GRADIENTS: (
        "which inputs need gradients is not recorded: all floating-point inputs get "
        "them"
    ),
    RemarkKind.VALUES_UNKNOWN: "plain values are not recorded",
}
MAX_TYPE_CHARS = 40
"""Of the recorded type of an argument, in a sentence."""

NEVER_RECORDED = "Values of tensors, and which tensors share storage, are not recorded."


def why_not(call: Call) -> str:
    """Why a call has no script, in words; "" if it has one."""
    if call.kind is CallKind.COMPILED:
        return COMPILED
    if call.refusal is None:
        return ""
    reason = REFUSALS[call.refusal]
    if call.refused_position < 0:
        return reason
    argument = f"argument {call.refused_position + 1}"
    if call.refused_type:
        argument += f": {printable(call.refused_type)[:MAX_TYPE_CHARS]}"
    return f"{reason} ({argument})"


def remark_texts(remarks: Sequence[Remark]) -> list[str]:
    """A text for each kind of remark, with all arguments that it is about, which count
    from 1: `arguments 4, 5, 12: None, a text, ...`."""
    positions_of_kind: dict[RemarkKind, list[int]] = {}
    for remark in remarks:
        positions = positions_of_kind.setdefault(remark.kind, [])
        if remark.position >= 0:
            positions.append(remark.position + 1)
    texts = []
    for kind, positions in positions_of_kind.items():
        if positions:
            noun = "argument" if len(positions) == 1 else "arguments"
            numbers = ", ".join(map(str, sorted(set(positions))))
            texts.append(f"{noun} {numbers}: {REMARKS[kind]}")
        else:
            texts.append(REMARKS[kind])
    return texts


def recorded_text(call: Call) -> str:
    """`120 calls, 130.0 ms of GPU time in all, 1.08 ms the median`."""
    unit = "GPU" if call.on_gpu else "CPU"
    calls = plural(call.count, "call")
    if call.count == 1:
        return f"{calls}, {duration(call.median_ns)} of {unit} time"
    total = duration(call.total_ns)
    median = duration(call.median_ns)
    return f"{calls}, {total} of {unit} time in total, median {median}"


def inputs_text(call: Call) -> str:
    """`inputs of 881.5 MB`."""
    return f"inputs of {size(call.input_bytes)}"


def name_of(call: Call) -> str:
    """The name of what a call makes again: of the node, for a backward one."""
    return call.node or call.op or "".join(call.kernels[:1])
