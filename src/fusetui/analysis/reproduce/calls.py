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
    collect_tensors,
    freeze_dims,
    parse_recorded_inputs,
    storage_bytes,
)
from fusetui.analysis.reproduce.call_table import CallTable, call_table
from fusetui.analysis.reproduce.collectives import COLLECTIVE_NAME, read_collective
from fusetui.analysis.reproduce.inner_ops import InnerCall, completed, list_inner_calls
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
from fusetui.analysis.reproduce.values import choose_fillings
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.inputs import inputs_of
from fusetui.gpu.roofline.row import compute_amount, find_device_properties, work_of
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


def describe_equal_calls(trace: Trace, rows: Rows) -> Call:
    """Describe the call that some equal ops have in common, so that it can be made
    again.

    Its times are those of all of these ops, including the ops inside them. If the call
    cannot be made again, the result has the reason instead of arguments.

    Args:
        trace: The trace.
        rows: The ops, which have the same name and inputs; at least one.
    """
    times = _summarize_times(trace, rows)
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
        device=name_executing_device(trace, times.row),
        kernels=_name_launched_kernels(trace, times.row),
    )
    if len(name) > MAX_NAME_CHARS:
        return replace(call, refusal=Refusal.NO_NAME)
    try:
        return _add_arguments(trace, call)
    except RefusedError as error:
        return replace(
            call,
            kind=CallKind.NONE,
            refusal=error.refusal,
            refused_position=error.position,
            refused_type=error.type_name,
        )


def describe_call_without_op(trace: Trace, rows: Rows) -> Call:
    """Describe GPU events of one name that no recorded op launched.

    The result says that this call cannot be made again from recorded inputs. Kernels
    with a name of compiled code are marked as such, since their code may be in a log.

    Args:
        trace: The trace.
        rows: The GPU events, at least one.
    """
    durations_ns = trace.dur[rows]
    median_row = int(rows[lower_median_index(durations_ns)])
    name = trace.name_of(median_row)
    return Call(
        kind=CallKind.COMPILED if COMPILED_NAME.match(name) else CallKind.NONE,
        op="",
        row=median_row,
        count=len(rows),
        total_ns=int(durations_ns.sum()),
        own_ns=int(durations_ns.sum()),
        median_ns=int(trace.dur[median_row]),
        on_gpu=True,
        device=_name_of_device(find_device_properties(trace, median_row)),
        kernels=(name,),
        refusal=Refusal.NO_OP,
    )


def name_executing_device(trace: Trace, row: int) -> str:
    """Return the name of the device that ran the GPU work of an op. Returns "" if the
    op launched none, and "GPU" if the trace does not name the device."""
    gpu_rows = _launched_gpu_rows(trace, row)
    if not len(gpu_rows):
        return ""
    return _name_of_device(find_device_properties(trace, int(gpu_rows[0]))) or "GPU"


def _name_of_device(properties: dict[str, Any]) -> str:
    """Return the name among the recorded properties of a device; "" if it has none."""
    name = properties.get("name")
    return name if isinstance(name, str) else ""


def _add_arguments(trace: Trace, call: Call) -> Call:
    """Add the arguments to a call, as its kind requires.

    A call is a collective, compiled code, a node of autograd (part of a backward pass),
    or an op of torch. Compiled code gets only what was recorded of its inputs.

    Raises:
        RefusedError: The call is none of these, or its arguments cannot be made.
    """
    name = call.op
    if COLLECTIVE_NAME.match(name):
        facts = read_collective(trace, call.row)
        return replace(call, kind=CallKind.COLLECTIVE, collective=facts)
    if COMPILED_NAME.match(name.removeprefix(ENGINE)):
        recorded = _read_recorded_inputs(trace, call.row, name)
        return replace(call, kind=CallKind.COMPILED, recorded=recorded)
    if _autograd_node_name(name):
        return _complete_backward_call(trace, call)
    if OP_NAME.fullmatch(name):
        return _complete_forward_call(trace, call)
    raise RefusedError(Refusal.NOT_AN_OP if name else Refusal.NO_NAME)


def _autograd_node_name(name: str) -> str:
    """Return the name of the node of autograd that an op runs, such as `MulBackward0`.
    Returns "" if it runs none. A prefix of the autograd engine is removed."""
    node = name.removeprefix(ENGINE)
    return node if NODE_NAME.fullmatch(node) else ""


class _Inputs(NamedTuple):
    """The arguments of the op in a row."""

    arguments: tuple[Argument, ...]
    recorded: RecordedInputs
    remarks: tuple[Remark, ...]
    inner: tuple[InnerCall, ...]


def _read_inputs(trace: Trace, row: int) -> _Inputs:
    """Read the inputs of the op in a row, completed by what the ops inside it show.

    Each tensor also gets the kind of values that it is filled with when the call is
    made again.

    Raises:
        RefusedError: The inputs cannot be made, or a list of tensors was too long
            to be recorded and nothing shows its tensors.
    """
    table = call_table(trace)
    op = trace.name_of(row)
    recorded_inputs = parse_recorded_inputs(op, table.inputs_at(table.place_of(row)))
    inner = list_inner_calls(trace, row)
    completed_inputs = completed(trace, row, op, recorded_inputs, inner)
    for position, argument in enumerate(completed_inputs.arguments):
        if isinstance(argument, UnrecordedListArgument):
            raise RefusedError(Refusal.LONG_LIST, position)
    filled_inputs = choose_fillings(op, completed_inputs.arguments)
    return _Inputs(
        arguments=filled_inputs.arguments,
        recorded=recorded_inputs.recorded,
        remarks=(*completed_inputs.remarks, *filled_inputs.remarks),
        inner=tuple(inner),
    )


def _complete_forward_call(trace: Trace, call: Call) -> Call:
    """Add the inputs, the inner ops and the amount of work to a call of an op.

    Its inputs need gradients if the trace shows that a backward pass was run for it. An
    in-place op gets none, since torch refuses to change such inputs.

    Raises:
        RefusedError: The inputs of the op cannot be made.
    """
    inputs = _read_inputs(trace, call.row)
    arguments = inputs.arguments
    remarks = inputs.remarks
    if _has_backward(trace, call.row) and not _is_in_place(call.op):
        arguments = require_gradients(arguments)
        remarks = (*remarks, Remark(RemarkKind.GRADIENTS))
    return _measure_inputs(
        replace(
            call,
            kind=CallKind.OP,
            arguments=arguments,
            recorded=inputs.recorded,
            remarks=remarks,
            inner=_describe_inner_ops(trace, call.row, inputs.inner),
            cost=_estimate_cost(trace, call.row),
        )
    )


def _complete_backward_call(trace: Trace, call: Call) -> Call:
    """Turn the call of a node of autograd into a call of the forward op that created
    it.

    Such a node, e.g. `MulBackward0`, can only be run after its forward op. The incoming
    gradients are the recorded tensors among the inputs of the node.

    Raises:
        RefusedError: The forward op is not known, or its inputs cannot be made.
    """
    node = _autograd_node_name(call.op)
    forward_row = int(_backward_ops_of_trace(trace).forward_of(np.array([call.row]))[0])
    if forward_row < 0 or not OP_NAME.fullmatch(trace.name_of(forward_row)):
        raise RefusedError(Refusal.NO_FORWARD)
    inputs = _read_inputs(trace, forward_row)
    inner = list_inner_calls(trace, call.row)
    node_inputs = _read_node_inputs(trace, call.row, node, inner)
    gradients = []
    for argument in node_inputs.arguments if node_inputs else ():
        if isinstance(argument, TensorArgument):
            is_quantized = argument.dtype in QUANTIZED_BYTES
            filling = Filling.QUANTIZED if is_quantized else Filling.NORMAL
            gradients.append(replace(argument, filling=filling, below=None))
    ops_inside_node = [other for other in inner if not _autograd_node_name(other.name)]
    return _measure_inputs(
        replace(
            call,
            kind=CallKind.BACKWARD,
            op=trace.name_of(forward_row),
            arguments=require_gradients(inputs.arguments),
            recorded=inputs.recorded,
            node=node,
            node_recorded=node_inputs.recorded if node_inputs else RecordedInputs(),
            gradients=tuple(gradients),
            remarks=(*inputs.remarks, Remark(RemarkKind.GRADIENTS)),
            inner=_describe_inner_ops(trace, call.row, ops_inside_node),
        )
    )


def _read_node_inputs(
    trace: Trace, row: int, node: str, inner: Sequence[InnerCall]
) -> ParsedInputs | None:
    """Return what was recorded of the inputs of a node of autograd; None if nothing
    usable was.

    The op of the autograd engine has no inputs itself: they are those of the node
    inside it.

    Args:
        trace: The trace.
        row: The op of the engine, or the node itself.
        node: The name of the node.
        inner: The ops inside that row.
    """
    if trace.name_of(row) != node:
        for call in inner:
            if call.name == node:
                return call.inputs
        return None
    table = call_table(trace)
    try:
        return parse_recorded_inputs(node, table.inputs_at(table.place_of(row)))
    except RefusedError:
        return None


def _read_recorded_inputs(trace: Trace, row: int, name: str) -> RecordedInputs:
    """Return what was recorded of the inputs of the op in a row. The result has no
    inputs if they cannot be used."""
    table = call_table(trace)
    try:
        return parse_recorded_inputs(
            name, table.inputs_at(table.place_of(row))
        ).recorded
    except RefusedError:
        return RecordedInputs()


def require_gradients(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """Return the arguments with all floating-point tensors, those in lists too, marked
    as needing gradients."""
    new_arguments: list[Argument] = []
    for argument in arguments:
        if isinstance(argument, TensorArgument):
            new_arguments.append(_require_gradient(argument))
        elif isinstance(argument, TensorsArgument):
            tensors = [
                None if tensor is None else _require_gradient(tensor)
                for tensor in argument.tensors
            ]
            new_arguments.append(TensorsArgument(tuple(tensors)))
        else:
            new_arguments.append(argument)
    return tuple(new_arguments)


def _require_gradient(tensor: TensorArgument) -> TensorArgument:
    """Return a tensor marked as needing a gradient. A tensor without a floating-point
    type is returned unchanged."""
    return replace(tensor, needs_grad=True) if tensor.dtype in FLOATS else tensor


@memo()
def _backward_ops_of_trace(trace: Trace) -> Backward:
    """Return the backward ops of a trace with the forward ops that created them. The
    result is kept for later calls."""
    return backward_ops(trace)


def _has_backward(trace: Trace, row: int) -> bool:
    """Return whether the op in a row, or an op inside it, created a node of autograd
    that ran in a backward pass."""
    forward_rows = _backward_ops_of_trace(trace).forward_ops.rows
    first, end = np.searchsorted(forward_rows, (row, int(trace.end_row[row])))
    return bool(end > first)


def _is_in_place(op: str) -> bool:
    return op.endswith("_")


def _measure_inputs(call: Call) -> Call:
    """Add to a call how many bytes its input tensors have together.

    Raises:
        RefusedError: They have more than MAX_INPUT_BYTES (1 TB), which no machine
            has.
    """
    input_bytes = sum(
        storage_bytes(tensor) for tensor in collect_tensors(call.arguments)
    )
    if input_bytes > MAX_INPUT_BYTES:
        raise RefusedError(Refusal.TOO_LARGE)
    return replace(call, input_bytes=input_bytes)


def _summarize_times(trace: Trace, rows: Rows) -> CallTimes:
    """Sum up the times of some calls, and find the call that took the median time.

    If the calls launched any GPU work, its time counts. Otherwise the CPU time of the
    ops does.

    Args:
        trace: The trace.
        rows: The ops of the calls, at least one.
    """
    table = call_table(trace)
    indices = np.searchsorted(table.rows, rows)
    gpu_ns = table.gpu_ns[indices]
    on_gpu = bool(gpu_ns.any())
    ns_per_call = gpu_ns if on_gpu else table.cpu_ns[indices]
    own_ns = table.own_gpu_ns if on_gpu else table.own_cpu_ns
    median_index = lower_median_index(ns_per_call)
    return CallTimes(
        row=int(rows[median_index]),
        calls=len(rows),
        total_ns=int(ns_per_call.sum()),
        own_ns=int(own_ns[indices].sum()),
        median_ns=int(ns_per_call[median_index]),
        on_gpu=on_gpu,
    )


def _launched_gpu_rows(trace: Trace, row: int) -> Rows:
    """Return the GPU events that an op, or an op inside it, launched. They are in the
    order of their launches."""
    entries = trace.launch_index.within(row, int(trace.end_row[row]))
    rows: Rows = trace.launch_index.rows[entries]
    return rows


def _name_launched_kernels(trace: Trace, row: int) -> tuple[str, ...]:
    """Return the names of the GPU events that an op launched, in the order of their
    launches; at most MAX_KERNELS."""
    rows = _launched_gpu_rows(trace, row)[:MAX_KERNELS]
    return tuple(trace.name_of(gpu_row) for gpu_row in rows.tolist())


def _describe_inner_ops(
    trace: Trace, row: int, inner: Sequence[InnerCall]
) -> tuple[InnerOp, ...]:
    """Describe the ops inside a call, for a comparison with those of the reproduced
    call.

    Ops without recorded shapes, and slices that are no op of torch, are left out. Of
    each op the result names the one around it by its index in the result.

    Args:
        trace: The trace.
        row: The op of the call.
        inner: The ops inside it; at most MAX_INNER_OPS are looked at.
    """
    table = call_table(trace)
    index_of_row: dict[int, int] = {}
    ops: list[InnerOp] = []
    for call in inner[:MAX_INNER_OPS]:
        dims_text = table.inputs_at(table.place_of(call.row))[0]
        if dims_text and OP_NAME.fullmatch(call.name):
            parent = _find_numbered_parent(trace, call.row, row, index_of_row)
            index_of_row[call.row] = len(ops)
            dims = freeze_dims(parsed(dims_text))
            ops.append(InnerOp(call.name, dims, parent))
    return tuple(ops)


def _find_numbered_parent(
    trace: Trace, row: int, call_row: int, number_of_row: Mapping[int, int]
) -> int:
    """Return the number of the innermost numbered op around a row.

    Returns -1 if there is none between the row and the call.

    Args:
        trace: The trace.
        row: The row to start from.
        call_row: The row of the call, where the search ends.
        number_of_row: The numbers of those rows that have one.
    """
    parent = int(trace.parent[row])
    while parent > call_row and parent not in number_of_row:
        parent = int(trace.parent[parent])
    return number_of_row.get(parent, -1)


def _estimate_cost(trace: Trace, row: int) -> Cost:
    """Estimate the FLOP and the bytes of a call, and its least time where a kernel
    tells it.

    The first kernel whose work is known decides. Without one, the inputs of the op
    decide. Then the FLOP and the bytes may be unknown, and the least time always is.
    """
    for gpu_row in _launched_gpu_rows(trace, row).tolist():
        job = work_of(trace, gpu_row)
        if job is not None:
            return Cost(
                flop=job.amount.flop,
                bytes=job.amount.bytes,
                attainable_ns=job.attainable.least_ns,
            )
    inputs = inputs_of(trace.name_of(row), trace.args_of(row))
    kernel = None
    gpu_rows = _launched_gpu_rows(trace, row)
    if len(gpu_rows) == 1:
        kernel = decode(trace.name_of(int(gpu_rows[0])))
    amount = None if inputs is None else compute_amount(inputs, kernel)
    if amount is None:
        return Cost()
    return Cost(flop=amount.flop, bytes=amount.bytes)


def group_rows(table: CallTable, places: Rows) -> list[Rows]:
    """Divide some ops into the groups of equal calls.

    Args:
        table: The calls of the trace.
        places: Indices in `table.rows`.

    Returns:
        The rows of each group, in no particular order.
    """
    by_group = np.argsort(table.group[places], kind="stable")
    places = places[by_group]
    _, first_of_group = np.unique(table.group[places], return_index=True)
    return [table.rows[group] for group in np.split(places, first_of_group[1:])]
