"""The details of a collective: from record_param_comms for NCCL, and otherwise from the
inputs of its op, because gloo records nothing else."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from fusetui.analysis.reproduce.arguments import (
    RefusedError,
    collect_tensors,
    parse_recorded_inputs,
)
from fusetui.analysis.reproduce.call_table import PARAM_COMMS, call_table
from fusetui.analysis.reproduce.inner_ops import list_inner_calls
from fusetui.analysis.reproduce.model import CollectiveFacts, Refusal, TensorArgument
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.columns import Trace

COLLECTIVE_NAME: Final = lazy_pattern(r"c10d::|_c10d_functional::|record_param_comms\Z")
OP_PREFIX: Final = "c10d::"

NO_COLLECTIVES: Final = ("wait", "init", "end")
"""Names in record_param_comms of what moves no data."""

OUTPUT_FIRST: Final = (
    "_allgather_base",
    "_reduce_scatter_base",
    "alltoall_base",
    "allgather",
    "reduce_scatter",
    "gather",
    "scatter",
)
"""Collectives whose op takes its output before its input."""

SCALAR_TYPES: Final = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int32": "Int",
    "int64": "Long",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}
"""How record_param_comms names element types, by torch's names in Python."""

UNKNOWN_RANKS: Final = 2
"""Where the number of ranks was not recorded."""

MAX_ELEMENTS: Final = 2**40
MAX_RANKS: Final = 2**20


class _ParamComms(msgspec.Struct):
    """Args of record_param_comms; their names have blanks."""

    name: str = msgspec.field(name="Collective name", default="")
    dtype: str = msgspec.field(name="dtype", default="")
    in_elements: int = msgspec.field(name="In msg nelems", default=0)
    out_elements: int = msgspec.field(name="Out msg nelems", default=0)
    ranks: int = msgspec.field(name="Group size", default=0)


def read_collective(trace: Trace, row: int) -> CollectiveFacts:
    """Return the name, element type and sizes of the collective that an op is.

    The args of record_param_comms decide if there are any, which is so for NCCL.
    Otherwise the inputs of the op do.

    Raises:
        RefusedError: The size was not recorded, the args are damaged, or the op
            moves no data, such as `wait`.
    """
    comms_args = _find_comms_args(trace, row)
    if not comms_args:
        return _infer_from_inputs(trace, row)
    try:
        comms = msgspec.convert(comms_args, _ParamComms)
    except msgspec.ValidationError:
        raise RefusedError(Refusal.DAMAGED) from None
    if comms.name in NO_COLLECTIVES:
        raise RefusedError(Refusal.NOT_AN_OP)
    return _check_sizes(
        CollectiveFacts(
            name=comms.name,
            dtype=comms.dtype,
            in_elements=comms.in_elements,
            out_elements=comms.out_elements,
            ranks=comms.ranks,
        )
    )


def _find_comms_args(trace: Trace, row: int) -> dict[str, Any]:
    """Return the args of the record_param_comms that an op is, or that lies inside it.
    Returns {} if there is none."""
    if trace.name_of(row) == PARAM_COMMS:
        return trace.args_of(row)
    for call in list_inner_calls(trace, row):
        if call.name == PARAM_COMMS:
            return trace.args_of(call.row)
    return {}


def _infer_from_inputs(trace: Trace, row: int) -> CollectiveFacts:
    """Infer the details of a collective from the inputs of its op, such as
    c10d::allreduce_.

    Raises:
        RefusedError: The op is not of c10d, or its inputs cannot be used.
    """
    op = trace.name_of(row)
    if not op.startswith(OP_PREFIX):
        raise RefusedError(Refusal.NO_INPUTS)
    table = call_table(trace)
    arguments = parse_recorded_inputs(
        op, table.inputs_at(table.place_of(row))
    ).arguments
    element_counts = []
    dtype = ""
    for argument in arguments:
        tensors = collect_tensors([argument])
        if tensors:
            element_counts.append(sum(math.prod(tensor.shape) for tensor in tensors))
        if isinstance(argument, TensorArgument):
            dtype = SCALAR_TYPES.get(argument.dtype, "")
    name = op.removeprefix(OP_PREFIX).removesuffix("_")
    return _check_sizes(
        CollectiveFacts(
            name=name,
            dtype=dtype,
            in_elements=_choose_input_size(name, element_counts),
            out_elements=element_counts[0] if element_counts else 0,
            ranks=_recorded_world_size(trace),
        )
    )


def _choose_input_size(name: str, sizes: list[int]) -> int:
    """Choose the number of elements of the input among the sizes of the arguments.

    Some collectives take their output before their input: there the last size counts,
    else the first.

    Args:
        name: The name of the collective.
        sizes: The number of elements of each argument with tensors. Without any,
            the result is 0.
    """
    if not sizes:
        return 0
    return sizes[-1] if name in OUTPUT_FIRST else sizes[0]


def _recorded_world_size(trace: Trace) -> int:
    """Return how many ranks the job has, as the trace records it; UNKNOWN_RANKS (2) if
    it does not."""
    info = trace.keys.get("distributedInfo")
    ranks = info.get("world_size") if isinstance(info, dict) else None
    return ranks if isinstance(ranks, int) and ranks > 0 else UNKNOWN_RANKS


def _check_sizes(facts: CollectiveFacts) -> CollectiveFacts:
    """Return the details of a collective unchanged if its sizes are possible.

    Raises:
        RefusedError: It has no name, or a number of ranks or elements that no
            collective has.
    """
    if not facts.name or not 1 <= facts.ranks <= MAX_RANKS:
        raise RefusedError(Refusal.NO_INPUTS)
    for elements in (facts.in_elements, facts.out_elements):
        if elements < 0:
            raise RefusedError(Refusal.DAMAGED)
        if elements > MAX_ELEMENTS:
            raise RefusedError(Refusal.TOO_LARGE)
    return facts
