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
from fusetui.trace.model.grouping import grouped
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
    total_ns = int(durations_ns.sum())
    median_row = int(rows[lower_median_index(durations_ns)])
    name = trace.name_of(median_row)
    is_compiled = COMPILED_NAME.match(name) is not None
    return Call(
        kind=CallKind.COMPILED if is_compiled else CallKind.NONE,
        op="",
        row=median_row,
        count=len(rows),
        total_ns=total_ns,
        own_ns=total_ns,
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
    properties = find_device_properties(trace, int(gpu_rows[0]))
    return _name_of_device(properties) or "GPU"


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
        collective = read_collective(trace, call.row)
        return replace(call, kind=CallKind.COLLECTIVE, collective=collective)
    if COMPILED_NAME.match(name.removeprefix(ENGINE)):
        inputs = _parse_inputs_or_nothing(trace, call.row)
        return replace(call, kind=CallKind.COMPILED, recorded=inputs.recorded)
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
    op = trace.name_of(row)
    inner = list_inner_calls(trace, row)
    parsed_inputs = parse_recorded_inputs(op, call_table(trace).inputs_of(row))
    completed_inputs = completed(trace, row, op, parsed_inputs, inner)
    for position, argument in enumerate(completed_inputs.arguments):
        if isinstance(argument, UnrecordedListArgument):
            raise RefusedError(Refusal.LONG_LIST, position)

    filled_inputs = choose_fillings(op, completed_inputs.arguments)
    return _Inputs(
        arguments=filled_inputs.arguments,
        recorded=parsed_inputs.recorded,
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

    return replace(
        call,
        kind=CallKind.OP,
        arguments=arguments,
        input_bytes=_sum_input_bytes(arguments),
        recorded=inputs.recorded,
        remarks=remarks,
        inner=_describe_inner_ops(trace, call.row, inputs.inner),
        cost=_estimate_cost(trace, call.row),
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
    forward_row = _find_forward_op(trace, call.row)
    if forward_row is None:
        raise RefusedError(Refusal.NO_FORWARD)

    inputs = _read_inputs(trace, forward_row)
    arguments = require_gradients(inputs.arguments)

    inner = list_inner_calls(trace, call.row)
    node_inputs = _read_node_inputs(trace, call.row, node, inner)
    ops_inside_node = [other for other in inner if not _autograd_node_name(other.name)]
    return replace(
        call,
        kind=CallKind.BACKWARD,
        op=trace.name_of(forward_row),
        arguments=arguments,
        input_bytes=_sum_input_bytes(arguments),
        recorded=inputs.recorded,
        node=node,
        node_recorded=node_inputs.recorded,
        gradients=_make_incoming_gradients(node_inputs.arguments),
        remarks=(*inputs.remarks, Remark(RemarkKind.GRADIENTS)),
        inner=_describe_inner_ops(trace, call.row, ops_inside_node),
    )


def _find_forward_op(trace: Trace, row: int) -> int | None:
    """Return the row of the forward op that created the node of autograd in a row; None
    if it is not known, or is no op of torch."""
    (forward_row,) = _backward_ops_of_trace(trace).forward_of(np.array([row])).tolist()
    is_known = forward_row >= 0
    if is_known and OP_NAME.fullmatch(trace.name_of(forward_row)):
        return int(forward_row)
    return None


def _make_incoming_gradients(
    arguments: Sequence[Argument],
) -> tuple[TensorArgument, ...]:
    """Return the gradients with which a node of autograd is called: the tensors among
    its recorded arguments, filled with any numbers."""
    gradients = []
    for argument in arguments:
        if isinstance(argument, TensorArgument):
            is_quantized = argument.dtype in QUANTIZED_BYTES
            filling = Filling.QUANTIZED if is_quantized else Filling.NORMAL
            gradients.append(replace(argument, filling=filling, below=None))
    return tuple(gradients)


NO_INPUTS: Final = ParsedInputs(arguments=(), remarks=(), recorded=RecordedInputs())


def _read_node_inputs(
    trace: Trace, row: int, node: str, inner: Sequence[InnerCall]
) -> ParsedInputs:
    """Return what was recorded of the inputs of a node of autograd; NO_INPUTS if
    nothing usable was.

    The row is the node itself, or the op of the autograd engine around it, which has no
    inputs: they are those of the node among the ops inside it, `inner`.
    """
    if trace.name_of(row) == node:
        return _parse_inputs_or_nothing(trace, row)

    for call in inner:
        if call.name == node:
            return call.inputs or NO_INPUTS
    return NO_INPUTS


def _parse_inputs_or_nothing(trace: Trace, row: int) -> ParsedInputs:
    """Parse the recorded inputs of the op in a row; NO_INPUTS if they cannot be used."""
    try:
        return parse_recorded_inputs(
            trace.name_of(row), call_table(trace).inputs_of(row)
        )
    except RefusedError:
        return NO_INPUTS


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


def _sum_input_bytes(arguments: Sequence[Argument]) -> int:
    """Return how many bytes the tensors among some arguments have together.

    Raises:
        RefusedError: They have more than MAX_INPUT_BYTES (1 TB), which no machine
            has.
    """
    input_bytes = sum(storage_bytes(tensor) for tensor in collect_tensors(arguments))
    if input_bytes > MAX_INPUT_BYTES:
        raise RefusedError(Refusal.TOO_LARGE)
    return input_bytes


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
    on_gpu = bool(table.gpu_ns[indices].any())
    if on_gpu:
        call_ns = table.gpu_ns[indices]
        own_ns = table.own_gpu_ns[indices]
    else:
        call_ns = table.cpu_ns[indices]
        own_ns = table.own_cpu_ns[indices]

    median_call = lower_median_index(call_ns)
    return CallTimes(
        row=int(rows[median_call]),
        calls=len(rows),
        total_ns=int(call_ns.sum()),
        own_ns=int(own_ns.sum()),
        median_ns=int(call_ns[median_call]),
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
    ops: list[InnerOp] = []
    index_of_row: dict[int, int] = {}  # the index in `ops` of each op that is in it
    for call in inner[:MAX_INNER_OPS]:
        dims_text, _, _, _ = table.inputs_of(call.row)
        if not dims_text or not OP_NAME.fullmatch(call.name):
            continue

        op = InnerOp(
            name=call.name,
            dims=freeze_dims(parsed(dims_text)),
            parent=_find_op_around(trace, call.row, row, index_of_row),
        )
        index_of_row[call.row] = len(ops)
        ops.append(op)
    return tuple(ops)


def _find_op_around(
    trace: Trace, row: int, call_row: int, index_of_row: Mapping[int, int]
) -> int:
    """Return the index of the innermost op around a row that has one in `index_of_row`.

    Returns -1 if there is none between the row and that of the call around it.
    """
    # Slices around a row have smaller rows, so the search does not miss the call.
    parent = int(trace.parent[row])
    while parent > call_row and parent not in index_of_row:
        parent = int(trace.parent[parent])
    return index_of_row.get(parent, -1)


def _estimate_cost(trace: Trace, row: int) -> Cost:
    """Estimate the FLOP and the bytes of a call, and its least time where a kernel
    tells it.

    The first kernel whose work is known decides. Without one, the inputs of the op
    decide. Then the FLOP and the bytes may be unknown, and the least time always is.
    """
    gpu_rows = _launched_gpu_rows(trace, row).tolist()
    for gpu_row in gpu_rows:
        work = work_of(trace, gpu_row)
        if work is not None:
            return Cost(
                flop=work.amount.flop,
                bytes=work.amount.bytes,
                attainable_ns=work.attainable.least_ns,
            )

    inputs = inputs_of(trace.name_of(row), trace.args_of(row))
    if inputs is None:
        return Cost()

    # The name of a single kernel tells the types of its operands.
    kernel = decode(trace.name_of(gpu_rows[0])) if len(gpu_rows) == 1 else None
    amount = compute_amount(inputs, kernel)
    return Cost() if amount is None else Cost(flop=amount.flop, bytes=amount.bytes)


def group_rows(table: CallTable, indices: Rows) -> list[Rows]:
    """Divide some ops, given by their indices in `table.rows`, into groups of equal
    calls. Returns the rows of each group, in no particular order."""
    rows = table.rows[indices]
    groups = grouped(table.group[indices])
    return [rows[members] for members in groups.members_of_each()]
