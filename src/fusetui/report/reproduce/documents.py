"""The reproducible calls of a trace, as a text table and as a JSON document; and the
folder with their scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from fusetui.analysis.reproduce.model import (
    Argument,
    Call,
    CallKind,
    DeviceArgument,
    NothingArgument,
    NumberArgument,
    NumbersArgument,
    ScalarTensorArgument,
    TensorArgument,
    TensorsArgument,
)
from fusetui.report.reproduce.wording import name_of, remark_texts, why_not
from fusetui.text.figures import count, duration
from fusetui.text.printable import printable
from fusetui.text.tables import Column, record_table

MAX_NAME_CHARS = 48
"""Of an op or kernel, in a table."""

MAX_TENSORS_SHOWN = 4
"""Of a list of tensors, in a table."""


class CallDocument(msgspec.Struct, frozen=True):
    """A distinct call; see docs/json.md."""

    name: str
    kind: CallKind
    row: int
    count: int
    total_ns: int
    own_ns: int
    median_ns: int
    on_gpu: bool
    device: str
    inputs: tuple[str, ...]
    input_bytes: int
    flop: int | None
    bytes: int | None
    attainable_ns: int | None
    kernels: tuple[str, ...]
    remarks: tuple[str, ...]
    why_not: str


class ReproduceDocument(msgspec.Struct, frozen=True):
    """`reproduce`: the distinct calls, the largest time first."""

    calls: tuple[CallDocument, ...]


def reproduce_document(calls: Sequence[Call]) -> ReproduceDocument:
    return ReproduceDocument(tuple(map(_call_document, calls)))


def _call_document(call: Call) -> CallDocument:
    attainable_ns = call.cost.attainable_ns
    return CallDocument(
        name=name_of(call),
        kind=call.kind,
        row=call.row,
        count=call.count,
        total_ns=call.total_ns,
        own_ns=call.own_ns,
        median_ns=call.median_ns,
        on_gpu=call.on_gpu,
        device=call.device,
        inputs=tuple(map(argument_text, call.arguments)),
        input_bytes=call.input_bytes,
        flop=call.cost.flop,
        bytes=call.cost.bytes,
        attainable_ns=None if attainable_ns is None else round(attainable_ns),
        kernels=call.kernels,
        remarks=tuple(remark_texts(call.remarks)),
        why_not=why_not(call),
    )


def _inputs_cell(call: Call) -> str:
    """The inputs of a call, or why it has no script."""
    reason = why_not(call)
    if reason:
        return f"no script: {reason}"
    return ", ".join(map(argument_text, call.arguments))


COLUMNS = (
    Column("row", cell=lambda call: count(call.row)),
    Column("self", cell=lambda call: duration(call.own_ns)),
    Column("total", spare=1, cell=lambda call: duration(call.total_ns)),
    Column("calls", cell=lambda call: count(call.count)),
    Column("median", cell=lambda call: duration(call.median_ns)),
    Column(
        "op", left=True, cell=lambda call: printable(name_of(call)[:MAX_NAME_CHARS])
    ),
    Column("inputs", left=True, cell=_inputs_cell),
)


def calls_text(calls: Sequence[Call], most: int) -> str:
    """The table of calls, each with its row, which --row takes. `most`: columns of a
    line."""
    return record_table(COLUMNS, calls, most)


def argument_text(argument: Argument) -> str:
    """`bfloat16[16, 64]`, `0.5`, `[1, 1]`, `2 of float32[64]`; `-` for what was not
    recorded."""
    return TEXTS[type(argument)](argument)


def _tensor_text(tensor: TensorArgument) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _tensors_text(argument: TensorsArgument) -> str:
    """The first MAX_TENSORS_SHOWN tensors of a list in parentheses, and how many there
    are beyond: `(float32[64], -, 3 more)`."""
    texts = []
    for tensor in argument.tensors[:MAX_TENSORS_SHOWN]:
        texts.append("-" if tensor is None else _tensor_text(tensor))
    more = len(argument.tensors) - MAX_TENSORS_SHOWN
    if more > 0:
        texts.append(f"{more} more")
    return f"({', '.join(texts)})"


TEXTS: dict[type, Callable[..., str]] = {
    TensorArgument: _tensor_text,
    TensorsArgument: _tensors_text,
    NumberArgument: lambda argument: argument.text,
    NumbersArgument: lambda argument: f"[{', '.join(argument.texts)}]",
    ScalarTensorArgument: lambda argument: f"{argument.dtype}[]",
    NothingArgument: lambda argument: "-",
    DeviceArgument: lambda argument: argument.name or "device",
}
"""How each kind of argument is shown."""


def file_name(call: Call, number: int) -> str:
    """`01_aten_bmm.py`: the name of a script in a folder of them."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name_of(call))[:60].strip("_")
    return f"{number:02}_{plain or 'kernel'}.py"
