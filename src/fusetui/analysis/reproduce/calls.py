"""One distinct call of a trace as a Call: its arguments, nested ops, duration and
work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.reproduce.arguments import (
    QUANTIZED_BYTES,
    ParsedInputs,
    RefusedError,
    bytes_of,
    frozen_dims,
    parsed_inputs,
    tensors_of,
)
from fusetui.analysis.reproduce.call_table import CallTable, call_table
from fusetui.analysis.reproduce.collectives import COLLECTIVE_NAME, collective_facts
from fusetui.analysis.reproduce.inner_ops import InnerCall, completed, inner_calls
from fusetui.analysis.reproduce.model import (
    Argument,
    Call,
    CallKind,
    Cost,
    Filling,
    InnerOp,
    RecordedInputs,
    Refusal,
    Remark,
    RemarkKind,
    TensorArgument,
    TensorsArgument,
    UnrecordedListArgument,
)
from fusetui.analysis.reproduce.values import filled
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.inputs import inputs_of
from fusetui.gpu.roofline.row import amount_of, properties_of, work_of
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import parsed
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import lower_median_index
from fusetui.trace.program.backward import ENGINE, Backward, backward_ops

OP_NAME: Final = lazy_pattern(
    r"[A-Za-z_][A-Za-z0-9_]*::[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)?", re.ASCII
)
NODE_NAME: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*Backward[0-9]*", re.ASCII)
COMPILED_NAME: Final = lazy_pattern(
    r"triton_|graph_[0-9]+_cpp_|CompiledFunction|Torch-Compiled Region"
    r"|## Call CompiledFxGraph"
)
MAX_NAME_CHARS: Final = 200

MAX_INNER_OPS: Final = 100
MAX_KERNELS: Final = 100
"""Of a call, that a script compares."""

MAX_INPUT_BYTES: Final = 1 << 40
FLOATS: Final = ("float64", "float32", "float16", "bfloat16")


class CallTimes(NamedTuple):
    """The times of all calls of a group, in ns, and the row of the median one."""

    row: int
    calls: int
    total_ns: int
    own_ns: int
    median_ns: int
    on_gpu: bool


def call_of_rows(trace: Trace, rows: Rows) -> Call:
    """The call that these rows of ops have in common; its times are those of all of
    them, with the ops inside."""
    times = _times_of(trace, rows)
    name = trace.name_of(times.row)
    call = Call(
        kind=CallKind.NONE,
        op=name,
        row=times.row,
        count=times.calls,
        total_ns=times.total_ns,
        own_ns=times.own_ns,
        median_ns=times.median_ns,
        on_gpu=times.on_gpu,
        device=device_of(trace, times.row),
        kernels=_kernels(trace, times.row),
    )
    if len(name) > MAX_NAME_CHARS:
        return replace(call, refusal=Refusal.NO_NAME)
    try:
        return _with_arguments(trace, call)
    except RefusedError as error:
        return replace(
            call,
            kind=CallKind.NONE,
            refusal=error.refusal,
            refused_position=error.position,
            refused_type=error.type_name,
        )


def call_without_op(trace: Trace, rows: Rows) -> Call:
    """GPU rows that no recorded op launched, as a call that cannot be made again."""
    dur = trace.dur[rows]
    row = int(rows[lower_median_index(dur)])
    name = trace.name_of(row)
    return Call(
        kind=CallKind.COMPILED if COMPILED_NAME.match(name) else CallKind.NONE,
        op="",
        row=row,
        count=len(rows),
        total_ns=int(dur.sum()),
        own_ns=int(dur.sum()),
        median_ns=int(trace.dur[row]),
        on_gpu=True,
        device=_name_of_device(properties_of(trace, row)),
        kernels=(name,),
        refusal=Refusal.NO_OP,
    )


def device_of(trace: Trace, row: int) -> str:
    """The name of the device that ran the work of an op; "" if there is none."""
    gpu_rows = _gpu_rows_of(trace, row)
    if not len(gpu_rows):
        return ""
    return _name_of_device(properties_of(trace, int(gpu_rows[0]))) or "GPU"


def _name_of_device(properties: dict[str, Any]) -> str:
    name = properties.get("name")
    return name if isinstance(name, str) else ""


def _with_arguments(trace: Trace, call: Call) -> Call:
    """The call with its arguments. Raises RefusedError."""
    name = call.op
    if COLLECTIVE_NAME.match(name):
        facts = collective_facts(trace, call.row)
        return replace(call, kind=CallKind.COLLECTIVE, collective=facts)
    if COMPILED_NAME.match(name.removeprefix(ENGINE)):
        recorded = _recorded_of(trace, call.row, name)
        return replace(call, kind=CallKind.COMPILED, recorded=recorded)
    if _node_of(name):
        return _backward(trace, call)
    if OP_NAME.fullmatch(name):
        return _forward(trace, call)
    raise RefusedError(Refusal.NOT_AN_OP if name else Refusal.NO_NAME)


def _node_of(name: str) -> str:
    """The node of autograd that an op runs, "" if it runs none."""
    node = name.removeprefix(ENGINE)
    return node if NODE_NAME.fullmatch(node) else ""


class _Inputs(NamedTuple):
    """The arguments of the op in a row."""

    arguments: tuple[Argument, ...]
    recorded: RecordedInputs
    remarks: tuple[Remark, ...]
    inner: tuple[InnerCall, ...]


def _inputs_of_row(trace: Trace, row: int) -> _Inputs:
    """Raises RefusedError."""
    table = call_table(trace)
    op = trace.name_of(row)
    parsed_of_row = parsed_inputs(op, table.inputs_at(table.place_of(row)))
    inner = inner_calls(trace, row)
    complete = completed(trace, row, op, parsed_of_row, inner)
    for position, argument in enumerate(complete.arguments):
        if isinstance(argument, UnrecordedListArgument):
            raise RefusedError(Refusal.LONG_LIST, position)
    with_values = filled(op, complete.arguments)
    return _Inputs(
        arguments=with_values.arguments,
        recorded=parsed_of_row.recorded,
        remarks=(*complete.remarks, *with_values.remarks),
        inner=tuple(inner),
    )


def _forward(trace: Trace, call: Call) -> Call:
    """A call of an op, whose inputs need gradients if the trace shows that one was
    computed. Raises RefusedError."""
    inputs = _inputs_of_row(trace, call.row)
    arguments = inputs.arguments
    remarks = inputs.remarks
    if _has_backward(trace, call.row) and not _is_in_place(call.op):
        arguments = with_gradients(arguments)
        remarks = (*remarks, Remark(RemarkKind.GRADIENTS))
    return _checked(
        replace(
            call,
            kind=CallKind.OP,
            arguments=arguments,
            recorded=inputs.recorded,
            remarks=remarks,
            inner=_inner_ops(trace, call.row, inputs.inner),
            cost=_cost(trace, call.row),
        )
    )


def _backward(trace: Trace, call: Call) -> Call:
    """A call of a node of autograd, by way of the op that created it. Raises
    RefusedError."""
    node = _node_of(call.op)
    forward_row = int(_backward_of(trace).forward_of(np.array([call.row]))[0])
    if forward_row < 0 or not OP_NAME.fullmatch(trace.name_of(forward_row)):
        raise RefusedError(Refusal.NO_FORWARD)
    inputs = _inputs_of_row(trace, forward_row)
    inner = inner_calls(trace, call.row)
    node_inputs = _inputs_of_node(trace, call.row, node, inner)
    gradients = []
    for argument in node_inputs.arguments if node_inputs else ():
        if isinstance(argument, TensorArgument):
            is_quantized = argument.dtype in QUANTIZED_BYTES
            filling = Filling.QUANTIZED if is_quantized else Filling.NORMAL
            gradients.append(replace(argument, filling=filling, below=None))
    inside_node = [other for other in inner if not _node_of(other.name)]
    return _checked(
        replace(
            call,
            kind=CallKind.BACKWARD,
            op=trace.name_of(forward_row),
            arguments=with_gradients(inputs.arguments),
            recorded=inputs.recorded,
            node=node,
            node_recorded=node_inputs.recorded if node_inputs else RecordedInputs(),
            gradients=tuple(gradients),
            remarks=(*inputs.remarks, Remark(RemarkKind.GRADIENTS)),
            inner=_inner_ops(trace, call.row, inside_node),
        )
    )


def _inputs_of_node(
    trace: Trace, row: int, node: str, inner: Sequence[InnerCall]
) -> ParsedInputs | None:
    """What was recorded of the inputs of a node; None if nothing was. The op of the
    engine has none, but that of the node inside it."""
    if trace.name_of(row) != node:
        for call in inner:
            if call.name == node:
                return call.inputs
        return None
    table = call_table(trace)
    try:
        return parsed_inputs(node, table.inputs_at(table.place_of(row)))
    except RefusedError:
        return None


def _recorded_of(trace: Trace, row: int, name: str) -> RecordedInputs:
    """What was recorded of the inputs of the op in a row; nothing if it cannot be
    used."""
    table = call_table(trace)
    try:
        return parsed_inputs(name, table.inputs_at(table.place_of(row))).recorded
    except RefusedError:
        return RecordedInputs()


def with_gradients(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """Arguments whose floating-point tensors need gradients."""
    new_arguments: list[Argument] = []
    for argument in arguments:
        if isinstance(argument, TensorArgument):
            new_arguments.append(_with_gradient(argument))
        elif isinstance(argument, TensorsArgument):
            tensors = [
                None if tensor is None else _with_gradient(tensor)
                for tensor in argument.tensors
            ]
            new_arguments.append(TensorsArgument(tuple(tensors)))
        else:
            new_arguments.append(argument)
    return tuple(new_arguments)


def _with_gradient(tensor: TensorArgument) -> TensorArgument:
    return replace(tensor, needs_grad=True) if tensor.dtype in FLOATS else tensor


@memo()
def _backward_of(trace: Trace) -> Backward:
    return backward_ops(trace)


def _has_backward(trace: Trace, row: int) -> bool:
    """Whether the op in a row, or one inside it, created a node that ran backward."""
    forward_rows = _backward_of(trace).forward_ops.rows
    first, end = np.searchsorted(forward_rows, (row, int(trace.end_row[row])))
    return bool(end > first)


def _is_in_place(op: str) -> bool:
    return op.endswith("_")


def _checked(call: Call) -> Call:
    """The call with the bytes of its inputs. Raises RefusedError if they are more than
    any machine has."""
    input_bytes = sum(bytes_of(tensor) for tensor in tensors_of(call.arguments))
    if input_bytes > MAX_INPUT_BYTES:
        raise RefusedError(Refusal.TOO_LARGE)
    return replace(call, input_bytes=input_bytes)


def _times_of(trace: Trace, rows: Rows) -> CallTimes:
    """The times of calls: of the GPU work inside them, if there is any, else of the
    CPU."""
    table = call_table(trace)
    places = np.searchsorted(table.rows, rows)
    gpu_ns = table.gpu_ns[places]
    on_gpu = bool(gpu_ns.any())
    ns = gpu_ns if on_gpu else table.cpu_ns[places]
    own_ns = table.own_gpu_ns if on_gpu else table.own_cpu_ns
    median = lower_median_index(ns)
    return CallTimes(
        row=int(rows[median]),
        calls=len(rows),
        total_ns=int(ns.sum()),
        own_ns=int(own_ns[places].sum()),
        median_ns=int(ns[median]),
        on_gpu=on_gpu,
    )


def _gpu_rows_of(trace: Trace, row: int) -> Rows:
    """The GPU events that an op, or one inside it, launched, in order of their
    launch."""
    entries = trace.launch_index.within(row, int(trace.end_row[row]))
    rows: Rows = trace.launch_index.rows[entries]
    return rows


def _kernels(trace: Trace, row: int) -> tuple[str, ...]:
    rows = _gpu_rows_of(trace, row)[:MAX_KERNELS]
    return tuple(trace.name_of(gpu_row) for gpu_row in rows.tolist())


def _inner_ops(
    trace: Trace, row: int, inner: Sequence[InnerCall]
) -> tuple[InnerOp, ...]:
    """The ops inside the call in a row, for a comparison; those without recorded
    shapes, and what is no op of torch, are left out."""
    table = call_table(trace)
    number_of_row: dict[int, int] = {}
    ops: list[InnerOp] = []
    for call in inner[:MAX_INNER_OPS]:
        dims_text = table.inputs_at(table.place_of(call.row))[0]
        if dims_text and OP_NAME.fullmatch(call.name):
            parent = _nearest(trace, call.row, row, number_of_row)
            number_of_row[call.row] = len(ops)
            dims = frozen_dims(parsed(dims_text))
            ops.append(InnerOp(call.name, dims, parent))
    return tuple(ops)


def _nearest(
    trace: Trace, row: int, call_row: int, number_of_row: Mapping[int, int]
) -> int:
    """The number of the innermost row around a row that has one; -1 if the call is
    reached first."""
    parent = int(trace.parent[row])
    while parent > call_row and parent not in number_of_row:
        parent = int(trace.parent[parent])
    return number_of_row.get(parent, -1)


def _cost(trace: Trace, row: int) -> Cost:
    """What a call computes: by its kernel that did the work, else by its inputs
    alone."""
    for gpu_row in _gpu_rows_of(trace, row).tolist():
        job = work_of(trace, gpu_row)
        if job is not None:
            return Cost(
                flop=job.amount.flop,
                bytes=job.amount.bytes,
                attainable_ns=job.attainable.least_ns,
            )
    inputs = inputs_of(trace.name_of(row), trace.args_of(row))
    kernel = None
    gpu_rows = _gpu_rows_of(trace, row)
    if len(gpu_rows) == 1:
        kernel = decode(trace.name_of(int(gpu_rows[0])))
    amount = None if inputs is None else amount_of(inputs, kernel)
    if amount is None:
        return Cost()
    return Cost(flop=amount.flop, bytes=amount.bytes)


def groups_of(table: CallTable, places: Rows) -> list[Rows]:
    """The rows of these places of the table, one array for each group, in no order."""
    order = np.argsort(table.group[places], kind="stable")
    places = places[order]
    _, first = np.unique(table.group[places], return_index=True)
    return [table.rows[group] for group in np.split(places, first[1:])]
