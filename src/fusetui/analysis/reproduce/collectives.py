"""The details of a collective: from record_param_comms for NCCL, and otherwise from the
inputs of its op, because gloo records nothing else."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from fusetui.analysis.reproduce.arguments import (
    RefusedError,
    parsed_inputs,
    tensors_of,
)
from fusetui.analysis.reproduce.call_table import PARAM_COMMS, call_table
from fusetui.analysis.reproduce.inner_ops import inner_calls
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


def collective_facts(trace: Trace, row: int) -> CollectiveFacts:
    """What is known about the collective that an op is. Raises RefusedError if its size
    was not recorded, and if it moves no data."""
    args = _param_comms(trace, row)
    if not args:
        return _facts_of_op(trace, row)
    try:
        comms = msgspec.convert(args, _ParamComms)
    except msgspec.ValidationError:
        raise RefusedError(Refusal.DAMAGED) from None
    if comms.name in NO_COLLECTIVES:
        raise RefusedError(Refusal.NOT_AN_OP)
    return _checked(
        CollectiveFacts(
            name=comms.name,
            dtype=comms.dtype,
            in_elements=comms.in_elements,
            out_elements=comms.out_elements,
            ranks=comms.ranks,
        )
    )


def _param_comms(trace: Trace, row: int) -> dict[str, Any]:
    """The args of the record_param_comms that an op is, or that lies in it; {} if there
    is none."""
    if trace.name_of(row) == PARAM_COMMS:
        return trace.args_of(row)
    for call in inner_calls(trace, row):
        if call.name == PARAM_COMMS:
            return trace.args_of(call.row)
    return {}


def _facts_of_op(trace: Trace, row: int) -> CollectiveFacts:
    """By the inputs of an op such as c10d::allreduce_. Raises RefusedError."""
    op = trace.name_of(row)
    if not op.startswith(OP_PREFIX):
        raise RefusedError(Refusal.NO_INPUTS)
    table = call_table(trace)
    given = parsed_inputs(op, table.inputs_at(table.place_of(row))).arguments
    sizes = []
    dtype = ""
    for argument in given:
        tensors = tensors_of([argument])
        if tensors:
            sizes.append(sum(math.prod(tensor.shape) for tensor in tensors))
        if isinstance(argument, TensorArgument):
            dtype = SCALAR_TYPES.get(argument.dtype, "")
    name = op.removeprefix(OP_PREFIX).removesuffix("_")
    return _checked(
        CollectiveFacts(
            name=name,
            dtype=dtype,
            in_elements=_input_of(name, sizes),
            out_elements=sizes[0] if sizes else 0,
            ranks=_ranks(trace),
        )
    )


def _input_of(name: str, sizes: list[int]) -> int:
    """The elements of the input, of those of all tensors; 0 without tensors."""
    if not sizes:
        return 0
    return sizes[-1] if name in OUTPUT_FIRST else sizes[0]


def _ranks(trace: Trace) -> int:
    """The size of the job, as far as the trace says it."""
    info = trace.keys.get("distributedInfo")
    ranks = info.get("world_size") if isinstance(info, dict) else None
    return ranks if isinstance(ranks, int) and ranks > 0 else UNKNOWN_RANKS


def _checked(facts: CollectiveFacts) -> CollectiveFacts:
    """Raises RefusedError for sizes that no collective has."""
    if not facts.name or not 1 <= facts.ranks <= MAX_RANKS:
        raise RefusedError(Refusal.NO_INPUTS)
    for elements in (facts.in_elements, facts.out_elements):
        if elements < 0:
            raise RefusedError(Refusal.DAMAGED)
        if elements > MAX_ELEMENTS:
            raise RefusedError(Refusal.TOO_LARGE)
    return facts
